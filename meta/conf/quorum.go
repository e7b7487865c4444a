package conf

import (
	"net"
	"slices"
	"strconv"
	"strings"
)

// Voter is one entry of controller.quorum.voters: ID@HOST:PORT.
type Voter struct {
	ID      int32
	Address string // of its controller listener
}

func parseVoters(entries []string) ([]Voter, error) {
	var list []Voter
	for _, entry := range entries {
		idText, address, ok := strings.Cut(entry, "@")
		id, err := strconv.ParseInt(idText, 10, 32)
		if !ok || err != nil || id < 0 {
			return nil, contradiction("controller.quorum.voters: %q is not ID@HOST:PORT, such as 1@broker1.example.com:9093", entry)
		}
		if err := checkReachable(address); err != nil {
			return nil, contradiction("controller.quorum.voters: %q: %v", entry, err)
		}
		if slices.ContainsFunc(list, func(v Voter) bool { return v.ID == int32(id) }) {
			return nil, contradiction("controller.quorum.voters: node %d is there twice", id)
		}
		list = append(list, Voter{ID: int32(id), Address: address})
	}
	if len(list) > maxVoters {
		return nil, contradiction("controller.quorum.voters names %d nodes: up to %d vote, the others join with controller.quorum.bootstrap.servers", len(list), maxVoters)
	}
	return list, nil
}

// maxVoters bounds the quorum: every change waits for the majority of it.
const maxVoters = 5

// checkReachable refuses what is no address of one node.
func checkReachable(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil || n == 0:
		return contradiction("the port is a number from 1 to 65535")
	case Listener{Host: host}.Everywhere():
		return contradiction("the host is missing")
	}
	return nil
}

// checkQuorum refuses settings with which the node could not take part in a cluster.
func (b *Broker) checkQuorum() error {
	var err error
	if b.QuorumVoters, err = parseVoters(b.ControllerQuorumVoters); err != nil {
		return err
	}
	for _, address := range b.ControllerQuorumBootstrapServers {
		if err := checkReachable(address); err != nil {
			return contradiction("controller.quorum.bootstrap.servers: %q is not HOST:PORT of a running broker: %v", address, err)
		}
	}
	if !b.Clustered() {
		return nil
	}
	_, node := b.given["node.id"]
	_, broker := b.given["broker.id"]
	if !node && !broker {
		return contradiction("node.id is not set: every node of a cluster needs one of its own")
	}
	plan, err := b.Plan()
	if err != nil {
		return err
	}
	if plan.Controller == nil {
		return contradiction("listeners=%s has no listener of controller.listener.names, over which the nodes of a cluster agree: add CONTROLLER://HOST:PORT", b.Listeners)
	}
	if len(b.QuorumVoters) > 0 && !b.Votes() && len(b.ControllerQuorumBootstrapServers) == 0 {
		return contradiction("node %d is none of controller.quorum.voters=%s: to join the cluster, name running brokers in controller.quorum.bootstrap.servers (--join HOST:PORT)",
			b.NodeID, strings.Join(b.ControllerQuorumVoters, ","))
	}
	return nil
}

// Clustered reports whether the settings make the node one of several.
func (b *Broker) Clustered() bool {
	return len(b.QuorumVoters) > 1 || len(b.QuorumVoters) == 1 && !b.Votes() || len(b.ControllerQuorumBootstrapServers) > 0
}

// Votes reports whether controller.quorum.voters names this node.
func (b *Broker) Votes() bool {
	return slices.ContainsFunc(b.QuorumVoters, func(v Voter) bool { return v.ID == b.NodeID })
}

// InternalReplicas is how many replicas an internal topic gets by the setting
// name, such as offsets.topic.replication.factor, in a cluster of that many
// registered brokers. A value that was given stands. Kafka's default of 3 is
// more than a small cluster has brokers, so it stands only where there are, or
// by controller.quorum.voters will be, as many.
func (b *Broker) InternalReplicas(name string, registered int) int16 {
	text, _, given, _ := b.Value(name)
	n, err := strconv.ParseInt(text, 10, 16)
	if err != nil {
		return 1 // not reached: settings are checked when they are parsed
	}
	if given {
		return int16(n)
	}
	return int16(min(int(n), max(1, registered, len(b.QuorumVoters))))
}

// InternalMinISR is the least in-sync replicas of an internal topic with that
// many replicas, by the setting name, such as transaction.state.log.min.isr. A
// value that was given stands; Kafka's default of 2 is more than one replica
// can be.
func (b *Broker) InternalMinISR(name string, replicas int16) int32 {
	text, _, given, _ := b.Value(name)
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 1 // not reached: settings are checked when they are parsed
	}
	if given {
		return int32(n)
	}
	return min(int32(n), int32(replicas))
}
