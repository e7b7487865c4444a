package broker

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/replica/peer"
)

// AddRaftVoter (80): versions 0–1 (KIP-853). The node is one that receives the log already, or one that listens at the
// address given for the controller listener.
//
// The answer always comes when the change is committed; v1 may ask for one before that, which is an optimisation.
var apiAddRaftVoter = api{key: 80, name: "AddRaftVoter", min: 0, max: 1, forwarded: true, handle: typed((*Server).addRaftVoter)}

func (s *Server) addRaftVoter(r *request, q *kmsg.AddRaftVoterRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrAddRaftVoterResponse()
	ctx, cancel := s.metadataContext(r, q.TimeoutMillis)
	defer cancel()
	err := s.addVoter(ctx, r, q)
	resp.ErrorCode, resp.ErrorMessage = s.codeOf(r, err), message(err)
	return resp, nil
}

func (s *Server) addVoter(ctx context.Context, r *request, q *kmsg.AddRaftVoterRequest) error {
	quorum, err := s.quorumOf(r, q.ClusterID)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(quorum.Voters, func(m meta.QuorumMember) bool { return m.NodeID == q.VoterID }) {
		return withMessage(errDuplicateVoter, "The voter id for %d is already part of the set of voters.", q.VoterID)
	}
	address := ""
	for _, m := range quorum.Observers {
		if m.NodeID == q.VoterID {
			address = m.Address
		}
	}
	for i := range q.Listeners {
		if l := &q.Listeners[i]; l.Name == listenerController {
			address = peer.Address(l.Host, int32(l.Port))
		}
	}
	if address == "" {
		return withMessage(meta.ErrInvalidRequest, "Add voter request didn't include the default listener: %s", listenerController)
	}
	return s.decider(r).AddVoter(ctx, q.VoterID, address)
}

// quorumOf describes the quorum for a change of its voters, which may name the cluster it is meant for.
func (s *Server) quorumOf(r *request, cluster *string) (meta.Quorum, error) {
	quorum, err := s.decider(r).Quorum()
	if err != nil {
		return quorum, err
	}
	if id := s.deps.Metadata.Image().ClusterID; cluster != nil && *cluster != id {
		return quorum, withMessage(meta.ErrInconsistentCluster, "The clusterId in the request does not match that found on the server")
	}
	return quorum, nil
}
