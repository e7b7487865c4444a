package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// DescribeClientQuotas (48): versions 0–1 (KIP-546); v1 is flexible. Any broker answers, as it knows them.
var apiDescribeQuotas = api{key: 48, name: "DescribeClientQuotas", min: 0, max: 1, handle: typed((*Server).describeQuotas)}

func (s *Server) describeQuotas(r *request, q *kmsg.DescribeClientQuotasRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeClientQuotasResponse()
	f := meta.QuotaFilter{Strict: q.Strict}
	for i := range q.Components {
		c := &q.Components[i]
		f.Parts = append(f.Parts, meta.QuotaFilterPart{Type: c.EntityType, Match: meta.QuotaMatch(c.MatchType), Name: c.Match})
	}
	list, err := s.deps.Metadata.Image().FilterQuotas(f)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = s.codeOf(r, err), message(err)
		return resp, nil
	}
	resp.ErrorMessage = kmsg.StringPtr("") // as Kafka puts it
	resp.Entries = []kmsg.DescribeClientQuotasResponseEntry{}
	for _, x := range list {
		entry := kmsg.NewDescribeClientQuotasResponseEntry()
		for _, p := range x.Entity.Parts() {
			part := kmsg.NewDescribeClientQuotasResponseEntryEntity()
			part.Type, part.Name = p.Type, p.Name
			entry.Entity = append(entry.Entity, part)
		}
		for _, v := range x.Values {
			value := kmsg.NewDescribeClientQuotasResponseEntryValue()
			value.Key, value.Value = v.Key, v.Value
			entry.Values = append(entry.Values, value)
		}
		resp.Entries = append(resp.Entries, entry)
	}
	return resp, nil
}
