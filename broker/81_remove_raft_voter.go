package broker

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// RemoveRaftVoter (81): version 0 (KIP-853). The node goes on receiving the log, without a vote.
var apiRemoveRaftVoter = api{key: 81, name: "RemoveRaftVoter", min: 0, max: 0, forwarded: true, handle: typed((*Server).removeRaftVoter)}

func (s *Server) removeRaftVoter(r *request, q *kmsg.RemoveRaftVoterRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrRemoveRaftVoterResponse()
	ctx, cancel := context.WithTimeout(r.ctx, s.cfg.RequestsTime)
	defer cancel()
	quorum, err := s.quorumOf(r, q.ClusterID)
	if err == nil {
		err = s.removeVoter(ctx, r, quorum, q)
	}
	resp.ErrorCode, resp.ErrorMessage = s.codeOf(r, err), message(err)
	return resp, nil
}

func (s *Server) removeVoter(ctx context.Context, r *request, quorum meta.Quorum, q *kmsg.RemoveRaftVoterRequest) error {
	at := slices.IndexFunc(quorum.Voters, func(m meta.QuorumMember) bool { return m.NodeID == q.VoterID })
	switch {
	case at < 0:
		return withMessage(errVoterNotFound, "Cannot remove voter %d because it is not in the set of voters.", q.VoterID)
	case q.VoterDirectoryID != [16]byte{} && !quorum.Voters[at].Directory.IsZero() && quorum.Voters[at].Directory != q.VoterDirectoryID:
		return withMessage(errVoterNotFound, "Cannot remove voter %d: its directory is another.", q.VoterID)
	case len(quorum.Voters) == 1:
		return withMessage(meta.ErrInvalidRequest, "Cannot remove voter %d: it is the last one.", q.VoterID)
	}
	return s.decider(r).RemoveVoter(ctx, q.VoterID)
}
