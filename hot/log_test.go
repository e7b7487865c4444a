package hot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
	"github.com/varvelog/varve/meta/topic"
)

var testPartition = topic.Partition{Topic: "events", ID: topic.ID{1, 2, 3}, Index: 3}

// testWriter sends a logger's lines to the test.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(string(bytes.TrimSpace(p)))
	return len(p), nil
}

func testLogger(t testing.TB) *slog.Logger {
	if testing.Verbose() {
		return slog.New(slog.NewTextHandler(testWriter{t}, nil))
	}
	return slog.New(slog.DiscardHandler)
}

func openStore(t testing.TB, fs vfs.FS, dir string, change ...func(*Config)) *Store {
	t.Helper()
	c := DefaultConfig(dir)
	for _, f := range change {
		f(&c)
	}
	s, err := Open(c, Deps{FS: fs, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Abandon)
	return s
}

func closeStore(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func openLog(t testing.TB, s *Store, change ...func(*LogConfig)) *Log {
	t.Helper()
	c := DefaultLogConfig()
	for _, f := range change {
		f(&c)
	}
	l, err := s.Log(testPartition, c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// records builds a batch of n records of the given size, stamped ts, ts+1, …
func records(n, size int, ts int64) batch.Batch {
	b := batch.NewBuilder(batch.Options{})
	for i := range n {
		v := bytes.Repeat([]byte{byte('a' + i%26)}, size)
		if err := b.Append(ts+int64(i), fmt.Appendf(nil, "k%d", i), v, nil); err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}

func mustAppend(t testing.TB, l *Log, b batch.Batch, o ...func(*AppendOptions)) Appended {
	t.Helper()
	opts := AppendOptions{LeaderEpoch: max(l.LatestEpoch(), 0), Now: 1000}
	for _, f := range o {
		f(&opts)
	}
	a, err := l.Append(b, opts)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func waitDurable(t testing.TB, l *Log, off int64) {
	t.Helper()
	eventually(t, func() bool { return l.Offsets().Durable >= off || l.Err() != nil })
	if err := l.Err(); err != nil && !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}

func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	limit := time.After(time.Minute)
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-limit:
			all := make([]byte, 1<<20)
			t.Fatalf("waited in vain, while\n%s", all[:runtime.Stack(all, true)])
		case <-tick.C:
		}
	}
}

// readAll reads the log from its local start with the given step and returns
// the base offsets of the batches, checking each.
func readAll(t testing.TB, l *Log, step int) []batch.Batch {
	t.Helper()
	var out []batch.Batch
	o := l.Offsets()
	for at := o.LocalStart; at < o.End; {
		s, err := l.Read(at, step, o.End, true)
		if err != nil {
			t.Fatal(err)
		}
		b, err := s.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if s.NextOffset() <= at {
			t.Fatalf("read at %d makes no progress", at)
		}
		at = s.NextOffset()
		s.Release()
		for len(b) > 0 {
			one, rest, err := batch.Next(b)
			if err != nil {
				t.Fatal(err)
			}
			if err := one.VerifyCRC(); err != nil {
				t.Fatal(err)
			}
			out = append(out, one)
			b = rest
		}
	}
	return out
}

func checkDense(t testing.TB, got []batch.Batch, start, end int64) {
	t.Helper()
	next := start
	for _, b := range got {
		if b.BaseOffset() != next {
			t.Fatalf("batch at %d, want %d", b.BaseOffset(), next)
		}
		next = b.NextOffset()
	}
	if next != end {
		t.Fatalf("log ends at %d, want %d", next, end)
	}
}

func TestAppendedBatchesAreReadBackAfterEveryKindOfRestart(t *testing.T) {
	small := func(c *LogConfig) { c.SegmentBytes = 4096; c.IndexIntervalBytes = 256 }
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprintf("clean=%v", clean), func(t *testing.T) {
			dir := t.TempDir()
			s := openStore(t, vfs.OS(), dir)
			l := openLog(t, s, small)
			var want int64
			for i := range 100 {
				a := mustAppend(t, l, records(1+i%5, 50, int64(i)))
				if a.BaseOffset != want {
					t.Fatalf("batch %d at offset %d, want %d", i, a.BaseOffset, want)
				}
				want = a.LastOffset + 1
			}
			waitDurable(t, l, want)
			l.SetHighWatermark(want)
			checkDense(t, readAll(t, l, 1000), 0, want)
			if n := len(l.list()); n < 5 {
				t.Fatalf("only %d segments", n)
			}
			if clean {
				closeStore(t, s)
			} else {
				s.Abandon()
			}
			s = openStore(t, vfs.OS(), dir)
			if s.Clean() != clean {
				t.Fatalf("clean is %v", s.Clean())
			}
			l = openLog(t, s, small)
			if o := l.Offsets(); o.End != want {
				t.Fatalf("end %d, want %d", o.End, want)
			}
			if clean && s.files.openFiles() != 0 {
				t.Fatal("a cleanly closed log opened files")
			}
			checkDense(t, readAll(t, l, 500), 0, want)
			a := mustAppend(t, l, records(3, 50, 1))
			if a.BaseOffset != want {
				t.Fatalf("went on at %d, want %d", a.BaseOffset, want)
			}
			checkDense(t, readAll(t, l, 1<<20), 0, want+3)
			closeStore(t, s)
		})
	}
}
