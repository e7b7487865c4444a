package sim

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// wallAtStart is the wall time at which a simulation begins.
const wallAtStart = 1_700_000_000_000

// config is what a seed makes of a world.
type config struct {
	brokers    int
	fsync      bool // varve.durability
	tiered     bool
	unclean    bool // unclean elections are opted into
	duplicates bool
	calm       int // misfortunes are one in so many acts
	faults     faults
}

// world is a cluster, its network, its bucket, its clients and its misfortunes.
type world struct {
	engine
	seed         uint64
	cfg          config
	t            *testing.T
	settings     conf.Broker
	decisions    meta.Decisions
	quorum       *quorum
	brokers      []*broker
	net          network
	oracle       *oracle
	bucket       *bucket
	keyList      []partitionKey
	values       int64
	incarnations int
	ids          int
	topics       int
	healed       bool
	failures     []failure
	counts       map[string]int
}

// failure is an invariant that did not hold.
type failure struct{ rule, text string }

func (w *world) fail(rule, format string, args ...any) {
	f := failure{rule, fmt.Sprintf(format, args...)}
	w.tell("BROKEN (%s): %s", rule, f.text)
	w.failures = append(w.failures, f)
}

// configOf draws a world's nature.
func configOf(e *engine) config {
	c := config{brokers: 3 + e.rng.IntN(3), fsync: !e.one(3), tiered: e.one(3), unclean: e.one(5), duplicates: e.one(2), calm: []int{5, 12, 12, 30}[e.rng.IntN(4)], faults: allFaults}
	if *worlds != "" {
		c.tiered = *worlds == "tiered"
	}
	if c.tiered {
		// What an uncleanly elected leader takes from the bucket is the shell's to fetch.
		c.unclean, c.fsync = false, true
		c.faults &^= faultWipe | faultRot
	}
	return c
}

func newWorld(t *testing.T, seed uint64, without faults, told bool) *world {
	w := &world{engine: newEngine(seed), seed: seed, t: t, counts: map[string]int{}}
	w.story.told = told
	w.cfg = configOf(&w.engine)
	w.cfg.faults &^= without
	given := map[string]string{"min.insync.replicas": "1"}
	if w.cfg.tiered {
		given["varve.tier.store"] = "mem://"
	}
	settings, err := conf.ParseBroker(given)
	if err != nil {
		t.Fatal(err)
	}
	w.settings = settings
	w.decisions = meta.Decisions{Broker: &w.settings, NewID: w.newID}
	w.net.cut = map[[2]int32]bool{}
	w.oracle = newOracle(w)
	w.quorum = newQuorum(w)
	if w.cfg.tiered {
		w.bucket = newBucket(w)
	}
	for i := range w.cfg.brokers {
		b := &broker{w: w, id: int32(i), name: fmt.Sprintf("b%d", i), logs: map[partitionKey]*diskLog{}, graves: map[partitionKey]bool{}, marker: -1, image: w.quorum.newest()}
		w.brokers = append(w.brokers, b)
	}
	for _, b := range w.brokers {
		b.boot()
	}
	w.after(200, w.act)
	return w
}

func (w *world) newID() topic.ID {
	w.ids++
	return topic.ID{0xa, byte(w.ids >> 8), byte(w.ids)}
}

// keys are all partitions there are or were, in the order they came.
func (w *world) keys() []partitionKey { return w.keyList }

func (w *world) created(k partitionKey) { w.keyList = append(w.keyList, k) }

// partition is a partition's name.
func (w *world) partition(k partitionKey) topic.Partition {
	return topic.Partition{Topic: w.oracle.truths[k].topic, ID: k.id, Index: k.index}
}

// close ends all processes.
func (w *world) close() {
	for _, b := range w.brokers {
		if b.up {
			b.down()
		}
	}
	if w.bucket != nil {
		w.bucket.close()
	}
}

