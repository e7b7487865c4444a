package sim

import (
	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier"
)

type tiering struct{}
type bucket struct{}

func newTiering(b *broker) *tiering                 { return nil }
func (t *tiering) close()                           {}
func (t *tiering) run()                             {}
func (t *tiering) bury(topic.Partition)             {}
func (t *tiering) lead(r *replica) *tier.Leadership { return nil }
func (t *tiering) resign(r *replica)                {}
func (t *tiering) archiveEnd(r *replica, fn func(start, end int64, chain lineage.Chain, err error)) {
}
func newBucket(w *world) *bucket             { return nil }
func (b *bucket) close()                     {}
func (b *bucket) settled()                   {}
func (b *bucket) inOrder() bool              { return true }
func (b *bucket) heal()                      {}
func (b *bucket) trouble()                   {}
func (o *oracle) drops(r *replica, to int64) {}
