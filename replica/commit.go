package replica

// commits is the queue of acknowledgements waiting for the high watermark, ordered by offset. Registrations come nearly in
// order, because appends do, so insertion looks from the back. A cancelled entry stays in place with a nil function until
// the watermark passes it or the cancelled outnumber the rest, so cancelling costs nothing and a watermark that stands
// still holds at most twice the live entries.
//
// It has no lock: the partition guards it, takes what is due under its lock and runs it after.
type commits struct {
	queue     []*commit
	head      int // first entry of queue not taken yet
	cancelled int
}

type commit struct {
	offset int64
	fn     func(error)
}

// add puts fn in the queue; it runs once the high watermark is above offset.
func (c *commits) add(offset int64, fn func(error)) *commit {
	e := &commit{offset: offset, fn: fn}
	i := len(c.queue)
	for i > c.head && c.queue[i-1].offset > offset {
		i--
	}
	c.queue = append(c.queue, nil)
	copy(c.queue[i+1:], c.queue[i:])
	c.queue[i] = e
	return e
}

// cancel forgets e unless it was taken already.
func (c *commits) cancel(e *commit) {
	if e.fn == nil {
		return
	}
	e.fn = nil
	c.cancelled++
	if c.cancelled > 64 && c.cancelled > (len(c.queue)-c.head)/2 {
		c.compact()
	}
}

func (c *commits) compact() {
	kept := c.queue[:0]
	for _, e := range c.queue[c.head:] {
		if e.fn != nil {
			kept = append(kept, e)
		}
	}
	clear(c.queue[len(kept):])
	c.queue, c.head, c.cancelled = kept, 0, 0
}

// take removes every entry below the high watermark and appends its function to due, in offset order.
func (c *commits) take(hw int64, due []func(error)) []func(error) {
	for c.head < len(c.queue) && c.queue[c.head].offset < hw {
		due = c.takeFirst(due)
	}
	if c.head == len(c.queue) {
		c.queue, c.head = c.queue[:0], 0
	} else if c.head > 1024 && c.head > len(c.queue)/2 {
		c.compact()
	}
	return due
}

// takeAll removes every entry: the leadership has ended.
func (c *commits) takeAll(due []func(error)) []func(error) {
	for c.head < len(c.queue) {
		due = c.takeFirst(due)
	}
	c.queue, c.head = nil, 0
	return due
}

func (c *commits) takeFirst(due []func(error)) []func(error) {
	e := c.queue[c.head]
	c.queue[c.head] = nil
	c.head++
	if e.fn == nil {
		c.cancelled--
		return due
	}
	due = append(due, e.fn)
	e.fn = nil
	return due
}

// len counts the entries still waiting.
func (c *commits) len() int { return len(c.queue) - c.head - c.cancelled }
