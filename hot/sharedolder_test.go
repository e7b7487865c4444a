package hot

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

// headerOf gives a header as another version would have written it, as far as all versions agree.
func headerOf(version uint32) []byte {
	b := sharedGeneration{number: 3, salt: 99, first: 17}.append(nil)
	binary.BigEndian.PutUint32(b[8:], version)
	binary.BigEndian.PutUint32(b[40:], crc32.Checksum(b[:40], castagnoli))
	clear(b[44:])
	return b
}

// closedWithOlder is a directory that an older program has closed cleanly: its shared log is void, and stands there.
func closedWithOlder(t *testing.T) (mem *vfs.Mem) {
	t.Helper()
	mem = vfs.NewMem(7)
	s := sharedStore(t, mem)
	appendDurable(t, openLog(t, s), 2)
	closeStore(t, s)
	changeShared(t, mem, func(b []byte) []byte {
		clear(b[:sharedBlock])
		clear(b[len(b)-sharedBlock:])
		copy(b, headerOf(sharedVersion-1))
		return b
	})
	return mem
}

// TestSharedLogOfAnOlderVersionIsBegunAnew kills the first start of this version after one round in the shared log.
func TestSharedLogOfAnOlderVersionIsBegunAnew(t *testing.T) {
	mem := closedWithOlder(t)
	_, l := behindStore(t, mem, 3)
	end := l.Offsets().Durable
	for seed := range uint64(10) {
		image := mem.CrashSeed(seed)
		s, err := Open(DefaultConfig("data"), Deps{FS: image})
		if err != nil {
			t.Fatal(err)
		}
		l := openLog(t, s)
		if _, _, lost := l.Lost(); lost || l.Offsets().End < end {
			t.Fatalf("seed %d: end %d, lost %t; %d were acknowledged", seed, l.Offsets().End, lost, end)
		}
		s.Abandon()
	}
}

// TestHeaderOfAnOlderVersionBesideOursIsPassed: the file was taken over with one header, and what is in it counts. One of a later
// version has been there since, and what it says of the file nobody here knows.
func TestHeaderOfAnOlderVersionBesideOursIsPassed(t *testing.T) {
	mem := vfs.NewMem(8)
	_, l := behindStore(t, mem, 3)
	end := l.Offsets().Durable
	for _, version := range []uint32{sharedVersion - 1, sharedVersion + 1} {
		image := mem.Clone()
		changeShared(t, image, func(b []byte) []byte {
			ours, err := parseSharedHeader(b[len(b)-sharedBlock:])
			if err != nil || ours.retired {
				t.Fatalf("the last block has not the header that counts: %+v, %v", ours, err)
			}
			copy(b, headerOf(version))
			return b
		})
		s, err := Open(DefaultConfig("data"), Deps{FS: image})
		if version > sharedVersion {
			if !errors.Is(err, errSharedVersion) {
				t.Fatalf("a later version: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if l := openLog(t, s); l.Offsets().End < end {
			t.Fatalf("end %d, %d were acknowledged", l.Offsets().End, end)
		}
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}
