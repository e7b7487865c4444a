package conf

import (
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

// Listeners is the plan of what a node listens on and tells others.
type Listeners struct {
	// Client is the one listener for Kafka's protocol, which clients and other
	// brokers use, and what of it is told them.
	Client, ClientAdvertised Listener
	// Controller is the metadata quorum's listener and what other nodes are
	// told of it; nil in a node that has none.
	Controller, ControllerAdvertised *Listener
}

// Plan sorts the listeners by what they are for. The error says what cannot be
// served, and what to write instead.
func (b *Broker) Plan() (Listeners, error) {
	var p Listeners
	var err error
	if p.Client, p.Controller, err = b.sortListeners("listeners", b.Listeners); err != nil {
		return Listeners{}, err
	}
	if p.Client.Name == "" {
		return Listeners{}, contradiction("listeners=%s: no listener for clients: add PLAINTEXT://HOST:PORT", b.Listeners)
	}
	p.ClientAdvertised, p.ControllerAdvertised = p.Client, p.Controller
	if b.AdvertisedListeners == b.Listeners {
		return p, nil
	}
	client, controller, err := b.sortListeners("advertised.listeners", b.AdvertisedListeners)
	if err != nil {
		return Listeners{}, err
	}
	if client.Name != "" {
		p.ClientAdvertised = client
	}
	if controller != nil {
		if p.Controller == nil {
			return Listeners{}, contradiction("advertised.listeners=%s names %s, which listeners=%s does not have", b.AdvertisedListeners, controller.Name, b.Listeners)
		}
		p.ControllerAdvertised = controller
	}
	return p, nil
}

func (b *Broker) sortListeners(setting, text string) (client Listener, controller *Listener, err error) {
	list, err := parseListeners(setting, text)
	if err != nil {
		return Listener{}, nil, err
	}
	for _, l := range list {
		if slices.ContainsFunc(b.ControllerListenerNames, func(name string) bool { return strings.EqualFold(name, l.Name) }) {
			if controller != nil {
				return Listener{}, nil, contradiction("%s=%s: one listener of controller.listener.names is served: leave %s or %s out", setting, text, controller.Name, l.Name)
			}
			controller = &l
			continue
		}
		if protocol := b.protocolOf(l.Name); protocol != "PLAINTEXT" {
			return Listener{}, nil, contradiction("%s=%s: %s speaks %q (listener.security.protocol.map): PLAINTEXT listeners are served", setting, text, l.Name, protocol)
		}
		if client.Name != "" {
			return Listener{}, nil, contradiction("%s=%s: one listener for clients is served, besides that of controller.listener.names: leave %s or %s out", setting, text, client.Name, l.Name)
		}
		client = l
	}
	return client, controller, nil
}

// protocolOf is the security protocol that a listener's name stands for, or ""
// for a name that stands for none.
func (b *Broker) protocolOf(name string) string {
	for _, entry := range splitList(b.ListenerSecurityProtocolMap) {
		if n, protocol, ok := strings.Cut(entry, ":"); ok && strings.EqualFold(n, name) {
			return strings.ToUpper(protocol)
		}
	}
	return ""
}
