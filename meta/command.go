package meta

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/varvelog/varve/meta/topic"
)

// commandVersion is the version this release writes. Format: do not renumber.
const commandVersion = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Command is what one raft entry carries: changes that are made together or
// not at all.
type Command struct {
	// Base is the Index of the image the changes were decided on. If it is not
	// the newest when the command is applied, nothing changes.
	Base    uint64
	Changes []Change
}

// Change is one fact about the metadata.
type Change interface {
	tag() changeTag
	encode(*encoder)
	// apply changes next, a clone of the newest image; index is the raft index.
	apply(next *Image, index uint64) error
}

type changeTag uint8

// The changes. Format: do not renumber, do not reuse.
const (
	tagSetClusterID     changeTag = 1
	tagRegisterBroker   changeTag = 2
	tagChangeBroker     changeTag = 3
	tagUnregisterBroker changeTag = 4
	tagCreateTopic      changeTag = 5
	tagDeleteTopic      changeTag = 6
	tagConfirmDeleted   changeTag = 7
	tagAddPartitions    changeTag = 8
	tagChangePartitions changeTag = 9
	tagSetConfigs       changeTag = 10
	tagTakeProducerIDs  changeTag = 11
	tagDescribeBroker   changeTag = 12
	tagSetFeature       changeTag = 13
	tagSetEndpoints     changeTag = 14
	tagSetQuotas        changeTag = 15
)

// SetClusterID names the cluster, once.
type SetClusterID struct{ ClusterID string }

// RegisterBroker registers one start of a broker. Its epoch becomes the raft
// index of the command.
type RegisterBroker struct {
	ID          int32
	Incarnation topic.ID
	Host        string
	Port        int32
	Rack        string
	Fenced      bool
}

// ChangeBroker fences a broker, unfences it, or marks it as shutting down.
type ChangeBroker struct {
	ID           int32
	Epoch        int64
	Fenced       bool
	ShuttingDown bool
}

// UnregisterBroker forgets a broker.
type UnregisterBroker struct {
	ID    int32
	Epoch int64
}

// CreateTopic creates a topic with all its partitions and settings.
type CreateTopic struct {
	Name       string
	ID         topic.ID
	Partitions []Partition
	Configs    map[string]string
}

// DeleteTopic takes a topic away from clients and leaves a DeletedTopic.
type DeleteTopic struct{ ID topic.ID }

// ConfirmDeleted says that a deleted topic's data is gone from one broker's
// disk, from the bucket, or both. The bucket's comes last; the last confirmation
// removes the tombstone.
type ConfirmDeleted struct {
	ID     topic.ID
	Broker int32 // -1: no broker
	Tier   bool
}

// AddPartitions adds partitions to a topic, from the index First on.
type AddPartitions struct {
	ID         topic.ID
	First      int32
	Partitions []Partition
}

// ChangePartitions changes partitions of one topic.
type ChangePartitions struct {
	ID      topic.ID
	Changes []PartitionChange
}

// PartitionChange changes one partition; fields without their flag stay as
// they are. Setting Leader raises the leader epoch, and every change raises
// the partition epoch.
type PartitionChange struct {
	Index int32
	Set   PartitionFields

	Leader       int32
	Recovering   bool
	Replicas     []int32
	ISR          []int32
	ELR          []int32
	LastKnownELR []int32

	AddingReplicas   []int32
	RemovingReplicas []int32
}

// PartitionFields says which fields of a partition a change sets.
type PartitionFields uint16

// The fields of a PartitionChange. Format: do not renumber.
const (
	SetLeader PartitionFields = 1 << iota
	SetRecovering
	SetReplicas
	SetISR
	SetELR
	SetLastKnownELR
	SetAddingReplicas
	SetRemovingReplicas
	partitionFieldsEnd
)

// ConfigKind says what settings belong to. Format: do not renumber.
type ConfigKind uint8

// The kinds of resources that have settings.
const (
	TopicConfig  ConfigKind = 1
	BrokerConfig ConfigKind = 2
	GroupConfig  ConfigKind = 3
)

// SetConfigs sets and removes settings of one resource.
type SetConfigs struct {
	Kind   ConfigKind
	Name   string // the topic's or group's name; the broker's id, or "" for all brokers
	Set    map[string]string
	Remove []string
}

// TakeProducerIDs hands out all producer ids below Next.
type TakeProducerIDs struct {
	Broker int32
	Next   int64
}

// DescribeBroker adds to the registration made in the same command.
type DescribeBroker struct {
	ID          int32
	Directory   topic.ID
	RaftAddress string
	WantVote    bool
	Features    map[string]FeatureRange
}

// SetEndpoints adds its listeners to the registration made in the same command.
type SetEndpoints struct {
	ID        int32
	Endpoints []Endpoint
}

// SetFeature sets the level of a feature.
type SetFeature struct {
	Name  string
	Level int16
}

