package hot

import (
	"errors"
	"sync/atomic"

	"github.com/varvelog/varve/hot/vfs"
)

// crashShared is what the shared log did in all seeds.
var crashShared struct{ rounds, renewed, applied atomic.Int64 }

// share has a store use its shared log from the start, or make it beside the
// work.
func (r *crashRun) share(s *Store) {
	s.syncer.sharedMin.Store(1)
	switch {
	case !s.sharesLog():
	case r.seed%3 == 0:
		s.syncer.sharedAfter = 1 + int(r.seed/3%8)
	default:
		haveShared(r.t, s)
	}
}

// smallRounds appends a little at a time, each of it durable before the next, as
// a steady load does.
func (r *crashRun) smallRounds(c *crashLog) {
	for range r.rng.IntN(8) {
		r.appendPlain(c)
		want := c.log.Offsets().End
		eventually(r.t, func() bool { return c.log.Offsets().Durable >= want || c.log.Err() != nil })
	}
}

// recreate deletes the partition and makes it again under its id.
func (r *crashRun) recreate(s *Store, c *crashLog) {
	eventually(r.t, func() bool { // an earlier one is gone
		_, err := r.fs.Stat(c.log.dir + deleteSuffix)
		return errors.Is(err, vfs.ErrNotExist)
	})
	c.mu.Lock()
	c.resetting = true
	c.mu.Unlock()
	r.check(s.Delete(c.part))
	l, err := s.Log(c.part, r.lc)
	r.check(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log, c.end, c.starts, c.starting, c.remote, c.resetAt = l, 0, 0, 0, 0, 0
	c.resetting, c.events, c.chain = false, nil, nil
	clear(c.want)
	clear(c.sent)
	clear(c.seq)
	clear(c.txn)
}
