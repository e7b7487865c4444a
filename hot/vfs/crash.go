package vfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// sectorSize is the unit in bytes in which a disk writes atomically.
const sectorSize = 512

// dirChange is one unsynced change of a directory: a new name (from nil), a
// removed one (to nil) or a rename, which is atomic.
type dirChange struct {
	from, to         *node
	fromName, toName string
	node             *node
	replaced         *node // what a rename put its node in place of, or nil
	// fromSynced and toSynced say which sides of a rename across two
	// directories have been synced.
	fromSynced, toSynced bool
}

// syncedDir makes the changes of dir durable. A rename across directories
// stays open, whole, until both are synced.
func syncedDir(journal []dirChange, dir *node) []dirChange {
	for i := range journal {
		c := &journal[i]
		c.fromSynced = c.fromSynced || c.from == nil || c.from == dir
		c.toSynced = c.toSynced || c.to == nil || c.to == dir
	}
	return slices.DeleteFunc(journal, func(c dirChange) bool { return c.fromSynced && c.toSynced })
}

// remember keeps what the disk holds of [start, end) before it changes.
func (n *node) remember(start, end int64) {
	end = min(end, n.durable)
	for s := start / sectorSize; s*sectorSize < end; s++ {
		if _, ok := n.old[s]; ok {
			continue
		}
		if n.old == nil {
			n.old = map[int64][]byte{}
		}
		from := s * sectorSize
		n.old[s] = slices.Clone(n.data[from:min(from+sectorSize, n.durable, int64(len(n.data)))])
	}
}

// synced makes the file's bytes and length durable.
func (n *node) synced() {
	n.durable = int64(len(n.data))
	n.old = nil
}

// Crash returns what the disk holds after power was lost at this moment. The
// original is not touched and may crash again. By chance of the seed, each
// unsynced change of a directory is kept or lost, and of each file's unsynced
// bytes all, none, or some sectors, with the length anywhere between; sectors
// never written inside that length read as zeros or as garbage. Synced bytes
// and names are always kept. The clone starts out all durable.
func (m *Mem) Crash() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.crashLocked(m.rng)
}

// CrashSeed is Crash with a seed of its own, for trying many outcomes of one
// moment.
func (m *Mem) CrashSeed(seed uint64) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.crashLocked(rand.New(rand.NewPCG(seed, 0xc4a5)))
}

// Clone returns a copy of the present state, all durable: a clean stop.
func (m *Mem) Clone() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.copyLocked(m.rng, cloner{
		dirs: func(n *node) map[string]*node { return n.children },
		file: func(n *node) []byte { return slices.Clone(n.data) },
	})
}

func (m *Mem) crashLocked(rng *rand.Rand) *Mem {
	dirs := m.survivingDirs(rng)
	return m.copyLocked(rng, cloner{
		dirs: func(n *node) map[string]*node {
			if d, ok := dirs[n]; ok {
				return d
			}
			return n.children
		},
		file: func(n *node) []byte { return n.survivor(rng) },
	})
}

// survivingDirs decides which unsynced directory changes the disk has. It
// returns the entries of every directory that has any.
func (m *Mem) survivingDirs(rng *rand.Rand) map[*node]map[string]*node {
	dirs := map[*node]map[string]*node{}
	of := func(n *node) map[string]*node {
		if dirs[n] == nil {
			dirs[n] = maps.Clone(n.children)
		}
		return dirs[n]
	}
	// Back to the synced state, newest change first…
	for _, c := range slices.Backward(m.journal) {
		if c.to != nil {
			if c.replaced != nil {
				of(c.to)[c.toName] = c.replaced
			} else {
				delete(of(c.to), c.toName)
			}
		}
		if c.from != nil {
			of(c.from)[c.fromName] = c.node
		}
	}
	// …and forward again over the changes that made it to the disk: all of
	// them, none, the first few as a journal keeps them, or any.
	mode, cut := rng.IntN(4), 0
	if len(m.journal) > 0 {
		cut = rng.IntN(len(m.journal) + 1)
	}
	for i, c := range m.journal {
		keep := false
		switch mode {
		case 0:
			keep = true
		case 1:
		case 2:
			keep = i < cut
		case 3:
			keep = rng.IntN(2) == 0
		}
		if keep {
			if c.from != nil && of(c.from)[c.fromName] == c.node {
				delete(of(c.from), c.fromName)
			}
			if c.to != nil {
				of(c.to)[c.toName] = c.node
			}
		}
	}
	return dirs
}

// cloner says what of a node goes into a copy.
type cloner struct {
	dirs func(*node) map[string]*node
	file func(*node) []byte
}

func (m *Mem) copyLocked(rng *rand.Rand, c cloner) *Mem {
	seen := map[*node]bool{}
	var clone func(n *node) *node
	clone = func(n *node) *node {
		if !n.isDir() {
			data := c.file(n)
			return &node{data: data, durable: int64(len(data)), modified: n.modified}
		}
		seen[n] = true
		dir := newDir()
		entries := c.dirs(n)
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			if child := entries[name]; !seen[child] {
				dir.children[name] = clone(child)
			}
		}
		return dir
	}
	next := NewMem(rng.Uint64())
	next.capacity = m.capacity
	next.root = clone(m.root)
	return next
}

// durableSector is what the disk surely held of sector s.
func (n *node) durableSector(s int64) []byte {
	if old, ok := n.old[s]; ok {
		return old
	}
	from := s * sectorSize
	end := min(from+sectorSize, n.durable, int64(len(n.data)))
	if from >= end {
		return nil
	}
	return n.data[from:end]
}

// survivor is the content of the file after power loss.
func (n *node) survivor(rng *rand.Rand) []byte {
	now := int64(len(n.data))
	if n.durable == now && len(n.old) == 0 {
		return slices.Clone(n.data)
	}
	switch rng.IntN(4) {
	case 0: // everything made it
		return slices.Clone(n.data)
	case 1: // nothing did
		return n.assemble(rng, n.durable, 0, false)
	case 2: // a run from the front did, as a log is written
		return n.assemble(rng, min(n.durable, now)+rng.Int64N(max(now, n.durable)-min(n.durable, now)+1), 100, false)
	}
	size := min(n.durable, now) + rng.Int64N(max(now, n.durable)-min(n.durable, now)+1)
	return n.assemble(rng, size, rng.IntN(101), true)
}

// assemble builds a file of size bytes whose sectors are new with a chance of
// percent and old otherwise; bytes the disk never held are zeros, or garbage
// when garble is set and chance has it.
func (n *node) assemble(rng *rand.Rand, size int64, percent int, garble bool) []byte {
	out := make([]byte, size)
	for s := int64(0); s*sectorSize < size; s++ {
		from := s * sectorSize
		into := out[from:min(from+sectorSize, size)]
		old := n.durableSector(s)
		var present []byte
		if from < int64(len(n.data)) {
			present = n.data[from:min(from+sectorSize, int64(len(n.data)))]
		}
		if rng.IntN(100) < percent {
			// A file cut shorter and not synced: where there are no new
			// bytes the old ones may show.
			copy(into, old)
			copy(into, present)
			continue
		}
		if garble && rng.IntN(4) == 0 {
			for i := len(old); i < len(into); i++ {
				into[i] = byte(rng.Uint32())
			}
		}
		copy(into, old)
	}
	return out
}
