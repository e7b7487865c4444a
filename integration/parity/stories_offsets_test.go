package parity

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func offsetStories() []story {
	return []story{
		{"list offsets in every version", listOffsetVersions},
		{"list offsets by time", listByTime},
		{"list offsets, odd requests", listOdd},
		{"offset for leader epoch", leaderEpochs},
		{"delete records", deleteRecords},
	}
}

func listRequest(topic string, partition int32, timestamp int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, timestamp, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// listOffset asks for one timestamp. A record's own timestamp differs from run
// to run, so what is written down is its distance to the run's clock.
func listOffset(s *session, step string, v int16, topic string, timestamp int64) {
	resp, _ := s.quiet(v, listRequest(topic, 0, timestamp)).(*kmsg.ListOffsetsResponse)
	label := fmt.Sprintf("%s v%d", step, v)
	if resp == nil {
		s.note(label, "connection closed")
		return
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			at := fmt.Sprint(p.Timestamp)
			if p.Timestamp > 0 {
				at = fmt.Sprintf("run%+d", p.Timestamp-recent)
			}
			s.note(label, "error %s offset %d epoch %d timestamp %s", errorName(p.ErrorCode), p.Offset, p.LeaderEpoch, at)
		}
	}
}

func listOffsetVersions(s *session) {
	filled(s, "lo", 1, 3)
	createTopic(s, "lo-empty", 1, nil)
	versions(1, 11, func(v int16) {
		for ts := int64(-1); ts >= -7; ts-- {
			listOffset(s, fmt.Sprint("special ", ts), v, "lo", ts)
			listOffset(s, fmt.Sprint("special of an empty log ", ts), v, "lo-empty", ts)
		}
		listOffset(s, "by time", v, "lo", recent)
		listOffset(s, "unknown topic", v, "lo-none", -1)
	})
}

func listByTime(s *session) {
	createTopic(s, "lt", 1, nil)
	for _, deltas := range [][]int64{{0, 500, 100}, {50, 50}, {900, 20, 901}, {-5000}} {
		b := batch()
		for _, d := range deltas {
			b.records = append(b.records, rec{d, []byte("k"), []byte("v")})
		}
		s.quiet(12, produceRequest(-1, "lt", [16]byte{}, 0, b.bytes()))
	}
	for _, d := range []int64{-100_000, -5000, -1, 0, 1, 50, 100, 101, 500, 501, 899, 900, 901, 902, 100_000} {
		listOffset(s, fmt.Sprintf("at %+d", d), 7, "lt", recent+d)
	}
	listOffset(s, "time 0", 7, "lt", 0)
	listOffset(s, "greatest timestamp", 7, "lt", -3)
}

func listOdd(s *session) {
	filled(s, "lodd", 1, 1)
	twice := listRequest("lodd", 0, -1)
	twice.Topics[0].Partitions = append(twice.Topics[0].Partitions, twice.Topics[0].Partitions[0])
	s.ask("the same partition twice", 7, twice)
	s.ask("unknown partition", 7, listRequest("lodd", 8, -1))
	req := listRequest("lodd", 0, -1)
	req.Topics[0].Partitions[0].CurrentLeaderEpoch = 40
	s.ask("epoch too new", 7, req)
	req = listRequest("lodd", 0, -1)
	req.Topics[0].Partitions[0].CurrentLeaderEpoch = 0
	s.ask("epoch as it is", 7, req)
	req = listRequest("lodd", 0, -1)
	req.IsolationLevel = 1
	s.ask("read committed", 7, req)
	req = listRequest("lodd", 0, -1)
	req.ReplicaID = 3
	s.ask("as a replica", 7, req)
	s.ask("far below", 7, listRequest("lodd", 0, -99))
	s.ask("the end of time", 7, listRequest("lodd", 0, 1<<63-1))
	s.ask("no topics", 7, func() kmsg.Request { r := kmsg.NewPtrListOffsetsRequest(); r.ReplicaID = -1; return r }())
	empty := listRequest("lodd", 0, -1)
	empty.Topics[0].Partitions = nil
	s.ask("no partitions", 7, empty)
	req = listRequest("lodd", 0, -1)
	req.IsolationLevel = 7
	s.ask("unknown isolation", 7, req)
	req = listRequest("lodd", 0, -2)
	req.ReplicaID = -2
	s.ask("as a debugging consumer", 7, req)
	req = listRequest("lodd", 0, -1)
	req.Topics[0].Partitions[0].CurrentLeaderEpoch = -7
	s.ask("negative epoch", 7, req)
	req = listRequest("lodd", 0, recent)
	req.TimeoutMillis = 5
	s.ask("a short time to answer in", 10, req)
	again := listRequest("lodd", 0, -1)
	again.Topics = append(again.Topics, listRequest("lodd", 0, -2).Topics...)
	s.ask("the same topic twice", 7, again)
}

