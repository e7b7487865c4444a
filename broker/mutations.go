package broker

import (
	"context"

	"github.com/varvelog/varve/meta"
)

// What one client may create and delete of partitions (KIP-599). The controller counts. From a version of each request on,
// what is beyond the quota is refused, topic by topic, with the time after which to ask again; before it everything is done and
// the client has to wait.

// mutations is a client's quota of such changes, for the time of one request.
type mutations struct {
	q      *quotas
	grant  grant
	strict bool
}

// mutations finds the quota that counts for a request; nil: there is none.
func (s *Server) mutations(r *request, strictSince int16) *mutations {
	t := s.quotas.table.Load()
	if t == nil || r.refusal != nil || r.own {
		return nil
	}
	g := s.quotas.grant(t, quotaMutation, r.user, r.client)
	if g.acct == nil {
		return nil
	}
	return &mutations{q: s.quotas, grant: g, strict: r.version >= strictSince}
}

// take counts partitions. What is beyond a strict quota is refused and not counted.
func (m *mutations) take(r *request, partitions int) error {
	for {
		a := m.grant.acct
		now := m.q.now()
		a.mu.Lock()
		if a.gone {
			a.mu.Unlock()
			m.grant.acct = m.q.account(m.grant.key, now)
			continue
		}
		defer a.mu.Unlock()
		wait := a.bucket.Wait(now, m.grant.bound, m.q.burst)
		if m.strict && wait > 0 {
			r.held = max(r.held, wait)
			return errThrottled
		}
		a.bucket.Take(now, float64(partitions), m.grant.bound, m.q.burst)
		wait = a.bucket.Wait(now, m.grant.bound, m.q.burst)
		a.used = max(a.used, now+wait) // it is not as new before that
		if !m.strict {
			r.held = max(r.held, wait)
		}
		return nil
	}
}

// createWithin creates topics within the quota of who asks. What would fail anyway is not counted.
func (s *Server) createWithin(ctx context.Context, r *request, topics []meta.NewTopic, validateOnly bool) ([]meta.CreatedTopic, error) {
	m := s.mutations(r, 6)
	if m == nil {
		return s.decider(r).CreateTopics(ctx, topics, validateOnly)
	}
	tried, err := s.decider(r).CreateTopics(ctx, topics, true)
	if err != nil {
		return nil, err
	}
	refused := map[string]bool{}
	for i := range tried {
		if x := &tried[i]; x.Err == nil {
			if x.Err = m.take(r, int(x.Partitions)); x.Err != nil {
				refused[x.Name] = true
			}
		}
	}
	if validateOnly || len(refused) == len(tried) {
		return tried, nil
	}
	admitted := make([]meta.NewTopic, 0, len(topics))
	for _, t := range topics {
		if !refused[t.Name] {
			admitted = append(admitted, t)
		}
	}
	made, err := s.decider(r).CreateTopics(ctx, admitted, false)
	if err != nil {
		return nil, err
	}
	for i := range tried {
		if refused[tried[i].Name] {
			made = append(made, tried[i])
		}
	}
	return made, nil
}

// growWithin adds partitions likewise.
func (s *Server) growWithin(ctx context.Context, r *request, topics []meta.MorePartitions, validateOnly bool) ([]meta.TopicResult, error) {
	m := s.mutations(r, 3)
	if m == nil {
		return s.decider(r).CreatePartitions(ctx, topics, validateOnly)
	}
	tried, err := s.decider(r).CreatePartitions(ctx, topics, true)
	if err != nil {
		return nil, err
	}
	counts := map[string]int32{}
	for _, t := range topics {
		counts[t.Name] = t.Count
	}
	img := s.deps.Metadata.Image()
	refused := map[string]bool{}
	for i := range tried {
		x := &tried[i]
		t := img.Topic(x.Name)
		if x.Err != nil || t == nil {
			continue
		}
		if x.Err = m.take(r, max(int(counts[x.Name])-len(t.Partitions), 0)); x.Err != nil {
			refused[x.Name] = true
		}
	}
	if validateOnly || len(refused) == len(tried) {
		return tried, nil
	}
	admitted := make([]meta.MorePartitions, 0, len(topics))
	for _, t := range topics {
		if !refused[t.Name] {
			admitted = append(admitted, t)
		}
	}
	grown, err := s.decider(r).CreatePartitions(ctx, admitted, false)
	if err != nil {
		return nil, err
	}
	for i := range tried {
		if refused[tried[i].Name] {
			grown = append(grown, tried[i])
		}
	}
	return grown, nil
}

// deleteWithin deletes topics likewise.
func (s *Server) deleteWithin(ctx context.Context, r *request, refs []meta.TopicRef) ([]meta.TopicResult, error) {
	m := s.mutations(r, 5)
	if m == nil {
		return s.decider(r).DeleteTopics(ctx, refs)
	}
	img := s.deps.Metadata.Image()
	var admitted []meta.TopicRef
	var refused []meta.TopicResult
	for _, ref := range refs {
		t := img.Topic(ref.Name)
		if ref.Name == "" {
			t = img.TopicByID(ref.ID)
		}
		if t != nil && img.ControllerID == s.cfg.NodeID {
			if err := m.take(r, len(t.Partitions)); err != nil {
				refused = append(refused, meta.TopicResult{Name: ref.Name, ID: ref.ID, Err: err})
				continue
			}
		}
		admitted = append(admitted, ref)
	}
	if len(admitted) == 0 && len(refused) > 0 {
		return refused, nil
	}
	deleted, err := s.decider(r).DeleteTopics(ctx, admitted)
	if err != nil {
		return nil, err
	}
	return append(deleted, refused...), nil
}
