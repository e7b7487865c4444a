package broker

import (
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica"
)

// Replicas adapts a replica.Manager to what the handlers use.
func Replicas(m *replica.Manager) Partitions { return replicas{m} }

type replicas struct{ m *replica.Manager }

// replicaPartition is one word, so that it costs no allocation as an interface.
type replicaPartition struct{ *replica.Partition }

var _ Partition = replicaPartition{}

func (r replicas) Partition(name string, index int32) (Partition, error) {
	p, err := r.m.Partition(name, index)
	if err != nil {
		return nil, err
	}
	return replicaPartition{p}, nil
}

func (r replicas) PartitionByID(id topic.ID, index int32) (Partition, error) {
	p, err := r.m.PartitionByID(id, index)
	if err != nil {
		return nil, err
	}
	return replicaPartition{p}, nil
}

func (r replicas) Held() []Partition {
	held := r.m.Partitions()
	list := make([]Partition, len(held))
	for i, p := range held {
		list[i] = replicaPartition{p}
	}
	return list
}

func (r replicas) Ready(name string, index int32) bool { return r.m.Ready(name, index) }

func (r replicas) NewWaiter(minBytes int) Waiter { return replicaWaiter{r.m.NewWaiter(minBytes)} }

func (p replicaPartition) Producers() ([]Producer, error) {
	states, err := p.Partition.Producers()
	if err != nil {
		return nil, err
	}
	list := make([]Producer, len(states))
	for i, x := range states {
		list[i] = Producer{
			ID: x.ProducerID, Epoch: int32(x.Epoch), LastSequence: x.LastSequence, LastTimestamp: x.LastTimestamp,
			CoordinatorEpoch: x.CoordinatorEpoch, TxnStart: x.TxnStart,
		}
	}
	return list, nil
}

type replicaWaiter struct{ w *replica.Waiter }

func (w replicaWaiter) Watch(p Partition, offset int64, isolation int8) {
	w.w.Watch(p.(replicaPartition).Partition, offset, isolation)
}

func (w replicaWaiter) C() <-chan struct{} { return w.w.C() }
func (w replicaWaiter) Close()             { w.w.Close() }
