package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/varvelog/varve/meta"
)

// StreamsHeartbeat is StreamsGroupHeartbeat (KIP-1071). Internal topics that the application's topology lacks are being made when
// it returns; what went wrong with earlier tries is in the status. The result is set with an error too.
func (c *Coordinator) StreamsHeartbeat(ctx context.Context, q *StreamsHeartbeatRequest) (*StreamsHeartbeatResult, error) {
	r, err := ask[*StreamsHeartbeatResult](ctx, &c.groups, q.Group, q)
	if r == nil {
		r = &StreamsHeartbeatResult{MemberID: q.MemberID, MemberEpoch: q.MemberEpoch}
	}
	if err != nil || len(r.creating) == 0 {
		return r, err
	}
	now := time.Now()
	due, troubles := c.internal.take(r.creating, now)
	if len(due) > 0 {
		keep := time.Duration(r.HeartbeatMillis) * 2 * time.Millisecond
		if !c.groups.background(func(ctx context.Context) { c.internal.make(ctx, due, keep) }) {
			c.internal.done(due)
		}
	}
	if len(troubles) > 0 {
		for i := range r.Status {
			if r.Status[i].Code == StatusMissingInternalTopics {
				r.Status[i].Detail += "; Creation failed: " + strings.Join(troubles, ", ") + "."
			}
		}
	}
	return r, nil
}

// internalTopics makes the topics that topologies lack, each once at a time. What went wrong is remembered for a while: members
// are told of it, and their topics are not tried again until then.
type internalTopics struct {
	meta   Metadata
	logger *slog.Logger

	mu      sync.Mutex // guards the following
	making  map[string]struct{}
	trouble map[string]topicTrouble // at most troubleMax
}

type topicTrouble struct {
	text  string
	until time.Time
}

// troubleMax bounds what is remembered; beyond it topics are tried again at once.
const troubleMax = 1000

// take picks the topics that are to be made now, and says what went wrong with up to three of the others.
func (t *internalTopics) take(list []InternalTopic, now time.Time) (due []InternalTopic, troubles []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.making == nil {
		t.making, t.trouble = make(map[string]struct{}), make(map[string]topicTrouble)
	}
	more := 0
	for _, x := range list {
		bad, ok := t.trouble[x.Name]
		if ok && now.After(bad.until) {
			delete(t.trouble, x.Name)
			ok = false
		}
		if _, busy := t.making[x.Name]; !ok && !busy {
			t.making[x.Name] = struct{}{}
			due = append(due, x)
		}
		switch {
		case ok && len(troubles) == 3:
			more++
		case ok:
			troubles = append(troubles, fmt.Sprintf("%s (%s)", x.Name, bad.text))
		}
	}
	if more > 0 {
		troubles[2] += fmt.Sprintf(" and %d more", more)
	}
	return due, troubles
}

func (t *internalTopics) done(list []InternalTopic) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range list {
		delete(t.making, list[i].Name)
	}
}

// make has the topics created. Trouble is kept for as long as keep.
func (t *internalTopics) make(ctx context.Context, list []InternalTopic, keep time.Duration) {
	defer t.done(list)
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	wanted := make([]meta.NewTopic, len(list))
	for i := range list {
		wanted[i] = list[i].wanted()
	}
	made, err := t.meta.CreateTopics(ctx, wanted, false)
	if err != nil && ctx.Err() == nil {
		t.logger.Warn("internal topics of a streams group not created", "topics", len(list), "err", err)
	}
	for i := range list {
		e := err
		if e == nil && i < len(made) {
			e = made[i].Err
		}
		if e != nil && !errors.Is(e, meta.ErrTopicExists) {
			t.note(list[i].Name, e.Error(), time.Now(), keep)
		}
	}
}

// note remembers what went wrong with a topic, for as long as keep.
func (t *internalTopics) note(name, text string, now time.Time, keep time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.trouble) >= troubleMax { // of topics that nobody has asked for since, most likely
		maps.DeleteFunc(t.trouble, func(_ string, old topicTrouble) bool { return now.After(old.until) })
	}
	if len(t.trouble) < troubleMax {
		t.trouble[name] = topicTrouble{text, now.Add(keep)}
	}
}

// wanted is the topic as the metadata quorum is asked for it.
func (x *InternalTopic) wanted() meta.NewTopic {
	n := meta.NewTopic{Name: x.Name, Partitions: x.Partitions, ReplicationFactor: -1}
	if x.Replicas > 0 {
		n.ReplicationFactor = x.Replicas
	}
	for _, c := range slices.Clone(x.Configs) {
		n.Configs = append(n.Configs, meta.ConfigValue{Name: c.Name, Value: &c.Value})
	}
	return n
}
