package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica/peer"
)

// AlterPartition (56): versions 2–3, between brokers.
//
//	v2 topic ids    v3 broker epochs in the in-sync set (KIP-903)
//
// A request of no partition may say by a tag of ours that data of deleted topics is gone (replica/peer/FORMAT.md).
var apiAlterPartition = api{key: 56, name: "AlterPartition", min: 2, max: 3, internal: true, handle: typed((*Server).alterPartition)}

func (s *Server) alterPartition(r *request, q *kmsg.AlterPartitionRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrAlterPartitionResponse()
	ctx, cancel := s.controllerContext(r)
	defer cancel()
	if q.UnknownTags.Len() > 0 && len(q.Topics) == 0 {
		resp.ErrorCode = s.controllerCode(r, s.confirmDeleted(ctx, q), &resp.UnknownTags)
		return resp, nil
	}
	altered, err := s.deps.Controlled.AlterPartitions(ctx, q.BrokerID, q.BrokerEpoch, decodeAlterPartitions(q))
	resp.ErrorCode = s.controllerCode(r, err, &resp.UnknownTags)
	for i := range altered {
		a := &altered[i]
		if n := len(resp.Topics); n == 0 || resp.Topics[n-1].TopidID != a.ID {
			t := kmsg.NewAlterPartitionResponseTopic()
			t.TopidID = a.ID
			resp.Topics = append(resp.Topics, t)
		}
		p := kmsg.NewAlterPartitionResponseTopicPartition()
		p.Partition = a.Index
		if p.ErrorCode = s.codeOf(r, a.Err); p.ErrorCode == codeNone {
			x := &a.Partition
			p.LeaderID, p.LeaderEpoch, p.ISR, p.PartitionEpoch = x.Leader, x.LeaderEpoch, x.ISR, x.PartitionEpoch
			p.LeaderRecoveryState = recoveryState(x.Recovering)
		}
		t := &resp.Topics[len(resp.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	return resp, nil
}

func (s *Server) confirmDeleted(ctx context.Context, q *kmsg.AlterPartitionRequest) error {
	for _, id := range peer.IDs(&q.UnknownTags, peer.TagFilesGone) {
		if err := s.deps.Controlled.ConfirmDeleted(ctx, topic.ID(id), q.BrokerID, false); err != nil {
			return err
		}
	}
	for _, id := range peer.IDs(&q.UnknownTags, peer.TagBucketClean) {
		if err := s.deps.Controlled.ConfirmDeleted(ctx, topic.ID(id), -1, true); err != nil {
			return err
		}
	}
	return nil
}

// recoveryState is Kafka's LeaderRecoveryState: 0 recovered, 1 recovering.
func recoveryState(recovering bool) int8 {
	if recovering {
		return 1
	}
	return 0
}

func encodeAlterPartitions(q *kmsg.AlterPartitionRequest, wishes []meta.AlterPartition) {
	at := map[topic.ID]int{}
	for i := range wishes {
		w := &wishes[i]
		k, ok := at[w.ID]
		if !ok {
			k = len(q.Topics)
			at[w.ID] = k
			t := kmsg.NewAlterPartitionRequestTopic()
			t.TopicID = w.ID
			q.Topics = append(q.Topics, t)
		}
		p := kmsg.NewAlterPartitionRequestTopicPartition()
		p.Partition, p.LeaderEpoch, p.PartitionEpoch, p.LeaderRecoveryState = w.Index, w.LeaderEpoch, w.PartitionEpoch, recoveryState(w.Recovering)
		for _, b := range w.ISR {
			p.NewISR = append(p.NewISR, b.ID)
			e := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
			e.BrokerID, e.BrokerEpoch = b.ID, b.Epoch
			p.NewEpochISR = append(p.NewEpochISR, e)
		}
		if len(w.Lossy) > 0 {
			peer.SetInt32s(&p.UnknownTags, peer.TagLossy, w.Lossy)
		}
		q.Topics[k].Partitions = append(q.Topics[k].Partitions, p)
	}
}

func decodeAlterPartitions(q *kmsg.AlterPartitionRequest) []meta.AlterPartition {
	var wishes []meta.AlterPartition
	for i := range q.Topics {
		t := &q.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			w := meta.AlterPartition{
				ID: topic.ID(t.TopicID), Index: p.Partition, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch,
				Recovering: p.LeaderRecoveryState == 1,
			}
			if q.Version < 3 {
				for _, id := range p.NewISR {
					w.ISR = append(w.ISR, meta.BrokerState{ID: id, Epoch: -1})
				}
			}
			for k := range p.NewEpochISR {
				w.ISR = append(w.ISR, meta.BrokerState{ID: p.NewEpochISR[k].BrokerID, Epoch: p.NewEpochISR[k].BrokerEpoch})
			}
			w.Lossy = peer.Int32s(&p.UnknownTags, peer.TagLossy)
			wishes = append(wishes, w)
		}
	}
	return wishes
}

// decodeAltered gives each wish its result. One that the answer leaves out has an outcome that nobody knows.
func decodeAltered(resp *kmsg.AlterPartitionResponse, wishes []meta.AlterPartition) []meta.AlteredPartition {
	type key struct {
		id    topic.ID
		index int32
	}
	found := map[key]*kmsg.AlterPartitionResponseTopicPartition{}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			found[key{topic.ID(resp.Topics[i].TopidID), p.Partition}] = p
		}
	}
	results := make([]meta.AlteredPartition, len(wishes))
	for i := range wishes {
		w, out := &wishes[i], &results[i]
		out.ID, out.Index = w.ID, w.Index
		p := found[key{w.ID, w.Index}]
		switch {
		case p == nil:
			out.Err = meta.ErrUnknownOutcome
		case p.ErrorCode != codeNone:
			out.Err = metaError(p.ErrorCode)
		default:
			out.Partition = meta.Partition{
				Leader: p.LeaderID, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, ISR: p.ISR, Recovering: p.LeaderRecoveryState == 1,
			}
		}
	}
	return results
}
