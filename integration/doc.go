// Package integration holds the end-to-end tests: real processes of the varve
// binary, real Kafka clients, a real S3 server, and faults. Nothing imports it.
//
// Every test here builds the binary once and starts it with its own directory
// on ports that the kernel chooses, so tests never meet each other or a broker
// of the developer's. Tests that need more than Go are switched on by
// variables, which `.ci/run` sets (see README.md): a variable that is set makes
// a missing tool a failure, never a skip.
package integration
