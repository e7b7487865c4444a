package broker

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
)

// Topics is a node whose CreateTopics reaches the controller wherever it is: what brokers use that create topics of their
// own accord.
type Topics struct {
	*meta.Node
	Controller *Controller // nil: this node is the only one
}

// CreateTopics creates topics; each has its own result.
func (t Topics) CreateTopics(ctx context.Context, topics []meta.NewTopic, validateOnly bool) ([]meta.CreatedTopic, error) {
	return createTopicsAnywhere(ctx, t.Node, t.Controller, topics, validateOnly)
}

// createTopicsAnywhere creates topics here, or on the node that is the controller, until that is done or ctx ends.
func createTopicsAnywhere(ctx context.Context, m Metadata, c *Controller, topics []meta.NewTopic, validateOnly bool) ([]meta.CreatedTopic, error) {
	for {
		created, err := m.CreateTopics(ctx, topics, validateOnly)
		if c == nil || !errors.Is(err, meta.ErrNotController) {
			return created, err
		}
		img := m.Image()
		if to, ok := img.Brokers[img.ControllerID]; ok {
			created, err = c.createTopics(ctx, to, topics, validateOnly)
			if !errors.Is(err, meta.ErrNotController) && !errors.Is(err, meta.ErrUnknownOutcome) {
				return created, err
			}
		}
		pause := time.NewTimer(decidePause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, errors.Join(err, ctx.Err())
		}
	}
}

func (c *Controller) createTopics(ctx context.Context, to meta.Broker, topics []meta.NewTopic, validateOnly bool) ([]meta.CreatedTopic, error) {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.SetVersion(apiCreateTopics.max)
	req.ValidateOnly = validateOnly
	if at, ok := ctx.Deadline(); ok {
		req.TimeoutMillis = int32(min(max(time.Until(at).Milliseconds(), 1), 1<<31-1))
	}
	for i := range topics {
		req.Topics = append(req.Topics, encodeNewTopic(&topics[i]))
	}
	env := kmsg.NewPtrEnvelopeRequest()
	env.RequestData = kmsg.NewRequestFormatter().AppendRequest(nil, req, 0)[4:]
	env.ClientHostAddress = []byte{}
	got, err := c.Forward(ctx, to, env)
	if err != nil {
		return nil, err
	}
	resp := kmsg.NewPtrCreateTopicsResponse()
	resp.SetVersion(req.Version)
	body, ok := answerBody(got.ResponseData, true)
	if !ok {
		return nil, errBadRequest
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, err
	}
	return createdTopics(resp), nil
}

func encodeNewTopic(t *meta.NewTopic) kmsg.CreateTopicsRequestTopic {
	out := kmsg.NewCreateTopicsRequestTopic()
	out.Topic, out.NumPartitions, out.ReplicationFactor = t.Name, t.Partitions, t.ReplicationFactor
	for _, a := range t.Assignment {
		out.ReplicaAssignment = append(out.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: a.Partition, Replicas: a.Brokers})
	}
	for _, v := range t.Configs {
		out.Configs = append(out.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: v.Name, Value: v.Value})
	}
	return out
}

// createdTopics is what an answer says; refusals carry its messages.
func createdTopics(resp *kmsg.CreateTopicsResponse) []meta.CreatedTopic {
	created := make([]meta.CreatedTopic, len(resp.Topics))
	for i := range resp.Topics {
		t := &resp.Topics[i]
		created[i] = meta.CreatedTopic{Name: t.Topic, ID: topic.ID(t.TopicID), Partitions: t.NumPartitions, ReplicationFactor: t.ReplicationFactor}
		if t.ErrorCode == codeNone {
			continue
		}
		created[i].Err = metaError(t.ErrorCode)
		if t.ErrorCode == codeThrottlingQuotaExceeded {
			created[i].Err = errThrottled
		}
		if t.ErrorMessage != nil && *t.ErrorMessage != "" {
			created[i].Err = &meta.Error{Kind: created[i].Err, Message: *t.ErrorMessage}
		}
	}
	return created
}
