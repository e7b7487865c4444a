package coordinator

import "github.com/varvelog/varve/meta/topic"

// machine is the state of one partition of an internal topic, and every decision about it. It has no goroutine, clock or lock:
// events and the time come in, effects go out. What an event changes is in place when step returns, while its records are
// yet to be written; the shell answers nobody before they are, and throws the machine away when they cannot be.
type machine interface {
	// step takes one event, tick fires the timers that are due, deadline is when there will be one.
	step(e event, now int64)
	tick(now int64)
	deadline() (int64, bool)
	// take returns the effects since the last call.
	take() effects
	// replay applies one record of the log; on an error nothing has changed. replayMarker applies the end of a producer's
	// transaction. loaded ends the replay: from then on time counts.
	replay(producer int64, key, value []byte) error
	replayMarker(producer int64, commit bool)
	loaded(now int64)
	// setSkew gives what must be added to now for the time of day. Deadlines are kept in a time that only goes forward evenly,
	// so that setting the clock ends no session; what is written down, and the age of what was, are the time of day.
	setSkew(skew int64)
	// setTopics gives the topics as the metadata has them.
	setTopics(v *topicsView)
	// size is how many groups or transactional ids there are.
	size() int
}

// cutter is a machine whose newer records make older ones redundant in a way that compaction cannot know: its topic is cut off at
// its start.
type cutter interface {
	// placed says at which offset a record of the log is: of every record that is replayed or has been written, in order.
	placed(key []byte, offset int64)
	// redundant is the offset below which no record is needed any more.
	redundant() int64
}

// clockwork is what every machine has beside its state: deadlines, the time of the step under way, and what the steps since the
// last take have led to.
type clockwork struct {
	timers timers
	now    int64 // of the step under way
	skew   int64 // see machine.setSkew
	out    effects
}

func (c *clockwork) setSkew(skew int64) { c.skew = skew }

func (c *clockwork) take() effects {
	out := c.out
	c.out = effects{}
	return out
}

func (c *clockwork) deadline() (int64, bool) { return c.timers.next() }

// wall is the time of day.
func (c *clockwork) wall() int64 { return c.now + c.skew }

// event is a request on its way into a machine. ticket is never 0.
type event struct {
	ticket uint64
	newID  string // random part of a member id, used if one must be made
	body   any    // a request type or one of those below
}

// What the groups' machine takes besides requests.
type (
	describe         struct{ group string }
	describeConsumer struct{ group string }
	describeStreams  struct{ group string }
	list             struct{}
	remove           struct{ group string }
	// topicGone says that a topic was deleted. keep is the id of the topic that has its name now; zero: none.
	topicGone struct {
		topic string
		id    topic.ID
		keep  [16]byte
	}
)

// effects are what a step has led to: records to write, then replies to give, then transactions to end in their partitions.
type effects struct {
	records []record
	replies []reply
	ends    []ending
	begins  [][]ShareInitialize // share-partitions to be begun, by group
	cut     bool                // of a cutter: the log is to be cut off where it is redundant
}

// reply answers the request of a ticket. Requests are answered exactly once, perhaps many steps later.
type reply struct {
	ticket uint64
	result any
	err    error
}

func (e *effects) add(o effects) {
	e.records, e.replies, e.ends = append(e.records, o.records...), append(e.replies, o.replies...), append(e.ends, o.ends...)
	e.begins, e.cut = append(e.begins, o.begins...), e.cut || o.cut
}
