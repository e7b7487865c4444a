// Package peer is the client side of brokers speaking Kafka's protocol to each other.
//
// # What it is
//
// A Conn is one connection with any number of requests under way, answered in the order in which they were sent. A Pool
// keeps connections by address and lane. A Frame holds the bytes of one answer, so that records of a Fetch answer are
// written to the log from where the socket put them. FORMAT.md has what travels between brokers beyond Kafka's schema.
//
// # How to use it
//
//	pool := peer.NewPool(peer.Config{ClientID: "broker-1"})
//	resp, err := pool.Do(ctx, "host:9092", peer.LaneControl, req)
//
//	conn, err := pool.Conn(ctx, "host:9092", peer.LaneFetch)
//	frame, err := conn.DoInto(ctx, req, resp) // resp points into the frame
//	…
//	frame.Release()
//
// A broker answers the requests of one connection in their order: what waits (a Fetch, a CreateTopics) has a lane of its
// own, so that nothing else waits behind it.
//
// # Lock order
//
// Pool.mu, Conn.mu and frames.mu are leaves. The right to write to a socket is a token in a channel, so that a caller can
// give up waiting for it.
//
// # Crash behaviour
//
// An error that is ErrNotSent says that the peer has not seen the request. After any other the outcome is unknown: the
// request may have been carried out, or may yet be.
//
// # Non-obvious
//
//   - A deadline that passes while an answer is awaited closes the connection, as Kafka's client does: a peer that does
//     not answer one request in time will not answer those behind it either. A cancelled call only loses its answer.
//   - Versions: a request goes out in the version its caller chose, or in the highest the peer knows if that is lower.
//     What a peer serves is asked when the connection opens.
package peer
