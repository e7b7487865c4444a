package parity

import (
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/integration/nodetest"
)

func shareFetchStories() []story {
	return []story{
		{"share fetch, records and acknowledgements", shareFetchLife},
		{"share fetch, sessions", shareFetchSessions},
		{"share fetch, odd requests", shareFetchOdd},
		{"share fetch, limits", shareFetchLimits},
		{"share fetch, deliveries", shareFetchDeliveries},
	}
}

// sharer is a member of a share group in a story.
type sharer struct {
	s             *session
	group, member string
	id            [16]byte
	epoch         int32
}

// sharing makes a topic and begins a share group with it at offset 0.
func sharing(s *session, group string, partitions int32) (id [16]byte) {
	topic := group + "-topic"
	id = createTopic(s, topic, partitions, nil)
	for i := range partitions {
		nodetest.Eventually(s.t, 60*time.Second, "the share coordinator serves", func() error {
			find := kmsg.NewPtrFindCoordinatorRequest()
			find.CoordinatorType, find.CoordinatorKeys = 2, []string{fmt.Sprintf("%s:%s:%d", group, base64.RawURLEncoding.EncodeToString(id[:]), i)}
			if r, _ := s.quiet(6, find).(*kmsg.FindCoordinatorResponse); r == nil || len(r.Coordinators) != 1 || r.Coordinators[0].ErrorCode != 0 {
				return errors.New("not found")
			}
			q := kmsg.NewPtrInitializeShareGroupStateRequest()
			q.GroupID = group
			t := kmsg.NewInitializeShareGroupStateRequestTopic()
			t.TopicID = id
			p := kmsg.NewInitializeShareGroupStateRequestTopicPartition()
			p.Partition, p.StateEpoch, p.StartOffset = i, 0, 0
			t.Partitions = append(t.Partitions, p)
			q.Topics = append(q.Topics, t)
			r, _ := s.quiet(0, q).(*kmsg.InitializeShareGroupStateResponse)
			if r == nil || len(r.Topics) != 1 || r.Topics[0].Partitions[0].ErrorCode != 0 {
				return fmt.Errorf("not initialized: %+v", r)
			}
			return nil
		})
	}
	return id
}

func shareMember(s *session, group, member string, id [16]byte) *sharer {
	return &sharer{s: s, group: group, member: member, id: id}
}

func (m *sharer) request(partitions ...int32) *kmsg.ShareFetchRequest {
	q := kmsg.NewPtrShareFetchRequest()
	q.GroupID, q.MemberID, q.ShareSessionEpoch = &m.group, &m.member, m.epoch
	q.MaxWaitMillis, q.MinBytes, q.MaxBytes, q.MaxRecords, q.BatchSize = 5000, 1, 1<<20, 500, 500
	for _, i := range partitions {
		m.name(q, i)
	}
	return q
}

// name adds a partition, with acknowledgements, to a request.
func (m *sharer) name(q *kmsg.ShareFetchRequest, partition int32, acks ...kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch) {
	p := kmsg.NewShareFetchRequestTopicPartition()
	p.Partition, p.AcknowledgementBatches = partition, acks
	if len(q.Topics) == 0 {
		t := kmsg.NewShareFetchRequestTopic()
		t.TopicID = m.id
		q.Topics = append(q.Topics, t)
	}
	q.Topics[0].Partitions = append(q.Topics[0].Partitions, p)
}

func fetchAck(first, last int64, types ...int8) kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch {
	b := kmsg.NewShareFetchRequestTopicPartitionAcknowledgementBatch()
	b.FirstOffset, b.LastOffset, b.AcknowledgeTypes = first, last, types
	return b
}

func (m *sharer) ask(step string, v int16, q *kmsg.ShareFetchRequest) *kmsg.ShareFetchResponse {
	r, _ := m.s.ask(m.member[:1]+" "+step, v, q).(*kmsg.ShareFetchResponse)
	if r != nil && r.ErrorCode == 0 && q.ShareSessionEpoch >= 0 {
		m.epoch = q.ShareSessionEpoch + 1
	}
	return r
}

func (m *sharer) fetch(step string, v int16, partitions ...int32) {
	m.ask(step, v, m.request(partitions...))
}

