package parity

import (
	"errors"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/integration/nodetest"
)

func transactionStories() []story {
	return []story{
		{"a transaction, the old protocol", txnOldProtocol},
		{"a transaction, the new protocol", txnNewProtocol},
		{"offsets in a transaction", txnOffsets},
		{"transactions, odd requests", txnOdd},
	}
}

// beginTxn begins the work of a transactional id, once its coordinator serves.
func beginTxn(s *session, id string) (pid int64, epoch int16) {
	nodetest.Eventually(s.t, 60*time.Second, "transaction coordinator serves", func() error {
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.CoordinatorType, find.CoordinatorKey = 1, id
		if resp, _ := s.quiet(3, find).(*kmsg.FindCoordinatorResponse); resp == nil || resp.ErrorCode != 0 {
			return errors.New("not found yet")
		}
		resp, _ := s.quiet(4, initTxn(id, -1, -1)).(*kmsg.InitProducerIDResponse)
		if resp == nil || resp.ErrorCode != 0 {
			return errors.New("not yet")
		}
		pid, epoch = resp.ProducerID, resp.ProducerEpoch
		return nil
	})
	return pid, epoch
}

func initTxn(id string, pid int64, epoch int16) *kmsg.InitProducerIDRequest {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &id, 60_000
	req.ProducerID, req.ProducerEpoch = pid, epoch
	return req
}

func addToTxn(id string, pid int64, epoch int16, topic string, partitions ...int32) *kmsg.AddPartitionsToTxnRequest {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = id, pid, epoch
	t := kmsg.NewAddPartitionsToTxnRequestTopic()
	t.Topic, t.Partitions = topic, partitions
	req.Topics = append(req.Topics, t)
	return req
}

func endTxn(id string, pid int64, epoch int16, commit bool) *kmsg.EndTxnRequest {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = id, pid, epoch, commit
	return req
}

// transactional is a Produce of one record of a transaction.
func transactional(id, topic string, pid int64, epoch int16, sequence int32) *kmsg.ProduceRequest {
	b := batch("a")
	b.attributes, b.producerID, b.epoch, b.sequence = 0x10, pid, epoch, sequence
	req := produceRequest(-1, topic, [16]byte{}, 0, b.bytes())
	req.TransactionID = &id
	return req
}

// ended waits until the ends of a transactional id's transaction are written.
func ended(s *session, id string) {
	nodetest.Eventually(s.t, 60*time.Second, "the transaction is through", func() error {
		req := kmsg.NewPtrDescribeTransactionsRequest()
		req.TransactionalIDs = []string{id}
		resp, _ := s.quiet(0, req).(*kmsg.DescribeTransactionsResponse)
		if resp == nil || len(resp.TransactionStates) != 1 || strings.HasPrefix(resp.TransactionStates[0].State, "Prepare") {
			return errors.New("not yet")
		}
		return nil
	})
}

func (s *session) describeTxn(step, id string) {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{id}
	s.ask(step, 0, req)
}

// bounds asks for the ends that readers of either kind see.
func (s *session) bounds(step, topic string) {
	for _, isolation := range []int8{0, 1} {
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID, req.IsolationLevel = -1, isolation
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp, p.CurrentLeaderEpoch = -1, -1
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		s.ask(step, 7, req)
	}
}