func (SetClusterID) tag() changeTag     { return tagSetClusterID }
func (RegisterBroker) tag() changeTag   { return tagRegisterBroker }
func (ChangeBroker) tag() changeTag     { return tagChangeBroker }
func (UnregisterBroker) tag() changeTag { return tagUnregisterBroker }
func (CreateTopic) tag() changeTag      { return tagCreateTopic }
func (DeleteTopic) tag() changeTag      { return tagDeleteTopic }
func (ConfirmDeleted) tag() changeTag   { return tagConfirmDeleted }
func (AddPartitions) tag() changeTag    { return tagAddPartitions }
func (ChangePartitions) tag() changeTag { return tagChangePartitions }
func (SetConfigs) tag() changeTag       { return tagSetConfigs }
func (TakeProducerIDs) tag() changeTag  { return tagTakeProducerIDs }

func (DescribeBroker) tag() changeTag { return tagDescribeBroker }
func (SetFeature) tag() changeTag     { return tagSetFeature }
func (SetEndpoints) tag() changeTag   { return tagSetEndpoints }

func (c SetClusterID) encode(e *encoder) { e.str(c.ClusterID) }

func (c RegisterBroker) encode(e *encoder) {
	e.int(int64(c.ID))
	e.id(c.Incarnation)
	e.str(c.Host)
	e.int(int64(c.Port))
	e.str(c.Rack)
	e.flag(c.Fenced)
}

func (c ChangeBroker) encode(e *encoder) {
	e.int(int64(c.ID))
	e.int(c.Epoch)
	e.flag(c.Fenced)
	e.flag(c.ShuttingDown)
}

func (c UnregisterBroker) encode(e *encoder) {
	e.int(int64(c.ID))
	e.int(c.Epoch)
}

func (c CreateTopic) encode(e *encoder) {
	e.str(c.Name)
	e.id(c.ID)
	e.partitions(c.Partitions)
	e.strMap(c.Configs)
}

func (c DeleteTopic) encode(e *encoder) { e.id(c.ID) }

func (c ConfirmDeleted) encode(e *encoder) {
	e.id(c.ID)
	e.int(int64(c.Broker))
	e.flag(c.Tier)
}

func (c AddPartitions) encode(e *encoder) {
	e.id(c.ID)
	e.int(int64(c.First))
	e.partitions(c.Partitions)
}

func (c ChangePartitions) encode(e *encoder) {
	e.id(c.ID)
	e.count(len(c.Changes))
	for i := range c.Changes {
		c.Changes[i].encode(e)
	}
}

func (c *PartitionChange) encode(e *encoder) {
	e.int(int64(c.Index))
	e.uint(uint64(c.Set))
	if c.Set&SetLeader != 0 {
		e.int(int64(c.Leader))
	}
	if c.Set&SetRecovering != 0 {
		e.flag(c.Recovering)
	}
	for _, l := range c.lists() {
		if c.Set&l.field != 0 {
			e.ids(*l.ids)
		}
	}
}

type fieldList struct {
	field PartitionFields
	ids   *[]int32
}

func (c *PartitionChange) lists() [6]fieldList {
	return [6]fieldList{
		{SetReplicas, &c.Replicas}, {SetISR, &c.ISR}, {SetELR, &c.ELR}, {SetLastKnownELR, &c.LastKnownELR},
		{SetAddingReplicas, &c.AddingReplicas}, {SetRemovingReplicas, &c.RemovingReplicas},
	}
}

func (c SetConfigs) encode(e *encoder) {
	e.u8(uint8(c.Kind))
	e.str(c.Name)
	e.strMap(c.Set)
	e.count(len(c.Remove))
	for _, n := range c.Remove {
		e.str(n)
	}
}

func (c TakeProducerIDs) encode(e *encoder) {
	e.int(int64(c.Broker))
	e.int(c.Next)
}

func (c DescribeBroker) encode(e *encoder) {
	e.int(int64(c.ID))
	e.description(c.Directory, c.RaftAddress, c.WantVote, c.Features)
}

func (SetEndpoints) since() int16 { return levelListeners }

func (c SetEndpoints) encode(e *encoder) {
	e.int(int64(c.ID))
	e.endpoints(c.Endpoints)
}

func (c SetFeature) encode(e *encoder) {
	e.str(c.Name)
	e.int(int64(c.Level))
}

