package hot

import "sync"

// configsKept is how many distinct configurations are remembered; a store has
// few at a time.
const configsKept = 1024

// configSet gives equal configurations one address: thousands of partitions
// share few of them. When it is full it starts anew, and those in use live on
// in their logs.
type configSet struct {
	mu  sync.Mutex // guards the following
	set map[LogConfig]*LogConfig
}

func (s *configSet) get(c LogConfig) *LogConfig {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.set[c]; ok {
		return p
	}
	if s.set == nil || len(s.set) >= configsKept {
		s.set = map[LogConfig]*LogConfig{}
	}
	s.set[c] = &c
	return &c
}

func (s *configSet) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.set)
}
