package parity

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/integration/nodetest"
)

func configStories() []story {
	return []story{
		{"describe configs", describeConfigs},
		{"describe every setting of a broker", describeBroker},
		{"alter configs incrementally", incrementalAlter},
		{"alter configs of brokers", alterBroker},
		{"alter configs the old way", legacyAlter},
		{"list config resources", listConfigResources},
	}
}

const (
	resourceTopic  = kmsg.ConfigResourceTypeTopic
	resourceBroker = kmsg.ConfigResourceTypeBroker
	resourceGroup  = kmsg.ConfigResourceTypeGroupConfig
	resourceLogger = kmsg.ConfigResourceTypeBrokerLogger
)

func describeRequest(kind kmsg.ConfigResourceType, name string, keys []string) *kmsg.DescribeConfigsRequest {
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, keys
	req.Resources = append(req.Resources, r)
	return req
}

func describeConfigs(s *session) {
	createTopic(s, "cfg", 1, map[string]string{"retention.ms": "123456", "cleanup.policy": "compact"})
	versions(1, 4, func(v int16) {
		s.ask("some of a topic", v, describeRequest(resourceTopic, "cfg", []string{"retention.ms", "cleanup.policy", "segment.ms", "no.such"}))
		s.ask("unknown topic", v, describeRequest(resourceTopic, "cfg-none", nil))
		s.ask("bad topic name", v, describeRequest(resourceTopic, "cfg/bad", nil))
	})
	s.ask("all of a topic", 4, describeRequest(resourceTopic, "cfg", nil))
	req := describeRequest(resourceTopic, "cfg", nil)
	req.IncludeSynonyms = true
	s.ask("all with synonyms", 4, req)
	req = describeRequest(resourceBroker, "1", []string{"log.retention.ms", "log.retention.hours", "num.partitions", "message.max.bytes", "log.cleanup.policy", "no.such"})
	req.IncludeSynonyms = true
	s.ask("some of the broker", 4, req)
	s.ask("another broker", 4, describeRequest(resourceBroker, "7", nil))
	s.ask("broker by a word", 4, describeRequest(resourceBroker, "one", nil))
	s.ask("broker defaults", 4, describeRequest(resourceBroker, "", nil))
	s.ask("a group", 4, describeRequest(resourceGroup, "cfg-group", nil))
	s.ask("group without a name", 4, describeRequest(resourceGroup, "", nil))
	s.ask("unknown kind", 4, describeRequest(99, "x", nil))
	s.ask("no keys", 4, describeRequest(resourceTopic, "cfg", []string{}))
	req = describeRequest(resourceGroup, "cfg-group", nil)
	req.IncludeSynonyms = true
	s.ask("a group with synonyms", 4, req)
	s.ask("some of a group", 4, describeRequest(resourceGroup, "cfg-group", []string{"share.auto.offset.reset", "no.such"}))
	s.ask("loggers of another broker", 4, describeRequest(resourceLogger, "7", nil))
	twice := describeRequest(resourceTopic, "cfg", []string{"retention.ms"})
	twice.Resources = append(twice.Resources, twice.Resources[0])
	s.ask("the same topic twice", 4, twice)
	s.ask("nothing", 4, kmsg.NewPtrDescribeConfigsRequest())
}

// describeBroker lists every setting of the broker; what belongs to the place
// where one runs is not compared.
func describeBroker(s *session) {
	req := describeRequest(resourceBroker, "1", nil)
	req.IncludeSynonyms = true
	resp, _ := s.quiet(4, req).(*kmsg.DescribeConfigsResponse)
	if resp == nil || len(resp.Resources) != 1 {
		s.note("all", "no answer")
		return
	}
	r := &resp.Resources[0]
	r.Configs = slices.DeleteFunc(r.Configs, func(c kmsg.DescribeConfigsResponseResourceConfig) bool { return placeSettings[c.Name] })
	s.response("all", resp)
}

// placeSettings differ between any two brokers, or were given to one of these
// by name.
var placeSettings = map[string]bool{
	"offsets.topic.replication.factor": true, "transaction.state.log.min.isr": true, "transaction.state.log.replication.factor": true,
	"share.coordinator.state.topic.min.isr": true, "share.coordinator.state.topic.replication.factor": true,
	"listener.security.protocol.map": true,
	"controller.listener.names":      true,
	"inter.broker.listener.name":     true, "process.roles": true,
	"advertised.listeners": true, "controller.quorum.voters": true, "listeners": true, "log.dir": true, "log.dirs": true,
}

