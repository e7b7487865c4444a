package ops

import "github.com/prometheus/client_golang/prometheus"

// Share groups, under the names of Kafka's ShareSessionCache, SharePartitionMetrics and ShareGroupMetrics. Kafka's are by group,
// topic and partition; these are sums over the broker, since groups come and go.
var (
	shareSessions      = gauge("kafka_server_sharesessioncache_sharesessionscount", "Sessions of share consumers.")
	shareSessionParts  = gauge("kafka_server_sharesessioncache_sharepartitionscount", "Partitions that the sessions of share consumers name.")
	shareEvictions     = counter("kafka_server_sharesessioncache_sharesessionevictions_total", "Share sessions that ended with their connections.")
	shareParts         = gauge("varve_share_partitions", "Share-partitions in memory.")
	shareInFlight      = gauge("kafka_server_sharepartitionmetrics_inflightmessagecount", "Records from share-partitions' starts on that were delivered, or could be again, and are not done.")
	shareRuns          = gauge("kafka_server_sharepartitionmetrics_inflightbatchcount", "Stretches of records in one state that share-partitions consist of.")
	shareExpired       = counter("kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total", "Records whose acquisition locks have run out.")
	shareAcks          = counter("kafka_server_sharegroupmetrics_recordacknowledgements_total", "Acknowledgements by type; one may be for many records.", "ackType")
	shareLoads         = counter("varve_share_partitionloads_total", "Share-partitions loaded from the share coordinator.")
	shareLoadSeconds   = counter("kafka_server_sharegroupmetrics_partitionloadtime_seconds_total", "Time spent loading them.")
	shareFetched       = counter("varve_share_fetchedpartitions_total", "Partitions that share fetches asked for.")
	shareAcquired      = counter("varve_share_acquiredpartitions_total", "Of those, the ones of which they got records.")
	shareAnswerBytes   = gauge("varve_share_answerbytes", "Bytes of records on their way to share consumers.")
	shareLetterRecords = counter("kafka_server_sharegroupmetrics_deadletterqueuerecordcount_total", "Dead letters produced.")
	shareLetters       = counter("kafka_server_sharegroupmetrics_deadletterqueuetotalproducerequests_total", "Batches of dead letters sent.")
	shareLettersFailed = counter("kafka_server_sharegroupmetrics_deadletterqueuefailedproducerequests_total", "Runs of dead letters that could not be produced; they are tried again where that may help.")
)

func (r *rooms) shares(ch chan<- prometheus.Metric) {
	s := r.deps.Broker.Stats().Shares
	shareSessions.send(ch, float64(s.Sessions))
	shareSessionParts.send(ch, float64(s.SessionParts))
	shareEvictions.send(ch, float64(s.Evicted))
	shareParts.send(ch, float64(s.Parts))
	shareInFlight.send(ch, float64(s.InFlight))
	shareRuns.send(ch, float64(s.Runs))
	shareExpired.send(ch, float64(s.Expired))
	shareAcks.send(ch, float64(s.Accepted), "Accept")
	shareAcks.send(ch, float64(s.Released), "Release")
	shareAcks.send(ch, float64(s.Rejected), "Reject")
	shareAcks.send(ch, float64(s.Renewed), "Renew")
	shareLoads.send(ch, float64(s.Loads))
	shareLoadSeconds.send(ch, float64(s.LoadNanos)/1e9)
	shareFetched.send(ch, float64(s.Fetched))
	shareAcquired.send(ch, float64(s.FetchedAcquired))
	shareAnswerBytes.send(ch, float64(s.AnswerBytes))
	shareLetterRecords.send(ch, float64(s.DeadLetterRecords))
	shareLetters.send(ch, float64(s.DeadLetterRequests))
	shareLettersFailed.send(ch, float64(s.DeadLettersFailed))
}
