package meta

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/varvelog/varve/meta/topic"
)

// encoder appends FORMAT.md's primitive types.
type encoder struct{ b []byte }

func (e *encoder) u8(v uint8)     { e.b = append(e.b, v) }
func (e *encoder) uint(v uint64)  { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) int(v int64)    { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) id(v topic.ID)  { e.b = append(e.b, v[:]...) }
func (e *encoder) count(n int)    { e.uint(uint64(n)) }
func (e *encoder) bytes(v []byte) { e.count(len(v)); e.b = append(e.b, v...) }
func (e *encoder) str(v string)   { e.count(len(v)); e.b = append(e.b, v...) }

func (e *encoder) flag(v bool) {
	if v {
		e.u8(1)
	} else {
		e.u8(0)
	}
}

func (e *encoder) ids(v []int32) {
	e.count(len(v))
	for _, n := range v {
		e.int(int64(n))
	}
}

// strMap writes a map in the order of its keys, so that equal maps have equal bytes.
func (e *encoder) strMap(m map[string]string) {
	e.count(len(m))
	for _, k := range sortedKeys(m) {
		e.str(k)
		e.str(m[k])
	}
}

// decoder reads them. The first fault sticks: everything read after it is zero,
// and err says what it was. Memory is bounded by the input's size: every count
// is held against the bytes that are left.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
	}
	d.b = nil
}

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.fail("%d bytes wanted, %d left", n, len(d.b))
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) u8() uint8 {
	if v := d.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || n > 1 && d.b[n-1] == 0 { // the shortest form is the only one
		d.fail("bad number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int64 {
	u := d.uint()
	return int64(u>>1) ^ -int64(u&1)
}

func (d *decoder) i32() int32 {
	v := d.int()
	if v < math.MinInt32 || v > math.MaxInt32 {
		d.fail("%d is no 32-bit number", v)
		return 0
	}
	return int32(v)
}

func (d *decoder) i16() int16 {
	v := d.int()
	if v < math.MinInt16 || v > math.MaxInt16 {
		d.fail("%d is no 16-bit number", v)
		return 0
	}
	return int16(v)
}

// description writes what a broker says of itself besides its address.
func (e *encoder) description(directory topic.ID, address string, vote bool, features map[string]FeatureRange) {
	e.id(directory)
	e.str(address)
	e.flag(vote)
	e.count(len(features))
	for _, name := range sortedKeys(features) {
		e.str(name)
		e.int(int64(features[name].Min))
		e.int(int64(features[name].Max))
	}
}

func (d *decoder) description() (directory topic.ID, address string, vote bool, features map[string]FeatureRange) {
	directory, address, vote = d.id(), d.str(), d.flag()
	n := d.count(3)
	if n == 0 {
		return directory, address, vote, nil
	}
	features = make(map[string]FeatureRange, n)
	last := ""
	for i := range n {
		name := d.str()
		if i > 0 && name <= last {
			d.fail("feature %q is out of order", name)
		}
		last = name
		features[name] = FeatureRange{Min: d.i16(), Max: d.i16()}
	}
	return directory, address, vote, features
}

// endpoints writes where a broker listens, in its own order.
func (e *encoder) endpoints(list []Endpoint) {
	e.count(len(list))
	for _, p := range list {
		e.str(p.Name)
		e.str(p.Host)
		e.int(int64(p.Port))
		e.int(int64(p.Protocol))
	}
}

func (d *decoder) endpoints() []Endpoint {
	n := d.count(4)
	if n == 0 {
		return nil
	}
	list := make([]Endpoint, n)
	for i := range list {
		list[i] = Endpoint{Name: d.str(), Host: d.str(), Port: d.i32(), Protocol: SecurityProtocol(d.i16())}
	}
	return list
}

func (d *decoder) id() topic.ID {
	var v topic.ID
	copy(v[:], d.take(len(v)))
	return v
}

// count reads a number of elements of at least size bytes each.
func (d *decoder) count(size int) int {
	n := d.uint()
	if n > uint64(len(d.b)/size) {
		d.fail("%d elements of %d bytes or more in %d bytes", n, size, len(d.b))
		return 0
	}
	return int(n)
}

func (d *decoder) str() string { return string(d.take(d.count(1))) }

func (d *decoder) flag() bool {
	switch d.u8() {
	case 0:
		return false
	case 1:
		return true
	}
	d.fail("bad flag")
	return false
}

// ids reads broker ids. nil stands for none, so that what is decoded is equal
// to what was encoded whichever way it was spelt.
func (d *decoder) ids() []int32 {
	n := d.count(1)
	if n == 0 {
		return nil
	}
	v := make([]int32, n)
	for i := range v {
		v[i] = d.i32()
	}
	return v
}

func (d *decoder) strMap() map[string]string {
	n := d.count(2)
	if n == 0 {
		return nil
	}
	m := make(map[string]string, n)
	last := ""
	for i := range n {
		k := d.str()
		if i > 0 && k <= last {
			d.fail("key %q is out of order", k)
			return nil
		}
		last = k
		m[k] = d.str()
	}
	return m
}

// end checks that nothing is left.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) != 0 {
		d.fail("%d bytes too many", len(d.b))
	}
	return d.err
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// A run of partitions often has the same replicas; assignment lists write each
// distinct one once, in the order of first use, and refer to it by number.
type idTable struct {
	lists [][]int32
	index map[string]int
}

func (t *idTable) number(v []int32) int {
	key := make([]byte, 0, 4*len(v))
	for _, n := range v {
		key = binary.BigEndian.AppendUint32(key, uint32(n))
	}
	if i, ok := t.index[string(key)]; ok {
		return i
	}
	if t.index == nil {
		t.index = make(map[string]int)
	}
	t.index[string(key)] = len(t.lists)
	t.lists = append(t.lists, v)
	return len(t.lists) - 1
}

func (e *encoder) idTable(t *idTable) {
	e.count(len(t.lists))
	for _, l := range t.lists {
		e.ids(l)
	}
}

func (d *decoder) idTable() [][]int32 {
	lists := make([][]int32, d.count(1))
	for i := range lists {
		lists[i] = d.ids()
	}
	return lists
}

func (d *decoder) fromTable(lists [][]int32) []int32 {
	i := d.uint()
	if i >= uint64(len(lists)) {
		d.fail("no list of broker ids has the number %d", i)
		return nil
	}
	return lists[i]
}

// partitions writes whole partitions; their lists of brokers are shared.
func (e *encoder) partitions(parts []Partition) {
	var table idTable
	var body encoder
	for i := range parts {
		p := &parts[i]
		body.int(int64(p.Leader))
		body.int(int64(p.LeaderEpoch))
		body.int(int64(p.PartitionEpoch))
		body.flag(p.Recovering)
		for _, l := range [][]int32{p.Replicas, p.ISR, p.ELR, p.LastKnownELR} {
			body.count(table.number(l))
		}
	}
	e.idTable(&table)
	e.count(len(parts))
	e.b = append(e.b, body.b...)
}

// partitionBytesMin is the least a partition takes: four numbers, a flag less
// than that, and four references.
const partitionBytesMin = 8

func (d *decoder) partitions() []Partition {
	table := d.idTable()
	n := d.count(partitionBytesMin)
	if n == 0 {
		return nil
	}
	parts := make([]Partition, n)
	for i := range parts {
		parts[i] = Partition{
			Leader: d.i32(), LeaderEpoch: d.i32(), PartitionEpoch: d.i32(), Recovering: d.flag(),
			Replicas: d.fromTable(table), ISR: d.fromTable(table), ELR: d.fromTable(table), LastKnownELR: d.fromTable(table),
		}
	}
	return parts
}

func sortedIDs[V any](m map[int32]V) []int32 {
	ids := make([]int32, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
