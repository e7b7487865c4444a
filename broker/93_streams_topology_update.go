package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// StreamsGroupTopologyDescriptionUpdate (93): version 0 (KIP-1331). It brings descriptions of topologies to a plugin of the
// broker. There is none here, as in a Kafka that none is configured for: clients are never asked for descriptions, and one that
// sends its own is told so.
var apiStreamsTopologyUpdate = api{
	key: 93, name: "StreamsGroupTopologyDescriptionUpdate", min: 0, max: 0, handle: typed((*Server).streamsTopologyUpdate),
}

func (s *Server) streamsTopologyUpdate(*request, *kmsg.StreamsGroupTopologyDescriptionUpdateRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateResponse()
	text := "The broker has no streams group topology description plugin configured."
	resp.ErrorCode, resp.ErrorMessage = codeUnsupportedVersion, &text
	return resp, nil
}
