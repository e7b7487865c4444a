package tier

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

// read is all that a fresh process reads from the bucket.
func (r *rig) read(g *rigLog) []byte {
	r.t.Helper()
	a, err := OpenArchive(DefaultConfig(), Deps{Store: r.mem})
	if err != nil {
		r.t.Fatal(err)
	}
	defer a.Close(context.Background())
	return readAll(r.t, a.Partition(g.p), r.state(g.p).Start, 1<<20)
}

// bytes are all of the log's batches.
func (g *rigLog) bytes() (all []byte) {
	for _, s := range g.segments() {
		for _, b := range s.batches {
			all = append(all, b.bytes...)
		}
	}
	return all
}

// What is missing or damaged in the bucket and on the leader's disk still is put
// anew, under another name and with the same records; the old object is marked by
// the same commit and goes after the grace (T15).
func TestDamagedObjectIsPutAnewFromTheLocalLog(t *testing.T) {
	for fault := range spoilers {
		t.Run(fault.String(), func(t *testing.T) {
			inRig(t, func(r *rig) { r.cfg.ReadEvery = 24 * time.Hour }, func(r *rig) {
				g, before := r.leadSpoilt(5, 1, fault)
				want := g.bytes()
				r.pass(9 * 24 * time.Hour)
				after := r.live(g)
				for i := range before {
					same := before[i].ID == after[i].ID
					if same == (i == 1) || before[i].ID.Base != after[i].ID.Base || before[i].End != after[i].End {
						t.Errorf("segment %d was %+v and is %+v", i, before[i], after[i])
					}
				}
				if got := r.read(g); !bytes.Equal(got, want) {
					t.Error("other records than were written")
				}
				if st := r.status(g); len(st.Damaged) != 0 || st.Marked != 0 || st.LastError != nil {
					t.Errorf("status %+v", st)
				}
				if n, _ := r.objects(g.p); n != 5 {
					t.Errorf("%d objects for 5 segments", n)
				}
				if c := r.m.Counters()[g.p.Topic]; c.FoundDamaged != 1 || c.Mended != 1 {
					t.Errorf("%+v", c)
				}
			})
		})
	}
}

// A reader that meets damage has it mended at once, and reads on.
func TestReaderThatMeetsDamageHasItMended(t *testing.T) {
	for fault := range spoilers {
		t.Run(fault.String(), func(t *testing.T) {
			inRig(t, func(r *rig) { r.cfg.Survey = 0 }, func(r *rig) {
				g, before := r.leadSpoilt(3, 0, fault)
				first, remote := before[0], r.archive.Partition(g.p)
				r.archive.indexes.removeIf(func(objectKey) bool { return true })
				ctx := context.Background()
				if c, err := remote.Read(ctx, 0, 1<<20, 1<<40); err == nil {
					c.Release()
					t.Fatal("damage was served")
				}
				r.pass(10 * time.Second)
				got := readAll(t, remote, 0, 1<<20)
				if !bytes.Equal(got, g.bytes()) {
					t.Error("other records than were written")
				}
				if r.live(g)[0].ID == first.ID {
					t.Error("the damaged object is still named")
				}
			})
		})
	}
}

// Another leader rolled its log elsewhere, and has the records all the same.
func TestLeaderWithOtherSegmentsMendsTheRange(t *testing.T) {
	for _, roll := range []int{1, 2, 4, 5, 7, 30} {
		inRig(t, func(r *rig) { r.cfg.Survey = 24 * time.Hour }, func(r *rig) {
			first := r.leadWith(r.newLog(0, defaultTopic()), 6) // of three batches each
			r.pass(time.Minute)
			want, list := r.read(first), r.live(first)
			next := r.newLog(0, defaultTopic())
			next.epoch = 2
			n := 0
			for _, s := range first.segments() {
				for _, b := range s.batches {
					next.l.append(b, 1)
					if n++; n%roll == 0 {
						next.l.roll()
					}
				}
			}
			r.leadWith(next, 1)
			r.pass(time.Minute)
			r.spoil(first, list[2].ID, FaultMissing)
			r.pass(4 * 24 * time.Hour)
			if got := r.read(first); !bytes.HasPrefix(got, want) {
				t.Errorf("rolled after %d batches: other records than were written", roll)
			}
			if c := r.m.Counters()[first.p.Topic]; c.Mended != 1 {
				t.Errorf("rolled after %d batches: %+v, %+v", roll, c, r.status(next))
			}
		})
	}
}

