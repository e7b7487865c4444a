package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// split is a request for settings on its way to the controller: what the asked broker refuses by itself has been taken out,
// as in Kafka, where the settings of a broker are checked by that broker.
type split struct {
	frame []byte              // what to forward; nil: nothing is left
	merge func([]byte) []byte // puts the refusals back into the answer's body; nil: there are none
}

// splitConfigs takes the settings of other brokers out of an AlterConfigs or IncrementalAlterConfigs request.
func (s *Server) splitConfigs(r *request, frame []byte) (split, error) {
	switch r.api.key {
	case apiAlterConfigs.key:
		q := kmsg.NewPtrAlterConfigsRequest()
		q.SetVersion(r.version)
		if err := decode(r, q); err != nil {
			return split{}, err
		}
		all := q.Resources
		kept, refused := s.keepOwn(r, len(all), func(i int) (kmsg.ConfigResourceType, string, []meta.ConfigEdit) {
			var edits []meta.ConfigEdit
			for _, e := range all[i].Configs {
				edits = append(edits, meta.ConfigEdit{Name: e.Name})
			}
			return all[i].ResourceType, all[i].ResourceName, edits
		})
		q.Resources = pick(all, kept)
		return splitRequest(r, q, frame, len(kept), len(refused), func(body []byte) []byte {
			resp := kmsg.NewPtrAlterConfigsResponse()
			resp.SetVersion(r.version)
			if resp.ReadFrom(body) != nil || len(resp.Resources) != len(kept) {
				return body
			}
			merged := make([]kmsg.AlterConfigsResponseResource, len(all))
			for k, i := range kept {
				merged[i] = resp.Resources[k]
			}
			for i, err := range refused {
				merged[i] = kmsg.NewAlterConfigsResponseResource()
				merged[i].ResourceType, merged[i].ResourceName = all[i].ResourceType, all[i].ResourceName
				merged[i].ErrorCode, merged[i].ErrorMessage = s.codeOf(r, err), message(err)
			}
			resp.Resources = merged
			return resp.AppendTo(nil)
		}), nil
	case apiIncrementalAlterConfigs.key:
		q := kmsg.NewPtrIncrementalAlterConfigsRequest()
		q.SetVersion(r.version)
		if err := decode(r, q); err != nil {
			return split{}, err
		}
		all := q.Resources
		kept, refused := s.keepOwn(r, len(all), func(i int) (kmsg.ConfigResourceType, string, []meta.ConfigEdit) {
			var edits []meta.ConfigEdit
			for _, e := range all[i].Configs {
				edits = append(edits, meta.ConfigEdit{Name: e.Name})
			}
			return all[i].ResourceType, all[i].ResourceName, edits
		})
		q.Resources = pick(all, kept)
		return splitRequest(r, q, frame, len(kept), len(refused), func(body []byte) []byte {
			resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
			resp.SetVersion(r.version)
			if resp.ReadFrom(body) != nil || len(resp.Resources) != len(kept) {
				return body
			}
			merged := make([]kmsg.IncrementalAlterConfigsResponseResource, len(all))
			for k, i := range kept {
				merged[i] = resp.Resources[k]
			}
			for i, err := range refused {
				merged[i] = kmsg.NewIncrementalAlterConfigsResponseResource()
				merged[i].ResourceType, merged[i].ResourceName = all[i].ResourceType, all[i].ResourceName
				merged[i].ErrorCode, merged[i].ErrorMessage = s.codeOf(r, err), message(err)
			}
			resp.Resources = merged
			return resp.AppendTo(nil)
		}), nil
	}
	return split{frame: frame}, nil
}

// keepOwn tells the resources that go to the controller from those that this broker refuses.
func (s *Server) keepOwn(r *request, n int, resource func(int) (kmsg.ConfigResourceType, string, []meta.ConfigEdit)) (kept []int, refused map[int]error) {
	refused = map[int]error{}
	for i := range n {
		kind, name, edits := resource(i)
		c, err := configResource(kind, name)
		if err == nil {
			err = s.checkOwn(r, &meta.ConfigChange{ConfigResource: c, Edits: edits})
		}
		if err != nil {
			refused[i] = err
		} else {
			kept = append(kept, i)
		}
	}
	return kept, refused
}

func splitRequest(r *request, q kmsg.Request, frame []byte, kept, refused int, merge func([]byte) []byte) split {
	switch {
	case refused == 0:
		return split{frame: frame}
	case kept == 0:
		return split{}
	}
	format := kmsg.NewRequestFormatter(kmsg.FormatterClientID(r.client))
	return split{frame: format.AppendRequest(nil, q, r.corr)[4:], merge: merge}
}

func pick[T any](list []T, at []int) []T {
	out := make([]T, len(at))
	for k, i := range at {
		out[k] = list[i]
	}
	return out
}
