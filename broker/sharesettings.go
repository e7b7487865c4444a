package broker

import (
	"strconv"
	"strings"
	"time"

	"github.com/varvelog/varve/coordinator/share"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/replica"
)

// shareSettings are one share group's settings: its own, the broker's where it has none.
type shareSettings struct {
	image      *meta.Image // they are of
	limits     share.Limits
	isolation  int8
	reset      string        // share.auto.offset.reset
	back       time.Duration // of by_duration
	deadLetter string        // errors.deadletterqueue.topic.name
	copyRecord bool          // errors.deadletterqueue.copy.record.enable
}

// shareSettings reads a group's settings as they are now.
func (s *Server) shareSettings(group string) *shareSettings {
	img := s.deps.Metadata.Image()
	own, layers := img.GroupConfigs(group), s.brokerLayers(img)
	text := func(name string) string {
		d, _ := conf.Lookup(conf.KindGroup, name)
		e := override(d, own, sourceGroup, &layers)
		if e.value == nil {
			return ""
		}
		return *e.value
	}
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(text(name), 10, 64) // checked when it was set
		return n
	}
	x := &shareSettings{
		image: img,
		limits: share.Limits{
			LocksMax: int(number("share.partition.max.record.locks")), DeliveriesMax: int16(number("share.delivery.count.limit")),
			LockMillis: number("share.record.lock.duration.ms"), Renewable: text("share.renew.acknowledge.enable") == "true",
		},
		isolation:  replica.ReadUncommitted,
		reset:      text("share.auto.offset.reset"),
		deadLetter: text("errors.deadletterqueue.topic.name"),
		copyRecord: text("errors.deadletterqueue.copy.record.enable") == "true",
	}
	if text("share.isolation.level") == "read_committed" {
		x.isolation = replica.ReadCommitted
	}
	if d, ok := strings.CutPrefix(x.reset, "by_duration:"); ok {
		x.back, _ = conf.ISODuration(d)
	}
	x.limits.DeadLetters = x.deadLetter != ""
	return x
}

// settingsLocked are the group's settings, read anew when the metadata has changed.
func (p *sharePart) settingsLocked() *shareSettings {
	if p.settings == nil || p.settings.image != p.srv.deps.Metadata.Image() {
		p.settings = p.srv.shareSettings(p.key.Group)
		if p.core != nil {
			p.core.SetLimits(p.settings.limits)
		}
	}
	return p.settings
}
