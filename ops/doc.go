// Package ops is what operators see of a node: metrics for Prometheus, health
// for an orchestrator, a console page for people, JSON for the command line,
// and Go's profiles.
//
//	/              the console: topics, partitions, hot and cold bytes, offload lag
//	/metrics       Prometheus text; Kafka's names, in the form its exporters give them, where Kafka has the metric
//	/healthz       200 while the process is alive and no room has failed
//	/readyz        200 once every partition this node leads is served
//	               (both add a line "degraded: …" for an unreachable bucket or a full disk: no restart mends those)
//	/admin/v1/…    what `varve segments` reads
//	/debug/pprof/  profiles
//
// The handlers only read. They take no lock for longer than a snapshot, so a
// scrape never holds up a producer. Nothing here is authenticated: bind it to
// an address that only operators reach.
package ops
