package parity

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// stories are all stories, in the order they run.
func stories() []story {
	var all []story
	for _, list := range [][]story{
		metadataStories(), topicStories(), configStories(), produceStories(), codecStories(), idempotenceStories(), transactionStories(), hangingStories(), consumerGroupStories(), staticStories(), migrationStories(),
		streamsStories(),
		quotaStories(), fetchStories(), shareFetchStories(), shareGroupStories(), offsetStories(), groupStories(), clusterStories(),
	} {
		all = append(all, list...)
	}
	return all
}

func metadataStories() []story {
	return []story{
		{"api versions", apiVersions},
		{"api versions of an unknown version", func(s *session) {
			req := kmsg.NewPtrApiVersionsRequest()
			s.ask("ask", 99, req)
		}},
		{"unknown versions and keys", unknownVersions},
		{"metadata in every version", metadataVersions},
		{"metadata by id", metadataByID},
		{"describe cluster", func(s *session) {
			versions(0, 2, func(v int16) {
				req := kmsg.NewPtrDescribeClusterRequest()
				req.IncludeClusterAuthorizedOperations = true
				req.EndpointType = 1
				s.ask("ask", v, req)
			})
		}},
		{"describe cluster, odd requests", func(s *session) {
			for _, kind := range []int8{2, 9} {
				req := kmsg.NewPtrDescribeClusterRequest()
				req.EndpointType = kind
				s.ask(fmt.Sprint("endpoint type ", kind), 2, req)
			}
			req := kmsg.NewPtrDescribeClusterRequest()
			req.EndpointType, req.IncludeFencedBrokers = 1, true
			s.ask("fenced ones too", 2, req)
		}},
		{"describe topic partitions", describeTopicPartitions},
	}
}

func apiVersions(s *session) {
	versions(0, 4, func(v int16) {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "parity", "1"
		s.ask("ask", v, req)
	})
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "not allowed!", ""
	s.ask("bad software name", 3, req)
}

// unknownVersions asks for versions just outside what is served, and for keys
// that no broker serves.
func unknownVersions(s *session) {
	for _, c := range []struct {
		step         string
		key, version int16
		flexible     bool
	}{
		{"fetch 3", 1, 3, false}, {"fetch 19", 1, 19, true}, {"metadata 14", 3, 14, true},
		{"list offsets 0", 2, 0, false}, {"create topics 1", 19, 1, false}, {"delete topics 0", 20, 0, false},
		{"leader and isr 0", 4, 0, false}, {"control key 7", 7, 3, true}, {"key 999", 999, 0, true}, {"key -1", -1, 0, true},
	} {
		s.raw(c.step, c.key, c.version, c.flexible, nil)
	}
	s.raw("cut metadata", 3, 9, true, []byte{0x7f})
	s.raw("metadata with a huge array", 3, 4, false, []byte{0x7f, 0xff, 0xff, 0xff, 0})
}

func metadataRequest(topics ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	return req
}

func metadataVersions(s *session) {
	createTopic(s, "md", 2, nil)
	versions(0, 13, func(v int16) {
		s.ask("one and an unknown and a bad name", v, metadataRequest("md", "md-none", "md/bad"))
	})
	versions(1, 13, func(v int16) { s.ask("no topics", v, metadataRequest()) })
	req := metadataRequest("md-auto")
	req.AllowAutoTopicCreation = true
	s.ask("auto creation is off", 9, req)
	req = metadataRequest("md")
	req.IncludeTopicAuthorizedOperations, req.IncludeClusterAuthorizedOperations = true, true
	s.ask("authorized operations", 8, req)
	s.ask("the same twice", 9, metadataRequest("md", "md"))
	s.ask("empty name", 9, metadataRequest(""))
}

func metadataByID(s *session) {
	id := createTopic(s, "md-id", 1, nil)
	ask := func(step string, v int16, id [16]byte, name *string) {
		req := kmsg.NewPtrMetadataRequest()
		t := kmsg.NewMetadataRequestTopic()
		t.TopicID, t.Topic = id, name
		req.Topics = append(req.Topics, t)
		s.ask(step, v, req)
	}
	name := "md-id"
	versions(10, 13, func(v int16) {
		ask("known id", v, id, nil)
		ask("unknown id", v, [16]byte{1, 2, 3}, nil)
	})
	ask("id and name", 12, id, &name)
	ask("zero id and no name", 12, [16]byte{}, nil)
}

func describeTopicPartitions(s *session) {
	createTopic(s, "dtp-a", 3, nil)
	createTopic(s, "dtp-b", 2, nil)
	ask := func(step string, limit int32, cursor *kmsg.DescribeTopicPartitionsRequestCursor, topics ...string) {
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.ResponsePartitionLimit = limit
		for _, name := range topics {
			t := kmsg.NewDescribeTopicPartitionsRequestTopic()
			t.Topic = name
			req.Topics = append(req.Topics, t)
		}
		req.Cursor = cursor
		s.ask(step, 0, req)
	}
	ask("both", 2000, nil, "dtp-b", "dtp-a")
	ask("limit two", 2, nil, "dtp-a", "dtp-b")
	cursor := kmsg.NewDescribeTopicPartitionsRequestCursor()
	cursor.Topic, cursor.Partition = "dtp-a", 2
	ask("from a cursor", 2, &cursor, "dtp-a", "dtp-b")
	ask("unknown", 10, nil, "dtp-none")
	cursor.Partition = -1
	ask("bad cursor", 10, &cursor, "dtp-a")
	ask("limit zero", 0, nil, "dtp-a")
}
