package coordinator

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// assignorSticky is the one assignor of streams groups. It is deterministic: equal groups get equal assignments.
const assignorSticky = "sticky"

// assignTasks works out who is to run which task of a topology whose topics are all there. Every task is active with exactly one
// member, and tasks with state have standbys, where there are processes enough, each in another process. A task goes back to where it
// ran, or where its state is, as long as members stay even; the others go to processes that have least for their members.
func assignTasks(g *streamsGroup, standbys int) map[string]taskSets {
	a := newTaskAssigner(g, standbys)
	active := a.tasks(false)
	a.placeActive(active)
	if standbys > 0 {
		a.placeStandbys(a.tasks(true), standbys)
	}
	out := make(map[string]taskSets, len(a.runners))
	for _, r := range a.runners {
		out[r.m.id] = r.gets
	}
	return out
}

// standbys is the number of them that the group's settings ask for.
func standbys(configs map[string]string) int {
	n, err := strconv.Atoi(configs[standbyConfig])
	if err != nil {
		return 0
	}
	return n
}

// taskAssigner is one assignment being worked out.
type taskAssigner struct {
	g         *streamsGroup
	processes []*taskProcess // by id
	runners   []*taskRunner  // by member id
	ran       map[task]*taskRunner
	kept      map[task][]*taskRunner // those with state of the task and not active, best first
	active    quota                  // of active tasks per member
	all       quota                  // of active tasks and standbys per member
}

type taskProcess struct {
	runners []*taskRunner
	count   int
	has     taskSet
}

type taskRunner struct {
	m     *streamsMember
	in    *taskProcess
	gets  taskSets
	count int
}

// quota is the even share of tasks per member. Whoever has reached it is done, and the rest is shared out among the others.
type quota struct{ tasks, members, share int }

func newQuota(tasks, members int) quota {
	q := quota{tasks: tasks, members: members}
	q.even()
	return q
}

func (q *quota) even() {
	q.share = 0
	if q.members > 0 {
		q.share = (q.tasks + q.members - 1) / q.members
	}
}

// reached notes that a member has that many.
func (q *quota) reached(count int) {
	if count == q.share {
		q.members--
		q.tasks -= count
		q.even()
	}
}

func newTaskAssigner(g *streamsGroup, standbys int) *taskAssigner {
	a := &taskAssigner{g: g, ran: make(map[task]*taskRunner), kept: make(map[task][]*taskRunner)}
	by := make(map[string]*taskProcess)
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		m := g.members[id]
		p := by[m.process]
		if p == nil {
			p = &taskProcess{has: taskSet{}}
			by[m.process] = p
		}
		r := &taskRunner{m: m, in: p, gets: newTaskSets()}
		p.runners = append(p.runners, r)
		a.runners = append(a.runners, r)
		for t := range m.assigned.active {
			a.ran[t] = r
		}
		for t := range m.assigned.standby {
			a.kept[t] = append(a.kept[t], r)
		}
		for t := range m.offsets {
			if !m.assigned.standby.has(t) {
				a.kept[t] = append(a.kept[t], r)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(by)) {
		a.processes = append(a.processes, by[id])
	}
	for t, list := range a.kept {
		slices.SortStableFunc(list, func(x, y *taskRunner) int {
			return cmp.Or(-compareBool(x.m.assigned.standby.has(t), y.m.assigned.standby.has(t)), cmp.Compare(y.m.offsets[t], x.m.offsets[t]))
		})
	}
	active, all := 0, 0
	for _, p := range g.configured.parts {
		active += int(p.tasks)
		all += int(p.tasks)
		if p.stateful {
			all += int(p.tasks) * standbys
		}
	}
	a.active, a.all = newQuota(active, len(a.runners)), newQuota(all, len(a.runners))
	return a
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// tasks is every task, or those with state, partition by partition so that neighbours in one subtopology are spread.
func (a *taskAssigner) tasks(stateful bool) []task {
	var out []task
	for id, p := range a.g.configured.parts {
		if p.stateful || !stateful {
			for i := range p.tasks {
				out = append(out, task{id, i})
			}
		}
	}
	slices.SortFunc(out, func(x, y task) int {
		return cmp.Or(cmp.Compare(x.index, y.index), strings.Compare(x.subtopology, y.subtopology))
	})
	return out
}

// give has a member run a task; active or not.
func (a *taskAssigner) give(r *taskRunner, t task, active bool) {
	if active {
		r.gets.active[t] = 0
	} else {
		r.gets.standby[t] = 0
	}
	r.count++
	r.in.count++
	r.in.has[t] = 0
	if active {
		a.active.reached(r.count)
	}
	a.all.reached(r.count)
}

func (a *taskAssigner) placeActive(list []task) {
	// Back to where it ran, then to where its state is.
	list = slices.DeleteFunc(list, func(t task) bool { return a.giveBack(a.ran[t], t) })
	list = slices.DeleteFunc(list, func(t task) bool { return a.giveBack(a.least(a.kept[t], nil), t) })
	slices.SortFunc(list, compareTasks)
	for _, t := range list {
		p := slices.MinFunc(a.processes, (*taskProcess).compare)
		a.give(p.least(), t, true)
	}
}

func (a *taskAssigner) giveBack(r *taskRunner, t task) bool {
	if r == nil || r.count >= a.active.share {
		return false
	}
	a.give(r, t, true)
	return true
}

// compare orders processes by their tasks per member.
func (p *taskProcess) compare(o *taskProcess) int {
	return cmp.Compare(p.count*len(o.runners), o.count*len(p.runners))
}

// least is the member of the process with the fewest tasks.
func (p *taskProcess) least() *taskRunner {
	return slices.MinFunc(p.runners, func(x, y *taskRunner) int { return cmp.Compare(x.count, y.count) })
}

// least is the first of the members unless a later one has less, itself and in its process. With a task, processes that have it do
// not count.
func (a *taskAssigner) least(list []*taskRunner, t *task) (best *taskRunner) {
	for _, r := range list {
		if t != nil && r.in.has.has(*t) {
			continue
		}
		if best == nil || r.in.compare(best.in) < 0 && r.count < best.count {
			best = r
		}
	}
	return best
}

func (a *taskAssigner) placeStandbys(list []task, standbys int) {
	slices.SortFunc(list, func(x, y task) int {
		return -cmp.Or(cmp.Compare(x.index, y.index), strings.Compare(x.subtopology, y.subtopology))
	})
	open := make(map[task]int)
	for _, t := range list {
		open[t] = standbys
		for open[t] > 0 && a.keepStandby(t) {
			open[t]--
		}
	}
	slices.SortFunc(list, func(x, y task) int { return -compareTasks(x, y) })
	for _, t := range list {
		for ; open[t] > 0; open[t]-- {
			p := a.without(t)
			if p == nil {
				break // every process has the task already
			}
			a.give(p.least(), t, false)
		}
	}
}

// keepStandby gives a task as a standby to the member where it was active, or to one that has its state.
func (a *taskAssigner) keepStandby(t task) bool {
	r := a.ran[t]
	if r == nil || r.in.has.has(t) || r.count >= a.all.share {
		if r = a.least(a.kept[t], &t); r == nil || r.count >= a.all.share {
			return false
		}
	}
	a.give(r, t, false)
	return true
}

// without is the process with the least load of those that do not have the task; nil: all have it.
func (a *taskAssigner) without(t task) (best *taskProcess) {
	for _, p := range a.processes {
		if !p.has.has(t) && (best == nil || p.compare(best) < 0) {
			best = p
		}
	}
	return best
}
