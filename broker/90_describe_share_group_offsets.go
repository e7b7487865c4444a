package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/replica"
)

// DescribeShareGroupOffsets (90): versions 0–1 (KIP-932).
//
//	v1 how many records a share-partition has yet to deliver (KIP-1226)
var apiDescribeShareOffsets = api{key: 90, name: "DescribeShareGroupOffsets", min: 0, max: 1, handle: typed((*Server).describeShareOffsets)}

func (s *Server) describeShareOffsets(r *request, q *kmsg.DescribeShareGroupOffsetsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeShareGroupOffsetsResponse()
	for i := range q.Groups {
		g := kmsg.NewDescribeShareGroupOffsetsResponseGroup()
		g.GroupID = q.Groups[i].GroupID
		if err := s.describeShareGroup(r, &q.Groups[i], &g); err != nil {
			g.ErrorCode, g.ErrorMessage = s.codeOf(r, err), refusal(err)
		}
		resp.Groups = append(resp.Groups, g)
	}
	return resp, nil
}

// describeShareGroup describes the partitions asked for; of all topics when none is named.
func (s *Server) describeShareGroup(r *request, q *kmsg.DescribeShareGroupOffsetsRequestGroup, out *kmsg.DescribeShareGroupOffsetsResponseGroup) error {
	img := s.deps.Metadata.Image()
	var keys []coordinator.ShareKey
	var unknown []kmsg.DescribeShareGroupOffsetsResponseGroupTopic
	if q.Topics == nil {
		all, err := s.deps.Groups.SharePartitions(r.ctx, q.GroupID)
		if err != nil {
			return err
		}
		keys = all
	}
	for _, t := range q.Topics {
		known := img.Topic(t.Topic)
		if known == nil {
			none := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopic()
			none.Topic = t.Topic
			for _, p := range t.Partitions {
				x := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopicPartition()
				x.Partition, x.StartOffset = p, coordinator.NoOffset
				none.Partitions = append(none.Partitions, x)
			}
			unknown = append(unknown, none)
			continue
		}
		for _, p := range t.Partitions {
			keys = append(keys, coordinator.ShareKey{Group: q.GroupID, Topic: known.ID, Partition: p})
		}
	}
	sums := s.deps.Groups.ShareSummaries(r.ctx, keys)
	answers := make([]kmsg.DescribeShareGroupOffsetsResponseGroupTopicPartition, len(keys))
	abreast(len(keys), func(i int) { answers[i] = s.describeShare(r, img, keys[i], &sums[i]) })
	for i, k := range keys {
		n := len(out.Topics)
		if n == 0 || out.Topics[n-1].TopicID != k.Topic {
			t := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopic()
			t.TopicID = k.Topic
			if known := img.TopicByID(k.Topic); known != nil {
				t.Topic = known.Name
			}
			out.Topics = append(out.Topics, t)
			n++
		}
		out.Topics[n-1].Partitions = append(out.Topics[n-1].Partitions, answers[i])
	}
	out.Topics = append(out.Topics, unknown...)
	return nil
}

func (s *Server) describeShare(r *request, img *meta.Image, k coordinator.ShareKey, sum *coordinator.ShareSummary) kmsg.DescribeShareGroupOffsetsResponseGroupTopicPartition {
	x := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopicPartition()
	x.Partition, x.Lag = k.Partition, -1
	if sum.Err != nil {
		x.StartOffset = coordinator.NoOffset
		return x
	}
	x.StartOffset, x.LeaderEpoch = sum.Start, sum.LeaderEpoch
	if r.version < 1 || sum.Start == coordinator.NoOffset || sum.DeliveryCompleteCount == coordinator.NoDeliveryCount {
		return x
	}
	end, err := s.endOffset(r.ctx, img, k)
	if err != nil {
		x.StartOffset, x.LeaderEpoch = 0, 0
		x.ErrorCode, x.ErrorMessage = s.codeOf(r, err), refusal(err)
		return x
	}
	x.Lag = end - sum.Start - int64(sum.DeliveryCompleteCount)
	return x
}

// latestOffset asks ListOffsets for the end that consumers see.
const latestOffset int64 = -1

// endOffset asks the leader of a partition for its high watermark.
func (s *Server) endOffset(ctx context.Context, img *meta.Image, k coordinator.ShareKey) (int64, error) {
	t := img.TopicByID(k.Topic)
	if t == nil || int(k.Partition) >= len(t.Partitions) {
		return 0, meta.ErrUnknownTopic
	}
	leader := t.Partitions[k.Partition].Leader
	if leader == s.cfg.NodeID {
		p, err := s.deps.Partitions.Partition(t.Name, k.Partition)
		if err != nil {
			return 0, err
		}
		o, err := p.ListOffset(ctx, latestOffset, 0, -1, -1)
		return o.Offset, err
	}
	if s.deps.Brokers == nil || leader == meta.NoLeader {
		return 0, errNoBroker
	}
	q := kmsg.NewPtrListOffsetsRequest()
	q.Version, q.ReplicaID = 7, -1
	qt := kmsg.NewListOffsetsRequestTopic()
	qt.Topic = t.Name
	qp := kmsg.NewListOffsetsRequestTopicPartition()
	qp.Partition, qp.Timestamp = k.Partition, latestOffset
	qt.Partitions = append(qt.Partitions, qp)
	q.Topics = append(q.Topics, qt)
	resp, err := s.deps.Brokers.Ask(ctx, leader, q)
	if err != nil {
		return 0, err
	}
	a, ok := resp.(*kmsg.ListOffsetsResponse)
	if !ok || len(a.Topics) != 1 || len(a.Topics[0].Partitions) != 1 {
		return 0, errBadRequest
	}
	switch p := a.Topics[0].Partitions[0]; p.ErrorCode {
	case codeNone:
		return p.Offset, nil
	case codeUnknownTopicOrPartition:
		return 0, replica.ErrUnknownPartition
	default:
		return 0, replica.ErrNotLeader // or not yet: asking again is right
	}
}
