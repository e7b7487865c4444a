package coordinator

import (
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
