package broker

import (
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica/peer"
)

// BrokerRegistration (62): versions 0–4, between brokers.
//
//	v1 migration from ZooKeeper, which is not served    v2 log directories    v3 previous epoch (KIP-966)
//	v4 features with a minimum of 0
var apiBrokerRegistration = api{key: 62, name: "BrokerRegistration", min: 0, max: 4, internal: true, handle: typed((*Server).brokerRegistration)}

func (s *Server) brokerRegistration(r *request, q *kmsg.BrokerRegistrationRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrBrokerRegistrationResponse()
	resp.BrokerEpoch = -1
	if q.IsMigratingZkBroker || len(q.Listeners) == 0 {
		resp.ErrorCode = codeInvalidRequest
		return resp, nil
	}
	ctx, cancel := s.controllerContext(r)
	defer cancel()
	b, err := s.deps.Controlled.RegisterBroker(ctx, decodeRegistration(q))
	var stale *meta.StaleRegistration
	switch {
	case err == nil:
		resp.BrokerEpoch = b.Epoch
	case errors.As(err, &stale):
		resp.BrokerEpoch = stale.Epoch // what the broker has to name
	}
	resp.ErrorCode = s.controllerCode(r, err, &resp.UnknownTags)
	return resp, nil
}

func encodeRegistration(q *kmsg.BrokerRegistrationRequest, r meta.Registration) {
	q.BrokerID, q.ClusterID, q.IncarnationID, q.Rack = r.ID, r.ClusterID, r.Incarnation, optional(r.Rack)
	// The listener for brokers comes first: the release before this one knows no other.
	q.Listeners = []kmsg.BrokerRegistrationRequestListener{{Name: listenerPlain, Host: r.Host, Port: uint16(r.Port)}}
	if len(r.Endpoints) > 0 {
		q.Listeners = q.Listeners[:0]
	}
	for _, e := range r.Endpoints {
		q.Listeners = append(q.Listeners, kmsg.BrokerRegistrationRequestListener{Name: e.Name, Host: e.Host, Port: uint16(e.Port), SecurityProtocol: int16(e.Protocol)})
	}
	if host, port, ok := splitAddress(r.RaftAddress); ok {
		q.Listeners = append(q.Listeners, kmsg.BrokerRegistrationRequestListener{Name: listenerController, Host: host, Port: port})
	}
	q.PreviousBrokerEpoch = r.PreviousEpoch // 0, which is no epoch: nothing is said of it
	for _, name := range slices.Sorted(maps.Keys(r.Features)) {
		q.Features = append(q.Features, kmsg.BrokerRegistrationRequestFeature{Name: name, MinSupportedVersion: r.Features[name].Min, MaxSupportedVersion: r.Features[name].Max})
	}
	if !r.Directory.IsZero() {
		q.LogDirs = [][16]byte{r.Directory}
	}
	flags := uint8(0)
	for bit, set := range map[uint8]bool{
		peer.RegistrationServes: !r.Fenced, peer.RegistrationMayLackRecords: r.MayLackRecords, peer.RegistrationWantsVote: r.WantVote,
	} {
		if set {
			flags |= bit
		}
	}
	q.UnknownTags.Set(peer.TagRegistration, []byte{flags})
	if r.Replaces != 0 {
		peer.SetInt64(&q.UnknownTags, peer.TagReplaces, r.Replaces)
	}
}

// splitAddress takes the address of raft's transport apart; ok is false for "".
func splitAddress(address string) (host string, port uint16, ok bool) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, false
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return host, uint16(n), err == nil
}

func decodeRegistration(q *kmsg.BrokerRegistrationRequest) meta.Registration {
	r := meta.Registration{ID: q.BrokerID, ClusterID: q.ClusterID, Incarnation: topic.ID(q.IncarnationID), Fenced: true}
	if q.Rack != nil {
		r.Rack = *q.Rack
	}
	for i := range q.Listeners {
		l := &q.Listeners[i]
		if l.Name == listenerController {
			r.RaftAddress = peer.Address(l.Host, int32(l.Port))
			continue
		}
		if len(r.Endpoints) == 0 {
			r.Host, r.Port = l.Host, int32(l.Port)
		}
		r.Endpoints = append(r.Endpoints, meta.Endpoint{Name: l.Name, Host: l.Host, Port: int32(l.Port), Protocol: meta.SecurityProtocol(l.SecurityProtocol)})
	}
	r.PreviousEpoch = q.PreviousBrokerEpoch
	for _, f := range q.Features {
		if r.Features == nil {
			r.Features = make(map[string]meta.FeatureRange, len(q.Features))
		}
		r.Features[f.Name] = meta.FeatureRange{Min: f.MinSupportedVersion, Max: f.MaxSupportedVersion}
	}
	if len(q.LogDirs) > 0 {
		r.Directory = topic.ID(q.LogDirs[0])
	}
	if b, ok := peer.Raw(&q.UnknownTags, peer.TagRegistration); ok && len(b) == 1 {
		r.Fenced = b[0]&peer.RegistrationServes == 0
		r.MayLackRecords = b[0]&peer.RegistrationMayLackRecords != 0
		r.WantVote = b[0]&peer.RegistrationWantsVote != 0
	}
	r.Replaces, _ = peer.Int64(&q.UnknownTags, peer.TagReplaces) // 0: nothing is said of it
	return r
}
