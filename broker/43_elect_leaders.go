package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// ElectLeaders (43): versions 0–2.
//
//	v1 election type (KIP-460): 0 preferred, 1 unclean    v2 flexible
//
// Null topics mean every partition; those that need no election are then left out, and their topics are named empty.
var apiElectLeaders = api{key: 43, name: "ElectLeaders", min: 0, max: 2, forwarded: true, handle: typed((*Server).electLeaders)}

const (
	electPreferred int8 = 0
	electUnclean   int8 = 1
)

func (s *Server) electLeaders(r *request, q *kmsg.ElectLeadersRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrElectLeadersResponse()
	ctx, cancel := s.metadataContext(r, q.TimeoutMillis)
	defer cancel()
	refs := electionRefs(q)
	results, err := []meta.ElectionResult(nil), error(nil)
	if r.version >= 1 && q.ElectionType != electPreferred && q.ElectionType != electUnclean {
		err = withMessage(meta.ErrInvalidRequest, "Unknown election type %d", q.ElectionType)
	} else {
		results, err = s.decider(r).ElectLeaders(ctx, r.version >= 1 && q.ElectionType == electUnclean, refs)
	}
	if err != nil {
		resp.ErrorCode = s.codeOf(r, err)
		for _, ref := range refs {
			results = append(results, meta.ElectionResult{PartitionRef: ref, Err: err})
		}
	}
	if q.Topics == nil && err == nil {
		for _, t := range s.deps.Metadata.Image().Topics() {
			electionTopic(resp, t.Name)
		}
	}
	for i := range results {
		x := &results[i]
		p := kmsg.NewElectLeadersResponseTopicPartition()
		p.Partition, p.ErrorCode, p.ErrorMessage = x.Index, s.codeOf(r, x.Err), message(x.Err)
		t := electionTopic(resp, x.Topic)
		t.Partitions = append(t.Partitions, p)
	}
	return resp, nil
}

// electionRefs are the partitions that a request names; nil means all.
func electionRefs(q *kmsg.ElectLeadersRequest) []meta.PartitionRef {
	if q.Topics == nil {
		return nil
	}
	refs := []meta.PartitionRef{}
	for i := range q.Topics {
		for _, index := range q.Topics[i].Partitions {
			refs = append(refs, meta.PartitionRef{Topic: q.Topics[i].Topic, Index: index})
		}
	}
	return refs
}

// electionTopic is a topic's place in the answer. Results come in runs of one topic.
func electionTopic(resp *kmsg.ElectLeadersResponse, name string) *kmsg.ElectLeadersResponseTopic {
	for i := len(resp.Topics) - 1; i >= 0; i-- {
		if resp.Topics[i].Topic == name {
			return &resp.Topics[i]
		}
	}
	t := kmsg.NewElectLeadersResponseTopic()
	t.Topic = name
	resp.Topics = append(resp.Topics, t)
	return &resp.Topics[len(resp.Topics)-1]
}
