package tier

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/varvelog/varve/meta/topic"
)

// Manager decides what is uploaded and deleted, and does both, for the
// partitions this broker leads. One per process.
//
// One goroutine runs the core; each effect that may block runs in its own
// goroutine, and the core bounds how many there are of each kind. Looks at local
// logs run in a small pool.
type Manager struct {
	cfg     ManagerConfig
	archive *Archive
	log     *slog.Logger
	journal *journal
	removed func(topic.Partition)
	counts  *counters
	rate    rateLimiter
	born    time.Time

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	signal chan struct{} // the inbox is not empty
	looks  *lookPool
	// stepped is nil but in a simulation, which runs the calls itself.
	stepped *Stepped

	core  *core                  // owned by the loop
	byGen map[uint64]*Leadership // owned by the loop

	mu     sync.Mutex // guards the following
	inbox  []event
	led    map[topic.Partition]*Leadership
	gens   uint64
	closed bool

	suspicions map[evSuspect]bool // complaints of readers that the core does not have yet
}

// lookWorkers is the number of goroutines that look at local logs.
const lookWorkers = 4

// NewManager starts the manager's workers. The archive must outlive it. Topic
// deletions that the journal still holds go on.
func NewManager(cfg ManagerConfig, archive *Archive, deps ManagerDeps) (*Manager, error) {
	m, err := newManager(cfg, archive, deps)
	if err != nil {
		return nil, err
	}
	m.looks = newLookPool()
	for range lookWorkers {
		m.wg.Go(func() { m.looks.run(m.ctx) })
	}
	m.wg.Go(m.loop)
	return m, nil
}

// newManager makes a manager that has nobody yet to do its work.
func newManager(cfg ManagerConfig, archive *Archive, deps ManagerDeps) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Seed == 0 {
		cfg.Seed = rand.Uint64()
	}
	j, unfinished, err := openJournal(deps.JournalPath)
	if err != nil {
		return nil, fmt.Errorf("open the journal of topic deletions: %w", err)
	}
	m := &Manager{
		cfg: cfg, archive: archive, log: deps.Logger, journal: j, removed: deps.Removed,
		counts: newCounters(), born: time.Now(),
		signal: make(chan struct{}, 1),
		core:   newCore(cfg.core()), byGen: map[uint64]*Leadership{}, led: map[topic.Partition]*Leadership{},
		suspicions: map[evSuspect]bool{},
	}
	suspected := m.suspected
	archive.onSuspect.Store(&suspected)
	m.rate.bucket = newBucket(max(cfg.UploadBytesPerSecond, 0))
	m.rate.now = func() int64 { return m.now().steady }
	m.ctx, m.cancel = context.WithCancel(context.Background())
	for _, p := range unfinished {
		m.post(evTopicDeleted{p})
	}
	return m, nil
}

func (c ManagerConfig) core() coreConfig {
	return coreConfig{
		uploads: c.Uploads, uploadsPerPartition: c.UploadsPerPartition, deletes: c.Deletes, calls: c.Calls,
		deleteBatch: c.DeleteBatch, graceMillis: c.DeleteGrace.Milliseconds(),
		uploadMillis: c.UploadTimeout.Milliseconds(), uploadMinRate: c.UploadMinRate,
		uploadMillisMax: c.UploadTimeoutMax.Milliseconds(), uploadRate: max(c.UploadBytesPerSecond, 0),
		callMillis: c.CallTimeout.Milliseconds(), collectMillis: c.CollectTimeout.Milliseconds(),
		stuckMillis: c.StuckAfter.Milliseconds(), recheckMillis: c.RecheckAfter.Milliseconds(),
		searchMillis: c.OrphanSearch.Milliseconds(), surveyMillis: c.Survey.Milliseconds(), readMillis: c.ReadEvery.Milliseconds(),
		scrubRate: c.ScrubBytesPerSecond, scrubPerDay: c.ScrubRequestsPerDay, noCollection: c.DisableCollection, seed: c.Seed,
	}
}

func (m *Manager) now() instant {
	if m.stepped != nil {
		wall, steady := m.stepped.clock()
		return instant{wall, steady}
	}
	t := time.Now()
	return instant{wall: t.UnixMilli(), steady: t.Sub(m.born).Milliseconds() + 1}
}

// start runs a call that may block on the store.
func (m *Manager) start(fx effect, timeoutMillis int64, fn func()) {
	if m.stepped != nil {
		m.stepped.ask(fx, timeoutMillis, fn)
		return
	}
	m.wg.Go(fn)
}