func leaderEpochs(s *session) {
	filled(s, "ole", 1, 2)
	ask := func(step string, v int16, topic string, partition, current, epoch int32) {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.ReplicaID = -1
		t := kmsg.NewOffsetForLeaderEpochRequestTopic()
		t.Topic = topic
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = partition, current, epoch
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		s.ask(step, v, req)
	}
	versions(2, 4, func(v int16) {
		ask("the only epoch", v, "ole", 0, -1, 0)
		ask("a later epoch", v, "ole", 0, -1, 5)
		ask("no epoch", v, "ole", 0, -1, -1)
		ask("current as it is", v, "ole", 0, 0, 0)
		ask("current too new", v, "ole", 0, 7, 0)
		ask("unknown topic", v, "ole-none", 0, -1, 0)
		ask("unknown partition", v, "ole", 6, -1, 0)
	})
	ask("far below", 4, "ole", 0, -1, -5)
	ask("negative partition", 4, "ole", -1, -1, 0)
	none := kmsg.NewPtrOffsetForLeaderEpochRequest()
	none.ReplicaID = -1
	s.ask("no topics", 4, none)
}

func deleteRecords(s *session) {
	filled(s, "dr", 1, 5)
	createTopic(s, "dr-compact", 1, map[string]string{"cleanup.policy": "compact"})
	ask := func(step string, v int16, topic string, partition int32, offset int64) {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.TimeoutMillis = 10_000
		t := kmsg.NewDeleteRecordsRequestTopic()
		t.Topic = topic
		p := kmsg.NewDeleteRecordsRequestTopicPartition()
		p.Partition, p.Offset = partition, offset
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		s.ask(step, v, req)
	}
	versions(0, 2, func(v int16) {
		ask("to 2 and on", v, "dr", 0, 2+int64(v))
		ask("back", v, "dr", 0, 1)
		ask("past the end", v, "dr", 0, 99)
		ask("unknown topic", v, "dr-none", 0, 1)
		ask("unknown partition", v, "dr", 4, 1)
		ask("compacted topic", v, "dr-compact", 0, 0)
	})
	ask("minus two", 2, "dr", 0, -2)
	ask("negative partition", 2, "dr", -1, 1)
	none := kmsg.NewPtrDeleteRecordsRequest()
	none.TimeoutMillis = 1000
	s.ask("no topics", 2, none)
	createTopic(s, "dr-both", 1, map[string]string{"cleanup.policy": "compact,delete"})
	s.quiet(12, produceRequest(-1, "dr-both", [16]byte{}, 0, batch("a", "b", "c").bytes()))
	ask("compacted and deleted topic", 2, "dr-both", 0, 2)
	ask("inside its batch", 2, "dr-both", 0, 2)
	fetchOne(s, "from inside the batch", 12, "dr-both", 2)
	fetchOne(s, "below it", 12, "dr-both", 1)
	createTopic(s, "dr-empty", 1, nil)
	ask("empty log", 2, "dr-empty", 0, 0)
	ask("empty log, all", 2, "dr-empty", 0, -1)
	ask("empty log, one", 2, "dr-empty", 0, 1)
	fetchOne(s, "below the start", 12, "dr", 0)
	fetchOne(s, "inside the first batch left", 12, "dr", 4)
	listOffset(s, "earliest", 7, "dr", -2)
	listOffset(s, "by time, below the start", 7, "dr", recent)
	ask("to the high watermark", 2, "dr", 0, -1)
	listOffset(s, "earliest after all", 7, "dr", -2)
	fetchOne(s, "at the end", 12, "dr", 10)
}
