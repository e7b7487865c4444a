package broker

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/replica"
)

// ListOffsets (2): versions 1–11.
//
//	v2 isolation level    v4 leader epochs        v5 OFFSET_NOT_AVAILABLE   v6 flexible
//	v7 -3 max timestamp   v8 -4 earliest local    v9 -5 latest tiered
//	v10 timeout (KIP-1075)                        v11 -6 earliest pending upload
//
// -3 looks at both tiers; Kafka 4.4 at the local log only (KAFKA-17552).
var apiListOffsets = api{key: 2, name: "ListOffsets", min: 1, max: 11, handle: typed((*Server).listOffsets)}

// specialTimestamps maps each to the first version that may ask for it.
var specialTimestamps = map[int64]int16{
	replica.TimeLatest: 1, replica.TimeEarliest: 1, replica.TimeMax: 7, replica.TimeEarliestLocal: 8,
	replica.TimeLatestTiered: 9, replica.TimeEarliestPendingUpload: 11,
}

// lookupsMax bounds the timestamp lookups that one request has under way: each may read the bucket.
const lookupsMax = 8

func (s *Server) listOffsets(r *request, q *kmsg.ListOffsetsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrListOffsetsResponse()
	wait := s.now().RemoteListWaitMax
	if q.TimeoutMillis > 0 {
		wait = time.Duration(q.TimeoutMillis) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(r.ctx, wait)
	defer cancel()
	twice := duplicateParts(q)
	var wg sync.WaitGroup
	slots := make(chan struct{}, lookupsMax)
	for i := range q.Topics {
		t := &q.Topics[i]
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, 0, len(t.Partitions))
		for j := range t.Partitions {
			part, key := &t.Partitions[j], partKey{name: t.Topic, index: t.Partitions[j].Partition}
			again, listed := twice[key]
			if !listed {
				continue // a duplicate that has its answer
			}
			rt.Partitions = append(rt.Partitions, kmsg.NewListOffsetsResponseTopicPartition())
			out := &rt.Partitions[len(rt.Partitions)-1]
			out.Partition = part.Partition
			out.Timestamp, out.Offset, out.LeaderEpoch = -1, -1, -1
			if again {
				out.ErrorCode = codeInvalidRequest
				delete(twice, key)
				continue
			}
			if part.Timestamp < 0 && part.Timestamp != replica.TimeMax && part.Timestamp != replica.TimeLatestTiered {
				s.listOffset(ctx, r, q, t.Topic, part, out) // never leaves this machine
				continue
			}
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				defer func() {
					if s.recovered(r, recover()) {
						out.ErrorCode = codeUnknownServerError
					}
				}()
				s.listOffset(ctx, r, q, t.Topic, part, out)
			})
		}
		if len(rt.Partitions) > 0 {
			resp.Topics = append(resp.Topics, rt)
		}
	}
	wg.Wait()
	return resp, nil
}

// duplicateParts maps every partition of the request to whether it is named more than once.
func duplicateParts(q *kmsg.ListOffsetsRequest) map[partKey]bool {
	seen := map[partKey]bool{}
	for i := range q.Topics {
		t := &q.Topics[i]
		for j := range t.Partitions {
			k := partKey{name: t.Topic, index: t.Partitions[j].Partition}
			_, again := seen[k]
			seen[k] = again
		}
	}
	return seen
}

func (s *Server) listOffset(ctx context.Context, r *request, q *kmsg.ListOffsetsRequest, name string,
	part *kmsg.ListOffsetsRequestTopicPartition, out *kmsg.ListOffsetsResponseTopicPartition) {
	if part.Timestamp < 0 {
		if first, ok := specialTimestamps[part.Timestamp]; !ok || r.version < first {
			out.ErrorCode = codeUnsupportedVersion
			return
		}
	}
	if q.IsolationLevel < replica.ReadUncommitted || q.IsolationLevel > replica.ReadCommitted {
		out.ErrorCode = codeInvalidRequest
		return
	}
	p, err := s.deps.Partitions.Partition(name, part.Partition)
	var found replica.TimeOffset
	if err == nil {
		epoch := part.CurrentLeaderEpoch
		if r.version < 4 {
			epoch = replica.NoEpoch
		}
		found, err = p.ListOffset(ctx, part.Timestamp, q.IsolationLevel, q.ReplicaID, epoch)
	}
	if err != nil {
		out.ErrorCode = s.codeOf(r, err)
		if out.ErrorCode == codeOffsetNotAvailable && r.version < 5 {
			out.ErrorCode = codeLeaderNotAvailable
		}
		return
	}
	out.Timestamp, out.Offset, out.LeaderEpoch = found.Timestamp, found.Offset, found.LeaderEpoch
}
