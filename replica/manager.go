package replica

import "github.com/varvelog/varve/meta/topic"

// Manager holds this broker's partitions.
type Manager struct {
	table table
}

// Partition finds a partition by name: ErrUnknownPartition, or ErrNotLeader while it is being opened.
func (m *Manager) Partition(name string, index int32) (*Partition, error) {
	p, known := m.table.get(name, index)
	switch {
	case !known:
		return nil, ErrUnknownPartition
	case p == nil:
		return nil, ErrNotLeader
	}
	return p, nil
}

// PartitionByID finds a partition by topic id: ErrUnknownTopicID, ErrUnknownPartition, or ErrNotLeader while it is being
// opened.
func (m *Manager) PartitionByID(id topic.ID, index int32) (*Partition, error) {
	p, known, ok := m.table.getByID(id, index)
	switch {
	case !ok:
		return nil, ErrUnknownTopicID
	case !known:
		return nil, ErrUnknownPartition
	case p == nil:
		return nil, ErrNotLeader
	}
	return p, nil
}

// Ready reports whether this broker leads the partition and serves it: Metadata names a leader only then.
func (m *Manager) Ready(name string, index int32) bool {
	p, err := m.Partition(name, index)
	if err != nil {
		return false
	}
	return p.role.Load().err == nil
}
