package meta

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/varvelog/varve/meta/topic"
)

// The versions of a snapshot. Format: do not renumber.
const (
	// snapshotVersion is what version 1 could say; an image that has no more is
	// still written as such, so that the release before can read it.
	snapshotVersion = 1
	// snapshotSections is version 1 followed by sections.
	snapshotSections = 2
)

// snapshotSection is a part of a snapshot that version 1 did not have. Format:
// do not renumber, do not reuse.
type snapshotSection uint8

// The sections, in the order in which they are written.
const (
	sectionReassignments snapshotSection = 1
	sectionUnclean       snapshotSection = 2
	sectionDescriptions  snapshotSection = 3
	sectionFeatures      snapshotSection = 4
	sectionEndpoints     snapshotSection = 5
	sectionQuotas        snapshotSection = 6
)

// snapshotMagic begins every snapshot.
const snapshotMagic = "VARVEMETA"

// EncodeSnapshot writes the whole image as FORMAT.md says. Equal images have
// equal bytes.
func (img *Image) EncodeSnapshot() []byte {
	e := encoder{b: make([]byte, 0, 1024+64*img.partitions)}
	e.b = append(e.b, snapshotMagic...)
	sections := img.encodeSections()
	if len(sections) == 0 {
		e.u8(snapshotVersion)
	} else {
		e.u8(snapshotSections)
	}
	e.uint(img.Index)
	e.str(img.ClusterID)
	e.int(img.NextProducerID)
	e.count(len(img.Brokers))
	for _, id := range sortedIDs(img.Brokers) {
		b := img.Brokers[id]
		e.int(int64(b.ID))
		e.str(b.Host)
		e.int(int64(b.Port))
		e.str(b.Rack)
		e.int(b.Epoch)
		e.id(b.Incarnation)
		e.flag(b.Fenced)
		e.flag(b.ShuttingDown)
	}
	e.count(img.TopicCount())
	for _, t := range img.Topics() {
		e.str(t.Name)
		e.id(t.ID)
		e.partitions(t.Partitions)
		e.strMap(t.Configs)
		e.flag(t.Tiered)
	}
	e.count(len(img.deleted))
	for _, t := range img.DeletedTopics() {
		e.str(t.Name)
		e.id(t.ID)
		e.int(int64(t.Partitions))
		e.ids(t.Brokers)
		e.flag(t.Tier)
	}
	for _, all := range []map[string]map[string]string{img.brokerConf, img.groupConf} {
		e.count(len(all))
		for _, name := range sortedKeys(all) {
			e.str(name)
			e.strMap(all[name])
		}
	}
	e.b = append(e.b, sections...)
	return binary.BigEndian.AppendUint32(e.b, crc32.Checksum(e.b, castagnoli))
}

