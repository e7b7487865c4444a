package coordinator

import (
	"context"

	"github.com/varvelog/varve/hot/batch"
)

// Log is the offsets topic as the coordinator writes and reads it. The errors are not told apart: whatever happens, the
// coordinator throws its state away and reads it back.
type Log interface {
	// Epoch is the leader epoch under which this broker leads the partition and serves it; false when it does not.
	Epoch(partition int32) (epoch int32, leading bool)
	// Leased says whether no other broker can lead any of the partitions that this one does. Without a lease the state may be
	// an old one: what it says is not to be shown.
	Leased() bool
	// Append appends one record batch under that leader epoch and returns when it is committed. When it returns an error the
	// batch may be in the log or not, and may be committed later or not. The batch is given its offsets, but is not kept.
	Append(ctx context.Context, partition, epoch int32, records batch.Batch) error
	// Read calls fn for each batch from the start of the partition to its end, in order, and returns when all of that is
	// committed: before, another leader may yet not have it. The bytes are valid during the call only. An error of fn ends it.
	Read(ctx context.Context, partition int32, fn func(batch.Batch) error) error
}
