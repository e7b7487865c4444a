package tier

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/varvelog/varve/tier/objstore"
)

// putLog is a store that remembers what was put, and how.
type putLog struct {
	objstore.Store
	before func(key string) // each put waits for it, unless nil

	mu   sync.Mutex // guards the following
	puts []loggedPut
}

type loggedPut struct {
	key     string
	options objstore.PutOptions
	crc     uint32 // of the body
}

func (s *putLog) Put(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) (objstore.Object, error) {
	b, err := io.ReadAll(io.NewSectionReader(body, 0, body.Size()))
	if err != nil {
		return objstore.Object{}, err
	}
	if s.before != nil {
		s.before(key)
	}
	s.mu.Lock()
	s.puts = append(s.puts, loggedPut{key, o, crc32c(b)})
	s.mu.Unlock()
	return s.Store.Put(ctx, key, body, o)
}

func (s *putLog) list() []loggedPut {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]loggedPut(nil), s.puts...)
}

// TestNoNameIsUsedTwice: nothing but the head is ever written over (T3), the head
// only by who has read it, and every body goes with the checksum of what it was
// made from (T13).
func TestNoNameIsUsedTwice(t *testing.T) {
	store := &putLog{Store: objstore.NewMem(0)}
	ctx := context.Background()
	r := testRemote(t, store)
	seg := newWorld(1).segment(5, 5)
	var names []string
	for range 2 { // the same segment, of the same leader, twice
		o, err := r.Build(ctx, seg, BuildOptions{LeaderEpoch: 0})
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Put(ctx, nil); err != nil {
			t.Fatal(err)
		}
		names = append(names, o.Key())
		o.Close()
	}
	if names[0] == names[1] {
		t.Errorf("two objects are called %s", names[0])
	}
	var e Edit
	for i := range int64(1000) {
		e.Add = append(e.Add, entryAt(i*10, i*10+10, 0))
	}
	if err := r.Commit(ctx, e); err != nil {
		t.Fatal(err)
	}
	randoms := map[uint64]string{}
	pages, heads := 0, 0
	for _, p := range store.list() {
		info, ok := r.a.Config().ParseKey(p.key)
		if !ok {
			t.Errorf("%s is no name of ours", p.key)
		}
		if p.options.CRC32C == nil || *p.options.CRC32C != p.crc {
			t.Errorf("%s goes without the checksum of its bytes", p.key)
		}
		if info.Kind == KeyHead {
			heads++
			if !p.options.IfNoneMatch && p.options.IfMatch == "" {
				t.Errorf("the head is written over whatever is there")
			}
			continue
		}
		if strings.Contains(p.key, "/page/") {
			pages++
		}
		if !p.options.IfNoneMatch {
			t.Errorf("%s may be written over", p.key)
		}
		if other, ok := randoms[info.ID.Random]; ok {
			t.Errorf("%s and %s have one random part", other, p.key)
		}
		randoms[info.ID.Random] = p.key
	}
	if pages < 2 || heads != 1 {
		t.Errorf("%d pages and %d heads were put", pages, heads)
	}
}