func txnOldProtocol(s *session) {
	createTopic(s, "txold", 2, nil)
	id := "txold"
	pid, epoch := beginTxn(s, id)
	s.describeTxn("begun", id)
	s.ask("add", 3, addToTxn(id, pid, epoch, "txold", 0))
	s.ask("write", 9, transactional(id, "txold", pid, epoch, 0))
	s.bounds("open", "txold")
	s.describeTxn("open", id)
	list := kmsg.NewPtrListTransactionsRequest()
	list.ProducerIDFilters = []int64{pid}
	list.DurationFilterMillis = -1
	s.ask("listed", 1, list)
	list.StateFilters = []string{"Ongoing", "Nonsense"}
	s.ask("listed by state", 0, list)
	s.ask("write to a partition that is not in it", 9, func() *kmsg.ProduceRequest {
		q := transactional(id, "txold", pid, epoch, 0)
		q.Topics[0].Partitions[0].Partition = 1
		return q
	}())
	s.ask("commit", 4, endTxn(id, pid, epoch, true))
	ended(s, id)
	s.bounds("committed", "txold")
	s.describeTxn("committed", id)
	s.ask("commit again", 4, endTxn(id, pid, epoch, true))
	s.ask("abort what is committed", 4, endTxn(id, pid, epoch, false))
	s.ask("next", 3, addToTxn(id, pid, epoch, "txold", 0, 1))
	s.ask("write", 11, transactional(id, "txold", pid, epoch, 1))
	s.ask("abort", 4, endTxn(id, pid, epoch, false))
	ended(s, id)
	s.describeTxn("aborted", id)
	s.bounds("aborted", "txold")
	s.ask("begin again", 4, initTxn(id, -1, -1))
	for _, v := range []int16{0, 1, 2, 3} {
		s.ask("the old one adds", v, addToTxn(id, pid, epoch, "txold", 0))
	}
	for _, v := range []int16{0, 1, 2, 4} {
		s.ask("the old one commits", v, endTxn(id, pid, epoch, true))
	}
	s.ask("nothing to commit", 4, endTxn(id, pid, epoch+1, true))
	s.ask("go on from the epoch", 4, initTxn(id, pid, epoch+1))
	s.ask("go on from it again", 4, initTxn(id, pid, epoch+1))
	s.ask("go on from an old epoch", 4, initTxn(id, pid, epoch))
	s.ask("go on from another id", 4, initTxn(id, pid+7, epoch))
}

func txnNewProtocol(s *session) {
	createTopic(s, "txnew", 1, nil)
	id := "txnew"
	pid, epoch := beginTxn(s, id)
	s.ask("write", 12, transactional(id, "txnew", pid, epoch, 0))
	s.describeTxn("open", id)
	s.ask("commit", 5, endTxn(id, pid, epoch, true))
	ended(s, id)
	s.bounds("committed", "txnew")
	s.ask("commit again", 5, endTxn(id, pid, epoch, true))
	s.ask("abort what is committed", 5, endTxn(id, pid, epoch, false))
	s.ask("write in the old epoch", 12, transactional(id, "txnew", pid, epoch, 1))
	s.ask("write in the next, not from 0", 12, transactional(id, "txnew", pid, epoch+1, 3))
	s.ask("write in the next", 12, transactional(id, "txnew", pid, epoch+1, 0))
	s.ask("a late repetition of the end before", 5, endTxn(id, pid, epoch, true))
	s.ask("abort", 5, endTxn(id, pid, epoch+1, false))
	ended(s, id)
	s.bounds("aborted", "txnew")
	s.ask("abort without a transaction", 5, endTxn(id, pid, epoch+2, false))
	ended(s, id)
	s.ask("commit without a transaction", 5, endTxn(id, pid, epoch+3, true))
	s.describeTxn("in the end", id)
}

