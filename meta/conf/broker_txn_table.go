package conf

// brokerTxnDefs are the broker settings about producers and transactions.
var brokerTxnDefs = []Def{
	def("add.partitions.to.txn.retry.backoff.max.ms", Int, "100", "Kafka's longest pause between tries to add a partition to a transaction; accepted without effect: the pauses are fixed.", atLeast(0)),
	def("add.partitions.to.txn.retry.backoff.ms", Int, "20", "Kafka's first pause between tries to add a partition to a transaction; accepted without effect: the pauses are fixed.", atLeast(1)),
	def("producer.id.expiration.ms", Int, "86400000", "How long a partition remembers a producer that has fallen silent, in milliseconds.", atLeast(1), dynamic),
	def("transaction.abort.timed.out.transaction.cleanup.interval.ms", Int, "10000", "How often Kafka looks for transactions past their timeout, in milliseconds; accepted without effect: each has a timer of its own.", atLeast(1)),
	def("transaction.max.timeout.ms", Int, "900000", "The longest timeout a transaction may ask for, in milliseconds.", atLeast(1)),
	def("transaction.partition.verification.enable", Boolean, "true", "Whether a partition asks the coordinator before it takes transactional records (KIP-890).", dynamic),
	def("transaction.remove.expired.transaction.cleanup.interval.ms", Int, "3600000", "How often expired transactional ids are looked for, in milliseconds.", atLeast(1)),
	def("transaction.state.log.load.buffer.size", Int, "5242880", "How many bytes of the transaction topic Kafka reads at once when a coordinator loads; accepted without effect: the size of a read is fixed.", atLeast(1)),
	def("transaction.state.log.min.isr", Int, "2", "min.insync.replicas of the transaction topic.", atLeast(1)),
	def("transaction.state.log.num.partitions", Int, "50", "How many partitions the transaction topic gets.", atLeast(1)),
	def("transaction.state.log.replication.factor", Short, "3", "How many replicas the transaction topic gets; unless it is set, no more than there are brokers.", atLeast(1)),
	def("transaction.state.log.segment.bytes", Int, "104857600", "The segment size of the transaction topic.", atLeast(1)),
	def("transaction.two.phase.commit.enable", Boolean, "false", "Whether transactions may take part in two-phase commit and never time out (KIP-939); true is refused, for there is no two-phase commit."),
	def("transactional.id.expiration.ms", Int, "604800000", "How long an unused transactional id is remembered, in milliseconds.", atLeast(1)),
}
