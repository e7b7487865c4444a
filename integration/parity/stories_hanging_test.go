package parity

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	hotbatch "github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/integration/kafkatest"
	"github.com/varvelog/varve/integration/nodetest"
)

func hangingStories() []story {
	return []story{
		{"a hanging transaction", hangingTransaction},
		{"a marker from an administrator", adminMarker},
	}
}

// producers describes who writes to a topic's first partitions.
func producers(s *session, step, topic string, partitions ...int32) *kmsg.DescribeProducersResponse {
	req := kmsg.NewPtrDescribeProducersRequest()
	t := kmsg.NewDescribeProducersRequestTopic()
	t.Topic, t.Partitions = topic, partitions
	req.Topics = append(req.Topics, t)
	r, _ := s.ask(step, 0, req).(*kmsg.DescribeProducersResponse)
	return r
}

// batches says which batches a topic's first partition has, without their times.
func batches(s *session, step, topic string) {
	r, _ := s.quiet(12, fetchRequest(want{topic: topic})).(*kmsg.FetchResponse)
	if r == nil || len(r.Topics) != 1 {
		s.note(step, "nothing")
		return
	}
	for b := r.Topics[0].Partitions[0].RecordBatches; len(b) > 0; {
		one, rest, err := hotbatch.Next(b)
		if err != nil {
			s.note(step, "%v", err)
			return
		}
		s.note(step, "base %d control %v transactional %v epoch %d records %x", one.BaseOffset(), one.Control(), one.Transactional(), one.ProducerEpoch(), b[hotbatch.HeaderSize:one.SizeBytes()])
		b = rest
	}
}

func markers(pid int64, epoch int16, coordinatorEpoch int32, commit bool, topic string, partitions ...int32) *kmsg.WriteTxnMarkersRequest {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.CoordinatorEpoch, m.Committed = pid, epoch, coordinatorEpoch, commit
	t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	t.Topic, t.Partitions = topic, partitions
	m.Topics = append(m.Topics, t)
	req.Markers = append(req.Markers, m)
	return req
}

func listed(s *session, step string, pid int64) {
	list := kmsg.NewPtrListTransactionsRequest()
	list.ProducerIDFilters, list.DurationFilterMillis = []int64{pid}, -1
	s.ask(step, 1, list)
}

// hangingTransaction is one that a partition knows of and no coordinator does:
// it holds the last stable offset until an administrator ends it, by what
// DescribeProducers says (KIP-664).
func hangingTransaction(s *session) {
	createTopic(s, "hang", 2, nil)
	id := "hang"
	pid, epoch := beginTxn(s, id)
	verify := func(value *string) {
		op := opSet
		if value == nil {
			op = opDelete
		}
		s.ask("partitions are verified or not", 1, incrementalRequest(resourceBroker, "", change{"transaction.partition.verification.enable", op, value}))
	}
	s.ask("refused while partitions are verified", 11, transactional(id, "hang", pid, epoch, 0))
	verify(ptr("false"))
	written := false
	nodetest.Eventually(s.t, 30*time.Second, "partitions are not verified any more", func() error {
		r, _ := s.quiet(11, transactional(id, "hang", pid, epoch, 0)).(*kmsg.ProduceResponse)
		if written = r != nil && r.Topics[0].Partitions[0].ErrorCode == 0; !written {
			return errors.New("refused")
		}
		return nil
	})
	verify(nil)
	r := producers(s, "who writes", "hang", 0, 1)
	s.describeTxn("the coordinator knows nothing of it", id)
	listed(s, "it is not listed as open", pid)
	s.bounds("the stable end is held", "hang")
	s.ask("an end has nothing to end", 4, endTxn(id, pid, epoch, false))
	s.bounds("and it is still held", "hang")
	if r == nil || len(r.Topics) == 0 || len(r.Topics[0].Partitions[0].ActiveProducers) == 0 {
		return
	}
	p := r.Topics[0].Partitions[0].ActiveProducers[0]
	s.ask("a marker in an old epoch", 1, markers(p.ProducerID, int16(p.ProducerEpoch)-1, max(p.CoordinatorEpoch, 0), false, "hang", 0))
	s.ask("ended", 1, markers(p.ProducerID, int16(p.ProducerEpoch), max(p.CoordinatorEpoch, 0), false, "hang", 0))
	producers(s, "who writes now", "hang", 0, 1)
	s.bounds("the stable end moves on", "hang")
	s.ask("ended again", 1, markers(p.ProducerID, int16(p.ProducerEpoch), max(p.CoordinatorEpoch, 0), false, "hang", 0))
	batches(s, "what there is", "hang")
}

