package tier

// slots bounds how many calls of one kind run at once in the whole process.
// Partitions that found none free wait in order; each is served once for a turn,
// so that one long backlog cannot keep the others waiting.
type slots struct {
	limit, used int
	queue       []*partition
	waiting     map[*partition]bool
	serving     *partition // its turn: may take one slot past those still waiting
}

func newSlots(limit int) slots { return slots{limit: limit, waiting: map[*partition]bool{}} }

// take claims a slot for p, or queues p. A partition that already holds one
// stands back while others wait.
func (s *slots) take(p *partition, holding int) bool {
	if s.used < s.limit && (holding == 0 || len(s.queue) == 0 || s.serving == p) {
		s.used++
		s.serving = nil
		return true
	}
	if !s.waiting[p] {
		s.waiting[p] = true
		s.queue = append(s.queue, p)
	}
	return false
}

func (s *slots) release() { s.used-- }

// turn returns the next partition to serve, or nil.
func (s *slots) turn() *partition {
	s.serving = nil
	for s.used < s.limit && len(s.queue) > 0 {
		p := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		if s.waiting[p] {
			delete(s.waiting, p)
			s.serving = p
			return p
		}
	}
	return nil
}

func (s *slots) forget(p *partition) { delete(s.waiting, p) }
