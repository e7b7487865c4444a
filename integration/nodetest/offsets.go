package nodetest

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Special timestamps of ListOffsets (KIP-79, KIP-405, KIP-1005).
const (
	Latest     = -1
	Earliest   = -2
	LocalStart = -4
	LastTiered = -5
)

// OffsetAt asks the broker for one timestamp, special or real, of a partition.
func OffsetAt(ctx context.Context, cl *kgo.Client, topic string, partition int32, timestamp int64) (int64, int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = partition, timestamp, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, 0, err
	}
	p := resp.Topics[0].Partitions[0]
	return p.Offset, p.Timestamp, kerr.ErrorForCode(p.ErrorCode)
}