// What the local log has in part, or with other records, is put nowhere, and the
// object stays named.
func TestNothingButTheWholeSameRangeIsPutAnew(t *testing.T) {
	for name, spoil := range map[string]func(g *rigLog){
		"the range begins below the local log": func(g *rigLog) {
			g.l.sealed[1] = &simSegment{base: g.l.sealed[1].batches[1].base, end: g.l.sealed[1].end, batches: g.l.sealed[1].batches[1:]}
			g.l.sealed = g.l.sealed[1:]
		},
		"a segment in it is barred": func(g *rigLog) { g.l.sealed = g.l.sealed[:1] },
		"a batch is missing": func(g *rigLog) {
			s := g.l.sealed[1]
			s.batches = append(s.batches[:1:1], s.batches[2:]...)
		},
		"other records": func(g *rigLog) {
			s := g.l.sealed[1]
			b := s.batches[1]
			s.batches[1] = makeBatch(b.base, b.epoch, b.ts, int(b.end-b.base), "other")
		},
		"other leader epochs": func(g *rigLog) {
			s := g.l.sealed[1]
			b := s.batches[1]
			s.batches[1].epoch = b.epoch - 1
			s.batches[1].bytes = bytes.Clone(b.bytes)
			setEpoch(s.batches[1].bytes, b.epoch-1)
		},
		"damage on the disk": func(g *rigLog) {
			s := g.l.sealed[1]
			s.batches[1].bytes = bytes.Clone(s.batches[1].bytes)
			s.batches[1].bytes[len(s.batches[1].bytes)-1] ^= 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, func(r *rig) { r.cfg.Survey = 24 * time.Hour }, func(r *rig) {
				g := r.newLog(0, defaultTopic())
				g.epoch = 5
				r.leadWith(g, 4)
				r.pass(time.Minute)
				before := r.live(g)
				key := r.archive.Partition(g.p).Key(before[1].ID)
				g.mu.Lock()
				spoil(g)
				g.mu.Unlock()
				spoilers[FaultMissing](r, key)
				r.pass(4 * 24 * time.Hour)
				if after := r.live(g); after[1].ID != before[1].ID {
					t.Errorf("%+v was put in the place of %+v", after[1], before[1])
				}
				if st := r.status(g); len(st.Damaged) != 1 || st.Damaged[0].Key != key {
					t.Errorf("named %+v", st.Damaged)
				}
				if n, _ := r.objects(g.p); n != 3 {
					t.Errorf("%d objects, want 3", n)
				}
			})
		})
	}
}

func setEpoch(b []byte, epoch int32) {
	copy(b[12:16], []byte{byte(epoch >> 24), byte(epoch >> 16), byte(epoch >> 8), byte(epoch)})
}

// A process that dies between the new object and its commit leaves an orphan, which
// goes, and the next one mends.
func TestCrashBetweenReplacementAndCommit(t *testing.T) {
	inRig(t, func(r *rig) { r.cfg.Survey = 24 * time.Hour }, func(r *rig) {
		g, before := r.leadSpoilt(4, 2, FaultBytes)
		r.faulty.Set(objstore.Rule{Op: objstore.OpPut, Key: "*/head", Fault: objstore.FaultLostRequest})
		r.complain(g, before[2].ID)
		r.pass(2 * time.Second)
		if n, _ := r.objects(g.p); n != 5 || r.live(g)[2].ID != before[2].ID {
			t.Fatalf("%d objects: the commit did not fail, or nothing was put", n)
		}
		r.stop()
		r.faulty.Set()
		r.start()
		next := r.leadWith(g.again(2), 0)
		r.complain(g, before[2].ID)
		r.pass(10 * 24 * time.Hour)
		if after := r.live(next); after[2].ID == before[2].ID {
			t.Errorf("not mended: %+v", r.status(next))
		}
		if n, _ := r.objects(g.p); n != 4 {
			t.Errorf("%d objects for 4 segments", n)
		}
		if got := r.read(next); !bytes.Equal(got, next.bytes()) {
			t.Error("other records than were written")
		}
	})
}

// A lost answer to the commit is looked up: it is mended once.
func TestReplacementWhoseCommitLosesItsAnswer(t *testing.T) {
	inRig(t, func(r *rig) { r.cfg.Survey = 24 * time.Hour }, func(r *rig) {
		g, before := r.leadSpoilt(4, 0, FaultMissing)
		r.faulty.Set(objstore.Rule{Op: objstore.OpPut, Key: "*/head", Times: 1, Fault: objstore.FaultLostAnswer},
			objstore.Rule{Op: objstore.OpGet, Key: "*/head", Nth: 3, Times: 1, Fault: objstore.FaultSlowDown})
		r.pass(10 * 24 * time.Hour)
		if got := r.read(g); !bytes.Equal(got, g.bytes()) || r.live(g)[0].ID == before[0].ID {
			t.Errorf("not mended: %+v", r.status(g))
		}
		if n, _ := r.objects(g.p); n != 4 || r.state(g.p).Marked != 0 {
			t.Errorf("%d objects, %d marks", n, r.state(g.p).Marked)
		}
	})
}

// A store that takes an object and gives back another is not believed.
func TestReplacementIsReadBackBeforeItIsCommitted(t *testing.T) {
	inRig(t, func(r *rig) { r.cfg.Survey = 24 * time.Hour }, func(r *rig) {
		g, before := r.leadSpoilt(4, 0, FaultMissing)
		r.faulty.Set(objstore.Rule{Op: objstore.OpGet, Key: "*/seg/*", Fault: objstore.FaultCorrupt})
		r.pass(3 * 24 * time.Hour)
		if r.live(g)[0].ID != before[0].ID {
			t.Error("committed what does not read back as it was put")
		}
		r.faulty.Set()
		r.pass(3 * 24 * time.Hour)
		if got := r.read(g); !bytes.Equal(got, g.bytes()) {
			t.Error("not mended with the store right again")
		}
	})
}

