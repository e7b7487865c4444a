package conf

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Listener is one entry of listeners or advertised.listeners: NAME://HOST:PORT.
type Listener struct {
	Name string // in capitals
	Host string // "" for every address of the machine
	Port uint16 // 0 for any free one
}

// Address is HOST:PORT.
func (l Listener) Address() string { return net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port))) }

func (l Listener) String() string { return l.Name + "://" + l.Address() }

// Everywhere reports whether the host stands for every address of the machine,
// which is none to reach it by.
func (l Listener) Everywhere() bool {
	ip := net.ParseIP(l.Host)
	return l.Host == "" || ip != nil && ip.IsUnspecified()
}

// parseListeners reads the value of listeners or advertised.listeners. Names
// are unique; so are ports, unless they are 0.
func parseListeners(setting, text string) ([]Listener, error) {
	var list []Listener
	for _, entry := range splitList(text) {
		name, address, ok := strings.Cut(entry, "://")
		if !ok || name == "" {
			return nil, contradiction("%s: %q is not NAME://HOST:PORT, such as PLAINTEXT://127.0.0.1:9092", setting, entry)
		}
		host, portText, err := net.SplitHostPort(address)
		if err != nil {
			return nil, contradiction("%s: %q is not NAME://HOST:PORT: %v", setting, entry, err)
		}
		port, err := strconv.ParseUint(portText, 10, 16)
		if err != nil {
			return nil, contradiction("%s: %q: the port is a number from 0 to 65535", setting, entry)
		}
		l := Listener{Name: strings.ToUpper(name), Host: host, Port: uint16(port)}
		if slices.ContainsFunc(list, func(other Listener) bool { return other.Name == l.Name }) {
			return nil, contradiction("%s: %s is there twice", setting, l.Name)
		}
		list = append(list, l)
	}
	return list, nil
}

// Served is one listener of a node: where it listens, what others are told of
// it, and how it is secured.
type Served struct {
	Listener
	Advertised Listener
	SSL        *SSL // nil: plain text
}

// Listeners is the plan of what a node listens on and tells others.
type Listeners struct {
	// Clients are the listeners for Kafka's protocol, in the order in which they
	// were set. There is at least one.
	Clients []Served
	// Brokers is which of Clients other brokers use.
	Brokers int
	// Controller is the metadata quorum's listener; nil in a node that has none.
	Controller *Served
}

// Between is the listener that other brokers use.
func (l *Listeners) Between() *Served { return &l.Clients[l.Brokers] }

// Plan sorts the listeners by what they are for. The error says what cannot be
// served, and what to write instead.
func (b *Broker) Plan() (Listeners, error) {
	var p Listeners
	list, err := parseListeners("listeners", b.Listeners)
	if err != nil {
		return Listeners{}, err
	}
	told, err := parseListeners("advertised.listeners", b.AdvertisedListeners)
	if err != nil {
		return Listeners{}, err
	}
	for _, l := range list {
		s := Served{Listener: l, Advertised: l}
		if i := slices.IndexFunc(told, func(t Listener) bool { return t.Name == l.Name }); i >= 0 {
			s.Advertised = told[i]
		}
		if !b.isController(l.Name) {
			p.Clients = append(p.Clients, s)
			continue
		}
		if p.Controller != nil {
			return Listeners{}, contradiction("listeners=%s: one listener of controller.listener.names is served: leave %s or %s out", b.Listeners, p.Controller.Name, l.Name)
		}
		p.Controller = &s
	}
	for _, t := range told {
		if !slices.ContainsFunc(list, func(l Listener) bool { return l.Name == t.Name }) {
			return Listeners{}, contradiction("advertised.listeners=%s names %s, which listeners=%s does not have", b.AdvertisedListeners, t.Name, b.Listeners)
		}
	}
	if len(p.Clients) == 0 {
		return Listeners{}, contradiction("listeners=%s: no listener for clients: add PLAINTEXT://HOST:PORT", b.Listeners)
	}
	if p.Brokers, err = b.betweenBrokers(p.Clients); err != nil {
		return Listeners{}, err
	}
	if err := b.secure(&p); err != nil {
		return Listeners{}, err
	}
	return p, b.checkListenerSettings(list)
}

func (b *Broker) isController(name string) bool {
	return slices.ContainsFunc(b.ControllerListenerNames, func(c string) bool { return strings.EqualFold(c, name) })
}

