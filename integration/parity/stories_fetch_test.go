package parity

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func fetchStories() []story {
	return []story{
		{"fetch in every version", fetchVersions},
		{"fetch, odd requests", fetchOdd},
		{"fetch limits", fetchLimits},
		{"fetch sessions", fetchSessions},
		{"fetch epochs", fetchEpochs},
	}
}

// want is one partition of a fetch.
type want struct {
	topic     string
	id        [16]byte
	partition int32
	offset    int64
	maxBytes  int32
	epoch     int32 // current leader epoch; 0 is taken as none unless set by epochSet
	lastEpoch int32
}

func fetchRequest(parts ...want) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 0, 1, 1<<20
	req.ReplicaID, req.SessionEpoch = -1, -1
	for _, w := range parts {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != w.topic || req.Topics[n-1].TopicID != w.id {
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = w.topic, w.id
			req.Topics = append(req.Topics, t)
		}
		t := &req.Topics[len(req.Topics)-1]
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = w.partition, w.offset, 1<<20
		p.CurrentLeaderEpoch, p.LastFetchedEpoch, p.LogStartOffset = -1, -1, -1
		if w.maxBytes != 0 {
			p.PartitionMaxBytes = w.maxBytes
		}
		if w.epoch != 0 {
			p.CurrentLeaderEpoch = w.epoch
		}
		if w.lastEpoch != 0 {
			p.LastFetchedEpoch = w.lastEpoch
		}
		t.Partitions = append(t.Partitions, p)
	}
	return req
}

func fetchOne(s *session, step string, v int16, topic string, offset int64) {
	s.ask(step, v, fetchRequest(want{topic: topic, offset: offset}))
}

// filled makes a topic of n batches of two records.
func filled(s *session, topic string, partitions int32, n int) [16]byte {
	id := createTopic(s, topic, partitions, nil)
	for i := range n {
		for p := range partitions {
			s.quiet(12, produceRequest(-1, topic, id, p, batch(fmt.Sprint("a", i), strings.Repeat("b", 100)).bytes()))
		}
	}
	return id
}

func fetchVersions(s *session) {
	id := filled(s, "fetch", 1, 3)
	versions(4, 18, func(v int16) {
		w := want{topic: "fetch", id: id}
		s.ask("from 0", v, fetchRequest(w))
		w.offset = 3
		s.ask("inside a batch", v, fetchRequest(w))
		w.offset = 6
		s.ask("at the end", v, fetchRequest(w))
		w.offset = 7
		s.ask("past the end", v, fetchRequest(w))
		w.offset = -1
		s.ask("before the start", v, fetchRequest(w))
		s.ask("unknown partition", v, fetchRequest(want{topic: "fetch", id: id, partition: 3}))
		s.ask("unknown topic", v, fetchRequest(want{topic: "fetch-none", id: [16]byte{4}}))
		req := fetchRequest(want{topic: "fetch", id: id})
		req.IsolationLevel = 1
		s.ask("read committed", v, req)
	})
}

func fetchOdd(s *session) {
	id := filled(s, "fodd", 2, 1)
	s.ask("no topics", 12, fetchRequest())
	s.ask("the same partition twice", 12, fetchRequest(want{topic: "fodd"}, want{topic: "fodd"}))
	s.ask("zero id", 13, fetchRequest(want{}))
	req := fetchRequest(want{topic: "fodd"})
	req.IsolationLevel = 7
	s.ask("unknown isolation", 12, req)
	req = fetchRequest(want{topic: "fodd"})
	req.MaxBytes = -1
	s.ask("negative max bytes", 12, req)
	req = fetchRequest(want{topic: "fodd"})
	req.MinBytes = 1 << 30
	s.ask("min bytes above max bytes, no wait", 12, req)
	req = fetchRequest(want{topic: "fodd", offset: 2})
	req.MaxWaitMillis = 50
	s.ask("short wait at the end", 12, req)
	req = fetchRequest(want{topic: "fodd", id: id})
	req.ReplicaID = 7
	s.ask("as an unknown replica", 12, req)
	req = fetchRequest(want{topic: "fodd"})
	req.Rack = "r1"
	s.ask("with a rack", 12, req)
}

