package main

import (
	"math/rand/v2"
	"strconv"
	"time"
)

// demoEvents generates the demonstration's events. Event i is a function of i
// alone, so that a replay can be held against it record by record without
// keeping anything.
type demoEvents struct {
	count      int64
	partitions int64
	first      time.Time // of the first event; they run from here to last
	last       time.Time
}

// disorderMax is how far an event's time may lie from where its place in the
// log would put it: archives are filled by many writers, never in order.
const disorderMax = 90 * time.Second

// place gives the partition and offset at which event i is written.
func (d demoEvents) place(i int64) (partition int32, offset int64) {
	return int32(i % d.partitions), i / d.partitions
}

// at is the inverse of place.
func (d demoEvents) at(partition int32, offset int64) int64 {
	return offset*d.partitions + int64(partition)
}

// timestamp of event i in milliseconds.
func (d demoEvents) timestamp(i int64) int64 {
	step := float64(d.last.Sub(d.first)) / float64(d.count)
	jitter := int64(mix(uint64(i)) % uint64(2*disorderMax))
	return d.first.Add(time.Duration(step*float64(i)) + time.Duration(jitter) - disorderMax).UnixMilli()
}

// firstAtOrAfter is the offset that a seek to target must find in a partition,
// by looking at every event that could be it; -1 when there is none.
func (d demoEvents) firstAtOrAfter(partition int32, target int64) int64 {
	for offset := int64(0); ; offset++ {
		i := d.at(partition, offset)
		if i >= d.count {
			return -1
		}
		if d.timestamp(i) >= target {
			return offset
		}
	}
}

// end is the number of events in a partition.
func (d demoEvents) end(partition int32) int64 {
	return (d.count - int64(partition) + d.partitions - 1) / d.partitions
}

var (
	demoKinds  = []string{"order.created", "order.paid", "order.shipped", "cart.updated", "login", "login.failed", "search", "page.view"}
	demoCities = []string{"Uppsala", "Porto", "Kraków", "Osaka", "Valparaíso", "Mombasa", "Bergen", "Hobart"}
)

// appendKey and appendValue write event i onto dst.
func (d demoEvents) appendKey(dst []byte, i int64) []byte {
	return strconv.AppendUint(append(dst, "user-"...), mix(uint64(i)^0x9e37)%50_000, 10)
}

func (d demoEvents) appendValue(dst []byte, i int64) []byte {
	r := rand.New(rand.NewPCG(uint64(i), 0x76617276))
	dst = append(dst, `{"n":`...)
	dst = strconv.AppendInt(dst, i, 10)
	dst = append(dst, `,"ts":`...)
	dst = strconv.AppendInt(dst, d.timestamp(i), 10)
	dst = append(dst, `,"kind":"`...)
	dst = append(dst, demoKinds[r.IntN(len(demoKinds))]...)
	dst = append(dst, `","city":"`...)
	dst = append(dst, demoCities[r.IntN(len(demoCities))]...)
	dst = append(dst, `","amount":`...)
	dst = strconv.AppendInt(dst, int64(r.IntN(100_000)), 10)
	dst = append(dst, `,"session":"`...)
	dst = strconv.AppendUint(dst, r.Uint64(), 16)
	dst = append(dst, `","agent":"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Safari/537.36","items":[`...)
	for j := range 1 + r.IntN(4) {
		if j > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"sku":"`...)
		dst = strconv.AppendInt(dst, int64(1000+r.IntN(9000)), 10)
		dst = append(dst, `","count":`...)
		dst = strconv.AppendInt(dst, int64(1+r.IntN(9)), 10)
		dst = append(dst, '}')
	}
	return append(dst, "]}"...)
}

// mix spreads the bits of n (the finalizer of SplitMix64), so that neighbours
// look unrelated.
func mix(n uint64) uint64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}
