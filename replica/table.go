package replica

import (
	"sync"

	"github.com/varvelog/varve/meta/topic"
)

// table is the set of partitions this broker holds, by name and by id. Lookups are on the way of every request.
type table struct {
	mu     sync.RWMutex // guards the following
	byName map[string]*held
	byID   map[topic.ID]*held
}

// held is one topic's partitions; those this broker does not hold are nil.
type held struct {
	id         topic.ID
	name       string
	partitions []*Partition
}

func newTable() table {
	return table{byName: make(map[string]*held), byID: make(map[topic.ID]*held)}
}

// get finds a partition by topic name. known is false when the topic or the index is not in the table.
func (t *table) get(name string, index int32) (p *Partition, known bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byName[name].at(index)
}

// getByID finds a partition by topic id; ok tells whether the id is known at all.
func (t *table) getByID(id topic.ID, index int32) (p *Partition, known, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	h, ok := t.byID[id]
	p, known = h.at(index)
	return p, known, ok
}

func (h *held) at(index int32) (*Partition, bool) {
	if h == nil || index < 0 || int(index) >= len(h.partitions) {
		return nil, false
	}
	return h.partitions[index], true
}

// put replaces what the table knows of a topic. A topic created again under an old name takes the name over.
func (t *table) put(h *held) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byID[h.id] = h
	t.byName[h.name] = h
}

// has reports whether the table knows a topic.
func (t *table) has(id topic.ID) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byID[id] != nil
}

// drop forgets a topic.
func (t *table) drop(id topic.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, ok := t.byID[id]
	if !ok {
		return
	}
	delete(t.byID, id)
	if t.byName[h.name] == h {
		delete(t.byName, h.name)
	}
}

// all lists every partition held.
func (t *table) all() []*Partition {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var list []*Partition
	for _, h := range t.byID {
		for _, p := range h.partitions {
			if p != nil {
				list = append(list, p)
			}
		}
	}
	return list
}

// set puts an open partition in its place, if the topic is still there.
func (t *table) set(id topic.Partition, p *Partition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h, ok := t.byID[id.ID]; ok && int(id.Index) < len(h.partitions) {
		h.partitions[id.Index] = p
	}
}

// grow makes room for more partitions of a topic.
func (t *table) grow(id topic.ID, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h, ok := t.byID[id]; ok && n > len(h.partitions) {
		h.partitions = append(h.partitions, make([]*Partition, n-len(h.partitions))...)
	}
}

// idOf is the id of the topic that has a name now.
func (t *table) idOf(name string) topic.ID {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if h := t.byName[name]; h != nil {
		return h.id
	}
	return topic.ID{}
}
