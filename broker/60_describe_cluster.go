package broker

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeCluster (60): versions 0–2.
//
//	v1 endpoint type (KIP-919)    v2 fenced brokers (only when asked)
var apiDescribeCluster = api{key: 60, name: "DescribeCluster", min: 0, max: 2, handle: typed((*Server).describeCluster)}

const (
	endpointBrokers     int8 = 1
	endpointControllers int8 = 2
)

func (s *Server) describeCluster(r *request, q *kmsg.DescribeClusterRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeClusterResponse()
	if r.version >= 1 && q.EndpointType != endpointBrokers {
		resp.ErrorCode = codeUnsupportedEndpointType
		resp.ErrorMessage = optional(fmt.Sprintf("Unsupported endpoint type %d", q.EndpointType))
		if q.EndpointType == endpointControllers {
			resp.ErrorCode = codeMismatchedEndpointType
			resp.ErrorMessage = optional("The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER")
		}
		return resp, nil
	}
	img := s.deps.Metadata.Image()
	resp.ClusterID, resp.ControllerID = img.ClusterID, s.controllerID(img, r.c.door.Name)
	for _, b := range s.brokers(img, r.c.door.Name, q.IncludeFencedBrokers && r.version >= 2) {
		rb := kmsg.NewDescribeClusterResponseBroker()
		rb.NodeID, rb.Host, rb.Port, rb.Rack, rb.IsFenced = b.id, b.host, b.port, optional(b.rack), b.fenced
		resp.Brokers = append(resp.Brokers, rb)
	}
	if q.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	return resp, nil
}
