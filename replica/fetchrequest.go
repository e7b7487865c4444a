package replica

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/replica/peer"
)

// fetchVersion is the Fetch that followers speak: topic ids, diverging epochs, broker epochs.
const fetchVersion = 17

// fetchSession is a follower's end of an incremental fetch session (KIP-227): after a first fetch that names every partition
// the following ones name only what changed.
type fetchSession struct {
	id    int32
	epoch int32 // of the next fetch; 0 begins a session
	req   kmsg.FetchRequest
	at    map[replicaKey]*followed // what the leader's session has
	gone  map[replicaKey]struct{}  // what it has though we want it no more
}

func (s *fetchSession) reset() {
	for _, d := range s.at {
		d.known = false
	}
	s.id, s.epoch = 0, 0
	s.at, s.gone = make(map[replicaKey]*followed), make(map[replicaKey]struct{})
}

// begin starts the next request.
func (s *fetchSession) begin(self int32, brokerEpoch int64) *kmsg.FetchRequest {
	r := &s.req
	topics := r.Topics[:0]
	*r = kmsg.NewFetchRequest()
	r.Topics = topics
	r.Version = fetchVersion
	r.ReplicaState.ID, r.ReplicaState.Epoch = self, brokerEpoch
	r.SessionID, r.SessionEpoch = s.id, s.epoch
	return r
}

// ask puts a partition's position into the request.
func (s *fetchSession) ask(d *followed, maxBytes int32, logStart int64) {
	r := &s.req
	id := d.p.id
	n := len(r.Topics)
	if n == 0 || r.Topics[n-1].TopicID != id.ID {
		if n < cap(r.Topics) {
			r.Topics = r.Topics[:n+1]
			r.Topics[n].Partitions = r.Topics[n].Partitions[:0]
		} else {
			r.Topics = append(r.Topics, kmsg.NewFetchRequestTopic())
		}
		r.Topics[n].TopicID = id.ID
		n++
	}
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition = id.Index
	p.CurrentLeaderEpoch, p.FetchOffset, p.LastFetchedEpoch = d.sent.CurrentEpoch, d.sent.Offset, d.sent.LastEpoch
	p.LogStartOffset, p.PartitionMaxBytes = logStart, maxBytes
	if d.told = d.p.damagedFrom(); d.told != NoOffset {
		peer.SetInt64(&p.UnknownTags, peer.TagDamaged, d.told)
	}
	if d.refused != NoOffset {
		peer.SetInt64(&p.UnknownTags, peer.TagRefused, d.refused)
		d.refused = NoOffset
	}
	r.Topics[n-1].Partitions = append(r.Topics[n-1].Partitions, p)
	d.known = true
	s.at[keyOf(id)] = d
	delete(s.gone, keyOf(id))
}

// forget takes a partition out of the session.
func (s *fetchSession) forget(d *followed) {
	key := keyOf(d.p.id)
	if s.at[key] != d {
		return
	}
	delete(s.at, key)
	d.known = false
	if s.epoch != 0 {
		s.gone[key] = struct{}{}
	}
}

// finish puts what was forgotten into the request, after everything that is asked.
func (s *fetchSession) finish() {
	r := &s.req
	for key := range s.gone {
		r.ForgottenTopics = append(r.ForgottenTopics, kmsg.FetchRequestForgottenTopic{TopicID: key.id, Partitions: []int32{key.index}})
	}
	clear(s.gone)
}

// answered takes the session's part of an answer; false when the leader has ended the session.
func (s *fetchSession) answered(resp *kmsg.FetchResponse) bool {
	if resp.ErrorCode != 0 {
		s.reset()
		return false
	}
	s.id = resp.SessionID
	switch {
	case s.id == 0: // no room for a session there: every fetch names every partition
		s.reset()
	case s.epoch == 1<<31-1:
		s.epoch = 1
	default:
		s.epoch++
	}
	return true
}
