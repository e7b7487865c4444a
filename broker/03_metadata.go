package broker

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
)

// Metadata (3): versions 0–13.
//
//	v0 empty = all topics         v1 null = all, empty = none; controller id, racks
//	v4 AllowAutoTopicCreation     v7 leader epochs          v8 authorized operations
//	v9 flexible                   v10 topic ids in answers  v12 topics by id
//	v13 top-level error code
//
// A leader is named only when it is ready to serve: some clients (kafka-go) do not retry NOT_LEADER just after a create.
var apiMetadata = api{key: 3, name: "Metadata", min: 0, max: 13, handle: typed((*Server).metadata)}

func (s *Server) metadata(r *request, q *kmsg.MetadataRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrMetadataResponse()
	if refused := metadataRefusal(r, q); refused != codeNone {
		return metadataRefused(resp, q, refused), nil
	}
	img := s.deps.Metadata.Image()
	for _, b := range s.brokers(img, r.c.door.Name, false) {
		rb := kmsg.NewMetadataResponseBroker()
		rb.NodeID, rb.Host, rb.Port, rb.Rack = b.id, b.host, b.port, optional(b.rack)
		resp.Brokers = append(resp.Brokers, rb)
	}
	resp.ClusterID = optional(img.ClusterID)
	resp.ControllerID = s.controllerID(img, r.c.door.Name)
	if q.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = clusterOperations
	}
	if q.Topics == nil || r.version == 0 && len(q.Topics) == 0 {
		for _, t := range img.Topics() {
			resp.Topics = append(resp.Topics, s.metadataTopic(r, img, t, q))
		}
		return resp, nil
	}
	resp.Topics = s.metadataNamed(r, img, q)
	return resp, nil
}

// metadataRefusal is the error of a request whose topics make no sense: ids are for versions from 12 on, and a topic needs
// an id or a name. The second is Kafka's own words for it.
func metadataRefusal(r *request, q *kmsg.MetadataRequest) int16 {
	byID := false
	for i := range q.Topics {
		byID = byID || q.Topics[i].TopicID != [16]byte{}
	}
	for i := range q.Topics {
		switch t := &q.Topics[i]; {
		case r.version < 12 && (t.Topic == nil || t.TopicID != [16]byte{}):
			return codeInvalidRequest
		case t.Topic == nil && !byID:
			return codeUnknownServerError
		}
	}
	return codeNone
}

