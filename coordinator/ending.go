package coordinator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/varvelog/varve/meta"
)

// ending is a transaction whose outcome is decided and written down, and that must be ended in its partitions.
type ending struct {
	id         string // the transactional id
	producer   Producer
	commit     bool
	version    int8 // of the transaction protocol: 0 and 1 the old one, 2 that of KIP-890
	partitions []partition
	decided    int64 // time of day in milliseconds, as it is written down
}

// TxnMarker is the end of one transaction in some of its partitions.
type TxnMarker struct {
	Producer         Producer
	Commit           bool
	CoordinatorEpoch int32
	Version          int8
	Partitions       []TxnPartition
}

// Markers has a broker write the ends of transactions to partitions that it leads (WriteTxnMarkers). The result has an error or
// nil for each partition of each marker, in their order; the error is of the request as a whole. Errors of partitions: one that
// wraps ErrProducerFenced or ErrCoordinatorFenced ends the attempts, for somebody newer has taken over; every other one means
// that it is to be tried again.
type Markers interface {
	WriteTxnMarkers(ctx context.Context, broker int32, markers []TxnMarker) ([][]error, error)
}

const (
	markersMax     = 512                    // in one request
	markerTimeout  = 30 * time.Second       // for one request
	markerPause    = 20 * time.Millisecond  // before the first new attempt, doubled for each further
	markerPauseMax = 500 * time.Millisecond // and no longer than that
	// unknownPatience is how long a partition that the metadata does not name is waited for: a topic that was deleted needs no
	// marker, but this broker's metadata may also be late.
	unknownPatience = 10 * time.Second
)

// endings carries out what is decided: it writes markers until every partition has its own, one request at a time to each
// broker, with everything in it that has come together meanwhile.
type endings struct {
	c       *service
	markers Markers

	mu      sync.Mutex // guards the following
	outlets map[int32]*outlet
	// running are the endings under way. A shard that has read its state back finds a decision again whose markers may be on
	// their way still: a second set of them, late, would end the transaction after that one, where the producer keeps its
	// epoch.
	running map[jobKey]struct{}
}

// jobKey is one decision, of one leadership.
type jobKey struct {
	index, epoch int32
	id           string
	producer     Producer
	decided      int64
}

func (j *job) key() jobKey { return jobKey{j.shard.index, j.epoch, j.id, j.producer, j.decided} }

// starts notes a job, and says whether it is not under way already.
func (m *endings) starts(j *job) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, on := m.running[j.key()]; on {
		return false
	}
	m.running[j.key()] = struct{}{}
	return true
}

// over forgets a job: it is done, or left to another coordinator.
func (m *endings) over(j *job) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.running, j.key())
}

// outlet is what waits for one broker.
type outlet struct {
	waiting []*errand
	busy    bool // its goroutine runs
}

// job is one ending under way.
type job struct {
	ending
	shard *shard
	epoch int32

	mu   sync.Mutex // guards the following
	left int        // partitions without marker
}

// errand is a job's part for one partition.
type errand struct {
	job     *job
	at      partition
	tries   int
	unknown time.Time // since when the metadata does not name the partition
}

func (m *endings) init(c *service, markers Markers) {
	m.c, m.markers, m.outlets, m.running = c, markers, make(map[int32]*outlet), make(map[jobKey]struct{})
}

// begin starts to carry out what a shard's leadership has decided. It does not block.
func (m *endings) begin(s *shard, epoch int32, ends []ending) {
	for _, e := range ends {
		j := &job{ending: e, shard: s, epoch: epoch, left: len(e.partitions)}
		if !m.starts(j) {
			continue
		}
		if j.left == 0 {
			m.finished(j)
			continue
		}
		for _, p := range e.partitions {
			m.send(&errand{job: j, at: p})
		}
	}
}

