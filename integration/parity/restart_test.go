package parity

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/integration/nodetest"
)

// restartStory is a story with a restart of the broker in its middle: run does
// what comes before and returns what comes after.
type restartStory struct {
	name string
	run  func(s *session) (after func())
}

func restartStories() []restartStory {
	return []restartStory{
		{"restart, leader epochs", epochsOverRestart},
		{"restart, idempotent producers", producersOverRestart},
		{"restart, settings", settingsOverRestart},
		{"restart, log start", logStartOverRestart},
		{"restart, fetch sessions", sessionsOverRestart},
		{"restart, groups", groupsOverRestart},
	}
}

// againstRestarted runs the stories' first halves against one broker, restarts
// it, and runs the second halves.
func againstRestarted(t *testing.T, addr string, restart func()) []*transcript {
	var sessions []*session
	var after []func()
	for _, st := range restartStories() {
		s := &session{t: t, addr: addr, transcript: newTranscript()}
		after = append(after, st.run(s))
		if s.conn != nil {
			s.conn.Close()
			s.conn = nil
		}
		sessions = append(sessions, s)
	}
	restart()
	var out []*transcript
	for i, s := range sessions {
		after[i]()
		if s.conn != nil {
			s.conn.Close()
		}
		out = append(out, s.transcript)
	}
	return out
}

func compareRestarted(t *testing.T, kafka, varve []*transcript, expected *differences) {
	for i, st := range restartStories() {
		t.Run(st.name, func(t *testing.T) {
			for _, d := range compare(kafka[i].lines, varve[i].lines) {
				if !expected.allows(st.name, d) {
					t.Errorf("%s", d)
				}
			}
		})
	}
}

// led waits until a topic's first partition serves again.
func led(s *session, topic string) {
	nodetest.Eventually(s.t, 30*time.Second, topic+" is led again", func() error {
		md, _ := s.quiet(9, metadataRequest(topic)).(*kmsg.MetadataResponse)
		if md == nil || len(md.Topics) != 1 || md.Topics[0].ErrorCode != 0 || md.Topics[0].Partitions[0].Leader < 0 {
			return errors.New("no leader yet")
		}
		lo, _ := s.quiet(7, listRequest(topic, 0, -1)).(*kmsg.ListOffsetsResponse)
		if lo == nil || lo.Topics[0].Partitions[0].ErrorCode != 0 {
			return errors.New("leader does not serve yet")
		}
		return nil
	})
}

func epochsOverRestart(s *session) func() {
	id := filled(s, "re-epochs", 1, 2)
	return func() {
		led(s, "re-epochs")
		s.ask("metadata", 12, metadataRequest("re-epochs"))
		sent(s, "produce in the new epoch", "re-epochs", batch("c").bytes())
		fetchOne(s, "both epochs", 12, "re-epochs", 0)
		for epoch := int32(-1); epoch < 6; epoch++ {
			req := kmsg.NewPtrOffsetForLeaderEpochRequest()
			req.ReplicaID = -1
			t := kmsg.NewOffsetForLeaderEpochRequestTopic()
			t.Topic = "re-epochs"
			p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			p.CurrentLeaderEpoch, p.LeaderEpoch = -1, epoch
			t.Partitions = append(t.Partitions, p)
			req.Topics = append(req.Topics, t)
			s.ask(fmt.Sprint("end of epoch ", epoch), 4, req)
			for _, offset := range []int64{2, 4, 5} {
				req := fetchRequest(want{topic: "re-epochs", id: id, offset: offset})
				req.Topics[0].Partitions[0].LastFetchedEpoch = epoch
				s.ask(fmt.Sprint("fetch ", offset, " after epoch ", epoch), 12, req)
			}
			req2 := fetchRequest(want{topic: "re-epochs", id: id})
			req2.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
			s.ask(fmt.Sprint("fetch knowing epoch ", epoch), 12, req2)
		}
		for _, ts := range []int64{-1, -2, -3, recent, recent + 1} {
			listOffset(s, fmt.Sprint("list ", shortly(ts)), 7, "re-epochs", ts)
		}
	}
}