// alterBroker changes settings of a broker and of all brokers, and back.
func alterBroker(s *session) {
	one := func(step, broker string, changes ...change) {
		s.ask(step, 1, incrementalRequest(resourceBroker, broker, changes...))
	}
	const name = "log.cleaner.delete.retention.ms"
	await := func(value string) {
		createTopic(s, "alter-broker", 1, nil)
		settled(s, "alter-broker", "delete.retention.ms", value)
	}
	described := func(step string) {
		req := describeRequest(resourceTopic, "alter-broker", []string{"delete.retention.ms"})
		req.IncludeSynonyms = true
		s.ask(step, 4, req)
		req = describeRequest(resourceBroker, "1", []string{name})
		req.IncludeSynonyms = true
		s.ask(step+", the broker", 4, req)
	}
	one("of all brokers", "", change{name, opSet, str("5000")})
	await("5000")
	described("of all brokers")
	one("of this broker", "1", change{name, opSet, str("6000")})
	settled(s, "alter-broker", "delete.retention.ms", "6000")
	described("of this broker")
	one("back", "1", change{name, opDelete, nil})
	one("back of all", "", change{name, opDelete, nil})
	settled(s, "alter-broker", "delete.retention.ms", "86400000")
	described("back")
	one("bad value", "1", change{name, opSet, str("x")})
	one("bad value of all", "", change{name, opSet, str("-5")})
	one("unknown setting", "1", change{"no.such", opSet, str("1")})
	one("listeners of all", "", change{"listeners", opSet, str("PLAINTEXT://:1")})
	one("append to a number", "1", change{name, opAppend, str("1")})
	one("append to a list", "1", change{"log.cleanup.policy", opAppend, str("compact")})
	one("subtract from a list", "1", change{"log.cleanup.policy", opSubtract, str("compact")})
	one("back", "1", change{"log.cleanup.policy", opDelete, nil})
	one("minimum in-sync replicas of a broker", "1", change{"min.insync.replicas", opSet, str("1")})
	one("minimum in-sync replicas of all", "", change{"min.insync.replicas", opDelete, nil})
	one("by a word", "one", change{name, opSet, str("1")})
	one("threads out of reach", "1", change{"num.io.threads", opSet, str("400")})
	one("no threads", "1", change{"num.io.threads", opSet, str("0")})
}

type change struct {
	name  string
	op    kmsg.IncrementalAlterConfigOp
	value *string
}

func str(s string) *string { return &s }

func incrementalRequest(kind kmsg.ConfigResourceType, name string, changes ...change) *kmsg.IncrementalAlterConfigsRequest {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	for _, c := range changes {
		rc := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		rc.Name, rc.Op, rc.Value = c.name, c.op, c.value
		r.Configs = append(r.Configs, rc)
	}
	req.Resources = append(req.Resources, r)
	return req
}

const (
	opSet      = kmsg.IncrementalAlterConfigOpSet
	opDelete   = kmsg.IncrementalAlterConfigOpDelete
	opAppend   = kmsg.IncrementalAlterConfigOpAppend
	opSubtract = kmsg.IncrementalAlterConfigOpSubtract
)

