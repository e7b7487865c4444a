package coordinator

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
)

// protocolRecords is how the records of one of the newer protocols, whose groups are of type G, are written and replayed.
type protocolRecords[G any] struct {
	kind    GroupType
	named   func(kind int16) bool // keys of that kind name a member, or whatever else there are several of
	in      func(*group) **G      // where a group has it
	fresh   func() *G
	read    func(kind int16, of string, v *fields) (apply func(*G), err error)
	unwrite func(g *G, kind int16, of string)
	gone    func(g *G, kind int16) bool // the group is no more, now that a record of that kind is taken back
}

// key is a key of a group and, where the kind names one, of a member.
func (r *protocolRecords[G]) key(kind int16, group, of string) []byte {
	b := kbin.AppendString(kbin.AppendInt16(nil, kind), group)
	if r.named(kind) {
		b = kbin.AppendString(b, of)
	}
	return b
}

// replay applies a record. A group that has had none yet keeps what else the log has said of it: its offsets.
func (r *protocolRecords[G]) replay(c *core, key, value []byte) error {
	kind := int16(binary.BigEndian.Uint16(key))
	k := readFields(key[2:])
	name, of := k.String(), ""
	if r.named(kind) {
		of = k.String()
	}
	if err := k.end(); err != nil {
		return err
	}
	g := c.group(name)
	if value == nil {
		if g == nil || *r.in(g) == nil {
			return nil
		}
		if r.unwrite(*r.in(g), kind, of); r.gone(*r.in(g), kind) {
			*r.in(g) = nil
		}
		c.settle(g)
		return nil
	}
	v := readFields(value)
	if version := v.Int16(); version != 0 {
		return fmt.Errorf("%w: %s group value of version %d", ErrCorrupt, r.kind, version)
	}
	apply, err := r.read(kind, of, v)
	if err != nil {
		return err
	}
	if g == nil || *r.in(g) == nil {
		bare := newGroup(name, -1)
		*r.in(bare) = r.fresh()
		if g != nil {
			bare.offsets, bare.txns = g.offsets, g.txns
		}
		c.groups[name], g = bare, bare
	}
	apply(*r.in(g))
	return nil
}

// appendTargetEpoch writes the value that says up to which epoch members were assigned, and when, if that is known.
func appendTargetEpoch(epoch int32, at int64) []byte {
	b := kbin.AppendInt32(kbin.AppendInt16(nil, 0), epoch)
	if at == 0 {
		return kbin.AppendUvarint(b, 0)
	}
	return appendTag(kbin.AppendUvarint(b, 1), 0, at)
}

func (f *fields) targetEpoch() (epoch int32, at int64) {
	epoch = f.Int32()
	f.tags(func(tag uint32, b *fields) {
		if tag == 0 {
			at = b.Int64()
		}
	})
	return epoch, at
}
