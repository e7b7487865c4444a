package broker

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// CreateTopics (19): versions 2–7.
//
//	v4 defaults for partitions and replication factor (KIP-464)
//	v5 flexible; what was made and with which settings (KIP-525)    v7 topic id
var apiCreateTopics = api{key: 19, name: "CreateTopics", min: 2, max: 7, forwarded: true, handle: typed((*Server).createTopics)}

func (s *Server) createTopics(r *request, q *kmsg.CreateTopicsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrCreateTopicsResponse()
	ctx, cancel := s.metadataContext(r, q.TimeoutMillis)
	defer cancel()
	topics := make([]meta.NewTopic, len(q.Topics))
	for i := range q.Topics {
		t := &q.Topics[i]
		n := meta.NewTopic{Name: t.Topic, Partitions: t.NumPartitions, ReplicationFactor: t.ReplicationFactor}
		for _, a := range t.ReplicaAssignment {
			n.Assignment = append(n.Assignment, meta.Assignment{Partition: a.Partition, Brokers: a.Replicas})
		}
		for _, c := range t.Configs {
			n.Configs = append(n.Configs, meta.ConfigValue{Name: c.Name, Value: c.Value})
		}
		topics[i] = n
	}
	created, err := s.createWithin(ctx, r, topics, q.ValidateOnly)
	if err != nil {
		created = make([]meta.CreatedTopic, len(topics))
		for i := range topics {
			created[i] = meta.CreatedTopic{Name: topics[i].Name, Err: err}
		}
	}
	for i := range created {
		resp.Topics = append(resp.Topics, s.createdTopic(r, &created[i]))
	}
	if !q.ValidateOnly && !r.enveloped {
		s.awaitReady(ctx, created)
	}
	return resp, nil
}

func (s *Server) createdTopic(r *request, c *meta.CreatedTopic) kmsg.CreateTopicsResponseTopic {
	out := kmsg.NewCreateTopicsResponseTopic()
	out.Topic, out.NumPartitions, out.ReplicationFactor = c.Name, -1, -1
	if c.Err != nil {
		out.ErrorCode, out.ErrorMessage = s.codeOf(r, c.Err), message(c.Err)
		out.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
		return out
	}
	out.TopicID = c.ID // of one that was only validated, too: Kafka makes one up
	out.NumPartitions, out.ReplicationFactor = c.Partitions, c.ReplicationFactor
	for _, e := range s.topicConfig(s.deps.Metadata.Image(), c.Configs) {
		a := kmsg.NewCreateTopicsResponseTopicConfig()
		a.Name, a.Value, a.Source, a.IsSensitive = e.def.Name, e.value, int8(e.source), e.def.Sensitive
		out.Configs = append(out.Configs, a)
	}
	return out
}

// metadataContext bounds a call into the metadata quorum by the request's own timeout.
func (s *Server) metadataContext(r *request, millis int32) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.ctx, min(s.cfg.RequestsTime, time.Duration(max(millis, 1))*time.Millisecond))
}