// adminMarker: a transaction that is well may be aborted in one partition too;
// its coordinator knows no better, and goes on.
func adminMarker(s *session) {
	createTopic(s, "admark", 2, nil)
	id := "admark"
	pid, epoch := beginTxn(s, id)
	s.ask("add", 3, addToTxn(id, pid, epoch, "admark", 0))
	s.ask("write", 11, transactional(id, "admark", pid, epoch, 0))
	producers(s, "who writes", "admark", 0, 1)
	s.ask("aborted from aside", 1, markers(pid, epoch, 0, false, "admark", 0, 1, 9))
	producers(s, "who writes now", "admark", 0, 1)
	s.bounds("aborted", "admark")
	s.describeTxn("the coordinator goes on", id)
	s.ask("a marker of an older coordinator", 1, markers(pid, epoch, -1, true, "admark", 0))
	s.ask("commit", 4, endTxn(id, pid, epoch, true))
	ended(s, id)
	producers(s, "who writes in the end", "admark", 0, 1)
	batches(s, "what there is", "admark")
	producers(s, "of topics and partitions that are not there", "admark-none", 0)
	producers(s, "of topics and partitions that are not there", "admark", 7)
}

// TestAnswersUnderOtherSettingsEqualApacheKafkas runs stories against brokers
// that serve the classic protocol alone and forget quickly.
func TestAnswersUnderOtherSettingsEqualApacheKafkas(t *testing.T) {
	needsJava(t)
	lines := append([]string{
		"group.coordinator.rebalance.protocols=classic", "transactional.id.expiration.ms=1500",
		"transaction.remove.expired.transaction.cleanup.interval.ms=300", "transaction.abort.timed.out.transaction.cleanup.interval.ms=300",
		"offsets.retention.check.interval.ms=300",
	}, settings...)
	expected := readDifferences(t)
	kafka := kafkatest.StartBroker(t, clientsDir(), lines...)
	args := []string{"--set", "varve.tier.store="}
	for _, line := range lines {
		args = append(args, "--set", line)
	}
	other := ""
	if againstItself() {
		other = kafkatest.StartBroker(t, clientsDir(), lines...).Bootstrap
	} else {
		other = nodetest.Start(t, t.TempDir(), args...).Bootstrap
	}
	for _, st := range []story{
		{"protocols that are switched off", protocolsOff},
		{"transactional ids expire", idsExpire},
		{"transactions run out of time", txnTimesOut},
		{"offsets and groups expire", offsetsExpire},
	} {
		st.compare(t, kafka.Bootstrap, other, expected)
	}
}