// idle fetches where there is nothing: it waits long enough for the share-partition to be loaded.
func (m *sharer) idle(step string, v int16, partitions ...int32) {
	q := m.request(partitions...)
	q.MaxWaitMillis = 500
	m.ask(step, v, q)
}

func (m *sharer) acknowledge(step string, v int16, first, last int64, types ...int8) {
	m.acknowledged(step, v, false, first, last, types...)
}

func (m *sharer) acknowledged(step string, v int16, renews bool, first, last int64, types ...int8) {
	q := kmsg.NewPtrShareAcknowledgeRequest()
	q.GroupID, q.MemberID, q.ShareSessionEpoch = &m.group, &m.member, m.epoch
	q.IsRenewAck = renews
	if types != nil {
		t := kmsg.NewShareAcknowledgeRequestTopic()
		t.TopicID = m.id
		p := kmsg.NewShareAcknowledgeRequestTopicPartition()
		b := kmsg.NewShareAcknowledgeRequestTopicPartitionAcknowledgementBatch()
		b.FirstOffset, b.LastOffset, b.AcknowledgeTypes = first, last, types
		p.AcknowledgementBatches = append(p.AcknowledgementBatches, b)
		t.Partitions = append(t.Partitions, p)
		q.Topics = append(q.Topics, t)
	}
	r, _ := m.s.ask(m.member[:1]+" "+step, v, q).(*kmsg.ShareAcknowledgeResponse)
	if r != nil && r.ErrorCode == 0 && m.epoch > 0 {
		m.epoch++
	}
}

func produced(s *session, topic string, batches ...int) {
	n := 0
	for _, k := range batches {
		var values []string
		for range k {
			values = append(values, fmt.Sprint("value ", n))
			n++
		}
		s.quiet(9, produceRequest(-1, topic, [16]byte{}, 0, batch(values...).bytes()))
	}
}

const (
	annID = "AAAAAAAAAAAAAAAAAAAAAA"
	bobID = "BBBBBBBBBBBBBBBBBBBBBB"
)

func shareFetchLife(s *session) {
	id := sharing(s, "sf", 1)
	produced(s, "sf-topic", 10, 5)
	a, b := shareMember(s, "sf", annID, id), shareMember(s, "sf", bobID, id)
	a.fetch("first", 2, 0)
	b.idle("nothing left", 1, 0)
	a.acknowledge("accepts some", 2, 0, 4, 1)
	a.acknowledge("accepts them again", 2, 0, 4, 1)
	b.acknowledge("what another holds", 1, 5, 6, 1)
	a.acknowledge("each by itself", 1, 5, 9, 1, 2, 3, 0, 1)
	b.fetch("what was released", 2)
	b.acknowledge("beyond what was delivered", 2, 6, 99, 1)
	b.acknowledge("beyond by far", 2, 70, 99, 1)
	a.acknowledge("what another holds now", 2, 6, 6, 1)
	q := a.request()
	q.MaxWaitMillis = 0
	a.name(q, 0, fetchAck(10, 12, 1), fetchAck(13, 14, 1))
	a.ask("acknowledges with a fetch", 2, q)
	b.acknowledge("accepts", 2, 6, 6, 1)
	b.acknowledge("accepts it again", 2, 6, 6, 1)
	b.acknowledged("renews what is done", 2, true, 6, 6, 4)
	produced(s, "sf-topic", 3)
	a.fetch("more", 2)
	a.acknowledge("renews without saying so", 2, 15, 17, 4)
	a.acknowledged("renews", 2, true, 15, 17, 4)
	renew := a.request()
	renew.MaxBytes, renew.MinBytes, renew.MaxRecords, renew.MaxWaitMillis, renew.BatchSize, renew.IsRenewAck = 0, 0, 0, 0, 0, true
	a.name(renew, 0, fetchAck(15, 16, 4))
	a.ask("renews with a fetch", 2, renew)
	a.epoch = -1
	a.acknowledge("leaves", 2, 15, 15, 1)
	b.fetch("what it gave back", 2)
	b.acknowledge("accepts the rest", 2, 16, 17, 1)
}

