package meta

import (
	"hash/maphash"
	"maps"
	"slices"

	"github.com/varvelog/varve/meta/topic"
)

// topicSet finds topics by name, by id and by what their names collide on. It
// is persistent: a change copies one shard of each index and shares the rest,
// so it costs the same with ten topics and with ten thousand, and a change of
// all topics at once copies everything once.
type topicSet struct {
	byName   sharded[*Topic]
	byID     sharded[*Topic]
	byFolded sharded[[]string] // topic.CollisionKey → names, only of names that can collide
}

func (s topicSet) fork() topicSet {
	return topicSet{byName: s.byName.fork(), byID: s.byID.fork(), byFolded: s.byFolded.fork()}
}

func (s *topicSet) put(t *Topic) {
	if s.byName.get(t.Name) == nil && topic.HasCollisionChars(t.Name) {
		key := topic.CollisionKey(t.Name)
		names := append(slices.Clone(s.byFolded.get(key)), t.Name)
		slices.Sort(names)
		s.byFolded.put(key, names)
	}
	s.byName.put(t.Name, t)
	s.byID.put(string(t.ID[:]), t)
}

func (s *topicSet) remove(t *Topic) {
	if topic.HasCollisionChars(t.Name) {
		key := topic.CollisionKey(t.Name)
		names := slices.DeleteFunc(slices.Clone(s.byFolded.get(key)), func(n string) bool { return n == t.Name })
		if len(names) == 0 {
			s.byFolded.remove(key)
		} else {
			s.byFolded.put(key, names)
		}
	}
	s.byName.remove(t.Name)
	s.byID.remove(string(t.ID[:]))
}

// colliding returns a topic whose name collides with this one, or "".
func (s *topicSet) colliding(name string) string {
	if !topic.HasCollisionChars(name) {
		return ""
	}
	if names := s.byFolded.get(topic.CollisionKey(name)); len(names) > 0 {
		return names[0]
	}
	return ""
}

const shardCount = 256

var shardSeed = maphash.MakeSeed()

func shardOf(key string) int { return int(maphash.String(shardSeed, key) % shardCount) }

// sharded is a persistent map: copies of it share what they have in common. A
// shard is copied before it is first written to, unless the map has copied it
// already since it was made by fork.
type sharded[V any] struct {
	shards *[shardCount]map[string]V
	len    int
	mine   *ownership // nil: nothing is
}

// ownership is what a map made by fork has copied for itself.
type ownership struct {
	array  bool
	shards [shardCount / 64]uint64
}

// fork returns a copy to write to while the original is read.
func (m sharded[V]) fork() sharded[V] {
	m.mine = &ownership{}
	return m
}

func (m *sharded[V]) get(key string) V {
	if m.shards == nil {
		var none V
		return none
	}
	return m.shards[shardOf(key)][key]
}

func (m *sharded[V]) put(key string, v V) {
	i := m.own(key)
	if _, ok := m.shards[i][key]; !ok {
		m.len++
	}
	m.shards[i][key] = v
}

func (m *sharded[V]) remove(key string) {
	i := m.own(key)
	if _, ok := m.shards[i][key]; ok {
		m.len--
		delete(m.shards[i], key)
	}
}

// own makes the shard of key this map's own and returns its index.
func (m *sharded[V]) own(key string) int {
	i := shardOf(key)
	if m.mine == nil {
		panic("meta: write to an image that is not being made")
	}
	if !m.mine.array {
		next := new([shardCount]map[string]V)
		if m.shards != nil {
			*next = *m.shards
		}
		m.shards, m.mine.array = next, true
	}
	bit := uint64(1) << (i % 64)
	if m.mine.shards[i/64]&bit != 0 {
		return i
	}
	m.mine.shards[i/64] |= bit
	if m.shards[i] == nil {
		m.shards[i] = make(map[string]V, 1)
	} else {
		m.shards[i] = maps.Clone(m.shards[i])
	}
	return i
}

func (m *sharded[V]) each(fn func(V)) {
	if m.shards == nil {
		return
	}
	for _, shard := range m.shards {
		for _, v := range shard {
			fn(v)
		}
	}
}
