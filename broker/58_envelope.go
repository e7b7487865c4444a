package broker

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/replica/peer"
)

// Envelope (58): version 0, between brokers (KIP-590). The request inside is one that the controller decides, with its
// header; the answer inside has its header too. Without a principal it is a broker's own wish, for a topic that it needs: no
// client's quota counts that. (Brokers of releases that name no principal of their clients either cannot be in a cluster that has
// quotas: those need varve.version 4.)
var apiEnvelope = api{key: 58, name: "Envelope", min: 0, max: 0, internal: true, handle: typed((*Server).envelope)}

func (s *Server) envelope(r *request, q *kmsg.EnvelopeRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrEnvelopeResponse()
	img := s.deps.Metadata.Image()
	if img.ControllerID != s.cfg.NodeID {
		resp.ErrorCode = s.controllerCode(r, meta.ErrNotController, &resp.UnknownTags)
		return resp, nil
	}
	inner, err := s.unwrap(r, q)
	if err != nil {
		s.log.Warn("enveloped request refused", "client", r.c.remote, "err", err)
		resp.ErrorCode = codeInvalidRequest
		return resp, nil
	}
	s.stats.requests[inner.api.key].Add(1)
	if err := inner.api.handle(s, inner); err != nil || inner.captured == nil {
		return nil, fmt.Errorf("enveloped %s version %d: %w", inner.api.name, inner.version, err)
	}
	if inner.undecided {
		resp.ErrorCode = s.controllerCode(r, meta.ErrNotController, &resp.UnknownTags)
		return resp, nil
	}
	resp.ResponseData = appendInt32(nil, inner.corr)
	if inner.flexible {
		resp.ResponseData = append(resp.ResponseData, 0)
	}
	resp.ResponseData = inner.captured.AppendTo(resp.ResponseData)
	peer.SetInt64(&resp.UnknownTags, peer.TagMetadataIndex, int64(s.deps.Metadata.Image().Index))
	return resp, nil
}

// unwrap is the request inside an envelope.
func (s *Server) unwrap(r *request, q *kmsg.EnvelopeRequest) (*request, error) {
	h, rest, err := parseHeaderStart(q.RequestData)
	if err != nil {
		return nil, err
	}
	a := s.table.lookup(h.key)
	if a == nil || !a.forwarded || h.version < a.min || h.version > a.max {
		return nil, fmt.Errorf("%w: key %d version %d in an envelope", errUnsupported, h.key, h.version)
	}
	flexible := h.version >= a.flexible
	body, err := h.parseRest(rest, flexible)
	if err != nil {
		return nil, err
	}
	return &request{
		c: r.c, ctx: r.ctx, api: a, version: h.version, flexible: flexible, corr: h.correlation, client: string(h.client), body: body,
		capture: true, enveloped: true, own: len(q.RequestPrincipal) == 0, user: principalOf(q.RequestPrincipal), exempt: true,
	}, nil
}
