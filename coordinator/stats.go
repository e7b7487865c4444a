package coordinator

import "time"

// Stats is what one of the coordinators of this broker holds and has done since
// the process began.
type Stats struct {
	Partitions   int // of the internal topic whose state is loaded here
	Held         int // groups, transactional ids or share-partitions in them
	Loads        int64
	LoadTime     time.Duration // spent on all of Loads
	LoadsFailed  int64         // each is tried again
	WritesFailed int64         // changes that could not be written: the state was read back for each
}

func (c *service) stats() Stats {
	st := Stats{
		Loads: c.loads.Load(), LoadTime: time.Duration(c.loadNanos.Load()),
		LoadsFailed: c.loadsFailed.Load(), WritesFailed: c.writesFailed.Load(),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.shards {
		if s.served.Load() >= 0 {
			st.Partitions++
			st.Held += int(s.held.Load())
		}
	}
	return st
}

// Stats is of groups.
func (c *Coordinator) Stats() Stats { return c.groups.stats() }

// Stats is of transactional ids.
func (c *Transactions) Stats() Stats { return c.txns.stats() }

// Stats is of share-partitions' states.
func (c *Shares) Stats() Stats { return c.state.stats() }