func fetchLimits(s *session) {
	filled(s, "flim", 2, 4)
	for _, n := range []int32{-5, 0, 1, 200, 400, 500, 1000} {
		w := want{topic: "flim", maxBytes: n}
		if n == 0 {
			req := fetchRequest(w)
			req.Topics[0].Partitions[0].PartitionMaxBytes = 0
			s.ask("partition limit 0", 12, req)
			continue
		}
		s.ask(fmt.Sprint("partition limit ", n), 12, fetchRequest(w))
	}
	for _, n := range []int32{0, 1, 200, 400, 900, 1500} {
		req := fetchRequest(want{topic: "flim"}, want{topic: "flim", partition: 1})
		req.MaxBytes = n
		s.ask(fmt.Sprint("request limit ", n), 12, req)
	}
	req := fetchRequest(want{topic: "flim", offset: 8}, want{topic: "flim", partition: 1})
	req.MaxBytes = 1
	s.ask("first partition is empty", 12, req)
}

func fetchSessions(s *session) {
	id := filled(s, "sess", 2, 1)
	open := func(v int16) int32 {
		req := fetchRequest(want{topic: "sess", id: id}, want{topic: "sess", id: id, partition: 1})
		req.SessionEpoch = 0
		resp, _ := s.ask("open", v, req).(*kmsg.FetchResponse)
		if resp == nil {
			return 0
		}
		return resp.SessionID
	}
	step := func(name string, v int16, session, epoch int32, forget []int32, parts ...want) {
		req := fetchRequest(parts...)
		req.SessionID, req.SessionEpoch = session, epoch
		if forget != nil {
			f := kmsg.NewFetchRequestForgottenTopic()
			f.Topic, f.TopicID, f.Partitions = "sess", id, forget
			req.ForgottenTopics = append(req.ForgottenTopics, f)
		}
		s.ask(name, v, req)
	}
	for _, v := range []int16{7, 12, 13, 18} {
		sid := open(v)
		step("both moved to the end", v, sid, 1, nil, want{topic: "sess", id: id, offset: 2}, want{topic: "sess", id: id, partition: 1, offset: 2})
		step("nothing new", v, sid, 2, nil)
		s.quiet(12, produceRequest(-1, "sess", id, 1, batch("new").bytes()))
		step("one has news", v, sid, 3, nil)
		step("wrong epoch", v, sid, 9, nil)
		step("the right epoch after that", v, sid, 4, nil)
		step("forget one", v, sid, 5, []int32{1})
		step("unknown partition joins", v, sid, 6, nil, want{topic: "sess", id: id, partition: 9})
		step("and stays", v, sid, 7, nil)
		step("forget all", v, sid, 8, []int32{0, 9})
		step("after all is forgotten", v, sid, 9, nil)
		step("unknown session", v, 99, 5, nil)
		sid = open(v)
		step("close", v, sid, -1, nil)
		step("after close", v, sid, 1, nil)
	}
}

func fetchEpochs(s *session) {
	id := filled(s, "epo", 1, 2)
	for _, v := range []int16{9, 12, 18} {
		s.ask("epoch too new", v, fetchRequest(want{topic: "epo", id: id, epoch: 50}))
		req := fetchRequest(want{topic: "epo", id: id})
		req.Topics[0].Partitions[0].CurrentLeaderEpoch = 0
		s.ask("epoch as it is", v, req)
		if v < 12 {
			continue
		}
		req = fetchRequest(want{topic: "epo", id: id, offset: 2})
		req.Topics[0].Partitions[0].LastFetchedEpoch = 0
		s.ask("last fetched epoch as it is", v, req)
		s.ask("last fetched epoch too new", v, fetchRequest(want{topic: "epo", id: id, offset: 2, lastEpoch: 9}))
	}
}
