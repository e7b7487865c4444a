// Package broker is the Kafka front door: connections, framing, API versions, one file per API key, fetch sessions, and
// the only mapping from errors to Kafka's error codes.
//
// # What it is
//
// A Server accepts connections and answers requests by asking the partitions (replica), the metadata image (meta) and the
// coordinators. It holds no data of its own besides fetch sessions. The directory listing is the protocol coverage: the
// handler of key N lives in NN_name.go, headed by the versions it serves, and table.go lists them. To add a key, write its
// file with an `api` value and name it in table.go; ApiVersions advertises what the table holds and nothing else.
//
// # How to use it
//
//	s := broker.New(cfg, broker.Deps{…})
//	go s.Serve(listener, broker.Door{})
//	…
//	s.Close(ctx)
//
// # A request's way
//
// One goroutine reads a connection. A request that comes whole with one read is handled where it was read; a larger one
// gets size-classed buffers as its bytes arrive, paid for from a budget shared by all connections: when that is spent,
// readers wait and TCP pushes back. An idle connection holds no buffer, but for what TLS keeps and 4 KiB beside. The handler runs on that goroutine, so requests of one connection are processed in order, as in Kafka.
// Only a Produce that waits for its commit is finished by another goroutine. Answers leave in request order through the
// connection's ring: whoever completes the oldest answer writes it and every finished one behind it. A callback from the
// log never writes to a socket itself.
//
// Record bytes of a Produce stay a slice of the frame buffer until the log has written them. Record bytes of a Fetch never
// enter this package: an answer is a run of header bytes with spans that write themselves to the socket.
//
// # Quotas
//
// What a request costs its client's quotas is counted on the connection's goroutine before the answer is written, and who is
// beyond one has the rest of it waited out there, before the next read (throttle.go). The quotas are those of the metadata, as a
// table that is replaced (quotas.go); without any, a request costs an atomic load more.
//
// # Lock order
//
// session.mu → sessions.mu; quotas.mu → account.mu; conn.mu, budget.mu, produceOp.mu and the limit's of log lines are leaves. No lock is held across I/O or a call into another room, but for cork.mu, which is the
// right to write to the socket under TLS.
//
// # Crash behaviour
//
// Nothing here survives a restart; clients rebuild fetch sessions by themselves. A panic in a handler closes its
// connection and is logged with its stack, except while an append is under way: a log in an unknown state must not go on.
//
// # Non-obvious
//
//   - Slices in a decoded request point into the frame buffer, which goes back to the pool when the handler returns. A
//     handler that keeps any of them sets api.keeps.
//   - Deadlines (idle, frame, write, commit) are kept by one sweeper that reads plain timestamps, so the per-request path
//     sets no timers. Their precision is the sweep period.
//   - The header of an ApiVersions answer is always v0, at every version (KIP-511).
//   - Produce is advertised from version 0 although it is served from 3: librdkafka takes the minimum for a feature test
//     (KAFKA-18659).
package broker
