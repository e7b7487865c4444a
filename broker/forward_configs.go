package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"
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
		kept, refused := s.keepOwn(r, legacyChanges(q))
		all := q.Resources
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
		kept, refused := s.keepOwn(r, incrementalChanges(q))
		all := q.Resources
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
func (s *Server) keepOwn(r *request, changes []configChange) (kept []int, refused map[int]error) {
	refused = map[int]error{}
	for i := range changes {
		err := changes[i].err
		if err == nil {
			err = s.checkOwn(r, &changes[i].ConfigChange)
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
