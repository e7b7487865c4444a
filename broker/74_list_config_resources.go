package broker

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListConfigResources (74): versions 0–1. v0 lists client metrics subscriptions, of which there are none; v1 (KIP-1142) any
// kind of resource that can have settings.
var apiListConfigResources = api{key: 74, name: "ListConfigResources", min: 0, max: 1, handle: typed((*Server).listConfigResources)}

func (s *Server) listConfigResources(r *request, q *kmsg.ListConfigResourcesRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrListConfigResourcesResponse()
	if r.version == 0 {
		return resp, nil
	}
	const topics, brokers, loggers, metrics, groups = 2, 4, 8, 16, 32
	types := q.ResourceTypes
	if len(types) == 0 {
		types = []int8{topics, brokers, loggers, metrics, groups}
	}
	img := s.deps.Metadata.Image()
	add := func(kind int8, name string) {
		x := kmsg.NewListConfigResourcesResponseConfigResource()
		x.Name, x.Type = name, kind
		resp.ConfigResources = append(resp.ConfigResources, x)
	}
	for _, kind := range types {
		switch kind {
		case topics:
			for _, t := range img.Topics() {
				add(kind, t.Name)
			}
		case brokers, loggers:
			for _, b := range s.brokers(img, r.c.door.Name, false) {
				add(kind, strconv.Itoa(int(b.id)))
			}
		case groups:
			for _, g := range img.ConfiguredGroups() {
				add(kind, g)
			}
		case metrics:
		default:
			resp.ConfigResources = nil
			resp.ErrorCode = codeUnsupportedVersion
			return resp, nil
		}
	}
	return resp, nil
}