// betweenBrokers is which listener brokers use among each other: the one that is
// named, the one that speaks security.inter.broker.protocol by name, or the only
// one.
func (b *Broker) betweenBrokers(clients []Served) (int, error) {
	name, named := b.given["inter.broker.listener.name"]
	protocol, chosen := b.given["security.inter.broker.protocol"]
	name, protocol = strings.ToUpper(strings.TrimSpace(name)), strings.TrimSpace(protocol)
	named = named && name != ""
	setting := "inter.broker.listener.name=" + name
	switch {
	case named && chosen:
		return 0, contradiction("only one of inter.broker.listener.name and security.inter.broker.protocol may be set")
	case chosen:
		name, setting = protocol, "security.inter.broker.protocol="+protocol
	case !named && len(clients) == 1:
		return 0, nil
	case !named:
		name, setting = "PLAINTEXT", "inter.broker.listener.name is not set, which stands for PLAINTEXT"
	}
	i := slices.IndexFunc(clients, func(s Served) bool { return s.Name == name })
	if i < 0 {
		var names []string
		for _, s := range clients {
			names = append(names, s.Name)
		}
		return 0, contradiction("%s: listeners=%s has no such listener for brokers: set inter.broker.listener.name to one of %s", setting, b.Listeners, strings.Join(names, ", "))
	}
	return i, nil
}

// secure finds out how each listener is secured.
func (b *Broker) secure(p *Listeners) error {
	any := false
	for i := range p.Clients {
		l := &p.Clients[i]
		ssl, err := b.protocolOf(l.Name)
		if err != nil {
			return err
		}
		if ssl {
			any = true
			s, err := b.SSL(l.Name)
			if err != nil {
				return err
			}
			l.SSL = &s
		}
	}
	l := p.Controller
	if l == nil {
		return nil
	}
	if b.mapped(l.Name) == "" {
		// Kafka adds CONTROLLER:PLAINTEXT to the map by itself, as long as nothing is secured.
		if any {
			return contradiction("listener.security.protocol.map does not say what %s speaks, and other listeners speak SSL: add %s:SSL to it (or %s:PLAINTEXT)", l.Name, l.Name, l.Name)
		}
		return nil
	}
	ssl, err := b.protocolOf(l.Name)
	if err != nil || !ssl {
		return err
	}
	s, err := b.SSL(l.Name)
	if err != nil {
		return err
	}
	if !s.HasTrust() {
		return contradiction("listener %s speaks SSL, and the nodes of a quorum always ask each other for certificates: set ssl.truststore.type=PEM and ssl.truststore.location to a PEM file with the authority's certificate", l.Name)
	}
	s.ClientAuth = ClientAuthRequired
	l.SSL = &s
	return nil
}

// protocolOf reports whether a listener speaks TLS.
func (b *Broker) protocolOf(name string) (ssl bool, err error) {
	switch protocol := b.mapped(name); protocol {
	case "PLAINTEXT":
		return false, nil
	case "SSL":
		return true, nil
	case "":
		return false, contradiction("listeners=%s: listener.security.protocol.map does not say what %s speaks: add %s:PLAINTEXT or %s:SSL to it", b.Listeners, name, name, name)
	default:
		return false, contradiction("listeners=%s: %s speaks %s (listener.security.protocol.map): PLAINTEXT and SSL are served", b.Listeners, name, protocol)
	}
}

// mapped is the security protocol that a listener's name stands for, or "" for a
// name that stands for none.
func (b *Broker) mapped(name string) string {
	for _, entry := range splitList(b.ListenerSecurityProtocolMap) {
		if n, protocol, ok := strings.Cut(entry, ":"); ok && strings.EqualFold(n, name) {
			return strings.ToUpper(protocol)
		}
	}
	return ""
}

// checkListenerSettings refuses settings of a listener that is not there: they
// would be ignored in silence.
func (b *Broker) checkListenerSettings(list []Listener) error {
	for _, name := range slices.Sorted(maps.Keys(b.given)) {
		l, _, ok := splitListenerSetting(name)
		if ok && !slices.ContainsFunc(list, func(x Listener) bool { return strings.ToLower(x.Name) == l }) {
			return contradiction("%s: listeners=%s has no listener %s", name, b.Listeners, strings.ToUpper(l))
		}
	}
	return nil
}
