package ops

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvelog/varve/broker"
	"github.com/varvelog/varve/replica"
	"github.com/varvelog/varve/tier/objstore"
)

// rooms collects every room's figures at a scrape. Nothing is kept between
// scrapes, so figures of a deleted topic are gone with it.
//
// Names follow Kafka's MBeans as its Prometheus exporters write them
// (kafka.server:type=BrokerTopicMetrics,name=RemoteCopyBytesPerSec becomes
// kafka_server_brokertopicmetrics_remotecopybytes_total). What Kafka has no
// metric for starts with varve_.
type rooms struct{ deps Deps }

func newRooms(deps Deps) prometheus.Collector { return &rooms{deps} }

// metric describes one metric; what it is worth is found at the scrape.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func gauge(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

func counter(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

func (m metric) send(ch chan<- prometheus.Metric, value float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
}

var (
	activeControllers = gauge("kafka_controller_kafkacontroller_activecontrollercount", "1 on the node that is the active controller.")
	topicCount        = gauge("kafka_controller_kafkacontroller_globaltopiccount", "Topics in the cluster.")
	partitionTotal    = gauge("kafka_controller_kafkacontroller_globalpartitioncount", "Partitions in the cluster.")
	activeBrokers     = gauge("kafka_controller_kafkacontroller_activebrokercount", "Brokers that are not fenced, as this node knows.")
	fencedBrokers     = gauge("kafka_controller_kafkacontroller_fencedbrokercount", "Brokers that are fenced, as this node knows.")
	offlinePartitions = gauge("kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions without a leader.")
	imbalanced        = gauge("kafka_controller_kafkacontroller_preferredreplicaimbalancecount", "Partitions led by another than their preferred leader.")
	reassigning       = gauge("varve_controller_reassigningpartitions", "Partitions whose replicas are being changed.")
	elections         = counter("kafka_controller_controllerstats_leaderelections_total", "Elections that this node has decided on since it started.")
	uncleanElections  = counter("kafka_controller_controllerstats_uncleanleaderelections_total", "Elections that may have lost acknowledged records, of those that this node has decided on since it started.")
	partitionCount    = gauge("kafka_server_replicamanager_partitioncount", "Partitions this node holds.")
	underReplicated   = gauge("kafka_server_replicamanager_underreplicatedpartitions", "Partitions this node leads whose in-sync set lacks a replica.")
	underMin          = gauge("kafka_server_replicamanager_underminisrpartitioncount", "Partitions this node leads with fewer in-sync replicas than min.insync.replicas: acks=all is refused.")
	atMin             = gauge("kafka_server_replicamanager_atminisrpartitioncount", "Partitions this node leads with no more in-sync replicas than min.insync.replicas.")
	isrShrinks        = counter("kafka_server_replicamanager_isrshrinks_total", "In-sync sets of partitions led here that lost a member.")
	isrExpands        = counter("kafka_server_replicamanager_isrexpands_total", "In-sync sets of partitions led here that won a member.")
	leaderCount       = gauge("kafka_server_replicamanager_leadercount", "Partitions this node leads and serves.")
	offlineReplicas   = gauge("kafka_server_replicamanager_offlinereplicacount", "Partitions this node holds but cannot serve.")

	logSize     = gauge("kafka_log_log_size", "Bytes of a partition on local disk.", "topic", "partition")
	logStart    = gauge("kafka_log_log_logstartoffset", "First offset of a partition, in either tier.", "topic", "partition")
	logEnd      = gauge("kafka_log_log_logendoffset", "Offset after the last record of a partition.", "topic", "partition")
	highWater   = gauge("kafka_cluster_partition_highwatermark", "Offset after the last committed record of a partition.", "topic", "partition")
	localStart  = gauge("varve_log_localstartoffset", "First offset of a partition on local disk.", "topic", "partition")
	remoteEnd   = gauge("varve_log_remoteendoffset", "First offset of a partition that is not in the bucket; absent when nothing is.", "topic", "partition")
	remoteSize  = gauge("kafka_server_brokertopicmetrics_remotelogsizebytes", "Bytes of a topic in the bucket, as log bytes.", "topic")
	remoteStore = gauge("varve_tier_storedbytes", "Bytes of a topic in the bucket, as stored.", "topic")
	remoteCount = gauge("kafka_server_brokertopicmetrics_remotelogmetadatacount", "Segments of a topic in the bucket.", "topic")

	copyRequests   = counter("kafka_server_brokertopicmetrics_remotecopyrequests_total", "Segment uploads begun.", "topic")
	copyErrors     = counter("kafka_server_brokertopicmetrics_remotecopyerrors_total", "Segment uploads failed.", "topic")
	copyBytes      = counter("kafka_server_brokertopicmetrics_remotecopybytes_total", "Bytes uploaded, as stored.", "topic")
	deleteRequests = counter("kafka_server_brokertopicmetrics_remotedeleterequests_total", "Object deletions begun.", "topic")
	deleteErrors   = counter("kafka_server_brokertopicmetrics_remotedeleteerrors_total", "Object deletions failed.", "topic")
	orphans        = counter("varve_tier_orphans_total", "Unreferenced objects removed.", "topic")
	scrubReads     = counter("varve_tier_scrubrequests_total", "Requests that read objects to compare their checksums.", "topic")
	scrubRead      = counter("varve_tier_scrubbytes_total", "Bytes of objects that were read to compare their checksums, as stored.", "topic")
	archivePasses  = counter("varve_tier_scrubpasses_total", "Partitions of which every object was read to compare its checksum.", "topic")
	foundDamaged   = counter("varve_tier_damagedfound_total", "Objects that were found missing or other than they were put; the log names each.", "topic")
	mended         = counter("varve_tier_mended_total", "Missing or damaged objects that were put anew from local disk.", "topic")
	damagedObjects = gauge("varve_tier_damagedobjects", "Objects of a topic that are known to be missing or damaged. Up to 1,024 of a partition are named: by the log, and by varve segments where they hold records.", "topic")
	copyLagBytes   = gauge("kafka_server_brokertopicmetrics_remotecopylagbytes", "Local bytes of a topic that are not in the bucket.", "topic")
	copyLagSegs    = gauge("kafka_server_brokertopicmetrics_remotecopylagsegments", "Sealed segments of a topic that are not in the bucket.", "topic")
	atRisk         = gauge("varve_tier_atriskseconds", "How long the oldest record that is only on local disk has waited, by topic.", "topic")
	deleteLag      = gauge("kafka_server_brokertopicmetrics_remotedeletelagsegments", "Objects of a topic that are marked and wait for their deletion.", "topic")
	stuck          = gauge("varve_tier_stuckpartitions", "Partitions with work for the bucket that make no progress.")
	removals       = gauge("varve_tier_removals", "Deleted partitions that this node has yet to remove from the bucket.")
	removalsStop   = gauge("varve_tier_blockedremovals", "Of those, the ones whose manifest cannot be read: the log says what to do.")

	storeRequests = counter("varve_store_requests_total", "Requests to the bucket as they are billed.", "op")
	storeFailures = counter("varve_store_failures_total", "Requests to the bucket that failed.", "op")
	storeBytes    = counter("varve_store_bytes_total", "Body bytes to and from the bucket.", "op")

	fetchRequests = counter("kafka_server_brokertopicmetrics_remotefetchrequests_total", "Reads of the archive.")
	fetchErrors   = counter("kafka_server_brokertopicmetrics_remotefetcherrors_total", "Reads of the archive that failed.")
	fetchBytes    = counter("kafka_server_brokertopicmetrics_remotefetchbytes_total", "Bytes read from the archive, as log bytes.")
	lookups       = counter("varve_tier_lookups_total", "Time lookups in the archive.")
	lookupErrors  = counter("varve_tier_lookuperrors_total", "Time lookups in the archive that failed.")
	chunkHits     = counter("varve_tier_chunkhits_total", "Chunks that a read found in memory.")
	chunkWaits    = counter("varve_tier_chunkwaits_total", "Chunks that a read waited for.")
	chunkFetches  = counter("varve_tier_chunkfetches_total", "Requests for ranges of chunks.")
	aheadFetches  = counter("varve_tier_aheadfetches_total", "Of those, the ones that were ahead of every reader.")
	indexFetches  = counter("varve_tier_indexfetches_total", "Requests for indexes of objects.")
	damaged       = counter("varve_tier_damaged_total", "Chunks and indexes that failed a check; each is to be looked into.")
	cacheBytes    = gauge("varve_tier_cachebytes", "Bytes in the archive's memory.", "cache")
	cacheLimit    = gauge("varve_tier_cachelimitbytes", "Bound of the chunk cache.")

	requests    = counter("kafka_network_requestmetrics_requests_total", "Requests by API.", "request")
	connections = gauge("kafka_server_socketservermetrics_connection_count", "Open client connections.")
	refused     = counter("varve_connections_refused_total", "Connections turned away by a cap.")
	expired     = counter("varve_connections_expired_total", "Connections closed by a deadline.")
	throttled   = counter("varve_quota_throttled_total", "Requests, and connections, that a client's quota has held back, by what it is on.", "quota")
	throttleSum = counter("varve_quota_throttle_seconds_total", "For how long clients were told to wait by their quotas.", "quota")
	handshakes  = counter("varve_tls_handshakes_failed_total", "TLS connections that came to nothing.")
	certificate = gauge("varve_tls_certificate_expiry_timestamp_seconds", "When the certificate of a listener expires, in seconds since 1970.", "listener")
	openDoor    = gauge("varve_listener_open_to_brokers", "1 while a listener answers what brokers ask of each other to anybody, without a certificate; 0 otherwise.", "listener")
	panics      = counter("varve_handler_panics_total", "Requests whose handler failed badly; each is a defect.")
	messagesIn  = counter("kafka_server_brokertopicmetrics_messagesin_total", "Records appended for clients.")
	produced    = counter("kafka_server_brokertopicmetrics_totalproducerequests_total", "Partitions that produce requests named.")
	produceBad  = counter("kafka_server_brokertopicmetrics_failedproducerequests_total", "Of those, the ones that were refused.")
	fetched     = counter("kafka_server_brokertopicmetrics_totalfetchrequests_total", "Partitions that clients' fetch requests asked for, those of their sessions included.")
	fetchBad    = counter("kafka_server_brokertopicmetrics_failedfetchrequests_total", "Partitions that clients' fetches were refused.")
	totalTime   = prometheus.NewDesc("kafka_network_requestmetrics_totaltime_seconds", "How long requests took, from when they had been read until their answers were written; waiting for records, replicas and members included (Kafka's TotalTimeMs).", []string{"request"}, nil)
	bytesIn     = counter("kafka_server_brokertopicmetrics_bytesin_total", "Bytes received from clients.")
	bytesOut    = counter("kafka_server_brokertopicmetrics_bytesout_total", "Bytes sent to clients.")
	heldBytes   = gauge("varve_request_heldbytes", "Bytes of requests held now.")
	sessions    = gauge("kafka_server_fetchsessioncache_numincrementalfetchsessions", "Fetch sessions held.")

	appends     = counter("varve_log_appends_total", "Appends written.")
	appendBytes = counter("varve_log_appendbytes_total", "Bytes appended.")
	syncs       = counter("varve_log_syncs_total", "Rounds of group commit.")
	syncSeconds = counter("varve_log_syncseconds_total", "Time spent in them.")
	sharedRound = counter("varve_log_shared_rounds_total", "Rounds of group commit by the shared log.")
	sharedBytes = counter("varve_log_shared_bytes_total", "Bytes written to the shared log.")
	sharedNew   = counter("varve_log_shared_renewed_total", "Times that the shared log was full, or nearly, and begun anew.")
	compactOver = counter("varve_log_compactionoverbuffer_total", "Compactions for which one large batch had more keys than the dedupe buffer has room for: they took more memory.")
	offlineLogs = counter("varve_log_offline_total", "Logs that went offline after an I/O error.")
	quarantined = counter("varve_log_quarantined_total", "Segments found damaged: a disk lost bits.")
	damagedNow  = gauge("varve_log_damagedpartitions", "Partitions that this node holds with damaged records, not mended yet.")
	lostNow     = gauge("varve_log_lostpartitions", "Of those, the ones led here of which every other replica and the bucket have said that they have not got the records.")
	heldNow     = gauge("varve_log_producersheldpartitions", "Of those, the ones led here that take no batch of an idempotent producer before everybody has answered who may have the records.")
	mendWaits   = gauge("varve_log_mendwaitpartitions", "Of those, the ones that wait for an answer of somebody who may have the records: a broker, the bucket, or this node's own disk. One that waits for several is counted for each.", "source")
	mendWaitFor = gauge("varve_log_mendwaitseconds", "How long the longest of those waits has lasted.", "source")
	scrubBytes  = counter("varve_log_scrub_bytes_total", "Bytes of sealed segments that were checked for damage in the background.")
	scrubPasses = counter("varve_log_scrub_passes_total", "Times that all sealed segments were checked in the background.")
	repaired    = counter("varve_log_repaired_total", "Damaged ranges of records that were replaced from another copy.")
	diskFree    = gauge("varve_disk_freebytes", "Free bytes of the data directory's file system.")
	diskTotal   = gauge("varve_disk_totalbytes", "Size of the data directory's file system.")
	diskFull    = gauge("varve_disk_full", "1 while appends are refused because the disk is nearly full.")
)

// Describe sends nothing: the collector is unchecked, since its labels are
// whatever topics there are.
func (r *rooms) Describe(chan<- *prometheus.Desc) {}

// Collect is one scrape.
func (r *rooms) Collect(ch chan<- prometheus.Metric) {
	r.cluster(ch)
	r.partitions(ch)
	r.tiering(ch)
	r.frontDoor(ch)
	r.shares(ch)
	r.coordinators(ch)
	r.disk(ch)
}

// histogram is a latency with its buckets added up, as Prometheus has them.
func histogram(desc *prometheus.Desc, l broker.Latency, labels ...string) prometheus.Metric {
	buckets, sum := make(map[float64]uint64, len(broker.LatencyBounds)), uint64(0)
	for i, bound := range broker.LatencyBounds {
		sum += uint64(l.Counts[i])
		buckets[bound.Seconds()] = sum
	}
	sum += uint64(l.Counts[len(broker.LatencyBounds)])
	return prometheus.MustNewConstHistogram(desc, sum, l.Sum.Seconds(), buckets, labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (r *rooms) cluster(ch chan<- prometheus.Metric) {
	img := r.deps.Meta.Image()
	activeControllers.send(ch, truth(r.deps.Meta.IsController()))
	topicCount.send(ch, float64(img.TopicCount()))
	partitionTotal.send(ch, float64(img.PartitionCount()))
	state := r.deps.Meta.State()
	activeBrokers.send(ch, float64(state.Active))
	fencedBrokers.send(ch, float64(state.Fenced))
	offlinePartitions.send(ch, float64(state.Offline))
	imbalanced.send(ch, float64(state.NotPreferred))
	reassigning.send(ch, float64(state.Reassigning))
	elections.send(ch, float64(state.Elections))
	uncleanElections.send(ch, float64(state.UncleanElections))
}

// topicSum adds up what a topic's partitions have in the bucket.
type topicSum struct{ raw, stored, segments int64 }

func (r *rooms) partitions(ch chan<- prometheus.Metric) {
	held, led, offline := 0, 0, 0
	under, belowMin, justMin := 0, 0, 0
	sums := map[string]topicSum{}
	var hurt damageSum
	for _, p := range r.deps.Replica.Partitions() {
		d := p.Describe()
		held++
		hurt.add(d.Damage)
		switch {
		case d.Leads:
			led++
			if d.UnderReplicated {
				under++
			}
			switch {
			case d.SpareISR < 0:
				belowMin++
			case d.SpareISR == 0:
				justMin++
			}
		case d.Offline():
			offline++
		}
		r.partition(ch, d)
		sum := sums[d.Partition.Topic]
		sum.raw += d.ColdBytes
		sum.stored += d.ColdStoredBytes
		sum.segments += d.ColdSegments
		sums[d.Partition.Topic] = sum
	}
	partitionCount.send(ch, float64(held))
	leaderCount.send(ch, float64(led))
	underReplicated.send(ch, float64(under))
	underMin.send(ch, float64(belowMin))
	atMin.send(ch, float64(justMin))
	shrinks, expands := r.deps.Replica.ISRChanges()
	isrShrinks.send(ch, float64(shrinks))
	isrExpands.send(ch, float64(expands))
	offlineReplicas.send(ch, float64(offline))
	hurt.send(ch, time.Now())
	for topic, sum := range sums {
		remoteSize.send(ch, float64(sum.raw), topic)
		remoteStore.send(ch, float64(sum.stored), topic)
		remoteCount.send(ch, float64(sum.segments), topic)
	}
}

func (r *rooms) partition(ch chan<- prometheus.Metric, d replica.Description) {
	topic, index := d.Partition.Topic, strconv.Itoa(int(d.Partition.Index))
	logSize.send(ch, float64(d.HotBytes), topic, index)
	logStart.send(ch, float64(d.LogStart), topic, index)
	logEnd.send(ch, float64(d.End), topic, index)
	highWater.send(ch, float64(d.HighWatermark), topic, index)
	localStart.send(ch, float64(d.LocalStart), topic, index)
	if d.RemoteEnd >= 0 {
		remoteEnd.send(ch, float64(d.RemoteEnd), topic, index)
	}
}

func (r *rooms) tiering(ch chan<- prometheus.Metric) {
	if r.deps.Tier == nil {
		return
	}
	for topic, c := range r.deps.Tier.Counters() {
		copyRequests.send(ch, float64(c.CopyRequests), topic)
		copyErrors.send(ch, float64(c.CopyErrors), topic)
		copyBytes.send(ch, float64(c.CopyBytes), topic)
		deleteRequests.send(ch, float64(c.DeleteRequests), topic)
		deleteErrors.send(ch, float64(c.DeleteErrors), topic)
		orphans.send(ch, float64(c.Orphans), topic)
		scrubReads.send(ch, float64(c.ScrubRequests), topic)
		scrubRead.send(ch, float64(c.ScrubBytes), topic)
		archivePasses.send(ch, float64(c.ScrubPasses), topic)
		foundDamaged.send(ch, float64(c.FoundDamaged), topic)
		mended.send(ch, float64(c.Mended), topic)
	}
	lags := map[string]lag{}
	halted := 0
	for _, st := range r.deps.Tier.Status() {
		l := lags[st.Partition.Topic]
		l.bytes += st.LagBytes
		l.segments += int64(st.LagSegments)
		l.marked += int64(st.Marked)
		l.damaged += int64(len(st.Damaged) + st.DamagedMore)
		l.seconds = max(l.seconds, st.AtRiskSeconds)
		lags[st.Partition.Topic] = l
		if st.Stuck {
			halted++
		}
	}
	for topic, l := range lags {
		copyLagBytes.send(ch, float64(l.bytes), topic)
		copyLagSegs.send(ch, float64(l.segments), topic)
		deleteLag.send(ch, float64(l.marked), topic)
		damagedObjects.send(ch, float64(l.damaged), topic)
		atRisk.send(ch, l.seconds, topic)
	}
	stuck.send(ch, float64(halted))
	left := r.deps.Tier.Removals()
	removals.send(ch, float64(len(left)))
	blocked := 0
	for _, x := range left {
		if x.Blocked {
			blocked++
		}
	}
	removalsStop.send(ch, float64(blocked))
	r.archive(ch)
	stats := r.deps.Store.Stats()
	for _, op := range objstore.Ops() {
		s := stats.Of(op)
		storeRequests.send(ch, float64(s.Requests), string(op))
		storeFailures.send(ch, float64(s.Failures), string(op))
		storeBytes.send(ch, float64(s.Bytes), string(op))
	}
}

func (r *rooms) archive(ch chan<- prometheus.Metric) {
	s := r.deps.Archive.ReadStats()
	fetchRequests.send(ch, float64(s.Reads))
	fetchErrors.send(ch, float64(s.ReadErrors))
	fetchBytes.send(ch, float64(s.ReadBytes))
	lookups.send(ch, float64(s.Lookups))
	lookupErrors.send(ch, float64(s.LookupErrors))
	chunkHits.send(ch, float64(s.ChunkHits))
	chunkWaits.send(ch, float64(s.ChunkWaits))
	chunkFetches.send(ch, float64(s.Fetches))
	aheadFetches.send(ch, float64(s.AheadFetches))
	indexFetches.send(ch, float64(s.IndexFetches))
	damaged.send(ch, float64(s.Damaged))
	cacheBytes.send(ch, float64(s.CacheBytes), "chunks")
	cacheBytes.send(ch, float64(s.IndexBytes), "indexes")
	cacheBytes.send(ch, float64(s.ManifestBytes), "manifests")
	cacheLimit.send(ch, float64(s.CacheBytesMax))
}

// lag is how far a topic's offload is behind.
type lag struct {
	marked, damaged int64
	bytes, segments int64
	seconds         float64
}

func (r *rooms) frontDoor(ch chan<- prometheus.Metric) {
	s := r.deps.Broker.Stats()
	for api, n := range s.Requests {
		requests.send(ch, float64(n), api)
	}
	for api, l := range s.Latencies {
		ch <- histogram(totalTime, l, api)
	}
	messagesIn.send(ch, float64(s.MessagesIn))
	produced.send(ch, float64(s.Produced))
	produceBad.send(ch, float64(s.ProduceFailed))
	fetched.send(ch, float64(s.Fetched))
	fetchBad.send(ch, float64(s.FetchFailed))
	connections.send(ch, float64(s.Connections))
	refused.send(ch, float64(s.Refused))
	expired.send(ch, float64(s.Expired))
	handshakes.send(ch, float64(s.HandshakesFailed))
	for quota, x := range s.Throttled {
		throttled.send(ch, float64(x.Requests), quota)
		throttleSum.send(ch, x.Waits.Seconds(), quota)
	}
	if r.deps.Certificates != nil {
		for listener, until := range r.deps.Certificates() {
			certificate.send(ch, float64(until.Unix()), listener)
		}
	}
	for listener, open := range s.OpenDoors {
		openDoor.send(ch, truth(open), listener)
	}
	panics.send(ch, float64(s.Panics))
	bytesIn.send(ch, float64(s.BytesIn))
	bytesOut.send(ch, float64(s.BytesOut))
	heldBytes.send(ch, float64(s.RequestBytesHeld))
	sessions.send(ch, float64(s.FetchSessions))
}

func (r *rooms) disk(ch chan<- prometheus.Metric) {
	s := r.deps.Hot.Stats()
	appends.send(ch, float64(s.Appends.Load()))
	appendBytes.send(ch, float64(s.AppendBytes.Load()))
	syncs.send(ch, float64(s.Syncs.Load()))
	syncSeconds.send(ch, float64(s.SyncNanos.Load())/1e9)
	sharedRound.send(ch, float64(s.SharedRounds.Load()))
	sharedBytes.send(ch, float64(s.SharedBytes.Load()))
	sharedNew.send(ch, float64(s.SharedRenewed.Load()))
	compactOver.send(ch, float64(s.CompactOver.Load()))
	offlineLogs.send(ch, float64(s.Offline.Load()))
	quarantined.send(ch, float64(s.Quarantined.Load()))
	scrubBytes.send(ch, float64(s.ScrubBytes.Load()))
	scrubPasses.send(ch, float64(s.ScrubPasses.Load()))
	repaired.send(ch, float64(s.Repaired.Load()))
	u := r.deps.Hot.Usage()
	diskFree.send(ch, float64(u.DiskFree))
	diskTotal.send(ch, float64(u.DiskTotal))
	diskFull.send(ch, truth(u.Full))
}