// send puts an errand into the outlet of the partition's leader.
func (m *endings) send(e *errand) {
	if epoch, leading := m.c.log.Epoch(e.job.shard.index); !leading || epoch != e.job.epoch {
		m.over(e.job)
		return // whoever leads now has read the decision back and carries it out
	}
	img := m.c.meta.Image()
	_, p := img.Partition(e.at.topic, e.at.index)
	switch {
	case p == nil && e.unknown.IsZero():
		e.unknown = time.Now()
		m.later(e)
		return
	case p == nil && time.Since(e.unknown) > unknownPatience:
		m.done(e)
		return
	case p == nil || p.Leader == meta.NoLeader:
		m.later(e)
		return
	}
	e.unknown = time.Time{}
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.outlets[p.Leader]
	if o == nil {
		o = &outlet{}
		m.outlets[p.Leader] = o
	}
	o.waiting = append(o.waiting, e)
	if !o.busy {
		o.busy = true
		broker := p.Leader
		m.c.wg.Go(func() { m.deliver(broker, o) })
	}
}

// later sends an errand again after a pause.
func (m *endings) later(e *errand) {
	pause := min(markerPause<<min(e.tries, 8), markerPauseMax)
	e.tries++
	m.c.wg.Go(func() {
		t := time.NewTimer(pause)
		defer t.Stop()
		select {
		case <-t.C:
			m.send(e)
		case <-m.c.stop:
		}
	})
}

// deliver takes errands to one broker until there are none. It ends with the service.
func (m *endings) deliver(broker int32, o *outlet) {
	for {
		m.mu.Lock()
		n := min(len(o.waiting), markersMax)
		batch := slices.Clone(o.waiting[:n])
		o.waiting = slices.Delete(o.waiting, 0, n)
		if n == 0 {
			o.busy = false
			delete(m.outlets, broker)
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
		if m.c.ctx.Err() != nil {
			continue // empties the outlet
		}
		m.request(broker, batch)
	}
}

// request writes the markers of a batch, and sends again what failed.
func (m *endings) request(broker int32, batch []*errand) {
	var markers []TxnMarker
	var of [][]*errand
	at := make(map[*job]int, len(batch))
	for _, e := range batch {
		i, ok := at[e.job]
		if !ok {
			i = len(markers)
			at[e.job] = i
			markers = append(markers, TxnMarker{
				Producer: e.job.producer, Commit: e.job.commit, CoordinatorEpoch: e.job.epoch, Version: e.job.version})
			of = append(of, nil)
		}
		markers[i].Partitions = append(markers[i].Partitions, TxnPartition{e.at.topic, e.at.index})
		of[i] = append(of[i], e)
	}
	ctx, cancel := context.WithTimeout(m.c.ctx, markerTimeout)
	defer cancel()
	results, err := m.markers.WriteTxnMarkers(ctx, broker, markers)
	for i := range of {
		for k, e := range of[i] {
			why := err
			if err == nil {
				why = results[i][k]
			}
			switch {
			case why == nil:
				m.done(e)
			case errors.Is(why, ErrProducerFenced), errors.Is(why, ErrCoordinatorFenced):
				m.over(e.job)
				m.c.logger.Warn("end of a transaction is left to a newer coordinator",
					"transactional_id", e.job.id, "topic", e.at.topic, "partition", e.at.index, "err", why)
			default:
				m.later(e)
			}
		}
	}
}

// done notes that a partition has its marker, or needs none.
func (m *endings) done(e *errand) {
	e.job.mu.Lock()
	e.job.left--
	last := e.job.left == 0
	e.job.mu.Unlock()
	if last {
		m.finished(e.job)
	}
}

// finished tells the machine, as often as it takes while this leadership lasts: a shard that has read its state back in between
// leaves the decision to us.
func (m *endings) finished(j *job) {
	m.c.wg.Go(func() {
		defer m.over(j)
		for pause := markerPause; ; pause = min(2*pause, markerPauseMax) {
			_, err := j.shard.do(m.c.ctx, txnEnded{id: j.id, producer: j.producer})
			if err == nil || m.c.ctx.Err() != nil {
				return
			}
			m.c.logger.Debug("end of a transaction not noted", "transactional_id", j.id, "err", err)
			if epoch, leading := m.c.log.Epoch(j.shard.index); !leading || epoch != j.epoch {
				return
			}
			t := time.NewTimer(pause)
			select {
			case <-t.C:
			case <-m.c.stop:
			}
			t.Stop()
		}
	})
}
