package broker

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Before a node of a cluster knows anything it serves other brokers, and lets
// clients wait.
func TestClientsWaitUntilTheyAreLetIn(t *testing.T) {
	s := startCluster(t, nil, nil)
	open := make(chan struct{})
	s.deps.Open = open
	early := dial(t, s.addr)
	if resp := early.ask(kmsg.NewPtrApiVersionsRequest()).(*kmsg.ApiVersionsResponse); resp.ErrorCode != 0 {
		t.Errorf("versions: %d", resp.ErrorCode)
	}
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version, fetch.ReplicaState.ID = 17, 2
	dial(t, s.addr).ask(fetch)

	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	id := early.send(req)
	early.nc.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := early.nc.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Fatal("a client is answered before it is let in")
	}
	close(open)
	if resp := early.response(req, id).(*kmsg.MetadataResponse); len(resp.Brokers) != 1 {
		t.Errorf("brokers: %+v", resp.Brokers)
	}
}

func TestClosingLetsGoOfThoseWhoWait(t *testing.T) {
	s := startCluster(t, nil, nil)
	s.deps.Open = make(chan struct{})
	c := dial(t, s.addr)
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	c.send(req)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	c.closed()
}
