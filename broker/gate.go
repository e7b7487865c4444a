package broker

import "time"

// beforeOpen reports whether a key is served before clients are: what other brokers ask, and what every connection begins with.
// Replicas fetch with the clients' key.
func (a *api) beforeOpen() bool {
	switch a.key {
	case keyApiVersions, apiFetch.key, apiOffsetForLeaderEpoch.key, apiAddPartitionsToTxn.key, apiWriteTxnMarkers.key:
		return true
	}
	return a.internal
}

// admitted holds a client's request until clients are served. It is the connection's reading goroutine that waits, so there is
// one request of each at most.
func (c *conn) admitted(a *api) error {
	open := c.srv.deps.Open
	if open == nil || a.beforeOpen() {
		return nil
	}
	select {
	case <-open:
		return nil
	default:
	}
	defer c.req.parks(time.Now())
	select {
	case <-open:
		return nil
	case <-c.srv.draining:
		return errClosed
	case <-c.ctx.Done():
		return errClosed
	}
}
