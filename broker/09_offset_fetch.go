package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
)

// OffsetFetch (9): versions 1–10.
//
//	v2 all topics, error of the whole    v5 leader epoch (KIP-320)    v6 flexible    v7 require stable (KIP-447)
//	v8 several groups (KIP-709)    v9 member id and epoch (KIP-848)    v10 topics by id
//
// A partition without an offset is answered with offset -1 and no error, and one whose offset an open transaction is about to
// change with UNSTABLE_OFFSET_COMMIT if the client asked for stable ones.
var apiOffsetFetch = api{key: 9, name: "OffsetFetch", min: 1, max: 10, handle: typed((*Server).offsetFetch)}

func (s *Server) offsetFetch(r *request, q *kmsg.OffsetFetchRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrOffsetFetchResponse()
	if r.version >= 8 {
		for i := range q.Groups {
			resp.Groups = append(resp.Groups, s.offsetFetchGroup(r, &q.Groups[i], q.RequireStable))
		}
		return resp, nil
	}
	one := kmsg.NewOffsetFetchRequestGroup()
	one.Group = q.Group
	if q.Topics != nil || r.version < 2 {
		one.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for i := range q.Topics {
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.Partitions = q.Topics[i].Topic, q.Topics[i].Partitions
		one.Topics = append(one.Topics, t)
	}
	g := s.offsetFetchGroup(r, &one, q.RequireStable)
	resp.ErrorCode = g.ErrorCode
	if g.ErrorCode != codeNone && r.version < 2 { // there is no place for the error but the partitions
		for i := range one.Topics {
			g.Topics = append(g.Topics, failedOffsets(&one.Topics[i], g.ErrorCode))
		}
	}
	for i := range g.Topics {
		t := kmsg.NewOffsetFetchResponseTopic()
		t.Topic = g.Topics[i].Topic
		for _, p := range g.Topics[i].Partitions {
			a := kmsg.NewOffsetFetchResponseTopicPartition()
			a.Partition, a.Offset, a.LeaderEpoch, a.Metadata, a.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
			t.Partitions = append(t.Partitions, a)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp, nil
}

func failedOffsets(t *kmsg.OffsetFetchRequestGroupTopic, code int16) kmsg.OffsetFetchResponseGroupTopic {
	out := kmsg.NewOffsetFetchResponseGroupTopic()
	out.Topic, out.TopicID = t.Topic, t.TopicID
	for _, index := range t.Partitions {
		p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode = index, -1, -1, kmsg.StringPtr(""), code
		out.Partitions = append(out.Partitions, p)
	}
	return out
}

func (s *Server) offsetFetchGroup(r *request, q *kmsg.OffsetFetchRequestGroup, stable bool) kmsg.OffsetFetchResponseGroup {
	g := kmsg.NewOffsetFetchResponseGroup()
	g.Group = q.Group
	img := s.deps.Metadata.Image()
	f := &coordinator.FetchOffsetsRequest{Group: q.Group, All: q.Topics == nil, RequireStable: stable}
	if r.version >= 9 && q.MemberID != nil {
		f.MemberID, f.MemberEpoch = q.MemberID, q.MemberEpoch
	}
	known := make([]*meta.Topic, len(q.Topics))
	for i := range q.Topics {
		t := &q.Topics[i]
		name, id := t.Topic, topic.ID{}
		if r.version >= 10 {
			known[i] = img.TopicByID(t.TopicID)
		} else {
			known[i] = img.Topic(name)
		}
		if known[i] != nil {
			name, id = known[i].Name, known[i].ID
		} else if r.version >= 10 {
			continue
		}
		for _, p := range t.Partitions {
			f.Partitions = append(f.Partitions, coordinator.OffsetPartition{Topic: name, ID: id, Partition: p})
		}
	}
	var offsets []coordinator.CommittedOffset
	if f.All || len(f.Partitions) > 0 || len(q.Topics) == 0 {
		var err error
		if offsets, err = s.deps.Groups.FetchOffsets(r.ctx, f); err != nil {
			g.ErrorCode = s.codeOf(r, err)
			return g
		}
	}
	if f.All {
		g.Topics = allOffsets(r, img, offsets)
		return g
	}
	for i := range q.Topics {
		t := &q.Topics[i]
		if r.version >= 10 && known[i] == nil {
			g.Topics = append(g.Topics, failedOffsets(t, codeUnknownTopicID))
			continue
		}
		out := kmsg.NewOffsetFetchResponseGroupTopic()
		out.Topic, out.TopicID = t.Topic, t.TopicID
		for range t.Partitions {
			out.Partitions = append(out.Partitions, offsetAnswer(&offsets[0]))
			offsets = offsets[1:]
		}
		g.Topics = append(g.Topics, out)
	}
	return g
}

// allOffsets groups the offsets by topic. By id, topics that are gone cannot be named and are left out, and so is what was
// committed for a topic that another has taken the name of.
func allOffsets(r *request, img *meta.Image, offsets []coordinator.CommittedOffset) []kmsg.OffsetFetchResponseGroupTopic {
	var out []kmsg.OffsetFetchResponseGroupTopic
	for i := range offsets {
		o := &offsets[i]
		known := img.Topic(o.Topic)
		if known == nil && r.version >= 10 || known != nil && !o.ID.IsZero() && o.ID != known.ID {
			continue
		}
		if len(out) == 0 || out[len(out)-1].Topic != o.Topic {
			t := kmsg.NewOffsetFetchResponseGroupTopic()
			t.Topic = o.Topic
			if known != nil {
				t.TopicID = known.ID
			}
			out = append(out, t)
		}
		last := &out[len(out)-1]
		last.Partitions = append(last.Partitions, offsetAnswer(o))
	}
	return out
}

func offsetAnswer(o *coordinator.CommittedOffset) kmsg.OffsetFetchResponseGroupTopicPartition {
	p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = o.Partition, o.Offset, o.LeaderEpoch, &o.Metadata
	p.ErrorCode = code(o.Err)
	return p
}
