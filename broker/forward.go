package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica/peer"
)

// Requests that the controller decides may be sent to any broker. One that is not the controller wraps the request's bytes
// in an Envelope (KIP-590), sends it to the broker that is, and relays the answer's bytes.

// Controlled is this node's own controller, as other brokers call it: it decides, or refuses with meta.ErrNotController. No
// call hops twice. ControllerOf adapts a meta.Node.
type Controlled interface {
	RegisterBroker(ctx context.Context, r meta.Registration) (meta.Broker, error)
	Heartbeat(ctx context.Context, h meta.Heartbeat) (meta.HeartbeatReply, error)
	AlterPartitions(ctx context.Context, leader int32, epoch int64, wishes []meta.AlterPartition) ([]meta.AlteredPartition, error)
	AllocateProducerIDs(ctx context.Context, id int32, epoch int64) (meta.ProducerIDs, error)
	ConfirmDeleted(ctx context.Context, id topic.ID, broker int32, tier bool) error
	// Disconnected says that the connection has ended over which a broker sent its heartbeats.
	Disconnected(id int32, epoch int64)
}

// ControllerOf is a node's controller.
func ControllerOf(n *meta.Node) Controlled { return controlled{n.Local(), n} }

type controlled struct {
	meta.Local
	node *meta.Node
}

func (c controlled) Disconnected(id int32, epoch int64) { c.node.Disconnected(id, epoch) }

// controllerContext bounds the work for another broker.
func (s *Server) controllerContext(r *request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.ctx, s.cfg.RequestsTime)
}

// controllerCode is codeOf for an answer to another broker. One that came to the wrong broker is told the right one.
func (s *Server) controllerCode(r *request, err error, tags *kmsg.Tags) int16 {
	c := s.codeOf(r, err)
	if c != codeNotController {
		return c
	}
	img := s.deps.Metadata.Image()
	if b, ok := img.Brokers[img.ControllerID]; ok && b.ID != s.cfg.NodeID {
		peer.SetController(tags, peer.Broker{ID: b.ID, Host: b.Host, Port: b.Port})
	}
	return c
}

// decidePause is how long a request waits for news of who is the controller before it is tried again.
const decidePause = 50 * time.Millisecond

// decide has the controller answer a request, wherever it is. frame is the request with its header. It tries again, as
// Kafka does, when the controller moves, until request.timeout.ms has passed; an outcome that got lost may then show as
// TOPIC_ALREADY_EXISTS and the like.
func (s *Server) decide(r *request, frame []byte) error {
	if s.deps.Controller == nil {
		return r.api.handle(s, r)
	}
	ctx, cancel := context.WithTimeout(r.ctx, s.cfg.RequestsTime)
	defer cancel()
	for {
		decided, err := s.decideOnce(ctx, r, frame)
		if decided || err != nil {
			return err
		}
		paused := time.Now()
		pause := time.NewTimer(decidePause)
		select {
		case <-pause.C:
			r.parks(paused)
			continue
		case <-ctx.Done():
			pause.Stop()
		}
		r.parks(paused)
		if r.ctx.Err() != nil {
			return errClosed
		}
		r.refusal = context.DeadlineExceeded
		return r.api.handle(s, r)
	}
}

// decideOnce tries the controller that the image names. decided is false when that was none.
func (s *Server) decideOnce(ctx context.Context, r *request, frame []byte) (decided bool, err error) {
	img := s.deps.Metadata.Image()
	if img.ControllerID == s.cfg.NodeID {
		return s.decideHere(r)
	}
	to, ok := img.Brokers[img.ControllerID]
	if !ok {
		return false, nil
	}
	part, err := s.splitConfigs(r, frame)
	if err != nil {
		return true, err
	}
	if part.frame == nil {
		return true, r.api.handle(s, r)
	}
	env := kmsg.NewPtrEnvelopeRequest()
	env.RequestData, env.ClientHostAddress, env.RequestPrincipal = part.frame, []byte(r.c.remote), principalData(r.user)
	sent := time.Now()
	resp, err := s.deps.Controller.Forward(ctx, to, env)
	r.parks(sent)
	switch {
	case errors.Is(err, meta.ErrNotController), errors.Is(err, meta.ErrUnknownOutcome):
		return false, nil
	case err != nil:
		r.refusal = err
		return true, r.api.handle(s, r)
	case len(resp.ResponseData) < 4 || int32(binary.BigEndian.Uint32(resp.ResponseData)) != r.corr:
		return true, fmt.Errorf("%w: enveloped answer to another request", peer.ErrMalformed)
	}
	told := time.Now()
	s.awaitRelayed(ctx, r, resp)
	r.parks(told)
	data := resp.ResponseData
	if body, ok := answerBody(data, r.flexible); ok && part.merge != nil {
		header := len(data) - len(body)
		data = append(data[:header:header], part.merge(body)...)
	}
	if t := s.quotas.table.Load(); t != nil {
		data = s.throttleRelayed(r, t, data)
	}
	p := newReply()
	p.head = binary.BigEndian.AppendUint32(p.head[:0], uint32(len(data)))
	p.head = append(p.head, data...)
	return true, r.reply(p)
}

