package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeProducers (61): version 0 (KIP-664). The producers a partition remembers, and their open transactions.
var apiDescribeProducers = api{key: 61, name: "DescribeProducers", min: 0, max: 0, handle: typed((*Server).describeProducers)}

func (s *Server) describeProducers(r *request, q *kmsg.DescribeProducersRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeProducersResponse()
	for i := range q.Topics {
		t := &q.Topics[i]
		rt := kmsg.NewDescribeProducersResponseTopic()
		rt.Topic = t.Topic
		for _, index := range t.Partitions {
			out := kmsg.NewDescribeProducersResponseTopicPartition()
			out.Partition = index
			p, err := s.deps.Partitions.Partition(t.Topic, index)
			var list []Producer
			if err == nil {
				list, err = p.Producers()
			}
			if err != nil {
				out.ErrorCode = s.codeOf(r, err)
				if s.deps.Metadata != nil && s.deps.Metadata.Image().Topic(t.Topic) == nil {
					out.ErrorMessage = kmsg.StringPtr("This server does not host this topic-partition.")
				}
			}
			for _, x := range list {
				a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
				a.ProducerID, a.ProducerEpoch, a.LastSequence = x.ID, x.Epoch, x.LastSequence
				a.LastTimestamp, a.CoordinatorEpoch, a.CurrentTxnStartOffset = x.LastTimestamp, x.CoordinatorEpoch, x.TxnStart
				out.ActiveProducers = append(out.ActiveProducers, a)
			}
			rt.Partitions = append(rt.Partitions, out)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}
