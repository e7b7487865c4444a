package broker

import (
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
	c.RemoteFetchWaitMax = millis(int64(b.RemoteFetchMaxWaitMillis))
	c.RemoteListWaitMax = millis(b.RemoteListOffsetsTimeoutMillis)
	c.PartitionsRequestMax = int(b.MaxRequestPartitionSize)
	c.AutoCreateTopics = b.AutoCreateTopicsEnable
	if len(b.LogDirs) > 0 {
		c.LogDir = b.LogDirs[0]
	}
	return c
}

// millis is a duration; Kafka's largest numbers are beyond what a Duration holds.
func millis(n int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(n, most)) * time.Millisecond
}
