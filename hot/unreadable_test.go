package hot

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

// pageFaults is a disk on which pages of files cannot be read, for a number of tries or until they are written over whole.
type pageFaults struct {
	vfs.FS
	mu   sync.Mutex
	left map[string]int // tries that fail yet, by file and page; negative: all
	slow time.Duration  // that a read takes to fail
}

func pageOf(name string, page int64) string { return fmt.Sprint(name, "#", page) }

func (d *pageFaults) fail(name string, page int64, tries int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left[pageOf(name, page)] = tries
}

func (d *pageFaults) Open(name string) (vfs.File, error)       { return d.wrap(d.FS.Open(name)) }
func (d *pageFaults) OpenAppend(name string) (vfs.File, error) { return d.wrap(d.FS.OpenAppend(name)) }
func (d *pageFaults) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil || !strings.HasSuffix(f.Name(), logExt) && !strings.HasSuffix(f.Name(), sharedName) {
		return f, err
	}
	return &pageFile{f, d}, nil
}

type pageFile struct {
	vfs.File
	d *pageFaults
}

func (f *pageFile) ReadAt(p []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	for page := off / unreadablePage; page*unreadablePage < off+int64(len(p)); page++ {
		if n := f.d.left[pageOf(f.Name(), page)]; n != 0 {
			f.d.left[pageOf(f.Name(), page)] = n - 1
			<-time.After(f.d.slow)
			return 0, &fs.PathError{Op: "read", Path: f.Name(), Err: syscall.EIO}
		}
	}
	return f.File.ReadAt(p, off)
}

// WriteAt needs no page that it writes over whole.
func (f *pageFile) WriteAt(p []byte, off int64) (int, error) {
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	for page := off / unreadablePage; page*unreadablePage < off+int64(len(p)); page++ {
		name := pageOf(f.Name(), page)
		if f.d.left[name] == 0 {
			continue
		}
		if off > page*unreadablePage || off+int64(len(p)) < min((page+1)*unreadablePage, size) {
			return 0, &fs.PathError{Op: "write", Path: f.Name(), Err: syscall.EIO}
		}
		delete(f.d.left, name)
	}
	return f.File.WriteAt(p, off)
}

// badDisk is a log of several segments of some hundred kilobytes on a disk with faults.
func badDisk(t *testing.T) (d *pageFaults, s *Store, l *Log, sound copyOf) {
	t.Helper()
	d = &pageFaults{FS: vfs.NewMem(1), left: map[string]int{}}
	s = openStore(t, d, "data", func(c *Config) { c.ScrubBytesPerSecond = 64 << 10 })
	l = openLog(t, s, func(c *LogConfig) { c.SegmentBytes, c.RetentionMillis = 1<<18, -1 })
	for range 100 {
		mustAppend(t, l, records(10, 1000, 1))
	}
	end := l.Offsets().End
	for l.Offsets().Durable < end {
		<-time.After(time.Millisecond)
	}
	<-time.After(2 * time.Second) // segments are finished
	return d, s, l, copyOf(readAll(t, l, 1<<20))
}

// TestPageThatCannotBeReadIsDamage has the scrubber, a reader, and who loads producers meet it.
func TestPageThatCannotBeReadIsDamage(t *testing.T) {
	for who, meet := range map[string]func(*Store, *Log) error{
		"scrubber": func(*Store, *Log) error { <-time.After(scrubDelay + 30*time.Second); return ErrCorrupt },
		"reader": func(s *Store, l *Log) error {
			slice, err := l.Read(l.list()[1].base, 1<<20, l.Offsets().End, true)
			if err == nil {
				defer slice.Release()
				err = slice.Verify()
			}
			return err
		},
		"walker": func(s *Store, l *Log) error {
			return l.walkRange(0, l.Offsets().End, func(batch.Batch) error { return nil })
		},
	} {
		t.Run(who, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, s, l, sound := badDisk(t)
				defer s.Abandon()
				seg := l.list()[1]
				d.fail(seg.path(logExt), 10, -1)
				s.config.VerifyInterval = 0
				if err := meet(s, l); !errors.Is(err, ErrCorrupt) {
					t.Fatalf("met %v", err)
				}
				list := l.Damaged()
				if len(list) != 1 || list[0].Segment != seg.base || list[0].Whole || list[0].Bytes < unreadablePage || list[0].Bytes > 4*unreadablePage+20_000 {
					t.Fatalf("damage is %+v", list)
				}
				if err := l.Repair(list[0], sound.between(list[0].Start, list[0].End)); err != nil || len(l.Damaged()) != 0 {
					t.Fatalf("left is %+v: %v", l.Damaged(), err)
				}
				if got := readAll(t, l, 1<<20); len(got) != len(sound) {
					t.Fatalf("%d batches of %d", len(got), len(sound))
				}
			})
		})
	}
}

