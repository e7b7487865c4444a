package tier

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/tier/objstore"
)

func testRemote(t testing.TB, store objstore.Store) *Remote {
	return openTest(t, testConfig(t), store, "").Partition(testPartition)
}

// TestDamagedSegmentIsNeverUploaded flips a bit in every batch of a segment, in
// headers and bodies, and cuts and pads the file.
func TestDamagedSegmentIsNeverUploaded(t *testing.T) {
	r := testRemote(t, objstore.NewMem(0))
	w := newWorld(3)
	s := w.segment(12, 4)
	whole := s.data
	spoil := map[string][]byte{
		"cut inside a batch":   whole[:len(whole)-5],
		"cut inside a header":  whole[:len(whole)-len(w.batches[11])+20],
		"last batch missing":   whole[:len(whole)-len(w.batches[11])],
		"first batch missing":  whole[len(w.batches[0]):],
		"a batch twice":        append(bytes.Clone(whole), w.batches[11]...),
		"bytes after the end":  append(bytes.Clone(whole), 0, 0, 0),
		"batches out of order": append(append(bytes.Clone(w.batches[1]), w.batches[0]...), whole[len(w.batches[0])+len(w.batches[1]):]...),
	}
	at := 0
	for i, b := range w.batches {
		for _, field := range []int{0, 7, 8, 11, 12, 15, 16, 17, 21, 23, 26, 27, 35, 57, 61, len(b) - 1} {
			flipped := bytes.Clone(whole)
			flipped[at+field] ^= 0x04
			spoil[string(rune('a'+i))+": bit flipped in byte "+string(rune('0'+field))] = flipped
		}
		at += len(b)
	}
	for name, data := range spoil {
		for _, honest := range []bool{true, false} {
			if !honest && name == "first batch missing" {
				continue // what a compacted segment may look like: only its size tells
			}
			bad := *s
			bad.data = data
			var seg Segment = &bad
			if honest {
				seg = sized{&bad, int64(len(whole))}
			}
			o, err := r.Build(context.Background(), seg, BuildOptions{})
			if err == nil {
				o.Close()
			}
			var ce *CorruptError
			if !errors.As(err, &ce) || !errors.Is(err, ErrCorrupt) || ce.Key == "" {
				t.Errorf("%s (size as sealed: %v): %v", name, honest, err)
			}
		}
	}
}

// sized is a segment whose recorded size is not its file's.
type sized struct {
	*memSegment
	n int64
}

func (s sized) SizeBytes() int64 { return s.n }

func TestBuildLeavesOutWhatIsArchivedAlready(t *testing.T) {
	r := testRemote(t, objstore.NewMem(0))
	ctx := context.Background()
	w := newWorld(4)
	first := w.segment(10, 5)
	w.segment(10, 5)
	// Another leader's segments begin elsewhere: one that reaches back over the
	// archive's end.
	split := w.batches[10].BaseOffset()
	if split != first.end {
		t.Fatalf("segment ends at %d, batch starts at %d", first.end, split)
	}
	over := &memSegment{base: w.batches[6].BaseOffset(), end: w.next, chain: first.chain}
	for _, b := range w.batches[6:] {
		over.data = append(over.data, b...)
	}
	over.aborted = []batch.AbortedTxn{{ProducerID: 1, FirstOffset: over.base, LastOffset: split - 1}, {ProducerID: 2, FirstOffset: over.base, LastOffset: split}}
	offload(t, r, 0, first)
	if _, err := r.Build(ctx, over, BuildOptions{From: split + 1}); err == nil && w.batches[10].NextOffset() > split+1 {
		t.Fatal("built from inside a batch")
	}
	o, err := r.Build(ctx, over, BuildOptions{From: split})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if err := o.Put(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.Commit(ctx, Edit{Add: []AddSegment{o.Add()}}); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, r, 0, 1<<20); !bytes.Equal(got, w.raw(0)) {
		t.Fatalf("read %d bytes, wrote %d", len(got), len(w.raw(0)))
	}
	if x, err := r.AbortedTxns(ctx, 0, w.next); err != nil || len(x) != 1 || x[0].ProducerID != 2 {
		t.Fatalf("aborted %v, %v: what ends below belongs to the segment before", x, err)
	}
	if _, err := r.Build(ctx, over, BuildOptions{From: w.next}); !errors.Is(err, ErrConflict) {
		t.Fatalf("nothing left: %v", err)
	}
}

// What does not fit in memory is made again from the segment when it is sent, to
// the byte; and no upload takes more than its share.
func TestBodyIsTheSameHoweverMuchIsKeptInMemory(t *testing.T) {
	for _, noise := range []bool{false, true} {
		var first []byte
		for _, limit := range []int64{64 << 20, 300 << 10, 0} {
			cfg := testConfig(t)
			cfg.UploadMemoryBytes = limit
			a := openTest(t, cfg, objstore.NewMem(0), "")
			w := newWorld(1)
			w.noise, w.value = noise, 1000
			o, err := a.Partition(testPartition).build(context.Background(), w.segment(300, 16), BuildOptions{Now: 1}, 7)
			if err != nil {
				t.Fatal(err)
			}
			if used := a.uploadMemory.used.Load(); used > limit {
				t.Errorf("%d bytes in memory, allowed are %d", used, limit)
			}
			for range 2 { // it can be read again and again
				got, err := io.ReadAll(io.NewSectionReader(o.Body(), 0, o.Size()))
				if err != nil || int64(len(got)) != o.Size() {
					t.Fatalf("read %d of %d bytes, %v", len(got), o.Size(), err)
				}
				if first == nil {
					first = got
				}
				if !bytes.Equal(got, first) {
					t.Fatalf("noise %t, %d bytes of memory: another object", noise, limit)
				}
			}
			checkReadsAnywhere(t, o.Body(), first)
			o.Close()
			o.Close()
			if used := a.uploadMemory.used.Load(); used != 0 {
				t.Errorf("%d bytes are not given back", used)
			}
		}
	}
}

