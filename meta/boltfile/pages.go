package boltfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
)

// bbolt's pages, as checkPages reads them: a header of 16 bytes (id, flags, how
// many elements, how many pages follow that belong to it), then the elements'
// headers, 16 bytes each, which say where keys and values are, counted from the
// element's header on. A value that is a bucket begins with the page of its root;
// without one the bucket's only page follows within the value.
const (
	pageHeadBytes   = 16
	pageBranch      = 0x01
	pageLeaf        = 0x02
	pageFree        = 0x10
	elementBytes    = 16
	elementBucket   = 0x01
	bucketHeadBytes = 16
	noPage          = 1<<64 - 1
	countBeyond     = 0xFFFF
)

// pages are those of a file that a walk has come by.
type pages struct {
	f    *os.File
	size int64
	end  uint64
	seen map[uint64]struct{}
}

// checkPages checks that what pages say of each other and of themselves stays
// within the file, and that keys are in order. bbolt follows it through its mapping without looking, in a
// goroutine of its own when it is opened.
func checkPages(f *os.File, h head) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if h.pageBytes < pageHeadBytes+elementBytes {
		return fmt.Errorf("%w: pages of %d bytes", ErrDamaged, h.pageBytes)
	}
	p := pages{f: f, size: h.pageBytes, end: min(h.end, uint64(info.Size()/h.pageBytes)), seen: map[uint64]struct{}{}}
	if err := p.walk(h.root, nil, nil); err != nil || h.free == noPage {
		return err
	}
	return p.freeList(h.free)
}

// freeList checks the page that lists free pages: of ids, rising, the first is how many there are when that does not fit into the
// header.
func (p *pages) freeList(id uint64) error {
	b, err := p.read(id)
	if err != nil {
		return err
	}
	flags, count := binary.LittleEndian.Uint16(b[8:]), uint64(binary.LittleEndian.Uint16(b[10:]))
	ids := b[pageHeadBytes:]
	if count == countBeyond {
		count, ids = binary.LittleEndian.Uint64(ids), ids[8:]
	}
	if flags != pageFree || count > uint64(len(ids)/8) {
		return fmt.Errorf("%w: page %d lists %d free pages in %d bytes, kind %#x", ErrDamaged, id, count, len(ids), flags)
	}
	last := uint64(1)
	for i := range count {
		free := binary.LittleEndian.Uint64(ids[8*i:])
		if _, used := p.seen[free]; used || free <= last || free >= p.end {
			return fmt.Errorf("%w: page %d lists page %d as free", ErrDamaged, id, free)
		}
		last = free
	}
	return nil
}

// walk checks a page and all below it. Its keys are not below least, and below
// bound; nil: any.
func (p *pages) walk(id uint64, least, bound []byte) error {
	b, err := p.read(id)
	if err != nil {
		return err
	}
	if err := p.elements(b, least, bound); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

// read reads a page, with those that follow and belong to it.
func (p *pages) read(id uint64) ([]byte, error) {
	if id < 2 || id >= p.end {
		return nil, fmt.Errorf("%w: page %d of %d is named", ErrDamaged, id, p.end)
	}
	var h [pageHeadBytes]byte
	if _, err := p.f.ReadAt(h[:], int64(id)*p.size); err != nil {
		return nil, fmt.Errorf("%w: page %d: %w", ErrDamaged, id, err)
	}
	follow := uint64(binary.LittleEndian.Uint32(h[12:]))
	if own := binary.LittleEndian.Uint64(h[0:]); own != id || id+follow >= p.end {
		return nil, fmt.Errorf("%w: page %d says it is %d, with %d more", ErrDamaged, id, own, follow)
	}
	for i := id; i <= id+follow; i++ {
		if _, again := p.seen[i]; again {
			return nil, fmt.Errorf("%w: page %d is named twice", ErrDamaged, i)
		}
		p.seen[i] = struct{}{}
	}
	b := make([]byte, int64(1+follow)*p.size)
	if _, err := p.f.ReadAt(b, int64(id)*p.size); err != nil {
		return nil, fmt.Errorf("%w: page %d: %w", ErrDamaged, id, err)
	}
	return b, nil
}

// elements checks the elements of a page, and what is below them.
func (p *pages) elements(b, least, bound []byte) error {
	if len(b) < pageHeadBytes {
		return fmt.Errorf("%w: a page of %d bytes", ErrDamaged, len(b))
	}
	flags, count := binary.LittleEndian.Uint16(b[8:]), int(binary.LittleEndian.Uint16(b[10:]))
	if flags != pageBranch && flags != pageLeaf || pageHeadBytes+count*elementBytes > len(b) {
		return fmt.Errorf("%w: kind %#x, %d elements in %d bytes", ErrDamaged, flags, count, len(b))
	}
	list := make([]element, count)
	for i := range list {
		e, ok := readElement(b, flags, pageHeadBytes+i*elementBytes)
		if !ok {
			return fmt.Errorf("%w: element %d lies outside", ErrDamaged, i)
		}
		ordered := i == 0 && bytes.Compare(least, e.key) <= 0 || i > 0 && bytes.Compare(list[i-1].key, e.key) < 0
		if !ordered || bound != nil && bytes.Compare(e.key, bound) >= 0 {
			return fmt.Errorf("%w: the key of element %d is not in order", ErrDamaged, i)
		}
		list[i] = e
	}
	for i, e := range list {
		var err error
		switch {
		case flags == pageBranch && i+1 < count:
			err = p.walk(e.page, e.key, list[i+1].key)
		case flags == pageBranch:
			err = p.walk(e.page, e.key, bound)
		case e.bucket:
			err = p.bucket(e.value)
		}
		if err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
	}
	return nil
}

// element is one of a page.
type element struct {
	key, value []byte
	page       uint64 // of a branch: where its keys are
	bucket     bool   // the value is one
}

// readElement reads the element whose header is at an offset of the page; false: it does not lie within the page.
func readElement(b []byte, flags uint16, at int) (element, bool) {
	h := b[at : at+elementBytes]
	if flags == pageBranch {
		from := int64(at) + int64(binary.LittleEndian.Uint32(h[0:]))
		to := from + int64(binary.LittleEndian.Uint32(h[4:]))
		if to > int64(len(b)) {
			return element{}, false
		}
		return element{key: b[from:to], page: binary.LittleEndian.Uint64(h[8:])}, true
	}
	from := int64(at) + int64(binary.LittleEndian.Uint32(h[4:]))
	key := from + int64(binary.LittleEndian.Uint32(h[8:]))
	to := key + int64(binary.LittleEndian.Uint32(h[12:]))
	if to > int64(len(b)) {
		return element{}, false
	}
	return element{key: b[from:key], value: b[key:to], bucket: binary.LittleEndian.Uint32(h[0:])&elementBucket != 0}, true
}

// bucket checks a value that is one.
func (p *pages) bucket(value []byte) error {
	if len(value) < bucketHeadBytes {
		return fmt.Errorf("%w: a bucket of %d bytes", ErrDamaged, len(value))
	}
	if root := binary.LittleEndian.Uint64(value); root != 0 {
		return p.walk(root, nil, nil)
	}
	inline := value[bucketHeadBytes:]
	if len(inline) >= pageHeadBytes && binary.LittleEndian.Uint16(inline[8:]) != pageLeaf {
		return fmt.Errorf("%w: a bucket within a value is of kind %#x", ErrDamaged, binary.LittleEndian.Uint16(inline[8:]))
	}
	return p.elements(inline, nil, nil)
}
