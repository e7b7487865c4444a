package broker

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
)

// DescribeTopicPartitions (75): version 0 (KIP-966). Topics in order of their names, cut after a number of partitions; a
// cursor says where to go on.
var apiDescribeTopicPartitions = api{key: 75, name: "DescribeTopicPartitions", min: 0, max: 0, handle: typed((*Server).describeTopicPartitions)}

func (s *Server) describeTopicPartitions(r *request, q *kmsg.DescribeTopicPartitionsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeTopicPartitionsResponse()
	if q.Cursor != nil && q.Cursor.Partition < 0 {
		for i := range q.Topics {
			t := kmsg.NewDescribeTopicPartitionsResponseTopic()
			t.Topic, t.ErrorCode = &q.Topics[i].Topic, codeInvalidRequest
			resp.Topics = append(resp.Topics, t)
		}
		return resp, nil
	}
	img := s.deps.Metadata.Image()
	left := max(1, min(s.cfg.PartitionsRequestMax, int(q.ResponsePartitionLimit)))
	for _, name := range cursorTopics(img, q) {
		if left == 0 {
			resp.NextCursor = cursorAt(name, 0)
			return resp, nil
		}
		t := img.Topic(name)
		out := kmsg.NewDescribeTopicPartitionsResponseTopic()
		out.Topic, out.IsInternal, out.AuthorizedOperations = &name, topic.IsInternal(name), topicOperations
		if t == nil {
			if len(q.Topics) == 0 {
				continue // deleted meanwhile, and nobody asked for it by name
			}
			out.ErrorCode = codeUnknownTopicOrPartition
			if topic.ValidateName(name) != nil {
				out.ErrorCode = codeInvalidTopic
			}
			resp.Topics = append(resp.Topics, out)
			continue
		}
		out.TopicID = t.ID
		first := 0
		if q.Cursor != nil && q.Cursor.Topic == name {
			first = int(q.Cursor.Partition)
		}
		end := min(len(t.Partitions), first+left)
		for i := first; i < end; i++ {
			out.Partitions = append(out.Partitions, s.describePartition(r, img, t, int32(i)))
		}
		resp.Topics = append(resp.Topics, out)
		left -= len(out.Partitions)
		if end < len(t.Partitions) {
			resp.NextCursor = cursorAt(name, int32(end))
			return resp, nil
		}
	}
	return resp, nil
}

func cursorAt(name string, index int32) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	c.Topic, c.Partition = name, index
	return &c
}

// cursorTopics are the names to answer for, in order, from the cursor on. The cursor's own topic is among them even when it
// is gone, unless all topics are wanted.
func cursorTopics(img *meta.Image, q *kmsg.DescribeTopicPartitionsRequest) []string {
	from := ""
	if q.Cursor != nil {
		from = q.Cursor.Topic
	}
	var names []string
	if len(q.Topics) == 0 {
		for _, t := range img.Topics() {
			names = append(names, t.Name)
		}
	} else {
		for i := range q.Topics {
			names = append(names, q.Topics[i].Topic)
		}
		if q.Cursor != nil {
			names = append(names, from)
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	return slices.DeleteFunc(names, func(n string) bool { return n < from })
}

func (s *Server) describePartition(r *request, img *meta.Image, t *meta.Topic, index int32) kmsg.DescribeTopicPartitionsResponseTopicPartition {
	p := &t.Partitions[index]
	out := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
	out.Partition, out.LeaderEpoch, out.Replicas, out.ISR = index, p.LeaderEpoch, p.Replicas, p.ISR
	out.EligibleLeaderReplicas, out.LastKnownELR = notNil(p.ELR), notNil(p.LastKnownELR)
	out.OfflineReplicas = offlineReplicas(img, p)
	if out.LeaderID, out.ErrorCode = s.readyLeader(img, t.Name, index, p, r.c.door.Name); out.LeaderID < 0 {
		out.ErrorCode = codeLeaderNotAvailable
	}
	return out
}

// notNil makes an empty list of nil, where null would mean "not known".
func notNil(ids []int32) []int32 {
	if ids == nil {
		return []int32{}
	}
	return ids
}
