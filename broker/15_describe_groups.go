package broker

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// DescribeGroups (15): versions 0–6.
//
//	v3 authorized operations    v4 group instance id (KIP-345)    v5 flexible    v6 GROUP_ID_NOT_FOUND (KIP-1043)
//
// Before v6, a group that does not exist is Dead.
var apiDescribeGroups = api{key: 15, name: "DescribeGroups", min: 0, max: 6, handle: typed((*Server).describeGroups)}

func (s *Server) describeGroups(r *request, q *kmsg.DescribeGroupsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeGroupsResponse()
	for _, id := range q.Groups {
		g := kmsg.NewDescribeGroupsResponseGroup()
		g.Group, g.AuthorizedOperations = id, noOperations
		d, err := s.deps.Groups.Describe(r.ctx, id)
		switch {
		case err == nil:
			describeGroup(&g, d)
		case errors.Is(err, coordinator.ErrUnknownGroup):
			g.State = coordinator.Dead.String()
			if r.version >= 6 {
				g.ErrorCode, g.ErrorMessage = codeGroupIDNotFound, refusal(err)
				if g.ErrorMessage == nil {
					g.ErrorMessage = optional(fmt.Sprintf("Group %s not found.", id))
				}
			}
		default:
			g.ErrorCode = s.codeOf(r, err)
		}
		if q.IncludeAuthorizedOperations && g.ErrorCode == codeNone {
			g.AuthorizedOperations = groupOperations
		}
		resp.Groups = append(resp.Groups, g)
	}
	return resp, nil
}

func describeGroup(g *kmsg.DescribeGroupsResponseGroup, d *coordinator.Description) {
	g.State, g.ProtocolType, g.Protocol = d.State.String(), d.ProtocolType, d.Protocol
	for i := range d.Members {
		from := &d.Members[i]
		m := kmsg.NewDescribeGroupsResponseGroupMember()
		m.MemberID, m.InstanceID, m.ClientID, m.ClientHost = from.MemberID, from.InstanceID, from.ClientID, from.ClientHost
		m.ProtocolMetadata, m.MemberAssignment = from.Metadata, from.Assignment
		g.Members = append(g.Members, m)
	}
}