// run plays a world for a number of steps, ends all faults, and waits for
// everything to be in order again.
func (w *world) run(steps int) {
	for w.steps < steps && len(w.failures) == 0 {
		w.step(w.now + 1000)
		w.oracle.check()
	}
	if len(w.failures) > 0 {
		return
	}
	w.heal()
	for end := w.now + 120_000; w.now < end && len(w.failures) == 0; {
		w.step(w.now + 1000)
		w.oracle.check()
		if w.steps%64 == 0 && w.inOrder() {
			break
		}
	}
	if len(w.failures) == 0 {
		w.oracle.settled()
	}
	if len(w.failures) == 0 && w.bucket != nil {
		w.bucket.settled()
	}
}

// inOrder is a quick look at whether there is still something to wait for.
func (w *world) inOrder() bool {
	img := w.quorum.newest()
	for _, b := range w.brokers {
		if have, ok := img.Brokers[b.id]; !ok || !have.Active() || have.Epoch != b.epoch || b.applied != len(w.quorum.entries) {
			return false
		}
	}
	for _, k := range w.keyList {
		_, p := img.PartitionByID(k.id, k.index)
		if p == nil {
			continue
		}
		if p.Leader < 0 || len(p.ISR) != len(p.Replicas) || p.Reassigning() || p.Recovering {
			return false
		}
		n := int64(len(w.oracle.truths[k].ghost))
		for _, id := range p.Replicas {
			if l := w.brokers[id].logs[k]; l == nil || l.end() != n {
				return false
			}
		}
		if r := w.brokers[p.Leader].replicas[k]; r == nil || !r.leads || r.epoch != p.LeaderEpoch || r.log.hw != n {
			return false
		}
	}
	return w.bucket == nil || w.bucket.inOrder()
}

// Clients.

// wall is the broker's clock as it is set.
func (b *broker) wall() int64 { return wallAtStart + b.w.now + b.skew }

// produce appends to a partition on somebody who thinks that he leads it.
func (w *world) produce() {
	var all []*replica
	for _, b := range w.brokers {
		if b.up && b.paused <= w.now {
			b.eachReplica(func(r *replica) {
				if r.leads {
					all = append(all, r)
				}
			})
		}
	}
	if len(all) == 0 {
		return
	}
	r := all[w.rng.IntN(len(all))]
	for range 1 + w.rng.IntN(4) {
		w.values++
		r.append(w.values, !w.one(4))
	}
}

// someTopic is a topic there is, by the newest image, or nil.
func (w *world) someTopic() *meta.Topic {
	topics := w.quorum.newest().Topics()
	if len(topics) == 0 {
		return nil
	}
	return topics[w.rng.IntN(len(topics))]
}

// someBroker is one that is up, or nil.
func (w *world) someBroker() *broker {
	var up []*broker
	for _, b := range w.brokers {
		if b.up {
			up = append(up, b)
		}
	}
	if len(up) == 0 {
		return nil
	}
	return up[w.rng.IntN(len(up))]
}

// admin asks the controller for something through a broker.
func (w *world) admin(what string, decide func(*meta.Image) []meta.Change) {
	b := w.someBroker()
	if b == nil {
		return
	}
	b.ask(what, func(_ *broker, img *meta.Image) (any, []meta.Change, error) { return nil, decide(img), nil }, func(any, error) {})
}

