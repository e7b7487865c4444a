package isr

// Progressed notes this replica's own counted end: the durable end in fsync mode, the end otherwise. It reports whether the
// watermark moved.
func (s *Leader) Progressed(end int64) bool {
	if end <= s.own {
		return false
	}
	s.own = end
	return s.advance()
}

// advance recomputes the high watermark: the smallest counted end over the maximal in-sync set. It never moves back, and
// not at all while the committed set is below the minimum: the last replica standing must not acknowledge alone what a
// later leader would truncate (KIP-966).
func (s *Leader) advance() bool {
	if !s.Enough() {
		return false
	}
	low := s.own
	for _, id := range s.committed {
		low = min(low, s.endOf(id))
	}
	for _, id := range s.proposed {
		low = min(low, s.endOf(id))
	}
	if low <= s.hw {
		return false
	}
	s.hw = low
	return true
}

func (s *Leader) endOf(id int32) int64 {
	if id == s.self {
		return s.own
	}
	if f, ok := s.followers[id]; ok {
		return f.end
	}
	return NoProgress
}
