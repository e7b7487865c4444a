package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica"
)

func listRequest(version int16, name string, times map[int32]int64) *kmsg.ListOffsetsRequest {
	q := kmsg.NewPtrListOffsetsRequest()
	q.SetVersion(version)
	q.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = name
	for i := int32(0); i < 16; i++ {
		if ts, ok := times[i]; ok {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp = i, ts
			t.Partitions = append(t.Partitions, p)
		}
	}
	q.Topics = append(q.Topics, t)
	return q
}

func TestListOffsetsSpecialTimestampsNeedTheirVersion(t *testing.T) {
	s := startServer(t, nil)
	s.parts.add("events", 1)
	c := dial(t, s.addr)
	for v := int16(1); v <= 11; v++ {
		for ts := int64(-8); ts < 1; ts++ {
			got := c.ask(listRequest(v, "events", map[int32]int64{0: ts})).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
			first, special := specialTimestamps[ts]
			want := codeNone
			if ts < 0 && (!special || v < first) {
				want = codeUnsupportedVersion
			}
			if got.ErrorCode != want {
				t.Errorf("version %d, timestamp %d: code %d, want %d", v, ts, got.ErrorCode, want)
			}
			if want != 0 && (got.Offset != -1 || got.Timestamp != -1) {
				t.Errorf("an error carries no offset: %+v", got)
			}
		}
	}
}

func TestListOffsetsNamesDuplicatesInvalid(t *testing.T) {
	s := startServer(t, nil)
	s.parts.add("events", 2)
	q := listRequest(7, "events", map[int32]int64{0: -1, 1: -1})
	q.Topics = append(q.Topics, listRequest(7, "events", map[int32]int64{1: -2}).Topics...)
	resp := dial(t, s.addr).ask(q).(*kmsg.ListOffsetsResponse)
	got := map[int32]int16{}
	answers := 0
	for _, x := range resp.Topics {
		for _, p := range x.Partitions {
			got[p.Partition] = p.ErrorCode
			answers++
		}
	}
	if len(resp.Topics) != 1 || answers != 2 || got[0] != 0 || got[1] != codeInvalidRequest {
		t.Fatalf("%d answers %v for %d topics, want one for each partition, the second refused", answers, got, len(resp.Topics))
	}
}

func TestListOffsetsNotAvailableByVersion(t *testing.T) {
	s := startServer(t, nil)
	s.parts.add("events", 1)
	s.parts.byName["events"][0].err = replica.ErrOffsetNotAvailable
	c := dial(t, s.addr)
	for v, want := range map[int16]int16{4: codeLeaderNotAvailable, 5: codeOffsetNotAvailable, 11: codeOffsetNotAvailable} {
		got := c.ask(listRequest(v, "events", map[int32]int64{0: -1})).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		if got.ErrorCode != want {
			t.Errorf("version %d: code %d, want %d", v, got.ErrorCode, want)
		}
	}
}

func TestListOffsetsTimesOut(t *testing.T) {
	s := startServer(t, func(c *Config) { c.RemoteListWaitMax = time.Minute })
	s.parts.add("events", 1)
	s.parts.byName["events"][0].coldGate = make(chan struct{})
	q := listRequest(10, "events", map[int32]int64{0: 12345})
	q.TimeoutMillis = 20
	got := dial(t, s.addr).ask(q).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	if got.ErrorCode != codeRequestTimedOut {
		t.Fatalf("%+v", got)
	}
}

func TestListOffsetsLooksUpPartitionsConcurrently(t *testing.T) {
	s := startServer(t, nil)
	s.parts.add("events", 4)
	gate := make(chan struct{})
	times := map[int32]int64{}
	for i, p := range s.parts.byName["events"] {
		p.coldGate = gate
		times[int32(i)] = 5
	}
	c := dial(t, s.addr)
	q := listRequest(11, "events", times)
	corr := c.send(q)
	eventually(t, "all lookups are under way", func() bool {
		n := 0
		for _, p := range s.parts.byName["events"] {
			p.mu.Lock()
			n += p.coldReads
			p.mu.Unlock()
		}
		return n == 4
	})
	close(gate)
	c.response(q, corr)
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	s := startServer(t, nil)
	s.parts.add("events", 2)
	s.parts.byName["events"][0].append(t, "a")
	s.parts.byName["events"][1].err = replica.ErrFencedLeaderEpoch
	for v := int16(2); v <= 4; v++ {
		q := kmsg.NewPtrOffsetForLeaderEpochRequest()
		q.SetVersion(v)
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = "events"
		for _, x := range []struct{ part, epoch int32 }{{0, 1}, {0, 9}, {1, 1}, {7, 1}} {
			p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			p.Partition, p.LeaderEpoch = x.part, x.epoch
			rt.Partitions = append(rt.Partitions, p)
		}
		q.Topics = append(q.Topics, rt)
		ps := dial(t, s.addr).ask(q).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions
		if ps[0].LeaderEpoch != 1 || ps[0].EndOffset != 1 {
			t.Errorf("version %d, known epoch: %+v", v, ps[0])
		}
		if ps[1].ErrorCode != 0 || ps[1].LeaderEpoch != -1 || ps[1].EndOffset != -1 {
			t.Errorf("version %d, unknown epoch is no error: %+v", v, ps[1])
		}
		if ps[2].ErrorCode != codeFencedLeaderEpoch || ps[3].ErrorCode != codeUnknownTopicOrPartition {
			t.Errorf("version %d: %+v %+v", v, ps[2], ps[3])
		}
	}
}

