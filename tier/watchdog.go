package tier

import (
	"math"
	"sort"
)

// watchdog remembers when a partition last got something done and what fails, so
// that a partition that makes no progress is named with its reason: uploads that
// stop without a word are the commonest complaint about tiered logs.
type watchdog struct {
	movedAt  int64 // steady ms of the last progress, or of the work's appearance
	idle     bool  // there was no work at the last look
	stuck    bool
	since    int64 // wall ms
	problems map[string]*Problem
}

func (w *watchdog) fail(op, key string, err error, now instant) {
	if w.problems == nil {
		w.problems = map[string]*Problem{}
	}
	pr := w.problems[op]
	if pr == nil {
		pr = &Problem{Op: op, Since: now.wall}
		w.problems[op] = pr
	}
	pr.Key, pr.Err = key, err
	pr.Count++
}

func (w *watchdog) succeed(op string) { delete(w.problems, op) }

// moved notes progress.
func (w *watchdog) moved(now instant) { w.movedAt = now.steady }

// worst is the problem that lasts longest.
func (w *watchdog) worst() *Problem {
	if len(w.problems) == 0 {
		return nil
	}
	all := make([]*Problem, 0, len(w.problems))
	for _, pr := range w.problems {
		all = append(all, pr)
	}
	sort.Slice(all, func(i, j int) bool {
		if all[i].Since != all[j].Since {
			return all[i].Since < all[j].Since
		}
		return all[i].Op < all[j].Op
	})
	copied := *all[0]
	return &copied
}

// check compares the work at hand with the progress made. Some of it waits since a
// steady time (MaxInt64: none), whatever else gets on. It returns whether the verdict
// changed, and when to look again (0 = no need).
func (w *watchdog) check(working bool, since, stuckMillis int64, now instant) (changed bool, again int64) {
	if !working {
		changed = w.stuck
		w.idle, w.stuck = true, false
		return changed, 0
	}
	if w.idle {
		w.idle, w.movedAt = false, now.steady
	}
	since = min(since, w.movedAt)
	quiet := now.steady - since
	if quiet < stuckMillis {
		changed = w.stuck
		w.stuck = false
		return changed, since + stuckMillis
	}
	if !w.stuck {
		w.stuck, w.since = true, now.wall-quiet
		return true, 0
	}
	return false, 0
}

// observe lets the watchdog judge the partition.
func (p *partition) observe(c *core, now instant) {
	what := p.pendingWork(c, now)
	_, since := p.keptFrom()
	if what == "" && since < math.MaxInt64 || now.steady-since >= c.cfg.stuckMillis {
		what = "mending damaged objects: the local log keeps what they held"
	}
	changed, again := p.watch.check(what != "", since, c.cfg.stuckMillis, now)
	if again > 0 {
		p.wakeAt(again)
	}
	if changed {
		c.emit(fxReport{p.ref(), p.watch.stuck, p.watch.worst(), what, p.watch.since})
	}
}

// pendingWork names the work that waits, "" when there is none.
func (p *partition) pendingWork(c *core, now instant) string {
	switch {
	case p.fenced, p.remote.Retired, !p.cfg.Enabled && !p.cfg.DeleteOnDisable:
		return ""
	case p.known && p.contradicts:
		return "the archive and the local log are of different histories"
	case p.diverged():
		return "the archive ends above the local log"
	case !p.looked || !p.needsArchive(now):
		return ""
	case !p.known:
		return "reading the manifest"
	case len(p.uploads) > 0 || p.copyReady:
		return "uploading"
	case p.committing != nil || p.wantStart >= 0 || len(p.purge) > 0:
		return "committing"
	case p.deletes > 0 || p.deleteReady:
		return "deleting"
	}
	return ""
}