// metadataRefused answers the same error for every topic named, and nothing else.
func metadataRefused(resp *kmsg.MetadataResponse, q *kmsg.MetadataRequest, refused int16) kmsg.Response {
	resp.ErrorCode, resp.ControllerID = refused, -1
	for i := range q.Topics {
		t := kmsg.NewMetadataResponseTopic()
		t.ErrorCode, t.TopicID, t.Topic = refused, q.Topics[i].TopicID, q.Topics[i].Topic
		if t.Topic == nil {
			t.Topic = kmsg.StringPtr("")
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// metadataNamed answers for the topics that the request names, each once; names that are missing are created when both sides
// want that.
func (s *Server) metadataNamed(r *request, img *meta.Image, q *kmsg.MetadataRequest) []kmsg.MetadataResponseTopic {
	byID := false
	for i := range q.Topics {
		byID = byID || q.Topics[i].TopicID != [16]byte{}
	}
	var out []kmsg.MetadataResponseTopic
	var missing []string
	seen := map[string]bool{}
	for i := range q.Topics {
		want := &q.Topics[i]
		if byID {
			if want.TopicID == [16]byte{} {
				continue // Kafka answers by id alone when any id is given
			}
			t := img.TopicByID(want.TopicID)
			if t == nil {
				u := kmsg.NewMetadataResponseTopic()
				u.ErrorCode, u.TopicID, u.Topic = codeUnknownTopicID, want.TopicID, nil
				out = append(out, u)
			} else if !seen[t.Name] {
				seen[t.Name] = true
				out = append(out, s.metadataTopic(r, img, t, q))
			}
			continue
		}
		name := *want.Topic
		if seen[name] {
			continue
		}
		seen[name] = true
		if t := img.Topic(name); t != nil {
			out = append(out, s.metadataTopic(r, img, t, q))
			continue
		}
		u := kmsg.NewMetadataResponseTopic()
		u.Topic, u.IsInternal, u.ErrorCode = want.Topic, topic.IsInternal(name), codeUnknownTopicOrPartition
		if topic.ValidateName(name) != nil {
			u.ErrorCode = codeInvalidTopic
		} else {
			missing = append(missing, name)
		}
		if q.IncludeTopicAuthorizedOperations {
			u.AuthorizedOperations = topicOperations
		}
		out = append(out, u)
	}
	if len(missing) > 0 && s.cfg.AutoCreateTopics && (r.version < 4 || q.AllowAutoTopicCreation) {
		s.autoCreate(r, missing, out)
	}
	return out
}

// autoCreate creates missing topics with the broker's defaults. The answer at hand still says that they are unknown: the
// client asks again, as it does with Kafka.
func (s *Server) autoCreate(r *request, names []string, out []kmsg.MetadataResponseTopic) {
	ctx, cancel := context.WithTimeout(r.ctx, s.cfg.RequestsTime)
	defer cancel()
	topics := make([]meta.NewTopic, len(names))
	for i, name := range names {
		topics[i] = meta.NewTopic{Name: name, Partitions: -1, ReplicationFactor: -1}
	}
	created, err := createTopicsAnywhere(ctx, s.deps.Metadata, s.deps.Controller, topics, false)
	if err != nil {
		s.log.Warn("automatic topic creation failed", "topics", names, "err", err)
		return
	}
	for _, c := range created {
		if c.Err == nil || errors.Is(c.Err, meta.ErrTopicExists) {
			continue
		}
		s.log.Warn("automatic topic creation refused", "topic", c.Name, "err", c.Err)
		for i := range out {
			if out[i].Topic != nil && *out[i].Topic == c.Name {
				out[i].ErrorCode = s.autoCreateCode(r, c.Err)
			}
		}
	}
	s.awaitReady(ctx, created)
}

// autoCreateCode is a refusal as Metadata tells it. That somebody's quota is used up is not for clients to know there: they give
// up on an error that they do not expect. The topic is unknown still, and they ask again, as with Kafka.
func (s *Server) autoCreateCode(r *request, err error) int16 {
	if errors.Is(err, errThrottled) {
		return codeUnknownTopicOrPartition
	}
	return s.codeOf(r, err)
}

// awaitReady waits a moment until this broker serves what was just created, so that the client's next question finds a
// leader. It gives up silently: the client retries.
func (s *Server) awaitReady(ctx context.Context, created []meta.CreatedTopic) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	pause := time.Millisecond
	t := time.NewTimer(pause)
	defer t.Stop()
	for i := range created {
		c := &created[i]
		for p := int32(0); c.Err == nil && p < c.Partitions; {
			_, part := s.deps.Metadata.Image().Partition(c.Name, p)
			if part == nil || part.Leader != s.cfg.NodeID || s.deps.Partitions.Ready(c.Name, p) {
				p++
				continue
			}
			select {
			case <-t.C:
			case <-ctx.Done():
				return
			}
			pause = min(2*pause, 20*time.Millisecond)
			t.Reset(pause)
		}
	}
}

func (s *Server) metadataTopic(r *request, img *meta.Image, t *meta.Topic, q *kmsg.MetadataRequest) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.TopicID, out.IsInternal = &t.Name, t.ID, topic.IsInternal(t.Name)
	if q.IncludeTopicAuthorizedOperations {
		out.AuthorizedOperations = topicOperations
	}
	out.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.Partitions))
	for i := range t.Partitions {
		p, o := &t.Partitions[i], &out.Partitions[i]
		*o = kmsg.NewMetadataResponseTopicPartition()
		o.Partition, o.LeaderEpoch = int32(i), p.LeaderEpoch
		o.Replicas, o.ISR = p.Replicas, p.ISR
		o.OfflineReplicas = offlineReplicas(img, p)
		if o.Leader, o.ErrorCode = s.readyLeader(img, t.Name, int32(i), p, r.c.door.Name); o.ErrorCode == codeListenerNotFound && r.version < 6 {
			o.ErrorCode = codeLeaderNotAvailable
		}
	}
	return out
}

// readyLeader is the leader that clients of a listener may be sent to, or -1 and why.
func (s *Server) readyLeader(img *meta.Image, name string, index int32, p *meta.Partition, listener string) (int32, int16) {
	b, known := img.Brokers[p.Leader]
	switch {
	case p.Leader == meta.NoLeader:
		return -1, codeLeaderNotAvailable
	case p.Leader == s.cfg.NodeID:
		if !s.deps.Partitions.Ready(name, index) {
			return -1, codeLeaderNotAvailable
		}
	case !known || b.Fenced:
		return -1, codeLeaderNotAvailable
	}
	if _, _, ok := b.At(listener); !ok {
		return -1, codeListenerNotFound
	}
	return p.Leader, codeNone
}

// offlineReplicas are the replicas on brokers that are not there.
func offlineReplicas(img *meta.Image, p *meta.Partition) []int32 {
	var off []int32
	for _, id := range p.Replicas {
		if b, ok := img.Brokers[id]; !ok || b.Fenced {
			off = append(off, id)
		}
	}
	return off
}
