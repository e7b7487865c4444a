package coordinator

import (
	"encoding/binary"
	"hash"
	"slices"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
)

// topicsView is the topics as the machines see them; immutable.
type topicsView struct {
	version int64 // rises when topics come or go, get partitions, or when racks change
	img     *meta.Image
}

// next is the view of a newer image: another version only if something that matters to assignments is different.
func (v *topicsView) next(img *meta.Image) *topicsView {
	if v == nil {
		return &topicsView{version: 1, img: img}
	}
	n := &topicsView{version: v.version, img: img}
	if !sameTopics(v.img, img) || !sameRacks(v.img, img) {
		n.version++
	}
	return n
}

func sameTopics(a, b *meta.Image) bool {
	was, is := a.Topics(), b.Topics()
	return slices.EqualFunc(was, is, func(x, y *meta.Topic) bool {
		return x == y || x.ID == y.ID && len(x.Partitions) == len(y.Partitions)
	})
}

func sameRacks(a, b *meta.Image) bool {
	if len(a.Brokers) != len(b.Brokers) {
		return false
	}
	for id, x := range a.Brokers {
		if y, ok := b.Brokers[id]; !ok || x.Rack != y.Rack {
			return false
		}
	}
	return true
}

// byName finds a topic; nil: there is none, or nothing is known of topics yet.
func (v *topicsView) byName(name string) *meta.Topic {
	if v == nil {
		return nil
	}
	return v.img.Topic(name)
}

func (v *topicsView) byID(id topic.ID) *meta.Topic {
	if v == nil {
		return nil
	}
	return v.img.TopicByID(id)
}

// sum adds what assignments depend on of a topic to a hash: id, partitions, and the racks of each. Of a topic that there is not,
// nothing.
func (v *topicsView) sum(h hash.Hash, name string) {
	t := v.byName(name)
	if t == nil {
		return
	}
	var buf [8]byte
	h.Write(t.ID[:])
	binary.BigEndian.PutUint64(buf[:], uint64(len(t.Partitions)))
	h.Write(buf[:])
	for i := range t.Partitions {
		racks := make([]string, 0, 3)
		for _, id := range t.Partitions[i].Replicas {
			racks = append(racks, v.img.Brokers[id].Rack)
		}
		slices.Sort(racks)
		for _, r := range racks {
			h.Write([]byte(r))
			h.Write([]byte{0})
		}
	}
}

// in says whether a partition has a replica in a rack.
func (v *topicsView) in(rack string, p *meta.Partition) bool {
	return rack != "" && slices.ContainsFunc(p.Replicas, func(id int32) bool { return v.img.Brokers[id].Rack == rack })
}

// settings of a group that were set for it alone.
func (v *topicsView) settings(group string) map[string]string {
	if v == nil {
		return nil
	}
	return v.img.GroupConfigs(group)
}
