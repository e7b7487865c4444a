package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteGroups (42): versions 0–2.
//
//	v2 flexible
var apiDeleteGroups = api{key: 42, name: "DeleteGroups", min: 0, max: 2, handle: typed((*Server).deleteGroups)}

func (s *Server) deleteGroups(r *request, q *kmsg.DeleteGroupsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDeleteGroupsResponse()
	seen := map[string]bool{}
	for _, id := range q.Groups {
		if seen[id] {
			continue
		}
		seen[id] = true
		g := kmsg.NewDeleteGroupsResponseGroup()
		g.Group, g.ErrorCode = id, s.codeOf(r, s.deps.Groups.Delete(r.ctx, id))
		resp.Groups = append(resp.Groups, g)
	}
	return resp, nil
}
