package topic

import "strconv"

// Partition identifies one partition of one creation of a topic. It is
// comparable and so can be a map key.
type Partition struct {
	Topic string
	ID    ID
	Index int32
}

// String returns "name-3", the form of Kafka's logs and directories.
func (p Partition) String() string { return p.Topic + "-" + strconv.Itoa(int(p.Index)) }
