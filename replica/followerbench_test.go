package replica

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica/isr"
)

// tailing is a followed partition without a fetcher, and an answer with that many records that can be appended again and
// again.
func tailing(t testing.TB, n *node, records int) (d *followed, answer *kmsg.FetchResponseTopicPartition, step func()) {
	t.Helper()
	p := n.want("followed", topic.NewID(), 1, map[string]string{"retention.ms": "-1"})
	d = &followed{p: p, core: isr.Follower{Epoch: 2, UncleanEpoch: NoEpoch}, fetcher: &fetcher{m: n.m, synced: make(chan struct{}, 1)}}
	p.leading.Lock()
	p.withdraw(role{err: ErrNotLeader, epoch: 2, leader: 2})
	p.following.Store(d)
	p.leading.Unlock()
	list := make([]record, records)
	for i := range list {
		list[i] = record{ts: now(), value: fmt.Sprintf("value-%0100d", i)}
	}
	b := batch.Batch(build(t, batch.None, list...))
	b.SetLeaderEpoch(2)
	r := kmsg.NewFetchResponseTopicPartition()
	r.RecordBatches = b
	return d, &r, func() {
		end := p.log.Offsets().End
		b.SetBaseOffset(end)
		r.HighWatermark = end
		reply, err := replyOf(&r, 1<<30)
		n.must(err)
		v := p.view()
		at, _ := d.core.Position(v)
		a := d.core.Answer(v, at, reply)
		if a.Kind != isr.Append {
			t.Fatalf("%+v", a)
		}
		if grown, err := d.append(r.RecordBatches, a, reply.RemoteEnd); err != nil || !grown {
			t.Fatalf("appended %t, %v", grown, err)
		}
	}
}

func TestFollowerAllocatesNothingPerRecord(t *testing.T) {
	n, _ := onDisk(t)
	var allocs []float64
	for _, records := range []int{1, 1000} {
		_, _, step := tailing(t, n, records)
		step()
		allocs = append(allocs, allocations(200, step))
	}
	if allocs[0] > 1 || allocs[1] > 1 {
		t.Fatalf("%v allocations for a batch of 1 and of 1000 records", allocs)
	}
}

func BenchmarkFollowerAppend(b *testing.B) {
	for _, records := range []int{10, 150, 1500} {
		n, _ := onDisk(b)
		_, answer, step := tailing(b, n, records)
		b.Run(fmt.Sprintf("batch=%dB", len(answer.RecordBatches)), func(b *testing.B) {
			b.SetBytes(int64(len(answer.RecordBatches)))
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
		})
	}
}

// A partition whose append is not durable yet when its leadership ends never says so to the fetcher: the fetcher must not
// wait for it, or all that it fetches from that leader stands still.
func TestFetcherDoesNotWaitForWhatItNoLongerFollows(t *testing.T) {
	for what, end := range map[string]func(*Partition){
		"another leader": func(p *Partition) { p.follow(isr.Leadership{Leader: NoReplica, Epoch: 3}) },
		"leads itself": func(p *Partition) {
			_ = p.lead(isr.Leadership{Leader: 1, Epoch: 3, Replicas: []int32{1, 2}, ISR: []int32{1}})
		},
		"disk error": func(p *Partition) { p.goOffline(errCut) },
	} {
		t.Run(what, func(t *testing.T) {
			n := startNode(t)
			d, _, step := tailing(t, n, 1)
			step()
			d.appended++ // will never be durable
			d.fetcher.grown = append(d.fetcher.grown, d)
			settled := make(chan struct{})
			go func() {
				d.fetcher.settle()
				close(settled)
			}()
			end(d.p)
			select {
			case <-settled:
			case <-time.After(patience):
				t.Fatal("still waiting")
			}
		})
	}
}
