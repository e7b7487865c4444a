package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// AlterClientQuotas (49): versions 0–1 (KIP-546); v1 is flexible. Each entity has its own result.
var apiAlterQuotas = api{key: 49, name: "AlterClientQuotas", min: 0, max: 1, forwarded: true, handle: typed((*Server).alterQuotas)}

func (s *Server) alterQuotas(r *request, q *kmsg.AlterClientQuotasRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrAlterClientQuotasResponse()
	ctx, cancel := s.controllerContext(r)
	defer cancel()
	wishes := make([]meta.QuotaChange, len(q.Entries))
	for i := range q.Entries {
		w := &wishes[i]
		for _, p := range q.Entries[i].Entity {
			w.Entity = append(w.Entity, meta.QuotaPart{Type: p.Type, Name: p.Name})
		}
		for _, o := range q.Entries[i].Ops {
			w.Ops = append(w.Ops, meta.QuotaOp{Key: o.Key, Value: o.Value, Remove: o.Remove})
		}
	}
	results, err := s.decider(r).AlterQuotas(ctx, wishes, q.ValidateOnly)
	if err != nil {
		results = make([]meta.QuotaResult, len(wishes))
		for i := range wishes {
			results[i] = meta.QuotaResult{Entity: wishes[i].Entity, Err: err}
		}
	}
	for i := range results {
		entry := kmsg.NewAlterClientQuotasResponseEntry()
		entry.ErrorCode, entry.ErrorMessage = s.codeOf(r, results[i].Err), message(results[i].Err)
		for _, p := range results[i].Entity {
			part := kmsg.NewAlterClientQuotasResponseEntryEntity()
			part.Type, part.Name = p.Type, p.Name
			entry.Entity = append(entry.Entity, part)
		}
		resp.Entries = append(resp.Entries, entry)
	}
	return resp, nil
}
