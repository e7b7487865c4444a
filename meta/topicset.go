package meta

import (
	"hash/maphash"
	"maps"
	"slices"

	"github.com/varvelog/varve/meta/topic"
)

// topicSet finds topics by name, by id and by what their names collide on. It
// is persistent: a change copies one shard of each index and shares the rest,
// so it costs the same with ten topics and with ten thousand.
type topicSet struct {
	byName   sharded[*Topic]
	byID     sharded[*Topic]
	byFolded sharded[[]string] // topic.CollisionKey → names, only of names that can collide
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
// shard that a put or remove replaces is copied every time, since another copy
// of the map may hold it.
type sharded[V any] struct {
	shards *[shardCount]map[string]V
	len    int
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
	next := new([shardCount]map[string]V)
	if m.shards != nil {
		*next = *m.shards
	}
	i := shardOf(key)
	if next[i] == nil {
		next[i] = make(map[string]V, 1)
	} else {
		next[i] = maps.Clone(next[i])
	}
	m.shards = next
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
