package broker

import (
	"github.com/varvelog/varve/replica"
	"github.com/varvelog/varve/replica/peer"
)

// encodeFetch writes the answer of a fetch into p. Byte for byte what kmsg.FetchResponse.AppendTo writes, except that
// records are spans.
//
//	throttle i32 · v7+: error i16, session id i32 · topics · v12+: tags (v16+: node endpoints as tag 0)
//	topic: name (–v12) or id (v13+) · partitions · v12+: tags
//	partition: index i32, error i16, high watermark i64, last stable i64, v5+: log start i64,
//	           aborted transactions (nullable), v11+: preferred replica i32, records,
//	           v12+: tags (diverging epoch as tag 0, current leader as tag 1, to replicas the remote end, to a broker with damage that it is here, too)
func (s *Server) encodeFetch(p *reply, r *request, op *fetchOp) {
	v, flexible := r.version, r.flexible
	p.begin(r.corr, flexible)
	b := appendInt32(p.head, millisOf(op.throttle))
	if v >= 7 {
		b = appendInt16(b, op.err)
		b = appendInt32(b, op.id)
	}
	ts := op.targets
	if op.err != codeNone {
		ts = nil
	}
	b = appendLen(b, countTopics(ts), flexible)
	var nodes []endpoint
	for i := 0; i < len(ts); {
		end, parts := topicRun(ts, i)
		if parts == 0 {
			i = end
			continue
		}
		if v >= 13 {
			b = append(b, ts[i].key.id[:]...)
		} else {
			b = appendString(b, ts[i].key.name, flexible)
		}
		b = appendLen(b, parts, flexible)
		for ; i < end; i++ {
			if t := &ts[i]; t.include {
				b = appendFetchPart(b, p, t, v, flexible)
				if t.leader != noLeader {
					nodes = s.addEndpoint(nodes, t.leader.id, r.c.door.Name)
				}
			}
		}
		if flexible {
			b = append(b, 0)
		}
	}
	if flexible {
		b = appendEndpointsTag(b, nodes)
	}
	p.head = b
	p.end()
}

// topicRun is the end of the run of targets of the same topic that starts at i, and how many of them the answer names.
func topicRun(ts []fetchTarget, i int) (end, parts int) {
	for end = i; end < len(ts) && ts[end].key.id == ts[i].key.id && ts[end].key.name == ts[i].key.name; end++ {
		if ts[end].include {
			parts++
		}
	}
	return end, parts
}

func countTopics(ts []fetchTarget) int {
	n := 0
	for i := 0; i < len(ts); {
		end, parts := topicRun(ts, i)
		if parts > 0 {
			n++
		}
		i = end
	}
	return n
}

func appendFetchPart(b []byte, p *reply, t *fetchTarget, v int16, flexible bool) []byte {
	hw, lastStable, logStart := int64(-1), int64(-1), int64(-1)
	if t.known {
		hw, lastStable, logStart = t.res.HighWatermark, t.res.LastStable, t.res.LogStart
	}
	b = appendInt32(b, t.key.index)
	b = appendInt16(b, t.code)
	b = appendInt64(b, hw)
	b = appendInt64(b, lastStable)
	if v >= 5 {
		b = appendInt64(b, logStart)
	}
	if t.code == codeUnknownTopicOrPartition || t.code == codeUnknownTopicID {
		b = appendLen(b, 0, flexible) // these never get as far as a log; Kafka's other errors have null
	} else if t.res.Aborted == nil {
		b = appendNullLen(b, flexible)
	} else {
		b = appendLen(b, len(t.res.Aborted), flexible)
		for i := range t.res.Aborted {
			b = appendInt64(b, t.res.Aborted[i].ProducerID)
			b = appendInt64(b, t.res.Aborted[i].FirstOffset)
			if flexible {
				b = append(b, 0)
			}
		}
	}
	if v >= 11 {
		b = appendInt32(b, t.preferred)
	}
	if t.res.Records == nil {
		b = appendLen(b, 0, flexible)
	} else {
		b = appendLen(b, t.res.Records.Len(), flexible)
		p.spans = append(p.spans, span{at: len(b), records: t.res.Records})
		t.res.Records = nil // the reply's now
	}
	if flexible {
		b = appendFetchTags(b, t)
	}
	return b
}

func appendFetchTags(b []byte, t *fetchTarget) []byte {
	n := byte(0)
	if t.res.Diverging != nil {
		n++
	}
	if t.leader != noLeader {
		n++
	}
	remote := t.known && t.res.RemoteEnd != replica.NoOffset
	if remote {
		n++
	}
	if t.absent {
		n++
	}
	b = append(b, n)
	if d := t.res.Diverging; d != nil {
		b = append(b, 0, 13)
		b = appendInt32(b, d.Epoch)
		b = appendInt64(b, d.EndOffset)
		b = append(b, 0)
	}
	if t.leader != noLeader {
		b = appendLeaderTag(b, 1, t.leader)
	}
	if remote {
		b = peer.AppendInt64(b, peer.TagRemoteEnd, t.res.RemoteEnd)
	}
	if t.absent {
		b = peer.AppendInt64(b, peer.TagAbsent, t.missing)
	}
	return b
}
