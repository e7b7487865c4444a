package broker

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
)

// Sets of operations as a bit field, when no authorizer says otherwise: every operation that the resource supports. Wire
// format: bit n stands for operation code n.
const (
	topicOperations   int32 = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	clusterOperations int32 = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
)

// brokers lists the brokers that clients of a listener may connect to, by id and with their addresses there; with fenced,
// those that are away too.
func (s *Server) brokers(img *meta.Image, listener string, fenced bool) []endpoint {
	list := make([]endpoint, 0, len(img.Brokers))
	for b := range maps.Values(img.Brokers) {
		host, port, ok := b.At(listener)
		if ok && (fenced || !b.Fenced) {
			list = append(list, endpoint{id: b.ID, host: host, port: port, rack: b.Rack, fenced: b.Fenced})
		}
	}
	slices.SortFunc(list, func(a, b endpoint) int { return cmp.Compare(a.id, b.id) })
	return list
}

// controllerID is the broker named to clients of a listener as controller. Any live broker will do: each forwards what the
// controller has to decide.
func (s *Server) controllerID(img *meta.Image, listener string) int32 {
	list := s.brokers(img, listener, false)
	for _, b := range list {
		if b.id == img.ControllerID {
			return b.id
		}
	}
	if len(list) > 0 {
		return list[0].id
	}
	return -1
}

// leaderOf names the leader of a partition for a client that asked the wrong broker, by topic name or, when that is empty,
// by id.
func (s *Server) leaderOf(name string, id topic.ID, index int32) leaderHint {
	if s.deps.Metadata == nil {
		return noLeader
	}
	img := s.deps.Metadata.Image()
	_, p := img.Partition(name, index)
	if name == "" {
		_, p = img.PartitionByID(id, index)
	}
	if p == nil {
		return noLeader
	}
	return leaderHint{p.Leader, p.LeaderEpoch}
}

// isBroker says whether id is a registered broker's.
func (s *Server) isBroker(id int32) bool {
	if id < 0 || s.deps.Metadata == nil {
		return false
	}
	_, ok := s.deps.Metadata.Image().Brokers[id]
	return ok
}

// addEndpoint adds a broker's address for clients of a listener, once.
func (s *Server) addEndpoint(nodes []endpoint, id int32, listener string) []endpoint {
	for _, n := range nodes {
		if n.id == id {
			return nodes
		}
	}
	b, ok := s.deps.Metadata.Image().Brokers[id]
	if !ok || b.Fenced {
		return nodes
	}
	host, port, ok := b.At(listener)
	if !ok {
		return nodes
	}
	return append(nodes, endpoint{id: b.ID, host: host, port: port, rack: b.Rack})
}

// optional is nil for "".
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// message is an error's text for a client; nil when there is none to tell.
func message(err error) *string {
	if err == nil {
		return nil
	}
	var refused *meta.Error
	if errors.As(err, &refused) && refused.Message == "" {
		return nil // Kafka says no more than the code here
	}
	return optional(err.Error())
}