// protocolsOff: group.coordinator.rebalance.protocols leaves out consumer,
// share and streams.
func protocolsOff(s *session) {
	createTopic(s, "poff-topic", 1, nil)
	member, generation := joined(s, "poff-classic")
	s.ask("a classic member", 4, heartbeatRequest("poff-classic", member, generation))
	beat := consumerBeat("poff", memberA, 0, []string{"poff-topic"}, nil)
	versions(0, 1, func(v int16) { s.ask("a consumer joins", v, beat) })
	s.ask("a consumer leaves", 1, consumerBeat("poff", memberA, -1, nil, nil))
	s.ask("a consumer in a classic group", 1, consumerBeat("poff-classic", memberA, 0, []string{"poff-topic"}, nil))
	describe := kmsg.NewPtrConsumerGroupDescribeRequest()
	describe.Groups = []string{"poff", "poff-classic", ""}
	versions(0, 1, func(v int16) { s.ask("consumer groups described", v, describe) })
	streams := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	streams.Group, streams.MemberID, streams.RebalanceTimeoutMillis = "poff-streams", memberA, 60_000
	s.ask("a streams member joins", 0, streams)
	streamsDescribe := kmsg.NewPtrStreamsGroupDescribeRequest()
	streamsDescribe.Groups = []string{"poff-streams", "poff-classic"}
	s.ask("streams groups described", 0, streamsDescribe)
	list := kmsg.NewPtrListGroupsRequest()
	list.TypesFilter = []string{"consumer", "streams", "share"}
	s.ask("groups of these kinds", 5, list)
	classic := kmsg.NewPtrDescribeGroupsRequest()
	classic.Groups = []string{"poff", "poff-classic"}
	s.ask("described as classic groups", 5, classic)
	api, _ := s.quiet(3, kmsg.NewPtrApiVersionsRequest()).(*kmsg.ApiVersionsResponse)
	if api == nil {
		s.note("api versions", "none")
		return
	}
	for _, k := range api.ApiKeys {
		switch k.ApiKey {
		case 68, 69, 76, 77, 78, 79, 88, 89:
			s.note(fmt.Sprintf("api key %d", k.ApiKey), "named")
		}
	}
	for _, f := range api.SupportedFeatures {
		switch f.Name {
		case "group.version", "share.version", "streams.version", "transaction.version":
			s.note("feature "+f.Name, "%d-%d", f.MinVersion, f.MaxVersion)
		}
	}
}

