// Package parity holds Varve's answers against Apache Kafka's own.
//
// A story is a short run of raw requests, good ones and odd ones, sent to one
// broker. Each answer is written down as text, with everything that must
// differ between two clusters (ids, clocks, addresses) replaced by a name. The
// same stories run against a fresh Apache Kafka 4.4.0 and a fresh Varve, and
// the two transcripts must be equal, line by line; some stories have a restart
// of the broker in their middle. Where Varve means to differ, differences.txt
// says so, with the reason; an entry there that no longer applies is an error
// too. Varve's own settings, varve.*, are left out of every list.
//
// Stories of tiered topics run against a Kafka that tiers to a folder
// (kafkatest.StartTiered); the others against one without remote storage, which
// is its default, and a Varve without a bucket.
//
// VARVE_PARITY_SELF=1 holds Kafka against a second Kafka instead: nothing may
// differ, and differences.txt does not count. It shows whether a new story is
// fit to compare anything.
//
// The tests need a JDK and Kafka's jars: `integration/clients/setup.sh DIR`
// fetches them, and VARVE_CLIENTS=DIR switches the tests on.
package parity