// decodeChange reads one change's body.
func decodeChange(tag changeTag, d *decoder) (Change, error) {
	var c Change
	switch tag {
	case tagSetClusterID:
		c = SetClusterID{ClusterID: d.str()}
	case tagRegisterBroker:
		c = RegisterBroker{ID: d.i32(), Incarnation: d.id(), Host: d.str(), Port: d.i32(), Rack: d.str(), Fenced: d.flag()}
	case tagChangeBroker:
		c = ChangeBroker{ID: d.i32(), Epoch: d.int(), Fenced: d.flag(), ShuttingDown: d.flag()}
	case tagUnregisterBroker:
		c = UnregisterBroker{ID: d.i32(), Epoch: d.int()}
	case tagCreateTopic:
		c = CreateTopic{Name: d.str(), ID: d.id(), Partitions: d.partitions(), Configs: d.strMap()}
	case tagDeleteTopic:
		c = DeleteTopic{ID: d.id()}
	case tagConfirmDeleted:
		c = ConfirmDeleted{ID: d.id(), Broker: d.i32(), Tier: d.flag()}
	case tagAddPartitions:
		c = AddPartitions{ID: d.id(), First: d.i32(), Partitions: d.partitions()}
	case tagChangePartitions:
		c = decodeChangePartitions(d)
	case tagSetConfigs:
		c = decodeSetConfigs(d)
	case tagTakeProducerIDs:
		c = TakeProducerIDs{Broker: d.i32(), Next: d.int()}
	case tagDescribeBroker:
		c = decodeDescribeBroker(d)
	case tagSetEndpoints:
		c = SetEndpoints{ID: d.i32(), Endpoints: d.endpoints()}
	case tagSetQuotas:
		c = decodeSetQuotas(d)
	case tagSetFeature:
		c = SetFeature{Name: d.str(), Level: d.i16()}
	default:
		if c = decodeLater(tag, d); c == nil {
			return nil, fmt.Errorf("%w: change %d", ErrVersion, tag)
		}
	}
	return c, d.end()
}

func decodeChangePartitions(d *decoder) ChangePartitions {
	c := ChangePartitions{ID: d.id()}
	n := d.count(2)
	if n == 0 {
		return c
	}
	c.Changes = make([]PartitionChange, n)
	for i := range c.Changes {
		p := &c.Changes[i]
		p.Index = d.i32()
		fields := d.uint()
		if fields >= uint64(partitionFieldsEnd) {
			d.fail("unknown fields %#x", fields)
			return c
		}
		p.Set = PartitionFields(fields)
		if p.Set&SetLeader != 0 {
			p.Leader = d.i32()
		}
		if p.Set&SetRecovering != 0 {
			p.Recovering = d.flag()
		}
		for _, l := range p.lists() {
			if p.Set&l.field != 0 {
				*l.ids = d.ids()
			}
		}
	}
	return c
}

func decodeDescribeBroker(d *decoder) DescribeBroker {
	c := DescribeBroker{ID: d.i32()}
	c.Directory, c.RaftAddress, c.WantVote, c.Features = d.description()
	return c
}

func decodeSetConfigs(d *decoder) SetConfigs {
	c := SetConfigs{Kind: ConfigKind(d.u8()), Name: d.str(), Set: d.strMap()}
	if n := d.count(1); n > 0 {
		c.Remove = make([]string, n)
		for i := range c.Remove {
			c.Remove[i] = d.str()
		}
	}
	return c
}

// Encode writes the command as FORMAT.md says.
func (c *Command) Encode() []byte {
	e := encoder{b: make([]byte, 0, 256)}
	e.u8(commandVersion)
	e.uint(c.Base)
	e.count(len(c.Changes))
	var body encoder
	for _, change := range c.Changes {
		body.b = body.b[:0]
		change.encode(&body)
		e.u8(uint8(change.tag()))
		e.bytes(body.b)
	}
	return binary.BigEndian.AppendUint32(e.b, crc32.Checksum(e.b, castagnoli))
}

// DecodeCommand reads a command. The error wraps ErrVersion if a later release
// wrote it, and ErrCorrupt if it is damaged.
func DecodeCommand(b []byte) (Command, error) {
	body, err := checkSum(b)
	if err != nil {
		return Command{}, err
	}
	d := decoder{b: body}
	if v := d.u8(); v != commandVersion {
		return Command{}, fmt.Errorf("%w: command version %d, this release reads %d", ErrVersion, v, commandVersion)
	}
	c := Command{Base: d.uint()}
	n := d.count(2)
	c.Changes = make([]Change, 0, n)
	for range n {
		tag := changeTag(d.u8())
		change, err := decodeChange(tag, &decoder{b: d.take(d.count(1))})
		if d.err != nil {
			return Command{}, d.err
		}
		if err != nil {
			return Command{}, fmt.Errorf("change %d: %w", tag, err)
		}
		c.Changes = append(c.Changes, change)
	}
	return c, d.end()
}

// checkSum takes off and compares the trailing CRC-32C.
func checkSum(b []byte) ([]byte, error) {
	if len(b) < 5 {
		return nil, fmt.Errorf("%w: %d bytes are too few", ErrCorrupt, len(b))
	}
	body := b[:len(b)-4]
	if got, want := crc32.Checksum(body, castagnoli), binary.BigEndian.Uint32(b[len(body):]); got != want {
		return nil, fmt.Errorf("%w: checksum %08x, want %08x", ErrCorrupt, got, want)
	}
	return body, nil
}
