package broker

import (
	"github.com/varvelog/varve/meta/conf"
)

// limits are the settings that the front door reads anew, with what it makes of them.
type limits struct {
	from   *conf.Broker
	config Config
}

// settings is the broker's current settings, the dynamic ones over the static ones; nil when it was given neither.
func (s *Server) settings() *conf.Broker {
	if m, ok := s.deps.Metadata.(interface{ Broker() *conf.Broker }); ok {
		return m.Broker()
	}
	return s.deps.Settings
}

// now is the front door's Config with the settings that may change at run time: connection caps and waits for the bucket.
// Those that need a restart, in Kafka as here, stay what they were.
func (s *Server) now() *Config {
	m, ok := s.deps.Metadata.(interface{ Broker() *conf.Broker })
	if !ok {
		return &s.cfg
	}
	b := m.Broker()
	if l := s.limits.Load(); l != nil && l.from == b {
		return &l.config
	}
	next := ConfigFrom(b)
	l := &limits{from: b, config: s.cfg}
	l.config.ConnectionsMax, l.config.ConnectionRateMax = next.ConnectionsMax, next.ConnectionRateMax
	l.config.ConnectionsPerIPMax, l.config.ConnectionsPerIP = next.ConnectionsPerIPMax, next.ConnectionsPerIP
	l.config.RemoteFetchWaitMax, l.config.RemoteListWaitMax = next.RemoteFetchWaitMax, next.RemoteListWaitMax
	s.limits.Store(l)
	return &l.config
}
