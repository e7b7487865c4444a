package broker

import (
	"context"
	"log/slog"

	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica"
)

// Deps are the rooms the front door speaks to.
type Deps struct {
	Partitions Partitions
	Metadata   Metadata
	Logger     *slog.Logger
}

// Partitions finds the partitions this broker holds. Replicas adapts a replica.Manager.
type Partitions interface {
	Partition(name string, index int32) (Partition, error)
	PartitionByID(id topic.ID, index int32) (Partition, error)
	Ready(name string, index int32) bool
	NewWaiter(minBytes int) Waiter
}

// Partition is one partition as the handlers use it.
type Partition interface {
	ID() topic.Partition
	// Append writes one batch. records is the frame's own memory: it is patched in place and must not be retained.
	Append(records []byte, r replica.AppendRequest) (replica.Appended, error)
	// OnCommitted calls fn once, without blocking it, when offset is committed or cannot be any more.
	OnCommitted(epoch int32, offset int64, fn func(error)) (cancel func())
	Read(r replica.ReadRequest) (replica.ReadResult, error)
	// ReadCold reads from the bucket and blocks until it has or ctx ends.
	ReadCold(ctx context.Context, r replica.ReadRequest) (replica.ReadResult, error)
}

// Waiter is one long poll.
type Waiter interface {
	Watch(p Partition, offset int64, isolation int8)
	C() <-chan struct{}
	Close()
}

// Metadata is the metadata quorum as the handlers use it.
type Metadata interface {
}