func producersOverRestart(s *session) func() {
	createTopic(s, "re-seq", 1, nil)
	pid := newProducer(s)
	put := func(step string, epoch int16, sequence int32, n int) {
		sent(s, step, "re-seq", idempotent(pid, epoch, sequence, n))
	}
	put("first", 0, 0, 3)
	put("second", 0, 3, 2)
	return func() {
		led(s, "re-seq")
		put("the second again", 0, 3, 2)
		put("the first again", 0, 0, 3)
		put("gap", 0, 9, 1)
		put("third", 0, 5, 1)
		put("new epoch", 1, 0, 1)
		put("old epoch", 0, 6, 1)
		if next := newProducer(s); next <= pid {
			s.note("new producer id", "%d after %d", next, pid)
		}
		req := kmsg.NewPtrDescribeProducersRequest()
		t := kmsg.NewDescribeProducersRequestTopic()
		t.Topic, t.Partitions = "re-seq", []int32{0}
		req.Topics = append(req.Topics, t)
		s.ask("describe producers", 0, req)
	}
}

func settingsOverRestart(s *session) func() {
	createTopic(s, "re-settings", 2, map[string]string{"retention.ms": "4444", "cleanup.policy": "compact,delete"})
	s.quiet(1, incrementalRequest(resourceTopic, "re-settings", change{"segment.ms", opSet, str("99999")}))
	s.quiet(1, incrementalRequest(resourceBroker, "", change{"log.cleaner.min.compaction.lag.ms", opSet, str("77")}))
	settled(s, "re-settings", "min.compaction.lag.ms", "77")
	return func() {
		led(s, "re-settings")
		req := describeRequest(resourceTopic, "re-settings", []string{"retention.ms", "cleanup.policy", "segment.ms", "min.compaction.lag.ms"})
		req.IncludeSynonyms = true
		s.ask("describe", 4, req)
		s.quiet(1, incrementalRequest(resourceBroker, "", change{"log.cleaner.min.compaction.lag.ms", opDelete, nil}))
	}
}

func logStartOverRestart(s *session) func() {
	filled(s, "re-start", 1, 4)
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 10_000
	t := kmsg.NewDeleteRecordsRequestTopic()
	t.Topic = "re-start"
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Offset = 3
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	s.ask("delete records", 2, req)
	return func() {
		led(s, "re-start")
		listOffset(s, "earliest", 7, "re-start", -2)
		fetchOne(s, "below the start", 12, "re-start", 2)
		fetchOne(s, "from the start", 12, "re-start", 3)
	}
}

func sessionsOverRestart(s *session) func() {
	id := filled(s, "re-session", 1, 1)
	open := fetchRequest(want{topic: "re-session", id: id})
	open.SessionEpoch = 0
	resp, _ := s.quiet(12, open).(*kmsg.FetchResponse)
	return func() {
		led(s, "re-session")
		if resp == nil {
			return
		}
		next := fetchRequest()
		next.SessionID, next.SessionEpoch = resp.SessionID, 1
		s.ask("go on", 12, next)
	}
}

func groupsOverRestart(s *session) func() {
	id := createTopic(s, "re-group", 1, nil)
	member, generation := joined(s, "re-group")
	s.ask("commit", 8, commitRequest(8, "re-group", member, generation, "re-group", id, 0, 42, "note"))
	return func() {
		coordinator(s, "re-group")
		s.ask("offsets", 7, offsetFetch(7, "re-group", "re-group", id, 0))
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups = []string{"re-group"}
		s.ask("describe", 5, req)
		s.ask("heartbeat", 4, heartbeatRequest("re-group", member, generation))
		s.ask("commit", 8, commitRequest(8, "re-group", member, generation, "re-group", id, 0, 43, ""))
		s.ask("leave", 4, leaveRequest("re-group", member))
	}
}
