package broker

import (
	"slices"
	"strconv"
	"time"

	"github.com/varvelog/varve/meta/conf"
)

// ConfigFrom takes the front door's limits from the broker settings.
func ConfigFrom(b *conf.Broker) Config {
	c := DefaultConfig()
	c.NodeID = b.NodeID
	c.RequestBytesMax = int(b.SocketRequestMaxBytes)
	c.RequestMemoryBytes = b.VarveRequestMemoryBytes
	if n := b.QueuedMaxRequestBytes; n > 0 {
		c.RequestMemoryBytes = min(n, c.RequestMemoryBytes)
	}
	c.SendBufferBytes = socketBuffer(b, "socket.send.buffer.bytes")
	c.ReceiveBufferBytes = socketBuffer(b, "socket.receive.buffer.bytes")
	c.NoConsumerGroups = !slices.Contains(b.GroupRebalanceProtocols, "consumer")
	c.NoStreamsGroups = !slices.Contains(b.GroupRebalanceProtocols, "streams")
	c.ConnectionsMax = int(b.MaxConnections)
	c.ConnectionsPerIPMax = int(b.MaxConnectionsPerIP)
	c.ConnectionRateMax = int(b.MaxConnectionCreationRate)
	c.ConnectionsPerIP = make(map[string]int, len(b.MaxConnectionsPerIPByHost))
	for host, n := range b.MaxConnectionsPerIPByHost {
		c.ConnectionsPerIP[host] = int(n)
	}
	c.IdleMax = millis(b.ConnectionsMaxIdleMillis)
	c.FetchBytesMax = int(b.FetchMaxBytes)
	c.FetchSessionSlots = int(b.FetchSessionCacheSlots)
	if text, _, _, ok := b.Value("group.share.max.share.sessions"); ok {
		c.ShareSessionSlots, _ = strconv.Atoi(text)
	}
	c.QuotaSamples = whole(b, "quota.window.num")
	c.QuotaSampleTime = time.Duration(whole(b, "quota.window.size.seconds")) * time.Second
	c.MutationQuotaBurst = time.Duration(whole(b, "controller.quota.window.num")) * time.Duration(whole(b, "controller.quota.window.size.seconds")) * time.Second
	c.RemoteFetchWaitMax = millis(int64(b.RemoteFetchMaxWaitMillis))
	c.RemoteListWaitMax = millis(b.RemoteListOffsetsTimeoutMillis)
	c.PartitionsRequestMax = int(b.MaxRequestPartitionSize)
	c.AutoCreateTopics = b.AutoCreateTopicsEnable
	if len(b.LogDirs) > 0 {
		c.LogDir = b.LogDirs[0]
	}
	return c
}

// socketBuffer is the size that was set. Kafka's default is one for short ways: it would take away the system's own way to let
// a buffer grow with the way's length, so it does not count unless it was given.
func socketBuffer(b *conf.Broker, name string) int {
	text, _, given, _ := b.Value(name)
	n, err := strconv.Atoi(text)
	if err != nil || !given {
		return 0
	}
	return max(0, n)
}

// whole reads a setting that is a whole number.
func whole(b *conf.Broker, name string) int {
	text, _, _, _ := b.Value(name)
	n, _ := strconv.Atoi(text) // it was checked when it was read
	return n
}

// millis is a duration; Kafka's largest numbers are beyond what a Duration holds.
func millis(n int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(n, most)) * time.Millisecond
}
