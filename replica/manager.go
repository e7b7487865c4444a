package replica

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// Metadata is what the manager follows: the images of the metadata node, in order. The function is called once at the start
// with a nil previous image, and never concurrently.
type Metadata interface {
	Subscribe(func(prev, next *meta.Image)) (cancel func())
	// ConfirmDeleted says that a deleted topic's data is gone: from this broker's disk, or (broker -1, tier) from the bucket.
	ConfirmDeleted(ctx context.Context, id topic.ID, broker int32, tier bool) error
	// Image is the newest image.
	Image() *meta.Image
	// AlterPartitions asks the controller for other in-sync sets, on behalf of this broker. It may take as long as ctx allows.
	AlterPartitions(ctx context.Context, leader int32, epoch int64, wishes []meta.AlterPartition) ([]meta.AlteredPartition, error)
}

// Manager holds this broker's partitions and keeps them as the metadata image says. It opens, leads and deletes them with a
// bounded number of workers, each partition by one worker at a time, and does their housekeeping when it is due.
type Manager struct {
	config Config
	deps   Deps
	logger *slog.Logger
	table  table
	wg     sync.WaitGroup

	born    time.Time
	running context.Context // until Close
	cancel  context.CancelFunc

	unsubscribe func()

	mu     sync.Mutex // guards the following
	work   sync.Cond  // queue or closed changed
	slots  map[replicaKey]*slot
	queue  slotQueue
	follow following
	closed bool

	retention, compaction keeper

	broker     atomic.Pointer[conf.Broker] // with the dynamic settings of the newest image
	fetchers   map[int32]*fetcher          // by the broker they fetch from; mu guards the map
	proposals  proposals
	cuts       chan struct{} // truncations under way
	rebuilds   chan struct{} // rebuilds under way
	mendSpace  chan struct{} // what damaged ranges that are being mended take, in units of mendFetchMax
	mendTurn   chan struct{} // who waits for that
	mendMax    int64         // bytes of one of them
	isrChanges isrChanges
	throttle   Throttle // follower.replication.throttled.rate
}

// cutsMax and rebuildsMax bound how many partitions change their logs at a leader's word at once. The latter wait for the
// bucket.
const (
	cutsMax     = 8
	rebuildsMax = 8
)

// NewManager starts the workers and subscribes to the metadata. Partitions are opened as the first image names them.
func NewManager(config Config, deps Deps) (*Manager, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Manager{
		config: config, deps: deps, logger: deps.Logger,
		table: newTable(), slots: make(map[replicaKey]*slot), born: time.Now(),
		fetchers: make(map[int32]*fetcher), cuts: make(chan struct{}, cutsMax), rebuilds: make(chan struct{}, rebuildsMax), mendSpace: make(chan struct{}, mendRoomMax), mendTurn: make(chan struct{}, 1), mendMax: mendBytesMax,
	}
	m.work.L = &m.mu
	m.running, m.cancel = context.WithCancel(context.Background())
	m.retention.init(m.retain)
	m.compaction.init(m.compact)
	for range config.OpenParallelism {
		m.wg.Go(m.worker)
	}
	m.wg.Go(func() { m.retention.keep(m.running.Done()) })
	m.wg.Go(func() { m.compaction.keep(m.running.Done()) })
	m.proposals.init(m)
	m.wg.Go(m.proposals.run)
	deps.Hot.OnSealed(m.sealed)
	deps.Hot.OnDamaged(m.damaged)
	m.unsubscribe = deps.Meta.Subscribe(m.image)
	return m, nil
}

// sealed is told by the hot store that a segment is sealed, synced and whole: the tier manager may have it.
func (m *Manager) sealed(log *hot.Log) {
	id := log.Partition()
	if p, _, _ := m.table.getByID(id.ID, id.Index); p != nil {
		if l := p.offload.Load(); l != nil {
			l.Rolled()
		}
	}
}

// Partition finds a partition by name: ErrUnknownPartition, or ErrNotLeader while it is being opened.
func (m *Manager) Partition(name string, index int32) (*Partition, error) {
	p, known := m.table.get(name, index)
	switch {
	case !known:
		return nil, ErrUnknownPartition
	case p == nil:
		m.hurry(m.table.idOf(name), index)
		return nil, ErrNotLeader
	}
	return p, nil
}

// PartitionByID finds a partition by topic id: ErrUnknownTopicID, ErrUnknownPartition, or ErrNotLeader while it is being
// opened.
func (m *Manager) PartitionByID(id topic.ID, index int32) (*Partition, error) {
	p, known, ok := m.table.getByID(id, index)
	switch {
	case !ok:
		return nil, ErrUnknownTopicID
	case !known:
		return nil, ErrUnknownPartition
	case p == nil:
		m.hurry(id, index)
		return nil, ErrNotLeader
	}
	return p, nil
}

// Partitions lists the partitions that are open here.
func (m *Manager) Partitions() []*Partition { return m.table.all() }

// Ready reports whether this broker leads the partition and serves it: Metadata names a leader only then.
func (m *Manager) Ready(name string, index int32) bool {
	p, known := m.table.get(name, index)
	return known && p != nil && p.role.Load().err == nil
}

// Close stops following, ends every leadership with ErrClosed, and waits for the workers. The hot store and the archive stay
// open: they are closed after this, and the hot store saves the high watermarks then.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	m.cancel()
	m.work.Broadcast()
	m.mu.Unlock()

	m.unsubscribe()
	done := make(chan struct{})
	go func() {
		m.wg.Wait()
		close(done)
	}()
	for _, p := range m.table.all() {
		p.resign(ErrClosed)
	}
	select {
	case <-done:
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, p := range m.table.all() {
		p.resign(ErrClosed) // those that a worker was still opening
	}
	return nil
}

// leased says whether the controller cannot have given up on this broker yet.
func (m *Manager) leased() bool { return m.deps.Lease == nil || m.deps.Lease() }

// steady is a clock that nobody sets, in milliseconds: for leases and lags.
func (m *Manager) steady() int64 { return time.Since(m.born).Milliseconds() }

// clock is the time that steady goes by.
func (m *Manager) clock() time.Time { return time.Now() }

// now is the wall clock in milliseconds.
func now() int64 { return time.Now().UnixMilli() }