// idsExpire: an unused transactional id is forgotten; one with an open
// transaction is not.
func idsExpire(s *session) {
	createTopic(s, "idexp", 1, nil)
	pid, epoch := beginTxn(s, "idexp")
	open, openEpoch := beginTxn(s, "idexp-open")
	s.ask("one begins a transaction", 3, addToTxn("idexp-open", open, openEpoch, "idexp", 0))
	nodetest.Eventually(s.t, 60*time.Second, "the id is forgotten", func() error {
		req := kmsg.NewPtrDescribeTransactionsRequest()
		req.TransactionalIDs = []string{"idexp"}
		r, _ := s.quiet(0, req).(*kmsg.DescribeTransactionsResponse)
		if r == nil || len(r.TransactionStates) != 1 || r.TransactionStates[0].ErrorCode == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	s.describeTxn("forgotten", "idexp")
	s.describeTxn("not forgotten", "idexp-open")
	listed(s, "not listed", pid)
	listed(s, "listed", open)
	s.ask("who was forgotten adds", 3, addToTxn("idexp", pid, epoch, "idexp", 0))
	s.ask("who was forgotten writes", 12, transactional("idexp", "idexp", pid, epoch, 0))
	s.ask("who was forgotten ends", 4, endTxn("idexp", pid, epoch, true))
	s.ask("who was forgotten begins again as it was", 4, initTxn("idexp", pid, epoch))
	next, _ := s.quiet(4, initTxn("idexp", -1, -1)).(*kmsg.InitProducerIDResponse)
	if next != nil {
		s.note("who was forgotten begins anew", "code %d, another producer id %v, epoch %d", next.ErrorCode, next.ProducerID != pid, next.ProducerEpoch)
	}
	s.ask("the other commits", 4, endTxn("idexp-open", open, openEpoch, true))
	ended(s, "idexp-open")
}

// txnTimesOut: a transaction that takes longer than its producer said is
// aborted, and the producer fenced.
func txnTimesOut(s *session) {
	createTopic(s, "txto", 1, nil)
	id := "txto"
	beginTxn(s, id)
	begin := initTxn(id, -1, -1)
	begin.TransactionTimeoutMillis = 1000
	r, _ := s.ask("begins, for a second", 4, begin).(*kmsg.InitProducerIDResponse)
	if r == nil {
		return
	}
	pid, epoch := r.ProducerID, r.ProducerEpoch
	s.ask("adds", 3, addToTxn(id, pid, epoch, "txto", 0))
	s.ask("writes", 11, transactional(id, "txto", pid, epoch, 0))
	nodetest.Eventually(s.t, 60*time.Second, "the transaction is aborted", func() error {
		req := kmsg.NewPtrDescribeTransactionsRequest()
		req.TransactionalIDs = []string{id}
		r, _ := s.quiet(0, req).(*kmsg.DescribeTransactionsResponse)
		if r == nil || len(r.TransactionStates) != 1 || r.TransactionStates[0].State != "CompleteAbort" {
			return errors.New("not yet")
		}
		return nil
	})
	s.ask("commits too late", 4, endTxn(id, pid, epoch, true))
	s.ask("commits too late", 5, endTxn(id, pid, epoch, true))
	s.ask("adds too late", 3, addToTxn(id, pid, epoch, "txto", 0))
	s.ask("writes too late", 11, transactional(id, "txto", pid, epoch, 1))
	s.ask("writes too late", 12, transactional(id, "txto", pid, epoch, 1))
	s.bounds("aborted", "txto")
	s.ask("begins again", 4, initTxn(id, -1, -1))
}

// offsetsExpire: an offset goes when the time that its commit gave it is over,
// and with the last of them a group that nobody is in.
func offsetsExpire(s *session) {
	id := createTopic(s, "offexp", 2, nil)
	coordinator(s, "offexp")
	simple := commitRequest(2, "offexp", "", -1, "offexp", id, 0, 5, "short")
	simple.RetentionTimeMillis = 1500
	s.ask("a commit for a second and a half", 2, simple)
	other := commitRequest(2, "offexp-both", "", -1, "offexp", id, 0, 5, "short")
	other.RetentionTimeMillis = 1500
	s.ask("a commit for a second and a half beside", 2, other)
	s.ask("one as long as the broker says", 8, commitRequest(8, "offexp-both", "", -1, "offexp", id, 1, 6, "long"))
	member, generation := joined(s, "offexp-member")
	held := commitRequest(2, "offexp-member", member, generation, "offexp", id, 0, 5, "held")
	held.RetentionTimeMillis = 1500
	s.ask("a member's commit for a second and a half", 2, held)
	fetch := func(step, group string) {
		for p := range int32(2) {
			s.ask(step, 7, offsetFetch(7, group, "offexp", id, p))
		}
	}
	fetch("at first", "offexp-both")
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{"offexp"}
	nodetest.Eventually(s.t, 60*time.Second, "the group is forgotten", func() error {
		r, _ := s.quiet(6, describe).(*kmsg.DescribeGroupsResponse)
		if r == nil || len(r.Groups) != 1 || r.Groups[0].State != "Dead" {
			return errors.New("not yet")
		}
		return nil
	})
	gone := func(group string) func() error {
		return func() error {
			r, _ := s.quiet(7, offsetFetch(7, group, "offexp", id, 0)).(*kmsg.OffsetFetchResponse)
			if r == nil || len(r.Topics) != 1 || r.Topics[0].Partitions[0].Offset != -1 {
				return errors.New("not yet")
			}
			return nil
		}
	}
	nodetest.Eventually(s.t, 60*time.Second, "the offset is forgotten", gone("offexp-both"))
	describe.Groups = []string{"offexp", "offexp-both"}
	s.ask("described", 5, describe)
	s.ask("described", 6, describe)
	fetch("expired", "offexp")
	fetch("one expired", "offexp-both")
	fetch("of a member", "offexp-member")
	s.ask("the member is alive", 4, heartbeatRequest("offexp-member", member, generation))
}