func incrementalAlter(s *session) {
	createTopic(s, "inc", 1, nil)
	some := func(step, name, value string) {
		settled(s, "inc", name, value)
		s.ask(step+", then", 4, describeRequest(resourceTopic, "inc", []string{"retention.ms", "cleanup.policy", "compression.type"}))
	}
	versions(0, 1, func(v int16) {
		s.ask("set", v, incrementalRequest(resourceTopic, "inc", change{"retention.ms", opSet, str(fmt.Sprint(1000 + v))}))
		some("set", "retention.ms", fmt.Sprint(1000+v))
		s.ask("append", v, incrementalRequest(resourceTopic, "inc", change{"cleanup.policy", opAppend, str("compact")}))
		some("append", "cleanup.policy", "delete,compact")
		s.ask("subtract", v, incrementalRequest(resourceTopic, "inc", change{"cleanup.policy", opSubtract, str("delete")}))
		some("subtract", "cleanup.policy", "compact")
		s.ask("delete", v, incrementalRequest(resourceTopic, "inc", change{"cleanup.policy", opDelete, nil}, change{"retention.ms", opDelete, nil}))
		some("delete", "retention.ms", "604800000")
	})
	one := func(step string, kind kmsg.ConfigResourceType, name string, changes ...change) {
		s.ask(step, 1, incrementalRequest(kind, name, changes...))
	}
	one("bad value", resourceTopic, "inc", change{"retention.ms", opSet, str("x")})
	one("unknown setting", resourceTopic, "inc", change{"no.such", opSet, str("x")})
	one("append to a number", resourceTopic, "inc", change{"retention.ms", opAppend, str("1")})
	one("set null", resourceTopic, "inc", change{"retention.ms", opSet, nil})
	one("the same twice", resourceTopic, "inc", change{"retention.ms", opSet, str("1")}, change{"retention.ms", opSet, str("2")})
	one("bad op", resourceTopic, "inc", change{"retention.ms", 9, str("1")})
	one("unknown topic", resourceTopic, "inc-none", change{"retention.ms", opSet, str("1")})
	one("unknown kind", 99, "x", change{"retention.ms", opSet, str("1")})
	one("read-only broker setting", resourceBroker, "1", change{"log.dirs", opSet, str("/x")})
	one("another broker", resourceBroker, "9", change{"log.retention.ms", opSet, str("5")})
	one("nothing to do", resourceTopic, "inc")
	one("group", resourceGroup, "inc-group", change{"consumer.session.timeout.ms", opSet, str("50000")})
	one("group, out of bounds", resourceGroup, "inc-group", change{"consumer.session.timeout.ms", opSet, str("1")})
	one("group, unknown setting", resourceGroup, "inc-group", change{"no.such", opSet, str("1")})
	req := incrementalRequest(resourceTopic, "inc", change{"retention.ms", opSet, str("77")})
	req.ValidateOnly = true
	s.ask("validate only", 1, req)
	some("validate only", "retention.ms", "604800000")
}

// settled waits until a broker shows a topic's new setting: the controller may
// answer before every broker has heard.
func settled(s *session, topic, name, value string) {
	nodetest.Eventually(s.t, 20*time.Second, name+" of "+topic+" is "+value, func() error {
		resp, _ := s.quiet(4, describeRequest(resourceTopic, topic, []string{name})).(*kmsg.DescribeConfigsResponse)
		if resp == nil || len(resp.Resources) != 1 || len(resp.Resources[0].Configs) != 1 {
			return errors.New("not described")
		}
		if got := resp.Resources[0].Configs[0].Value; got == nil || *got != value {
			return errors.New("another value")
		}
		return nil
	})
}

func legacyAlter(s *session) {
	createTopic(s, "old", 1, map[string]string{"retention.ms": "5000"})
	request := func(name string, settings ...[2]string) *kmsg.AlterConfigsRequest {
		req := kmsg.NewPtrAlterConfigsRequest()
		r := kmsg.NewAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = resourceTopic, name
		for _, kv := range settings {
			c := kmsg.NewAlterConfigsRequestResourceConfig()
			c.Name, c.Value = kv[0], &kv[1]
			r.Configs = append(r.Configs, c)
		}
		req.Resources = append(req.Resources, r)
		return req
	}
	versions(0, 2, func(v int16) {
		s.ask("replace all", v, request("old", [2]string{"segment.ms", fmt.Sprint(70000 + int(v))}))
		settled(s, "old", "segment.ms", fmt.Sprint(70000+int(v)))
		s.ask("then", 4, describeRequest(resourceTopic, "old", []string{"retention.ms", "segment.ms"}))
		s.ask("bad value", v, request("old", [2]string{"segment.ms", "x"}))
		s.ask("unknown topic", v, request("old-none", [2]string{"segment.ms", "1"}))
	})
	s.ask("nothing", 2, request("old"))
	settled(s, "old", "segment.ms", "604800000")
	s.ask("then", 4, describeRequest(resourceTopic, "old", []string{"retention.ms", "segment.ms"}))
}

func listConfigResources(s *session) {
	req := kmsg.NewPtrListConfigResourcesRequest()
	s.ask("version 0", 0, req)
	req = kmsg.NewPtrListConfigResourcesRequest()
	req.ResourceTypes = []int8{4}
	s.ask("brokers", 1, req)
	req = kmsg.NewPtrListConfigResourcesRequest()
	req.ResourceTypes = []int8{99}
	s.ask("unknown kind", 1, req)
}
