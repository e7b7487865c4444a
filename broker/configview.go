package broker

import (
	"strconv"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/conf"
)

// configSource says where a setting's value comes from. Wire format: do not renumber.
type configSource int8

const (
	sourceTopic          configSource = 1
	sourceDynamicBroker  configSource = 2
	sourceDynamicDefault configSource = 3
	sourceStaticBroker   configSource = 4
	sourceDefault        configSource = 5
	sourceGroup          configSource = 8
)

// configEntry is one setting as DescribeConfigs shows it.
type configEntry struct {
	def      conf.Def
	value    *string
	source   configSource
	synonyms []configSynonym // the strongest first
	readOnly bool
}

type configSynonym struct {
	name   string
	value  *string
	source configSource
}

// brokerLayers are the places a broker setting may come from, the strongest first.
type brokerLayers struct {
	own, all map[string]string // dynamic, of this broker and of all
	static   *conf.Broker
}

func (s *Server) brokerLayers(img *meta.Image) brokerLayers {
	return brokerLayers{own: img.BrokerConfigs(s.cfg.NodeID), all: img.BrokerDefaultConfigs(), static: s.deps.Settings}
}

// find lists what the layers say of the named settings: layer by layer, and in the order of the names within one.
func (l *brokerLayers) find(names []string, sensitive bool) []configSynonym {
	var out []configSynonym
	add := func(name, value string, from configSource) {
		c := configSynonym{name: name, source: from}
		if !sensitive {
			c.value = &value
		}
		out = append(out, c)
	}
	for _, n := range names {
		if v, ok := l.own[n]; ok {
			add(n, v, sourceDynamicBroker)
		}
	}
	for _, n := range names {
		if v, ok := l.all[n]; ok {
			add(n, v, sourceDynamicDefault)
		}
	}
	for _, n := range names {
		if text, null, given, ok := l.static.Value(n); ok && given && !null {
			add(n, text, sourceStaticBroker)
		}
	}
	if len(names) > 0 { // of several names for one thing only the first has a default to show
		if d, ok := conf.Lookup(conf.KindBroker, names[0]); ok && !d.Null {
			add(names[0], d.Default, sourceDefault)
		}
	}
	return out
}

// override shows a topic's or group's own setting over what the broker gives it.
func override(d conf.Def, own map[string]string, from configSource, l *brokerLayers) configEntry {
	e := configEntry{def: d, source: sourceDefault}
	names := make([]string, len(d.Synonyms))
	factor := map[string]int64{}
	for i, x := range d.Synonyms {
		names[i], factor[x.Name] = x.Name, x.Factor
	}
	if e.synonyms = l.find(names, d.Sensitive); from == sourceGroup && len(names) == 0 {
		e.synonyms = []configSynonym{{name: d.Name, value: shown(d, d.Default), source: sourceDefault}}
	}
	value := d.Default
	if len(e.synonyms) > 0 {
		first := e.synonyms[0]
		e.source = first.source
		if first.source != sourceDefault && first.value != nil {
			value = scaled(*first.value, factor[first.name])
		}
	}
	if v, ok := own[d.Name]; ok {
		value, e.source = d.Canonical(v), from
		e.synonyms = append([]configSynonym{{name: d.Name, value: shown(d, value), source: from}}, e.synonyms...)
		e.value = shown(d, value)
		return e
	}
	if !d.Null || value != "" {
		e.value = shown(d, value)
	}
	return e
}

// scaled turns a broker setting in hours or minutes into the topic's milliseconds.
func scaled(text string, factor int64) string {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || factor <= 1 || n < 0 {
		return text
	}
	return strconv.FormatInt(n*factor, 10)
}

func shown(d conf.Def, value string) *string {
	if d.Sensitive {
		return nil
	}
	return &value
}

// topicConfig lists every topic setting as it is in force for a topic with these overrides.
func (s *Server) topicConfig(img *meta.Image, own map[string]string) []configEntry {
	return overrides(conf.TopicDefs(), own, sourceTopic, s.brokerLayers(img))
}

func overrides(defs []conf.Def, own map[string]string, from configSource, l brokerLayers) []configEntry {
	var out []configEntry
	for _, d := range defs {
		if _, set := own[d.Name]; d.Internal && !set {
			continue
		}
		out = append(out, override(d, own, from, &l))
	}
	return out
}

// brokerConfig lists this broker's settings; onlyDefaults lists just the dynamic settings of all brokers.
func (s *Server) brokerConfig(img *meta.Image, onlyDefaults bool) []configEntry {
	l := s.brokerLayers(img)
	if onlyDefaults {
		l.own = nil
	}
	var out []configEntry
	for _, d := range s.deps.Settings.Defs() {
		if _, set := l.all[d.Name]; onlyDefaults && !set || d.Internal {
			continue
		}
		e := configEntry{def: d, source: sourceDefault, readOnly: !d.Dynamic, synonyms: l.find([]string{d.Name}, d.Sensitive)}
		if onlyDefaults {
			e.synonyms = e.synonyms[:1]
		}
		if len(e.synonyms) > 0 {
			e.source, e.value = e.synonyms[0].source, e.synonyms[0].value
		}
		out = append(out, e)
	}
	return out
}
