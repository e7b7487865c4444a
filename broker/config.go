package broker

import (
	"errors"
	"fmt"
	"time"
)

// Config holds the limits and the identity of the front door. Names in comments are Kafka's settings.
type Config struct {
	NodeID int32 // node.id

	RequestBytesMax        int   // socket.request.max.bytes
	RequestBytesMaxUnknown int   // cap on a request of a connection that has yet to authenticate
	Authenticate           bool  // the listener needs authentication: the small cap holds until it is done
	RequestMemoryBytes     int64 // varve.request.memory.bytes, queued.max.request.bytes: bytes of requests held at once, over all connections

	ConnectionsMax      int            // max.connections
	ConnectionsPerIPMax int            // max.connections.per.ip
	ConnectionsPerIP    map[string]int // max.connections.per.ip.overrides
	ConnectionRateMax   int            // max.connection.creation.rate, connections per second

	SendBufferBytes    int // socket.send.buffer.bytes; 0: the system's
	ReceiveBufferBytes int // socket.receive.buffer.bytes; 0: the system's

	IdleMax      time.Duration // connections.max.idle.ms
	HandshakeMax time.Duration // a TLS handshake must be done within this time
	FrameMax     time.Duration // each part of a frame that began (4 KiB, 64 KiB, 2 MiB, …) must come within this time
	WriteMax     time.Duration // an answer must be taken by the client within this time
	InFlightMax  int           // requests of one connection whose answers are outstanding
	RequestsTime time.Duration // request.timeout.ms: bound on calls into the metadata quorum

	QuotaSamples       int           // quota.window.num
	QuotaSampleTime    time.Duration // quota.window.size.seconds
	MutationQuotaBurst time.Duration // controller.quota.window.num times controller.quota.window.size.seconds

	FetchBytesMax        int           // fetch.max.bytes
	FetchSessionSlots    int           // max.incremental.fetch.session.cache.slots
	FetchSessionEvict    time.Duration // a session unused for this long may be evicted
	ShareSessionSlots    int           // group.share.max.share.sessions
	RemoteFetchWaitMax   time.Duration // remote.fetch.max.wait.ms
	RemoteListWaitMax    time.Duration // remote.list.offsets.request.timeout.ms
	PartitionsRequestMax int           // max.request.partition.size.limit

	NoConsumerGroups bool // group.coordinator.rebalance.protocols leaves consumer out
	NoStreamsGroups  bool // and streams

	AutoCreateTopics bool   // auto.create.topics.enable
	LogDir           string // log.dir, as DescribeLogDirs names it
}

// DefaultConfig returns Kafka's defaults, and Varve's where Kafka has no such limit.
func DefaultConfig() Config {
	return Config{
		NodeID:                 1,
		RequestBytesMax:        100 << 20,
		RequestBytesMaxUnknown: 64 << 10,
		RequestMemoryBytes:     256 << 20,
		ConnectionsMax:         1<<31 - 1,
		ConnectionsPerIPMax:    1<<31 - 1,
		ConnectionRateMax:      1<<31 - 1,
		IdleMax:                10 * time.Minute,
		HandshakeMax:           10 * time.Second,
		FrameMax:               30 * time.Second,
		WriteMax:               60 * time.Second,
		InFlightMax:            64,
		RequestsTime:           30 * time.Second,
		QuotaSamples:           11,
		QuotaSampleTime:        time.Second,
		MutationQuotaBurst:     11 * time.Second,
		FetchBytesMax:          55 << 20,
		FetchSessionSlots:      1000,
		FetchSessionEvict:      120 * time.Second,
		ShareSessionSlots:      2000,
		RemoteFetchWaitMax:     500 * time.Millisecond,
		RemoteListWaitMax:      30 * time.Second,
		PartitionsRequestMax:   2000,
	}
}

// Validate reports the first setting that makes no sense.
func (c *Config) Validate() error {
	switch {
	case c.RequestBytesMax < 1:
		return errors.New("socket.request.max.bytes must be at least 1")
	case c.RequestMemoryBytes < 1<<20:
		return errors.New("varve.request.memory.bytes must be at least 1 MiB")
	case c.InFlightMax < 1:
		return errors.New("the cap on requests in flight must be at least 1")
	case c.ConnectionsMax < 1, c.ConnectionsPerIPMax < 0, c.ConnectionRateMax < 1:
		return errors.New("max.connections and max.connection.creation.rate must be at least 1, max.connections.per.ip at least 0")
	case c.FetchBytesMax < 1024:
		return errors.New("fetch.max.bytes must be at least 1024")
	case c.IdleMax == 0, c.HandshakeMax <= 0, c.FrameMax <= 0, c.WriteMax <= 0:
		return errors.New("connection deadlines must be positive")
	case c.FetchSessionSlots < 0:
		return fmt.Errorf("max.incremental.fetch.session.cache.slots is %d; it must not be negative", c.FetchSessionSlots)
	}
	return nil
}