// A manifest page is put anew from this broker's copy.
func TestManifestPageIsPutAnew(t *testing.T) {
	for fault, spoil := range spoilers {
		t.Run(fault.String(), func(t *testing.T) {
			inRig(t, func(r *rig) { r.cfg.ReadEvery, r.cfg.ScrubRequestsPerDay = 24*time.Hour, 0 }, func(r *rig) {
				g := r.newLog(0, defaultTopic())
				g.fill(tailEntriesMax+10, 1)
				r.leadWith(g, 0)
				r.pass(time.Hour)
				m := r.archive.Partition(g.p).current.Load()
				if m == nil || len(m.pages) != 1 {
					t.Fatal("no page")
				}
				spoil(r, r.archive.Partition(g.p).pageKey(m.pages[0].id))
				r.pass(9 * 24 * time.Hour)
				if got := r.read(g); !bytes.Equal(got, g.bytes()) {
					t.Error("other records than were written")
				}
				if c := r.m.Counters()[g.p.Topic]; c.FoundDamaged != 1 || c.Mended != 1 {
					t.Errorf("%+v, %+v", c, r.status(g))
				}
				if _, others := r.objects(g.p); others != 2 {
					t.Errorf("%d objects that are no segments, want a page and the head", others)
				}
			})
		})
	}
}

// Another process reads by an older manifest what has been put anew since.
func TestReadersOfAnOlderManifestFindWhatWasPutAnew(t *testing.T) {
	mem := objstore.NewMem(0)
	ctx := context.Background()
	w := newWorld(1)
	seg := w.segment(5, 5)
	leader, reader := testRemote(t, mem), testRemote(t, mem)
	offload(t, leader, 1, seg)
	old, err := reader.Find(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	body, _, err := objstore.ReadAll(ctx, mem, leader.Key(old.ID), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	body[30] ^= 1
	if _, err := mem.Put(ctx, leader.Key(old.ID), objstore.Bytes(body), objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Read(ctx, 0, 1<<20, 1<<30); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("damage reads as %v", err)
	}
	job := &mending{remote: leader, id: MarkID{KeySegment, old.ID}, epoch: 1, random: 7,
		sealed: func(int64) []Segment { return []Segment{seg} }, named: func(string) {}}
	add, err := job.run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	err = leader.Commit(ctx, Edit{LeaderEpoch: 1, MarkedAt: 1, Replace: &ReplaceSegments{Old: []SegmentID{old.ID}, New: add}})
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, reader, 0, 1<<20); !bytes.Equal(got, w.raw(0)) {
		t.Error("other records than were written")
	}
	if _, err := job.run(ctx); !errors.Is(err, errSound) {
		t.Errorf("mended a second time: %v", err)
	}
}

// What a span gives is what its segments have of the range.
func TestSpanCutsARangeOutOfSegments(t *testing.T) {
	w := newWorld(3)
	var segments []Segment
	for i := range 4 {
		segments = append(segments, w.segment(5, 4))
		if i == 2 {
			w.abort(w.segments[2], 9, 1)
		}
	}
	starts := []int64{}
	for _, b := range w.batches {
		starts = append(starts, b.BaseOffset())
	}
	starts = append(starts, w.next)
	for i, base := range starts {
		for _, end := range starts[i+1:] {
			s, err := spanOf(segments, base, end)
			if err != nil {
				t.Fatalf("[%d, %d): %v", base, end, err)
			}
			src, err := s.Open()
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, s.SizeBytes())
			at := src.(io.ReaderAt)
			if _, err := io.ReadFull(src, got); err != nil {
				t.Fatal(err)
			}
			want := w.raw(base)
			want = want[:len(want)-len(w.raw(end))]
			if !bytes.Equal(got, want) {
				t.Fatalf("[%d, %d) has other bytes", base, end)
			}
			half := len(got) / 2
			if _, err := at.ReadAt(got[:len(got)-half], int64(half)); err != nil || !bytes.Equal(got[:len(got)-half], want[half:]) {
				t.Fatalf("[%d, %d) from its middle: %v", base, end, err)
			}
			if err := src.Close(); err != nil {
				t.Fatal(err)
			}
			aborted, err := s.AbortedTxns()
			if marker := w.segments[2].end - 1; err != nil || (len(aborted) == 1) != (marker >= base && marker < end) {
				t.Errorf("[%d, %d): aborted %v, %v", base, end, aborted, err)
			}
			if !s.Lineage().Covers(base, end) {
				t.Errorf("[%d, %d): lineage %v", base, end, s.Lineage())
			}
		}
	}
	for _, cut := range [][2]int64{{0, w.next + 1}, {w.segments[1].base, w.segments[2].end}} {
		list := segments
		if cut[0] > 0 {
			list = []Segment{segments[1], segments[3]}
		}
		if _, err := spanOf(list, cut[0], cut[1]); !errors.Is(err, errNotLocal) {
			t.Errorf("%v: %v", cut, err)
		}
	}
}