func TestDeleteRecords(t *testing.T) {
	s := startServer(t, nil)
	s.parts.add("events", 2)
	s.parts.add(topic.ConsumerOffsets, 1)
	for _, p := range s.parts.byName["events"] {
		p.append(t, "a", "b", "c")
	}
	for v := int16(0); v <= 2; v++ {
		q := kmsg.NewPtrDeleteRecordsRequest()
		q.SetVersion(v)
		q.TimeoutMillis = 1000
		for _, x := range []struct {
			name   string
			part   int32
			offset int64
		}{{"events", 0, 2}, {"events", 1, -1}, {"events", 1, 99}, {"events", 9, 0}, {topic.ConsumerOffsets, 0, 0}} {
			rt := kmsg.NewDeleteRecordsRequestTopic()
			rt.Topic = x.name
			p := kmsg.NewDeleteRecordsRequestTopicPartition()
			p.Partition, p.Offset = x.part, x.offset
			rt.Partitions = append(rt.Partitions, p)
			q.Topics = append(q.Topics, rt)
		}
		var got []string
		for _, rt := range dial(t, s.addr).ask(q).(*kmsg.DeleteRecordsResponse).Topics {
			got = append(got, fmt.Sprint(rt.Partitions[0].LowWatermark, "/", rt.Partitions[0].ErrorCode))
		}
		if want := "[2/0 3/0 -1/1 -1/3 -1/17]"; fmt.Sprint(got) != want {
			t.Errorf("version %d: %v, want %s", v, got, want)
		}
	}
}

func TestDescribeProducers(t *testing.T) {
	s := startServer(t, nil)
	s.parts.add("events", 2)
	s.parts.byName["events"][1].err = replica.ErrNotLeader
	q := kmsg.NewPtrDescribeProducersRequest()
	rt := kmsg.NewDescribeProducersRequestTopic()
	rt.Topic, rt.Partitions = "events", []int32{0, 1, 2}
	q.Topics = append(q.Topics, rt)
	ps := dial(t, s.addr).ask(q).(*kmsg.DescribeProducersResponse).Topics[0].Partitions
	if len(ps[0].ActiveProducers) != 1 || ps[0].ActiveProducers[0].ProducerID != 7 {
		t.Errorf("%+v", ps[0])
	}
	if ps[1].ErrorCode != codeNotLeaderOrFollower || ps[2].ErrorCode != codeUnknownTopicOrPartition {
		t.Errorf("%+v %+v", ps[1], ps[2])
	}
}

func TestDescribeLogDirs(t *testing.T) {
	s := startServer(t, func(c *Config) { c.LogDir = "/var/lib/varve" })
	s.deps.DiskSpace = func() (uint64, uint64, error) { return 100, 40, nil }
	s.parts.add("b", 2)
	s.parts.add("a", 1)
	s.parts.byName["b"][1].append(t, "x")
	for v := int16(1); v <= 4; v++ {
		q := kmsg.NewPtrDescribeLogDirsRequest()
		q.SetVersion(v)
		d := dial(t, s.addr).ask(q).(*kmsg.DescribeLogDirsResponse).Dirs[0]
		if d.Dir != "/var/lib/varve" || len(d.Topics) != 2 || d.Topics[0].Topic != "a" || d.Topics[1].Partitions[1].Size == 0 {
			t.Errorf("version %d: %+v", v, d)
		}
		if v >= 4 && (d.TotalBytes != 100 || d.UsableBytes != 40) {
			t.Errorf("%+v", d)
		}
		rt := kmsg.NewDescribeLogDirsRequestTopic()
		rt.Topic, rt.Partitions = "b", []int32{1}
		q.Topics = append(q.Topics, rt)
		d = dial(t, s.addr).ask(q).(*kmsg.DescribeLogDirsResponse).Dirs[0]
		if len(d.Topics) != 1 || len(d.Topics[0].Partitions) != 1 || d.Topics[0].Partitions[0].Partition != 1 {
			t.Errorf("version %d, one partition: %+v", v, d)
		}
	}
}
