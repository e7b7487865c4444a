package broker

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/broker/rate"
	"github.com/varvelog/varve/meta"
)

// Quotas of clients (KIP-13, KIP-55, KIP-124, KIP-546, KIP-599, KIP-612). Each broker counts by itself, the controller's what
// is created and deleted. Where there are no quotas, a request costs one atomic load more.

// quotaKind is what a quota is on.
type quotaKind uint8

const (
	quotaProduce quotaKind = iota
	quotaFetch
	quotaRequest
	quotaMutation
	quotaConnection
	quotaKinds
)

var quotaKindOf = map[string]quotaKind{
	meta.ProducerByteRate: quotaProduce, meta.ConsumerByteRate: quotaFetch, meta.RequestPercentage: quotaRequest,
	meta.ControllerMutationRate: quotaMutation, meta.ConnectionCreationRate: quotaConnection,
}

var quotaKindNames = [quotaKinds]string{"produce", "fetch", "request", "controller_mutation", "connection"}

// quotaTable is the quotas of one metadata image, ready to be looked up. It is immutable.
type quotaTable struct {
	bounds   [quotaKinds]map[meta.QuotaEntity]float64 // nil: nobody has one
	replaced chan struct{}                            // closed when another table is in force
}

// newQuotaTable is nil when there are no quotas.
func newQuotaTable(list []meta.Quota) *quotaTable {
	if len(list) == 0 {
		return nil
	}
	t := &quotaTable{replaced: make(chan struct{})}
	for _, q := range list {
		entity := q.Entity
		if a, err := netip.ParseAddr(entity.IP.Name); err == nil {
			entity.IP.Name = a.Unmap().String() // as connections name it
		}
		for _, v := range q.Values {
			kind, ok := quotaKindOf[v.Key]
			if !ok {
				continue // of a later release
			}
			if t.bounds[kind] == nil {
				t.bounds[kind] = map[meta.QuotaEntity]float64{}
			}
			t.bounds[kind][entity] = v.Value
		}
	}
	return t
}

// quotaKey names who shares an account: all clients of a user, of a client id, or of both; or an address.
type quotaKey struct {
	kind         quotaKind
	user, client string
	rest         bool // of those for whom there was no room
}

// find looks for the quota of a client. The most specific entity that has one decides, as in Kafka; one that is the default of
// many is each one's own.
func (t *quotaTable) find(kind quotaKind, user, client string) (bound float64, key quotaKey, ok bool) {
	bounds := t.bounds[kind]
	if bounds == nil {
		return 0, key, false
	}
	named := func(name string) meta.QuotaName { return meta.QuotaName{Kind: meta.NamedQuota, Name: name} }
	u, c, all := named(user), named(client), meta.QuotaName{Kind: meta.DefaultQuota}
	for _, level := range [...]struct {
		entity           meta.QuotaEntity
		byUser, byClient bool
	}{
		{meta.QuotaEntity{User: u, ClientID: c}, true, true},
		{meta.QuotaEntity{User: u, ClientID: all}, true, true},
		{meta.QuotaEntity{User: u}, true, false},
		{meta.QuotaEntity{User: all, ClientID: c}, true, true},
		{meta.QuotaEntity{User: all, ClientID: all}, true, true},
		{meta.QuotaEntity{User: all}, true, false},
		{meta.QuotaEntity{ClientID: c}, false, true},
		{meta.QuotaEntity{ClientID: all}, false, true},
	} {
		if bound, ok = bounds[level.entity]; !ok {
			continue
		}
		key.kind = kind
		if level.byUser {
			key.user = user
		}
		if level.byClient {
			key.client = client
		}
		return bound, key, true
	}
	return 0, key, false
}

// findAddress looks for the quota of an address.
func (t *quotaTable) findAddress(ip string) (bound float64, key quotaKey, ok bool) {
	bounds := t.bounds[quotaConnection]
	if bounds == nil {
		return 0, key, false
	}
	if a, err := netip.ParseAddr(ip); err == nil {
		ip = a.Unmap().String()
	}
	bound, ok = bounds[meta.QuotaEntity{IP: meta.QuotaName{Kind: meta.NamedQuota, Name: ip}}]
	if !ok {
		bound, ok = bounds[meta.QuotaEntity{IP: meta.QuotaName{Kind: meta.DefaultQuota}}]
	}
	return bound, quotaKey{kind: quotaConnection, client: ip}, ok
}

