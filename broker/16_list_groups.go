package broker

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListGroups (16): versions 0–5.
//
//	v3 flexible    v4 states, and a filter by them (KIP-518)    v5 types, and a filter by them (KIP-848)
//
// It lists the groups of this broker: clients ask all brokers.
var apiListGroups = api{key: 16, name: "ListGroups", min: 0, max: 5, handle: typed((*Server).listGroups)}

func (s *Server) listGroups(r *request, q *kmsg.ListGroupsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrListGroupsResponse()
	list, err := s.deps.Groups.List(r.ctx)
	if err != nil {
		resp.ErrorCode = s.codeOf(r, err)
		return resp, nil
	}
	for i := range list {
		state, kind := list[i].State, list[i].Type.String()
		if !passes(q.StatesFilter, state) || !passes(q.TypesFilter, kind) {
			continue
		}
		g := kmsg.NewListGroupsResponseGroup()
		g.Group, g.ProtocolType, g.GroupState, g.GroupType = list[i].Group, list[i].ProtocolType, state, kind
		resp.Groups = append(resp.Groups, g)
	}
	return resp, nil
}

// passes says whether a value passes a filter: an empty one lets everything pass.
func passes(filter []string, value string) bool {
	return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(strings.TrimSpace(f), value) })
}