// decideHere runs the handler, unless it turns out that this node is no controller after all.
func (s *Server) decideHere(r *request) (decided bool, err error) {
	r.capture, r.undecided = true, false
	err = r.api.handle(s, r)
	resp := r.captured
	r.capture, r.captured, r.answered = false, nil, false
	if err != nil || resp == nil || !r.undecided {
		if err == nil && resp != nil {
			err = r.send(resp)
		}
		return true, err
	}
	return false, nil
}

// awaitRelayed waits a moment until this broker knows what the controller has just changed.
func (s *Server) awaitRelayed(ctx context.Context, r *request, resp *kmsg.EnvelopeResponse) {
	index, ok := peer.Int64(&resp.UnknownTags, peer.TagMetadataIndex)
	if !ok {
		return
	}
	s.awaitIndex(ctx, uint64(max(index, 0)))
	if r.api.key != apiCreateTopics.key {
		return
	}
	made := kmsg.NewPtrCreateTopicsResponse()
	made.SetVersion(r.version)
	body, ok := answerBody(resp.ResponseData, r.flexible)
	if !ok || made.ReadFrom(body) != nil {
		return
	}
	s.awaitReady(ctx, createdTopics(made))
}

// relayMax bounds the wait for this broker's image after a relayed answer: the answer is right without it.
const relayMax = 2 * time.Second

// awaitIndex waits until this broker's image is at least as new as index.
func (s *Server) awaitIndex(ctx context.Context, index uint64) {
	ctx, cancel := context.WithTimeout(ctx, relayMax)
	defer cancel()
	pause := time.Millisecond
	t := time.NewTimer(pause)
	defer t.Stop()
	for s.deps.Metadata.Image().Index < index {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, 20*time.Millisecond)
		t.Reset(pause)
	}
}

// answerBody is what follows the header of an answer: correlation id and, in flexible versions, tags.
func answerBody(b []byte, flexible bool) ([]byte, bool) {
	if len(b) < 4 {
		return nil, false
	}
	if !flexible {
		return b[4:], true
	}
	body, err := skipTags(b[4:])
	return body, err == nil
}

// Forward sends an Envelope to the controller. Its own error code is turned into an error.
func (c *Controller) Forward(ctx context.Context, to meta.Broker, env *kmsg.EnvelopeRequest) (*kmsg.EnvelopeResponse, error) {
	return callWithin(ctx, c, to, peer.LaneForward, math.MaxInt64, env, func(x *kmsg.EnvelopeResponse) (int16, *kmsg.Tags) {
		return x.ErrorCode, &x.UnknownTags
	})
}

// decider is the metadata quorum for a request's handler: one that refuses every decision once the request has waited in
// vain, so that each key answers that in its own shape.
func (s *Server) decider(r *request) Metadata {
	if r.refusal != nil {
		return refusing{s.deps.Metadata, r.refusal}
	}
	return s.deps.Metadata
}

type refusing struct {
	Metadata
	err error
}

func (x refusing) CreateTopics(context.Context, []meta.NewTopic, bool) ([]meta.CreatedTopic, error) {
	return nil, x.err
}

func (x refusing) DeleteTopics(context.Context, []meta.TopicRef) ([]meta.TopicResult, error) {
	return nil, x.err
}

func (x refusing) CreatePartitions(context.Context, []meta.MorePartitions, bool) ([]meta.TopicResult, error) {
	return nil, x.err
}

func (x refusing) AlterConfigs(context.Context, []meta.ConfigChange, bool) ([]meta.ConfigResult, error) {
	return nil, x.err
}

func (x refusing) ElectLeaders(context.Context, bool, []meta.PartitionRef) ([]meta.ElectionResult, error) {
	return nil, x.err
}

func (x refusing) AlterReassignments(context.Context, []meta.Reassign, bool) ([]meta.ReassignResult, error) {
	return nil, x.err
}

func (x refusing) AlterQuotas(context.Context, []meta.QuotaChange, bool) ([]meta.QuotaResult, error) {
	return nil, x.err
}

func (x refusing) UpdateFeatures(context.Context, []meta.FeatureUpdate, bool) error { return x.err }

func (x refusing) UnregisterBroker(context.Context, int32) error { return x.err }

func (x refusing) Quorum() (meta.Quorum, error) { return meta.Quorum{}, x.err }

func (x refusing) AddVoter(context.Context, int32, string) error { return x.err }

func (x refusing) RemoveVoter(context.Context, int32) error { return x.err }
