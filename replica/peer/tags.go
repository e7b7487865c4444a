package peer

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Tagged fields that Kafka's schema lacks; FORMAT.md has their bytes. Format: do not renumber.
const (
	// TagServed is in an ApiVersions answer: the keys served to brokers beyond those advertised to clients.
	TagServed uint32 = 10000
	// TagRemoteEnd is in a partition of a Fetch answer: the committed remote end, exclusive.
	TagRemoteEnd uint32 = 10001
	// 10002 is not used.

	// TagFilesGone is in an AlterPartition request without topics: deleted topics whose files the broker has removed.
	TagFilesGone uint32 = 10003
	// TagBucketClean is in an AlterPartition request without topics: deleted topics of which nothing is left in the bucket.
	TagBucketClean uint32 = 10004
	// TagController is in the answer of a broker that is not the controller to a request for it: where the controller is.
	TagController uint32 = 10005
	// TagMetadataIndex is in an Envelope answer: the index of the controller's image with the request's changes in it.
	TagMetadataIndex uint32 = 10006
	// TagRegistration is in a BrokerRegistration request: what Kafka's fields do not say.
	TagRegistration uint32 = 10007
	// TagReplaces is in a BrokerRegistration request: the epoch of the registration to be replaced.
	TagReplaces uint32 = 10008
	// TagLossy is in a partition of an AlterPartition request: replicas that lack what they had acknowledged.
	TagLossy uint32 = 10009
	// TagDamaged is in a partition of a Fetch request: the first offset that the follower has only damaged.
	TagDamaged uint32 = 10010
	// TagRefused is in a partition of a Fetch request: the offset from which on the follower got damaged records.
	TagRefused uint32 = 10011
	// TagMissing is in a partition of a Fetch request: whoever asks lacks what lies between the fetch offset and this one.
	TagMissing uint32 = 10012
	// TagAbsent is in a partition of a Fetch answer: whoever answers has not got all of what is missing there either.
	TagAbsent uint32 = 10013
)

// SetInt64 sets a tag of one number.
func SetInt64(tags *kmsg.Tags, tag uint32, v int64) {
	tags.Set(tag, binary.BigEndian.AppendUint64(nil, uint64(v)))
}

// Int64 reads a tag of one number; ok is false when it is not there or of another length.
func Int64(tags *kmsg.Tags, tag uint32) (v int64, ok bool) {
	b, ok := Raw(tags, tag)
	if !ok || len(b) != 8 {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(b)), true
}

// AppendInt64 appends a tag of one number to a hand-written struct: tag, size, value.
func AppendInt64(dst []byte, tag uint32, v int64) []byte {
	dst = binary.AppendUvarint(dst, uint64(tag))
	dst = append(dst, 8)
	return binary.BigEndian.AppendUint64(dst, uint64(v))
}

// SetInt32s sets a tag that is a run of numbers of four bytes.
func SetInt32s(tags *kmsg.Tags, tag uint32, list []int32) {
	b := make([]byte, 0, 4*len(list))
	for _, v := range list {
		b = binary.BigEndian.AppendUint32(b, uint32(v))
	}
	tags.Set(tag, b)
}

// Int32s reads a tag that is a run of numbers of four bytes; nil when it is not there or torn.
func Int32s(tags *kmsg.Tags, tag uint32) []int32 {
	b, ok := Raw(tags, tag)
	if !ok || len(b)%4 != 0 {
		return nil
	}
	list := make([]int32, len(b)/4)
	for i := range list {
		list[i] = int32(binary.BigEndian.Uint32(b[4*i:]))
	}
	return list
}

// SetIDs sets a tag that is a run of 16-byte ids.
func SetIDs[ID ~[16]byte](tags *kmsg.Tags, tag uint32, ids []ID) {
	b := make([]byte, 0, 16*len(ids))
	for _, id := range ids {
		b = append(b, id[:]...)
	}
	tags.Set(tag, b)
}

// IDs reads a tag that is a run of 16-byte ids; nil when it is not there or torn.
func IDs(tags *kmsg.Tags, tag uint32) [][16]byte {
	b, ok := Raw(tags, tag)
	if !ok || len(b)%16 != 0 {
		return nil
	}
	ids := make([][16]byte, len(b)/16)
	for i := range ids {
		copy(ids[i][:], b[16*i:])
	}
	return ids
}

// Broker is a broker's id and address.
type Broker struct {
	ID   int32
	Host string
	Port int32
}

// Address is where the broker listens.
func (b Broker) Address() string { return Address(b.Host, b.Port) }

// SetController sets TagController.
func SetController(tags *kmsg.Tags, b Broker) {
	v := binary.BigEndian.AppendUint32(nil, uint32(b.ID))
	v = binary.BigEndian.AppendUint32(v, uint32(b.Port))
	tags.Set(TagController, append(v, b.Host...))
}

// Controller reads TagController.
func Controller(tags *kmsg.Tags) (b Broker, ok bool) {
	v, ok := Raw(tags, TagController)
	if !ok || len(v) < 9 {
		return Broker{}, false
	}
	return Broker{
		ID: int32(binary.BigEndian.Uint32(v)), Port: int32(binary.BigEndian.Uint32(v[4:])), Host: string(v[8:]),
	}, true
}

// Bits of TagRegistration. Format: do not renumber.
const (
	RegistrationServes         uint8 = 1 << 0 // the broker is to be unfenced at once
	RegistrationMayLackRecords uint8 = 1 << 1 // it stopped without syncing what it had acknowledged
	RegistrationWantsVote      uint8 = 1 << 2 // it may become a voter by itself (KIP-853)
)

// Raw reads a tag's bytes.
func Raw(tags *kmsg.Tags, tag uint32) (value []byte, ok bool) {
	if tags.Len() == 0 {
		return nil, false
	}
	tags.Each(func(t uint32, b []byte) {
		if t == tag {
			value, ok = b, true
		}
	})
	return value, ok
}