func shareFetchSessions(s *session) {
	id := sharing(s, "sfs", 2)
	a := shareMember(s, "sfs", annID, id)
	a.acknowledge("begins with an acknowledgement", 2, 0, 0, 1)
	a.epoch = 3
	a.acknowledge("acknowledges without a session", 2, 0, 0, 1)
	a.idle("fetches without a session", 2, 0)
	a.epoch = -1
	a.idle("ends without a session", 2)
	a.acknowledge("ends without a session", 2, 0, 0)
	a.epoch = 0
	a.idle("begins", 2, 0)
	a.idle("adds a partition", 2, 1)
	a.idle("goes on", 2)
	a.epoch = 9
	a.idle("another epoch", 2)
	a.acknowledge("another epoch", 2, 0, 0, 1)
	a.epoch = 3
	q := a.request()
	q.MaxWaitMillis = 0
	f := kmsg.NewShareFetchRequestForgottenTopicsData()
	f.TopicID, f.Partitions = id, []int32{0, 1}
	q.ForgottenTopicsData = append(q.ForgottenTopicsData, f)
	a.ask("forgets all", 2, q)
	a.idle("goes on with nothing", 2)
	a.epoch = 0
	a.idle("begins anew", 2, 0)
	a.epoch = -1
	a.idle("ends", 2)
	a.idle("ends again", 2)
	a.epoch = 0
	q = a.request()
	a.name(q, 0, fetchAck(0, 0, 1))
	a.ask("begins with an acknowledgement", 2, q)
}

func shareFetchOdd(s *session) {
	id := sharing(s, "sfo", 1)
	produced(s, "sfo-topic", 5)
	a := shareMember(s, "sfo", annID, id)
	a.fetch("begins", 2, 0)
	q := func(first, last int64, types ...int8) {
		a.acknowledge(fmt.Sprint(first, " to ", last, " ", types), 2, first, last, types...)
	}
	q(3, 1, 1)
	q(0, 2, 1, 1)
	q(0, 2, 7)
	q(0, 2, -1)
	q(-5, 2, 1)
	q(0, 2, []int8{}...)
	x := a.request()
	x.MaxWaitMillis = 0
	a.name(x, 0, fetchAck(0, 2, 1), fetchAck(2, 3, 1))
	a.ask("overlapping", 2, x)
	x = a.request(9)
	x.MaxWaitMillis = 0
	a.ask("a partition that there is not", 2, x)
	x = a.request()
	x.MaxWaitMillis = 0
	a.name(x, 9, fetchAck(0, 0, 1))
	a.ask("acknowledging one that there is not", 2, x)
	other := shareMember(s, "sfo", bobID, [16]byte{1, 2, 3})
	other.idle("a topic that there is not", 2, 0)
	other.acknowledge("a topic that there is not", 2, 0, 0, 1)
	renew := a.request()
	renew.IsRenewAck, renew.MaxWaitMillis = true, 0
	a.name(renew, 0, fetchAck(0, 0, 4))
	a.ask("a renewal that fetches", 2, renew)
	for _, group := range []*string{nil, ptr("")} {
		x = a.request(0)
		x.GroupID = group
		a.ask("no group", 2, x)
	}
}

func shareFetchLimits(s *session) {
	id := sharing(s, "sfl", 1)
	produced(s, "sfl-topic", 4, 4, 4, 4)
	a, b := shareMember(s, "sfl", annID, id), shareMember(s, "sfl", bobID, id)
	q := a.request(0)
	q.MaxRecords = 5
	a.ask("five at most, by batches", 2, q)
	q = b.request(0)
	q.MaxRecords, q.ShareAcquireMode = 2, 1
	b.ask("two at most, by records", 2, q)
	q = b.request()
	q.MaxRecords, q.BatchSize, q.ShareAcquireMode = 100, 1, 1
	b.ask("the rest, in small batches", 2, q)
	b.acknowledge("releases", 2, 8, 15, 2)
	q = a.request()
	q.BatchSize = 3
	a.ask("again, in batches of three", 2, q)
	q = a.request()
	q.MaxWaitMillis, q.MaxRecords = 0, 0
	a.ask("no records at most", 2, q)
}

func shareFetchDeliveries(s *session) {
	id := sharing(s, "sfd", 1)
	produced(s, "sfd-topic", 1)
	a := shareMember(s, "sfd", annID, id)
	a.fetch("first", 2, 0)
	a.acknowledge("releases", 2, 0, 0, 2)
	for range 4 {
		a.fetch("again", 2)
		a.acknowledge("releases", 2, 0, 0, 2)
	}
	a.idle("after five", 2)
	a.acknowledge("what was archived", 2, 0, 0, 1)
}
