package coordinator

// ending is a transaction whose outcome is decided and written down, and that must be ended in its partitions.
type ending struct {
	id         string // the transactional id
	producer   Producer
	commit     bool
	version    int8 // of the transaction protocol: 0 and 1 the old one, 2 that of KIP-890
	partitions []partition
}