func (w *world) createTopic() {
	if len(w.quorum.newest().Topics()) >= 2 {
		return
	}
	w.topics++
	name := fmt.Sprintf("t%d", w.topics%3) // names come back
	n := w.cfg.brokers
	replicas := 2 + w.rng.IntN(min(n, 4)-1)
	t := meta.NewTopic{Name: name, Partitions: -1, ReplicationFactor: -1}
	for i := range 1 + w.rng.IntN(2) {
		ids := w.rng.Perm(n)[:replicas]
		a := meta.Assignment{Partition: int32(i)}
		for _, id := range ids {
			a.Brokers = append(a.Brokers, int32(id))
		}
		t.Assignment = append(t.Assignment, a)
	}
	set := func(name, value string) {
		t.Configs = append(t.Configs, meta.ConfigValue{Name: name, Value: &value})
	}
	set("min.insync.replicas", strconv.Itoa(1+w.rng.IntN(replicas)))
	if w.cfg.unclean {
		set("unclean.leader.election.enable", strconv.FormatBool(w.one(2)))
	}
	if w.cfg.tiered {
		set("remote.storage.enable", "true")
		if w.one(3) {
			set("retention.bytes", strconv.Itoa(2_000+w.rng.IntN(20_000)))
		}
	}
	w.admin("create "+name, func(img *meta.Image) []meta.Change {
		_, changes := w.decisions.CreateTopics(img, []meta.NewTopic{t})
		return changes
	})
}

func (w *world) deleteTopic() {
	if t := w.someTopic(); t != nil {
		ref := meta.TopicRef{ID: t.ID}
		w.admin("delete "+t.Name, func(img *meta.Image) []meta.Change {
			_, changes := w.decisions.DeleteTopics(img, []meta.TopicRef{ref})
			return changes
		})
	}
}

func (w *world) alterMinISR() {
	t := w.someTopic()
	if t == nil {
		return
	}
	value := strconv.Itoa(1 + w.rng.IntN(len(t.Partitions[0].Replicas)))
	change := meta.ConfigChange{
		ConfigResource: meta.ConfigResource{Kind: meta.TopicConfig, Name: t.Name},
		Edits:          []meta.ConfigEdit{{Name: "min.insync.replicas", Op: meta.OpSet, Value: &value}},
	}
	w.admin("min.insync.replicas="+value, func(img *meta.Image) []meta.Change {
		_, changes := w.decisions.AlterConfigs(img, []meta.ConfigChange{change})
		return changes
	})
}

func (w *world) reassign() {
	t := w.someTopic()
	if t == nil {
		return
	}
	r := meta.Reassign{PartitionRef: meta.PartitionRef{Topic: t.Name, Index: int32(w.rng.IntN(len(t.Partitions)))}}
	if !w.one(4) {
		for _, id := range w.rng.Perm(w.cfg.brokers)[:1+w.rng.IntN(min(w.cfg.brokers, 4))] {
			r.Replicas = append(r.Replicas, int32(id))
		}
	}
	w.admin(fmt.Sprintf("reassign %s-%d to %v", t.Name, r.Index, r.Replicas), func(img *meta.Image) []meta.Change {
		_, changes := w.decisions.Reassign(img, []meta.Reassign{r})
		return changes
	})
}

func (w *world) elect(unclean bool) {
	w.admin(fmt.Sprintf("elect leaders, unclean %t", unclean), func(img *meta.Image) []meta.Change {
		for _, k := range w.keyList {
			w.oracle.allowed[k] = w.oracle.allowed[k] || unclean
		}
		_, changes := w.decisions.ElectLeaders(img, unclean, nil)
		return changes
	})
}

// deleteRecords raises a log start, at most to the watermark.
func (w *world) deleteRecords() {
	for _, b := range w.brokers {
		if !b.up || !w.one(2) {
			continue
		}
		b.eachReplica(func(r *replica) {
			_, p := w.quorum.newest().PartitionByID(r.key.id, r.key.index)
			if !r.leads || p == nil || p.LeaderEpoch != r.epoch || r.log.hw <= r.log.logStart || !w.one(2) {
				return
			}
			to := r.log.logStart + 1 + w.rng.Int64N(r.log.hw-r.log.logStart)
			t := w.oracle.truths[r.key]
			t.start = max(t.start, to)
			r.log.roll()
			r.log.raiseStart(to)
			if r.offload != nil {
				r.offload.LogStartMoved()
			}
			w.tell("records of %s below %d are deleted", r.short(), to)
		})
	}
}