// account is what some clients have used. An account that was not used for a window is as good as new and is forgotten.
type account struct {
	mu     sync.Mutex // guards the following
	window *rate.Window
	bucket rate.Bucket
	used   time.Duration // when its last amount has no effect any more but for what the windows hold
	gone   bool          // forgotten: whoever holds it asks anew
}

// quotas are the quotas in force and what was used of them.
type quotas struct {
	table   atomic.Pointer[quotaTable] // nil: there are none
	started time.Time
	samples int
	size    time.Duration // of a sample
	burst   time.Duration // of what the controller's quota counts, KIP-599

	mu       sync.Mutex // guards the following
	accounts map[quotaKey]*account
	sweepAt  int // how many accounts there are when idle ones are looked for

	throttled [quotaKinds]atomic.Int64 // requests, and connections, that had to wait
	waits     [quotaKinds]atomic.Int64 // how long, in nanoseconds
}

const (
	// accountsMax bounds the accounts: clients choose their client ids. Those for whom there is no room share one.
	accountsMax     = 100_000
	accountsSweepAt = 1024
)

func newQuotas(cfg *Config) *quotas {
	return &quotas{
		started: time.Now(), samples: max(cfg.QuotaSamples, 1), size: max(cfg.QuotaSampleTime, time.Second),
		burst: max(cfg.MutationQuotaBurst, time.Second), accounts: map[quotaKey]*account{}, sweepAt: accountsSweepAt,
	}
}

// now is the time that accounts are kept by; it never goes back.
func (q *quotas) now() time.Duration { return time.Since(q.started) }

// follow takes the quotas of a new image, if they are others than before.
func (q *quotas) follow(prev, next *meta.Image) {
	if prev != nil && sameQuotas(prev.Quotas(), next.Quotas()) {
		return
	}
	old, t := q.table.Load(), newQuotaTable(next.Quotas())
	q.table.Store(t)
	if old != nil {
		close(old.replaced)
	}
}

// sameQuotas says whether two images share their list: it is replaced with every change.
func sameQuotas(a, b []meta.Quota) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// account finds or opens an account.
func (q *quotas) account(key quotaKey, now time.Duration) *account {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.accounts[key]
	if a != nil {
		return a
	}
	if len(q.accounts) >= q.sweepAt {
		q.sweepLocked(now)
	}
	if len(q.accounts) >= accountsMax {
		key = quotaKey{kind: key.kind, rest: true}
		if a = q.accounts[key]; a != nil {
			return a
		}
	}
	a = &account{window: rate.NewWindow(q.samples, q.size), used: now}
	q.accounts[key] = a
	return a
}

// sweepLocked forgets accounts that nobody has used for so long that nothing is left in them.
func (q *quotas) sweepLocked(now time.Duration) {
	idle := max(time.Duration(q.samples)*q.size, q.burst)
	for key, a := range q.accounts {
		a.mu.Lock()
		if now-a.used > idle {
			a.gone = true
			delete(q.accounts, key)
		}
		a.mu.Unlock()
	}
	q.sweepAt = min(max(2*len(q.accounts), accountsSweepAt), accountsMax)
}

// grant is a client's quota of one kind, and the account it is counted on.
type grant struct {
	known bool // it was looked for
	bound float64
	key   quotaKey
	acct  *account // nil: no quota
}

// spend counts an amount and returns how long whoever spends it has to wait. With back, what would have to wait is not
// counted: it will be asked for again. What an empty account cannot bear at all is counted, or it would wait for ever.
func (q *quotas) spend(g *grant, now time.Duration, amount float64, back bool) time.Duration {
	if g.acct == nil {
		return 0
	}
	for {
		a := g.acct
		a.mu.Lock()
		if a.gone {
			a.mu.Unlock()
			g.acct = q.account(g.key, now)
			continue
		}
		alone := back && a.window.Sum(now) <= 0
		a.window.Add(now, amount)
		a.used = max(a.used, now)
		wait := a.window.Wait(now, g.bound)
		if alone {
			wait = 0
		}
		if back && wait > 0 {
			a.window.Add(now, -amount)
		}
		a.mu.Unlock()
		return wait
	}
}

// note counts a throttled request.
func (q *quotas) note(kind quotaKind, wait time.Duration) {
	q.throttled[kind].Add(1)
	q.waits[kind].Add(int64(wait))
}
