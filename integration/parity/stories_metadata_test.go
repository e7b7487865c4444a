package parity

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// stories are all stories, in the order they run.
func stories() []story {
	var all []story
	for _, list := range [][]story{metadataStories()} {
		all = append(all, list...)
	}
	return all
}

func metadataStories() []story {
	return []story{
		{"api versions", func(s *session) {
			versions(0, 4, func(v int16) {
				req := kmsg.NewPtrApiVersionsRequest()
				req.ClientSoftwareName, req.ClientSoftwareVersion = "parity", "1"
				s.ask("ask", v, req)
			})
		}},
		{"api versions of an unknown version", func(s *session) {
			s.raw("version 99", 18, 99, true, nil)
		}},
	}
}
