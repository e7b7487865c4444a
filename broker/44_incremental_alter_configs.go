package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// IncrementalAlterConfigs (44): versions 0–1 (KIP-339); v1 is flexible. Sets, deletes, appends to and subtracts from single
// settings of topics, brokers and groups.
var apiIncrementalAlterConfigs = api{key: 44, name: "IncrementalAlterConfigs", min: 0, max: 1, forwarded: true, handle: typed((*Server).incrementalAlterConfigs)}

func (s *Server) incrementalAlterConfigs(r *request, q *kmsg.IncrementalAlterConfigsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
	for i, err := range s.alterConfigs(r, incrementalChanges(q), q.ValidateOnly) {
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = q.Resources[i].ResourceType, q.Resources[i].ResourceName
		out.ErrorCode, out.ErrorMessage = s.codeOf(r, err), message(err)
		resp.Resources = append(resp.Resources, out)
	}
	return resp, nil
}

func incrementalChanges(q *kmsg.IncrementalAlterConfigsRequest) []configChange {
	changes := make([]configChange, len(q.Resources))
	for i := range q.Resources {
		x := &q.Resources[i]
		c := &changes[i]
		c.ConfigResource, c.err = configResource(x.ResourceType, x.ResourceName)
		for _, e := range x.Configs {
			c.Edits = append(c.Edits, meta.ConfigEdit{Name: e.Name, Op: meta.ConfigOp(e.Op), Value: e.Value})
		}
	}
	return changes
}
