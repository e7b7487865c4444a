package main

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/hashicorp/raft"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/conf"
)

// listen takes the node's addresses. They are taken before anything else, so
// that a taken one is said before any data is touched.
func (n *node) listen() (net.Listener, error) {
	plan, err := n.conf.Plan()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", plan.Client.Address())
	if err != nil {
		return nil, fmt.Errorf("listen for Kafka clients: %w: stop what uses the address, or choose another with --listen or listeners", err)
	}
	n.onClose("listener", func(context.Context) error { return ignoreClosed(l.Close()) })
	n.Kafka = l.Addr().String()
	told, err := advertise(plan.Client, plan.ClientAdvertised, l.Addr())
	if err != nil {
		return nil, err
	}
	n.host, n.port = told.Host, int32(told.Port)
	if plan.Controller == nil {
		return l, nil
	}
	at, err := advertise(*plan.Controller, *plan.ControllerAdvertised, nil)
	if err != nil {
		return nil, err
	}
	n.transport, err = meta.Listen(plan.Controller.Address(), at.Address(), n.log.With("room", "meta"))
	if err != nil {
		return nil, fmt.Errorf("listen for the other nodes: %w: stop what uses the address, or choose another %s://HOST:PORT in listeners", err, plan.Controller.Name)
	}
	n.raftAt = string(n.transport.LocalAddr())
	n.onClose("controller listener", func(context.Context) error {
		if t, ok := n.transport.(raft.WithClose); ok {
			return t.Close()
		}
		return nil
	})
	return l, nil
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
