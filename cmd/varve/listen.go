package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/hashicorp/raft"

	"github.com/varvelog/varve/broker"
	"github.com/varvelog/varve/broker/secure"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/conf"
)

// entrance is one address at which the node serves Kafka's protocol.
type entrance struct {
	net.Listener
	door broker.Door
}

// listen takes the node's addresses. They are taken before anything else, so
// that a taken one, or keys that cannot be used, are said before any data is
// touched.
func (n *node) listen() error {
	plan, err := n.conf.Plan()
	if err != nil {
		return err
	}
	for i := range plan.Clients {
		if err := n.listenClients(&plan, i); err != nil {
			return err
		}
	}
	n.Kafka = n.entrances[0].Addr().String()
	if plan.Controller == nil {
		return nil
	}
	return n.listenController(plan.Controller)
}

func (n *node) listenClients(plan *conf.Listeners, i int) error {
	l, between := &plan.Clients[i], i == plan.Brokers
	keys, err := n.openKeys(l)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", l.Address())
	if err != nil {
		return fmt.Errorf("listen for Kafka clients: %w: stop what uses the address, or choose another with --listen or listeners", err)
	}
	n.onClose("listener", func(context.Context) error { return ignoreClosed(listener.Close()) })
	told, err := advertise(l.Listener, l.Advertised, listener.Addr())
	if err != nil {
		return err
	}
	// Whatever the brokers' own listener asks for, a network of its own may be what guards it.
	e := entrance{Listener: listener, door: broker.Door{
		Name: l.Name, ClientsOnly: !between, BrokersOnly: between && len(plan.Clients) > 1,
		Certificates: l.SSL != nil && l.SSL.ClientAuth == conf.ClientAuthRequired,
	}}
	p := meta.Endpoint{Name: l.Name, Host: told.Host, Port: int32(told.Port)}
	if keys != nil {
		e.door.TLS, p.Protocol = keys.Server(), meta.SSL
	}
	n.entrances, n.endpoints = append(n.entrances, e), append(n.endpoints, p)
	if between {
		n.host, n.port, n.between = p.Host, p.Port, l.Name
		last := len(n.endpoints) - 1
		n.endpoints[0], n.endpoints[last] = n.endpoints[last], n.endpoints[0] // it is named first
	}
	return nil
}

// openKeys reads what secures a listener; nil: nothing does.
func (n *node) openKeys(l *conf.Served) (*secure.Keys, error) {
	if l.SSL == nil {
		return nil, nil
	}
	keys, err := secure.Open(*l.SSL, n.log.With("room", "tls", "listener", l.Name))
	if err != nil {
		return nil, fmt.Errorf("listener %s: %w", l.Name, err)
	}
	if n.secured == nil {
		n.secured = map[string]*secure.Keys{}
	}
	n.secured[l.Name] = keys
	return keys, nil
}

// certificates is until when the certificate of each listener is good.
func (n *node) certificates() map[string]time.Time {
	all := map[string]time.Time{}
	for name, keys := range n.secured {
		all[name] = keys.Expires()
	}
	return all
}

func (n *node) listenController(l *conf.Served) error {
	keys, err := n.openKeys(l)
	if err != nil {
		return err
	}
	var over meta.TLS
	if keys != nil {
		over = meta.TLS{Serve: keys.Server(), Dial: keys.Dialer(n.log.With("room", "meta"))}
	}
	at, err := advertise(l.Listener, l.Advertised, nil)
	if err != nil {
		return err
	}
	n.transport, err = meta.ListenTLS(l.Address(), at.Address(), over, n.log.With("room", "meta"))
	if err != nil {
		return fmt.Errorf("listen for the other nodes: %w: stop what uses the address, or choose another %s://HOST:PORT in listeners", err, l.Name)
	}
	n.raftAt = string(n.transport.LocalAddr())
	n.onClose("controller listener", func(context.Context) error {
		if t, ok := n.transport.(raft.WithClose); ok {
			return t.Close()
		}
		return nil
	})
	return nil
}

// advertise is what others are told of a listener: what advertised.listeners
// says, else where it listens. As in Kafka a listener without a host advertises
// the name of this machine, and the addresses that mean "everywhere" are none
// to tell anybody. A port 0 is replaced by that of bound.
func advertise(l, advertised conf.Listener, bound net.Addr) (conf.Listener, error) {
	if advertised == l && l.Host == "" {
		name, err := os.Hostname()
		if err != nil {
			return conf.Listener{}, fmt.Errorf("find the name of this machine to advertise (or set advertised.listeners=%s://HOST:PORT): %w", l.Name, err)
		}
		advertised.Host = name
	}
	if advertised.Everywhere() {
		return conf.Listener{}, fmt.Errorf("listeners=%s listens everywhere, which is no address to reach: set advertised.listeners=%s://HOST:PORT to where others reach this node, as the example in the README does", l, l.Name)
	}
	if tcp, ok := bound.(*net.TCPAddr); ok && advertised.Port == 0 {
		advertised.Port = uint16(tcp.Port)
	}
	return advertised, nil
}