// DecodeSnapshot reads a snapshot. The error wraps ErrVersion if a later
// release wrote it, and ErrCorrupt if it is damaged.
func DecodeSnapshot(b []byte) (*Image, error) {
	if len(b) < len(snapshotMagic)+1 || string(b[:len(snapshotMagic)]) != snapshotMagic {
		return nil, fmt.Errorf("%w: not a snapshot", ErrCorrupt)
	}
	version := b[len(snapshotMagic)]
	if version != snapshotVersion && version != snapshotSections {
		return nil, fmt.Errorf("%w: snapshot version %d, this release reads %d", ErrVersion, version, snapshotSections)
	}
	body, err := checkSum(b)
	if err != nil {
		return nil, err
	}
	d := decoder{b: body[len(snapshotMagic)+1:]}
	img := newImage()
	img.Index, img.ClusterID, img.NextProducerID = d.uint(), d.str(), d.int()
	img.decodeBrokers(&d)
	img.decodeTopics(&d)
	img.decodeDeleted(&d)
	img.brokerConf, img.groupConf = decodeConfs(&d), decodeConfs(&d)
	if version == snapshotVersion {
		for id, b := range img.Brokers {
			b.Served = b.Epoch // it may have
			img.Brokers[id] = b
		}
	}
	if version == snapshotSections && d.err == nil {
		if err := img.decodeSections(&d); err != nil {
			return nil, err
		}
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	return img, nil
}

// encodeSections writes the sections that have something in them.
func (img *Image) encodeSections() []byte {
	var e encoder
	if img.level() < levelClusters {
		return nil // there may be nodes that can only read version 1
	}
	for _, s := range []struct {
		number snapshotSection
		body   []byte
	}{
		{sectionReassignments, img.encodeReassignments()},
		{sectionUnclean, img.encodeUnclean()},
		{sectionDescriptions, img.encodeDescriptions()},
		{sectionFeatures, img.encodeFeatures()},
		{sectionEndpoints, img.encodeEndpoints()},
		{sectionQuotas, img.encodeQuotas()},
	} {
		if len(s.body) > 0 {
			e.u8(uint8(s.number))
			e.bytes(s.body)
		}
	}
	return e.b
}

// decodeSections reads what version 2 has after version 1.
func (img *Image) decodeSections(d *decoder) error {
	last := snapshotSection(0)
	for len(d.b) > 0 {
		section := snapshotSection(d.u8())
		body := decoder{b: d.take(d.count(1))}
		if d.err == nil && (section <= last || len(body.b) == 0) {
			d.fail("section %d is empty or out of order", section)
		}
		if d.err != nil {
			return d.err
		}
		last = section
		switch section {
		case sectionReassignments:
			img.decodeReassignments(&body)
		case sectionUnclean:
			img.decodeUnclean(&body)
		case sectionDescriptions:
			img.decodeDescriptions(&body)
		case sectionFeatures:
			img.decodeFeatures(&body)
		case sectionEndpoints:
			img.decodeEndpoints(&body)
		case sectionQuotas:
			img.decodeQuotas(&body)
		default:
			return fmt.Errorf("%w: snapshot section %d", ErrVersion, section)
		}
		if err := body.end(); err != nil {
			return fmt.Errorf("section %d: %w", section, err)
		}
	}
	if last == 0 {
		d.fail("version 2 without a section")
	}
	return d.err
}

// encodeSome writes those partitions of which a section has something to say:
// their number, and for each topic id, index, and what body writes.
func (img *Image) encodeSome(has func(*Partition) bool, body func(*encoder, *Partition)) []byte {
	var e encoder
	n := 0
	for _, t := range img.Topics() {
		for i := range t.Partitions {
			if p := &t.Partitions[i]; has(p) {
				n++
				e.id(t.ID)
				e.int(int64(i))
				body(&e, p)
			}
		}
	}
	if n == 0 {
		return nil
	}
	return append(binary.AppendUvarint(nil, uint64(n)), e.b...)
}

// decodeSome reads them back. Nobody has seen the image yet, so its partitions
// may be written to; has must hold of each afterwards. size is the least that
// one takes.
func (img *Image) decodeSome(d *decoder, size int, has func(*Partition) bool, body func(*decoder, *Partition)) {
	lastName, lastIndex := "", int32(-1)
	for i := range d.count(size) {
		id, index := d.id(), d.i32()
		t, p := img.PartitionByID(id, index)
		if d.err == nil && p == nil {
			d.fail("no partition %d of topic %s", index, id)
		}
		if d.err != nil {
			return
		}
		body(d, p)
		if d.err == nil && (!has(p) || i > 0 && (t.Name < lastName || t.Name == lastName && index <= lastIndex)) {
			d.fail("partition %d of topic %q has nothing to say or is out of order", index, t.Name)
		}
		lastName, lastIndex = t.Name, index
	}
}

// encodeReassignments writes which replicas are being added and removed.
func (img *Image) encodeReassignments() []byte {
	return img.encodeSome((*Partition).Reassigning, func(e *encoder, p *Partition) {
		e.ids(p.AddingReplicas)
		e.ids(p.RemovingReplicas)
	})
}

func (img *Image) decodeReassignments(d *decoder) {
	img.decodeSome(d, 19, (*Partition).Reassigning, func(d *decoder, p *Partition) {
		p.AddingReplicas, p.RemovingReplicas = d.ids(), d.ids()
	})
}

func (p *Partition) electedUncleanly() bool { return p.UncleanEpoch != 0 }

// encodeUnclean writes the leader epochs of unclean elections.
func (img *Image) encodeUnclean() []byte {
	return img.encodeSome((*Partition).electedUncleanly, func(e *encoder, p *Partition) { e.int(int64(p.UncleanEpoch)) })
}

func (img *Image) decodeUnclean(d *decoder) {
	img.decodeSome(d, 18, (*Partition).electedUncleanly, func(d *decoder, p *Partition) { p.UncleanEpoch = d.i32() })
}

func (img *Image) decodeBrokers(d *decoder) {
	n := d.count(24)
	if n == 0 {
		return
	}
	img.Brokers = make(map[int32]Broker, n)
	last := int32(-1)
	for range n {
		b := Broker{
			ID: d.i32(), Host: d.str(), Port: d.i32(), Rack: d.str(), Epoch: d.int(),
			Incarnation: d.id(), Fenced: d.flag(), ShuttingDown: d.flag(),
		}
		if b.ID <= last && d.err == nil {
			d.fail("broker %d is out of order", b.ID)
			return
		}
		last = b.ID
		img.Brokers[b.ID] = b
	}
}

func (img *Image) decodeTopics(d *decoder) {
	last := ""
	for i := range d.count(21) {
		t := &Topic{Name: d.str(), ID: d.id(), Partitions: d.partitions(), Configs: d.strMap(), Tiered: d.flag()}
		switch {
		case d.err != nil:
			return
		case i > 0 && t.Name <= last:
			d.fail("topic %q is out of order", t.Name)
			return
		case img.TopicByID(t.ID) != nil:
			d.fail("topic id %s is there twice", t.ID)
			return
		}
		last = t.Name
		img.topics.put(t)
		img.count(t.Partitions, 1)
	}
}

func (img *Image) decodeDeleted(d *decoder) {
	n := d.count(20)
	if n == 0 {
		return
	}
	img.deleted = make(map[topic.ID]DeletedTopic, n)
	lastName, lastID := "", topic.ID{}
	for i := range n {
		t := DeletedTopic{Name: d.str(), ID: d.id(), Partitions: d.i32(), Brokers: d.ids(), Tier: d.flag()}
		if d.err == nil && i > 0 && (t.Name < lastName || t.Name == lastName && string(t.ID[:]) <= string(lastID[:])) {
			d.fail("deleted topic %q is out of order", t.Name)
		}
		if d.err != nil {
			return
		}
		lastName, lastID = t.Name, t.ID
		img.deleted[t.ID] = t
	}
}

func decodeConfs(d *decoder) map[string]map[string]string {
	n := d.count(2)
	if n == 0 {
		return nil
	}
	all := make(map[string]map[string]string, n)
	last := ""
	for i := range n {
		name := d.str()
		m := d.strMap()
		if d.err == nil && (i > 0 && name <= last || m == nil) {
			d.fail("settings of %q are empty or out of order", name)
		}
		if d.err != nil {
			return nil
		}
		last = name
		all[name] = m
	}
	return all
}