// TestReadThatFailsForAWhileIsNoDamage and neither is a disk that cannot be read at all.
func TestReadThatFailsForAWhileIsNoDamage(t *testing.T) {
	for name, fail := range map[string]func(*pageFaults, string, int64){
		"a while": func(d *pageFaults, path string, _ int64) { d.fail(path, 10, 3) },
		"all of it": func(d *pageFaults, path string, size int64) {
			for page := range size/unreadablePage + 1 {
				d.fail(path, page, -1)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, s, l, _ := badDisk(t)
				defer s.Abandon()
				seg := l.list()[1]
				for _, other := range l.list() {
					if name == "all of it" || other == seg {
						fail(d, other.path(logExt), 2<<20)
					}
				}
				<-time.After(scrubDelay + 60*time.Second)
				slice, err := l.Read(seg.base, 1<<20, l.Offsets().End, true)
				if err == nil {
					slice.Release()
				}
				if len(l.Damaged()) != 0 || (err != nil) != (name == "all of it") || errors.Is(err, ErrCorrupt) {
					t.Fatalf("damage %+v, a reader gets %v", l.Damaged(), err)
				}
			})
		})
	}
}

// TestDiskThatTakesItsTimeToFailDoesNotHoldUpALook has every read of what is bad take seconds, of one page and of many.
func TestDiskThatTakesItsTimeToFailDoesNotHoldUpALook(t *testing.T) {
	for pages, damaged := range map[int64]int{1: 1, 10: 0} {
		synctest.Test(t, func(t *testing.T) {
			d, s, l, sound := badDisk(t)
			defer s.Abandon()
			seg := l.list()[1]
			for i := range pages {
				d.fail(seg.path(logExt), 10+3*i, -1)
			}
			d.slow = 7 * time.Second
			began := time.Now()
			look, err := seg.lookThrough()
			if took := time.Since(began); took > 30*time.Second || (err == nil) != (damaged > 0) || len(look.ranges) != damaged {
				t.Fatalf("%d pages: a look of %v has found %+v: %v", pages, took, look.ranges, err)
			}
			if damaged == 0 {
				if !unreadable(err) {
					t.Fatal(err)
				}
				return
			}
			seg.damaged(look.ranges[0].from, errors.New("a look found it damaged"))
			list := l.Damaged()
			if len(list) != 1 || list[0].Bytes > 4*unreadablePage+20_000 {
				t.Fatalf("damage is %+v", list)
			}
			if err := l.Repair(list[0], sound.between(list[0].Start, list[0].End)); err != nil || len(l.Damaged()) != 0 {
				t.Fatalf("left is %+v: %v", l.Damaged(), err)
			}
		})
	}
}

// TestScrubberGoesOnWhereTheLastStartWas ends the store in the middle of a pass, in order and as a crash does.
func TestScrubberGoesOnWhereTheLastStartWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem(1)
		open := func() (*Store, *Log) {
			s := openStore(t, mem, "data", func(c *Config) { c.ScrubBytesPerSecond = 8 << 10 })
			return s, openLog(t, s, func(c *LogConfig) { c.SegmentBytes, c.RetentionMillis = 1<<18, -1 })
		}
		s, l := open()
		for range 200 {
			mustAppend(t, l, records(10, 1000, 1))
		}
		<-time.After(2 * time.Second)
		var sealed int64
		for _, seg := range l.list()[:len(l.list())-1] {
			size, err := seg.bytes()
			if err != nil {
				t.Fatal(err)
			}
			sealed += size
		}
		var read int64
		starts := 0
		for ; s.Stats().ScrubPasses.Load() == 0; starts++ {
			if starts > 40 {
				t.Fatalf("no end after %d starts and %d bytes of %d", starts, read, sealed)
			}
			// An hour has time for all of it, a start of 3 minutes for a segment or two.
			for range 180 {
				if <-time.After(time.Second); s.Stats().ScrubPasses.Load() > 0 {
					break
				}
			}
			read += s.Stats().ScrubBytes.Load()
			if s.Stats().ScrubPasses.Load() > 0 {
				break
			}
			if starts%2 == 0 {
				closeStore(t, s)
			} else {
				s.Abandon()
			}
			s, _ = open()
		}
		if starts < 2 || read > 2*sealed+1<<19 {
			t.Fatalf("%d starts, %d bytes were read of %d", starts, read, sealed)
		}
		// The pass is over: another start does not begin the next before its time.
		closeStore(t, s)
		s, _ = open()
		defer s.Abandon()
		<-time.After(scrubPassMin / 2)
		if got := s.Stats().ScrubBytes.Load(); got != 0 {
			t.Fatalf("%d bytes were read again on the same day", got)
		}
		<-time.After(scrubPassMin)
		if s.Stats().ScrubPasses.Load() == 0 {
			t.Fatal("and not the next day either")
		}
	})
}

func TestScrubFileHasItsDocumentedBytes(t *testing.T) {
	p := scrubPlace{began: 1, done: true, key: journalKey{index: 2}, from: 3}
	p.key.id[15] = 9
	b := p.encode()
	got := hex.EncodeToString(b)
	if want := "56534342" + "0001" + "0001" + got[16:24] + "0000000000000001" + strings.Repeat("00", 15) + "09" + "00000002" + "0000000000000003"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	if back, err := decodeScrubPlace(b); err != nil || back != p {
		t.Fatalf("%+v, %v", back, err)
	}
	for i := range b {
		b[i] ^= 1
		if _, err := decodeScrubPlace(b); err == nil {
			t.Fatalf("byte %d is not checked", i)
		}
		b[i] ^= 1
	}
}
