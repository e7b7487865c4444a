package audit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/zstd"
)

// objectBytesMax bounds what is read into memory at once.
const objectBytesMax = 2 << 30

// readObjects reads the objects of an archive and takes their batches out.
func (a *auditor) readObjects(ctx context.Context, view bucketView, prefix string, ar *archive, named map[string]bool) error {
	for _, e := range ar.entries {
		key := prefix + "seg/" + objectName(e.base, e.epoch, e.random)
		named[key] = true
		if e.end <= ar.start {
			continue // given up, though not marked yet
		}
		listed, any := view.objects[key]
		switch {
		case !any && a.gone(ar):
			a.report.note(Stray, -1, ar.name, "%s is not there, as the topic is deleted", key)
			ar.unread = true
			continue
		case !any:
			a.report.flaw(Object, -1, ar.name, e.base, "%s is not there", key)
			ar.unread = true
			continue
		case listed.Size != e.stored:
			a.report.flaw(Object, -1, ar.name, e.base, "%s has %d bytes, its entry says %d", key, listed.Size, e.stored)
			ar.unread = true
			continue
		case a.in.Skim:
			ar.unread = true
			continue
		}
		b, err := a.get(ctx, key, objectBytesMax)
		if err == nil {
			var list []span
			if list, err = objectSpans(b, e, ar.key); err == nil {
				a.report.Objects++
				ar.batches = append(ar.batches, list...)
				continue
			}
		}
		var flaw flawError
		if !errors.As(err, &flaw) {
			return err
		}
		ar.unread = true
		a.report.flaw(Object, -1, ar.name, e.base, "%s: %v", key, err)
	}
	return nil
}

// gone says whether an archive's topic is deleted: its objects go first, what names them last.
func (a *auditor) gone(ar *archive) bool {
	_, deleted := a.image.Deleted(ar.key.id)
	return deleted
}

// objectSpans checks an object against its entry and lists its batches.
func objectSpans(b []byte, e entry, key logKey) ([]span, error) {
	const magic, footer = "VARVESG\n", 148
	if sum := crc32.Checksum(b, castagnoli); sum != e.sum {
		return nil, flawf("its checksum is %08x, its entry says %08x", sum, e.sum)
	}
	if len(b) < len(magic)+footer || string(b[:8]) != magic || string(b[len(b)-8:]) != magic {
		return nil, flawf("it is no segment object")
	}
	f := b[len(b)-footer:]
	if crc32.Checksum(f[:136], castagnoli) != binary.BigEndian.Uint32(f[136:]) {
		return nil, flawf("its footer's checksum is wrong")
	}
	if string(f[40:56]) != string(key.id[:]) || int32(binary.BigEndian.Uint32(f[56:])) != key.index {
		return nil, flawf("it is of another partition")
	}
	if base, end := int64(binary.BigEndian.Uint64(f[72:])), int64(binary.BigEndian.Uint64(f[80:])); base != e.base || end != e.end {
		return nil, flawf("it holds [%d, %d), its entry says [%d, %d)", base, end, e.base, e.end)
	}
	index, err := section(b, f, 1)
	if err != nil {
		return nil, err
	}
	var all []span
	at := int64(8)
	for r := (&reader{b: index}); len(r.b) > 0; {
		base := e.base + int64(r.u32())
		position, stored, raw, sum, encoding := r.u32(), r.u32(), r.u32(), r.u32(), r.u32()
		if r.bad || int64(position) != at || at+int64(stored) > int64(len(b)) {
			return nil, flawf("its offset index does not fit its chunks at byte %d", at)
		}
		at += int64(stored)
		list, err := chunkSpans(b[position:at], raw, sum, encoding)
		if err != nil {
			return nil, flawf("chunk at byte %d: %v", position, err)
		}
		if len(list) == 0 || list[0].base != base {
			return nil, flawf("the chunk at byte %d does not begin at offset %d", position, base)
		}
		all = append(all, list...)
	}
	if len(all) == 0 || all[0].base < e.base || all[len(all)-1].last >= e.end {
		return nil, flawf("its batches are not in [%d, %d)", e.base, e.end)
	}
	return all, nil
}

// section is the body of one section of an object.
func section(b, footer []byte, kind int) ([]byte, error) {
	at, n := binary.BigEndian.Uint32(footer[8*(kind-1):]), binary.BigEndian.Uint32(footer[8*(kind-1)+4:])
	if n < 12 || int64(at)+int64(n) > int64(len(b)) {
		return nil, flawf("section %d is not in it", kind)
	}
	s := b[at : at+n]
	if sum := crc32.Update(crc32.Checksum(s[:8], castagnoli), castagnoli, s[12:]); sum != binary.BigEndian.Uint32(s[8:]) {
		return nil, flawf("section %d has a wrong checksum", kind)
	}
	return s[12:], nil
}

// inflate is shared: it has no state between calls.
var inflate, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<30))

func chunkSpans(stored []byte, raw, sum, encoding uint32) ([]span, error) {
	if crc32.Checksum(stored, castagnoli) != sum {
		return nil, errors.New("wrong checksum")
	}
	if encoding == 1 {
		var err error
		if stored, err = inflate.DecodeAll(stored, nil); err != nil {
			return nil, err
		}
	}
	if uint32(len(stored)) != raw {
		return nil, fmt.Errorf("%d bytes, the index says %d", len(stored), raw)
	}
	list, at, damage := spans(stored)
	if damage != "" {
		return nil, fmt.Errorf("at byte %d: %s", at, damage)
	}
	return list, nil
}