// peek runs a short call to a local log.
func (m *Manager) peek(fx effect, fn func()) {
	if m.stepped != nil {
		m.stepped.ask(fx, 0, fn)
		return
	}
	m.looks.add(fn)
}

// post hands the core an event. The inbox is bounded by what is in flight: one
// answer for each effect, one wake for each partition.
func (m *Manager) post(ev event) {
	if m.stepped != nil && m.stepped.capture != nil {
		*m.stepped.capture = append(*m.stepped.capture, ev)
		return
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return
	}
	m.inbox = append(m.inbox, ev)
	m.mu.Unlock()
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

// loop owns the core. It ends when the manager is closed.
func (m *Manager) loop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		m.mu.Lock()
		events := m.inbox
		m.inbox = nil
		m.mu.Unlock()
		if len(events) == 0 {
			events = []event{evTick{}}
		}
		for _, ev := range events {
			m.handle(ev)
		}
		wait := time.Hour
		if due, ok := m.core.next(); ok {
			wait = time.Duration(max(due-m.now().steady, 0)) * time.Millisecond
		}
		timer.Reset(wait)
		select {
		case <-m.signal:
		case <-timer.C:
		case <-m.ctx.Done():
			return
		}
	}
}

func (m *Manager) handle(ev event) {
	switch e := ev.(type) {
	case evInspect:
		e.fn(m.core, m.now())
		close(e.done)
		return
	case evLead:
		m.byGen[e.gen] = e.leadership
	case evSuspect:
		m.mu.Lock()
		delete(m.suspicions, e)
		m.mu.Unlock()
	case evWake:
		if gen, ok := m.core.leading(e.p); ok {
			if l := m.byGen[gen]; l != nil {
				l.waking.Store(false)
			}
		}
	}
	for _, fx := range m.core.step(ev, m.now()) {
		m.carryOut(fx)
	}
	if e, ok := ev.(evLead); ok {
		if gen, ok := m.core.leading(e.p); !ok || gen != e.gen {
			delete(m.byGen, e.gen) // not taken: an older epoch, or a deleted topic
		}
	}
}

// Lead hands the partition to the manager: this broker leads it in
// log.LeaderEpoch(). A second Lead of the same partition under a newer epoch
// replaces the first. No request is made before there is something to do.
func (m *Manager) Lead(log Log) *Leadership {
	p := log.Partition()
	l := &Leadership{m: m, log: log, remote: m.archive.Partition(p)}
	l.watched.Store(1<<63 - 1)
	l.ctx, l.cancel = context.WithCancel(m.ctx)
	m.mu.Lock()
	m.gens++
	l.gen = m.gens
	old := m.led[p]
	m.led[p] = l
	m.mu.Unlock()
	if old != nil {
		old.end()
	}
	m.post(evLead{p: p, gen: l.gen, epoch: log.LeaderEpoch(), cfg: log.Config(), leadership: l})
	return l
}

func (l *Leadership) end() {
	l.resigned.Store(true)
	l.cancel()
}

// Resign takes the partition back: what is in flight is cancelled (abandoning
// an upload is safe), and no new call is made to its Log. A call that already
// runs may finish after Resign has returned.
func (m *Manager) Resign(p topic.Partition) {
	m.mu.Lock()
	l := m.led[p]
	delete(m.led, p)
	m.mu.Unlock()
	if l == nil {
		return
	}
	l.end()
	m.post(evResign{p})
}

// TopicDeleted starts the removal of everything the bucket holds of p. Call it
// only for a committed deletion of that topic id. Once it has returned nil the
// removal survives restarts; calls repeat harmlessly.
func (m *Manager) TopicDeleted(p topic.Partition) error {
	if err := m.journal.add(p); err != nil {
		return fmt.Errorf("note the deletion of %s: %w", p, err)
	}
	m.Resign(p)
	m.post(evTopicDeleted{p})
	return nil
}

// SetUploadRate changes the upload limit, bytes per second; ≤ 0 lifts it.
func (m *Manager) SetUploadRate(bytesPerSecond int64) {
	m.rate.set(max(bytesPerSecond, 0))
	m.post(evRate{bytesPerSecond})
}

// Close stops the workers: it cancels what is in flight and waits for it, at most
// until ctx ends. It is idempotent.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	done := make(chan struct{})
	go func() { // ends with the last worker
		m.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return m.journal.close()
	case <-ctx.Done():
		return fmt.Errorf("close the tier manager: %w", ctx.Err())
	}
}
