package broker

import (
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// DescribeConfigs (32): versions 1–4.
//
//	v1 sources and synonyms    v3 types and documentation    v4 flexible
var apiDescribeConfigs = api{key: 32, name: "DescribeConfigs", min: 1, max: 4, handle: typed((*Server).describeConfigs)}

func (s *Server) describeConfigs(r *request, q *kmsg.DescribeConfigsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeConfigsResponse()
	img := s.deps.Metadata.Image()
	for i := range q.Resources {
		want := &q.Resources[i]
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = want.ResourceType, want.ResourceName
		out.ErrorMessage = kmsg.StringPtr("") // Kafka's way of saying none
		entries, err := s.configsOf(img, want)
		if err != nil {
			out.ErrorCode = s.codeOf(r, err)
			if out.ErrorCode != codeUnknownTopicOrPartition {
				out.ErrorMessage = message(err)
			}
		}
		for j := range entries {
			e := &entries[j]
			if len(want.ConfigNames) > 0 && !slices.Contains(want.ConfigNames, e.def.Name) {
				continue
			}
			out.Configs = append(out.Configs, describeConfig(e, q))
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp, nil
}

// configsOf lists a resource's settings.
func (s *Server) configsOf(img *meta.Image, want *kmsg.DescribeConfigsRequestResource) ([]configEntry, error) {
	switch name := want.ResourceName; want.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		if err := topic.ValidateName(name); err != nil {
			return nil, withMessage(err, "%s", strings.TrimPrefix(err.Error(), topic.ErrInvalidName.Error()+": "))
		}
		t := img.Topic(name)
		if t == nil {
			return nil, meta.ErrUnknownTopic
		}
		return s.topicConfig(img, t.Configs), nil
	case kmsg.ConfigResourceTypeBroker:
		if name == "" {
			return s.brokerConfig(img, true), nil
		}
		if _, err := strconv.ParseInt(name, 10, 32); err != nil {
			return nil, withMessage(meta.ErrInvalidRequest, "Broker id must be an integer, but it is: %s", name)
		}
		if name != strconv.Itoa(int(s.cfg.NodeID)) {
			return nil, withMessage(meta.ErrInvalidRequest, "Unexpected broker id, expected %d or empty string, but received %s", s.cfg.NodeID, name)
		}
		return s.brokerConfig(img, false), nil
	case kmsg.ConfigResourceTypeGroupConfig:
		if name == "" {
			return nil, withMessage(meta.ErrInvalidRequest, "Group name must not be empty")
		}
		return overrides(conf.GroupDefs(), img.GroupConfigs(name), sourceGroup, s.brokerLayers(img)), nil
	}
	return nil, withMessage(meta.ErrInvalidRequest, "This most likely occurs because of a request being malformed by the client library or the message was sent to an incompatible broker. See the broker logs for more details.")
}

func describeConfig(e *configEntry, q *kmsg.DescribeConfigsRequest) kmsg.DescribeConfigsResponseResourceConfig {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name, c.Value, c.ReadOnly, c.IsSensitive = e.def.Name, e.value, e.readOnly, e.def.Sensitive
	c.Source, c.ConfigType = kmsg.ConfigSource(e.source), kmsg.ConfigType(e.def.Type)
	if q.IncludeDocumentation {
		c.Documentation = optional(e.def.Doc)
	}
	if q.IncludeSynonyms {
		for _, x := range e.synonyms {
			a := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			a.Name, a.Value, a.Source = x.name, x.value, kmsg.ConfigSource(x.source)
			c.ConfigSynonyms = append(c.ConfigSynonyms, a)
		}
	}
	return c
}

// configResource turns a resource of the protocol into the quorum's.
func configResource(kind kmsg.ConfigResourceType, name string) (meta.ConfigResource, error) {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		return meta.ConfigResource{Kind: meta.TopicConfig, Name: name}, nil
	case kmsg.ConfigResourceTypeBroker:
		return meta.ConfigResource{Kind: meta.BrokerConfig, Name: name}, nil
	case kmsg.ConfigResourceTypeGroupConfig:
		return meta.ConfigResource{Kind: meta.GroupConfig, Name: name}, nil
	}
	return meta.ConfigResource{}, withMessage(meta.ErrInvalidRequest, "Unknown resource type %d", int8(kind))
}