// checkReadsAnywhere reads a body in pieces of all sizes from several goroutines.
func checkReadsAnywhere(t *testing.T, body objstore.Body, want []byte) {
	t.Helper()
	var wg sync.WaitGroup
	for seed := range uint64(3) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 1))
			for range 50 {
				off := rng.Int64N(int64(len(want)))
				p := make([]byte, 1+rng.IntN(3<<19))
				n, err := body.ReadAt(p, off)
				end := min(off+int64(len(p)), int64(len(want)))
				if short := int64(len(p)) > end-off; n != int(end-off) || short != (err == io.EOF) || !bytes.Equal(p[:n], want[off:end]) {
					t.Errorf("ReadAt(%d bytes, %d) gave %d bytes, %v", len(p), off, n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if _, err := body.ReadAt(make([]byte, 1), int64(len(want))); err != io.EOF {
		t.Errorf("read at the end: %v, want EOF", err)
	}
}

// A segment that is damaged between the two readings is not uploaded.
func TestSegmentThatChangesWhileItIsSentIsNotUploaded(t *testing.T) {
	for _, noise := range []bool{false, true} {
		cfg := testConfig(t)
		cfg.UploadMemoryBytes = 0
		mem := objstore.NewMem(0)
		r := openTest(t, cfg, mem, "").Partition(testPartition)
		w := newWorld(1)
		w.noise, w.value = noise, 1000
		s := w.segment(300, 16)
		o, err := r.Build(context.Background(), s, BuildOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.data[len(s.data)/2] ^= 4
		if err := o.Put(context.Background(), nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("noise %t: %v, want ErrCorrupt", noise, err)
		}
		o.Close()
		if _, err := mem.Head(context.Background(), o.Key()); !errors.Is(err, objstore.ErrNotFound) {
			t.Errorf("noise %t: the object is there: %v", noise, err)
		}
	}
}

func TestPutFindsOutWhatItsLostAnswerWas(t *testing.T) {
	mem := objstore.NewMem(0)
	faulty := objstore.NewFaulty(mem, 1)
	r := testRemote(t, faulty)
	ctx := context.Background()
	w := newWorld(5)
	for _, c := range []struct {
		fault objstore.Fault
		put   bool // the object is there afterwards, and Put says so
	}{{objstore.FaultLostAnswer, true}, {objstore.FaultLostRequest, false}, {objstore.FaultBefore, false}, {objstore.FaultPrecondition, false}, {objstore.FaultDenied, false}} {
		o, err := r.Build(ctx, w.segment(5, 5), BuildOptions{})
		if err != nil {
			t.Fatal(err)
		}
		faulty.Set(objstore.Rule{Op: objstore.OpPut, Fault: c.fault, Times: 1})
		err = o.Put(ctx, nil)
		if (err == nil) != c.put || !c.put && !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v: %v", c.fault, err)
		}
		// Trying again always ends well: the name is the object's own.
		if err := o.Put(ctx, nil); err != nil {
			t.Errorf("again after %v: %v", c.fault, err)
		}
		o.Close()
	}
}

func TestPutNeverTakesAnotherObjectForItsOwn(t *testing.T) {
	mem := objstore.NewMem(0)
	r := testRemote(t, mem)
	ctx := context.Background()
	o, err := r.Build(ctx, newWorld(6).segment(5, 5), BuildOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if _, err := mem.Put(ctx, o.Key(), objstore.Bytes(make([]byte, o.Size())), objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := o.Put(ctx, nil); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("another object under the name: %v", err)
	}
}

func TestReadHitAllocatesLittle(t *testing.T) {
	r := testRemote(t, objstore.NewMem(0))
	w := newWorld(7)
	offload(t, r, 0, w.segment(50, 20))
	ctx := context.Background()
	// A stream that repeats: the first read makes it, the others find it.
	read := func() {
		if _, err := r.Read(ctx, 5, 4000, 1<<62); err != nil {
			t.Fatal(err)
		}
	}
	read()
	if n := testing.AllocsPerRun(200, read); n > 6 {
		t.Fatalf("%v allocations for a read of cached bytes", n)
	}
}

// A full disk is emptied by uploads: they must not need any of it.
func TestUploadsNeedNoDiskSpace(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "nothing can be written here"))
	if f, err := os.CreateTemp("", "x"); err == nil {
		f.Close()
		t.Fatal("temporary files can be made: the test shows nothing")
	}
	cfg := testConfig(t)
	cfg.UploadMemoryBytes = 0
	r := openTest(t, cfg, objstore.NewMem(0), "").Partition(testPartition)
	w := newWorld(9)
	offload(t, r, 0, w.segment(300, 16))
	if got := readAll(t, r, 0, 1<<20); !bytes.Equal(got, w.raw(0)) {
		t.Fatalf("read %d bytes, wrote %d", len(got), len(w.raw(0)))
	}
}