func txnOffsets(s *session) {
	createTopic(s, "txoff", 1, nil)
	id, group := "txoff", "txoff-group"
	pid, epoch := beginTxn(s, id)
	coordinator(s, group)
	commit := func(step string, v int16, epoch int16, offset int64) {
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch, req.Generation = id, group, pid, epoch, -1
		for _, name := range []string{"txoff", "txoff-none"} {
			t := kmsg.NewTxnOffsetCommitRequestTopic()
			t.Topic = name
			p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			p.Offset, p.LeaderEpoch = offset, -1
			t.Partitions = append(t.Partitions, p)
			req.Topics = append(req.Topics, t)
		}
		s.ask(step, v, req)
	}
	fetch := func(step string, stable bool) {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.RequireStable = stable
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.MemberEpoch = group, -1
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.Partitions = "txoff", []int32{0}
		g.Topics = append(g.Topics, t)
		req.Groups = append(req.Groups, g)
		s.ask(step, 8, req)
	}
	commit("without having added", 3, epoch, 5)
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = id, pid, epoch, group
	for _, v := range []int16{0, 2, 4} {
		s.ask("add the group", v, add)
	}
	commit("commit", 3, epoch, 5)
	fetch("open", false)
	fetch("open, stable", true)
	s.ask("end", 4, endTxn(id, pid, epoch, true))
	ended(s, id)
	nodetest.Eventually(s.t, 60*time.Second, "the offset counts", func() error {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Group, req.RequireStable = group, true
		t := kmsg.NewOffsetFetchRequestTopic()
		t.Topic, t.Partitions = "txoff", []int32{0}
		req.Topics = append(req.Topics, t)
		resp, _ := s.quiet(7, req).(*kmsg.OffsetFetchResponse)
		if resp == nil || len(resp.Topics) != 1 || resp.Topics[0].Partitions[0].Offset != 5 {
			return errors.New("not yet")
		}
		return nil
	})
	fetch("committed", true)
	commit("new protocol, nothing added", 5, epoch, 9)
	fetch("open again, stable", true)
	s.ask("abort", 5, endTxn(id, pid, epoch, false))
	ended(s, id)
	commit("in an old epoch", 5, epoch, 10)
	commit("in an old epoch", 3, epoch, 10)
}

func txnOdd(s *session) {
	createTopic(s, "txodd", 1, nil)
	id := "txodd"
	pid, epoch := beginTxn(s, id)
	for _, millis := range []int32{-1, 0, 900_000, 900_001} {
		req := initTxn("txodd-timeout", -1, -1)
		req.TransactionTimeoutMillis = millis
		s.ask("timeout", 4, req)
	}
	s.ask("unknown id adds", 3, addToTxn("txodd-none", pid, epoch, "txodd", 0))
	s.ask("unknown id ends", 4, endTxn("txodd-none", pid, epoch, true))
	s.ask("unknown id ends", 5, endTxn("txodd-none", pid, epoch, false))
	s.describeTxn("unknown id", "txodd-none")
	s.ask("another producer adds", 3, addToTxn(id, pid+9, epoch, "txodd", 0))
	s.ask("unknown partition", 3, addToTxn(id, pid, epoch, "txodd", 0, 7))
	s.ask("a later epoch adds", 3, addToTxn(id, pid, epoch+4, "txodd", 0))
	s.ask("a later epoch ends", 4, endTxn(id, pid, epoch+4, true))
	s.ask("nothing to abort", 4, endTxn(id, pid, epoch, false))
	verify := kmsg.NewPtrAddPartitionsToTxnRequest()
	x := kmsg.NewAddPartitionsToTxnRequestTransaction()
	x.TransactionalID, x.ProducerID, x.ProducerEpoch, x.VerifyOnly = id, pid, epoch, true
	t := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
	t.Topic, t.Partitions = "txodd", []int32{0}
	x.Topics = append(x.Topics, t)
	verify.Transactions = append(verify.Transactions, x)
	s.ask("verify what is not in", 4, verify)
	s.ask("verify what is not in", 5, verify)
	marker := kmsg.NewPtrWriteTxnMarkersRequest()
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.CoordinatorEpoch = pid, epoch, 0
	for _, name := range []string{"txodd", "txodd-none"} {
		t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
		t.Topic, t.Partitions = name, []int32{0}
		m.Topics = append(m.Topics, t)
	}
	marker.Markers = append(marker.Markers, m)
	s.ask("marker without a transaction", 1, marker)
	listOffset(s, "after it", 7, "txodd", -1)
}
