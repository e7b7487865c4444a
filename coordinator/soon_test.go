package coordinator

import "testing"

// A group that is large asks fewer heartbeats of each member, and nobody is ever asked less often than regularly.
func TestMembersThatWaitAreAskedBackSoon(t *testing.T) {
	for _, x := range []struct {
		name    string
		w       waiting
		regular int64
		want    int32
	}{
		{"nothing to wait for", waiting{members: 3, due: -1}, 5000, 5000},
		{"others have to give up", waiting{members: 3, others: true, due: -1}, 5000, 500},
		{"a thousand members", waiting{members: 1000, others: true, due: -1}, 5000, 1000},
		{"ten thousand members", waiting{members: 10_000, others: true, due: -1}, 5000, 5000},
		{"an interval that is shorter yet", waiting{members: 3, others: true, due: -1}, 300, 300},
		{"the assignment is due", waiting{members: 3, due: 700}, 5000, 700},
		{"the assignment is due at once", waiting{members: 3, due: 0}, 5000, 50},
		{"the assignment of a thousand is due at once", waiting{members: 1000, due: 0}, 5000, 1000},
		{"the assignment of ten thousand is due at once", waiting{members: 10_000, due: 0}, 5000, 5000},
		{"both", waiting{members: 3, others: true, due: 900}, 5000, 500},
		{"the assignment is due late", waiting{members: 3, due: 60_000}, 5000, 5000},
	} {
		if got := x.w.interval(x.regular); got != x.want {
			t.Errorf("%s: %d ms, want %d", x.name, got, x.want)
		}
	}
}
