package conf

// brokerVarveDefs are the settings that only Varve has.
var brokerVarveDefs = []Def{
	def("varve.balancer.drain", Boolean, "false", "Whether this broker is to be emptied: the controller moves its replicas to others and gives it no new ones; it counts only where it is set while the broker runs.", dynamic),
	def("varve.balancer.enable", Boolean, "false", "Whether the controller moves replicas by itself, so that brokers hold as many of them, and as many bytes, as each other.", dynamic),
	def("varve.balancer.interval.ms", Long, "60000", "How often the controller looks whether replicas are to be moved, in milliseconds.", atLeast(100)),
	def("varve.balancer.moves.max", Int, "4", "The most partitions that the controller moves at once, by itself or to empty a broker.", atLeast(1), dynamic),
	def("varve.balancer.threshold.percent", Int, "10", "How far brokers may be from the mean, in percent, before replicas are moved.", between(1, 1000), dynamic),
	def("varve.disk.reserve.bytes", Long, "", "How many bytes stay free on the data disk: writes are refused before it gets fuller; null means 1 GiB or 5 % of the disk, whichever is smaller.", null, atLeast(0), dynamic),
	def("varve.durability", String, "fsync", `When a replica counts towards the high watermark: "fsync" once its records are synced to disk, "replicated" once they are in the page cache, which a power cut of all replicas at once can undo.`, oneOf("fsync", "replicated")),
	def("varve.http.listen", String, "", "The address of metrics, health and console, host:port; empty means none."),
	def("varve.log.scrub.bytes.per.second", Long, "1048576", "How fast sealed segments on this broker's disk are read in turn, in bytes per second, once a day at most, so that damage to what nobody reads is found while there is another copy. 0 reads none.", atLeast(0)),
	def("varve.log.shared.bytes", Long, "0", "The size of the file in the data directory that makes small appends to several partitions durable with one sync, in bytes, 65536 at least; 0 has none. It counts with varve.durability=fsync.", atLeast(0)),
	def("varve.log.verify.interval.ms", Long, "60000", "How long records that were checked, as they were appended or read, are sent to consumers without being checked again, in milliseconds: damage on the disk shows as soon as they are read later than that. 0 checks at every read, -1 at none.", atLeast(-1)),
	def("varve.quorum.vote.removed", String, "", `The metadata directory with which this node's vote in the quorum was taken away, or "any": with it the node gets no vote by itself. RemoveRaftVoter and UnregisterBroker set it, AddRaftVoter deletes it.`, dynamic),
	def("varve.request.memory.bytes", Long, "268435456", "The most bytes of requests in memory at once, over all connections.", atLeast(1048576)),
	def("varve.tier.cache.bytes", Long, "268435456", "The memory for chunks read from the bucket, in bytes.", atLeast(0)),
	def("varve.tier.delete.grace.ms", Long, "900000", "How long an object stays in the bucket after it was marked deleted, in milliseconds; longer than any read or upload takes.", atLeast(0)),
	def("varve.tier.fencing", String, "cas", `How a leader keeps an older one from committing: "cas" by conditional PUT, "lease" by time alone, for stores without conditional PUT.`, oneOf("cas", "lease")),
	def("varve.tier.orphan.search.interval.ms", Long, "604800000", "How often the leader of a tiered partition looks for objects in the bucket that no manifest names, in milliseconds: one list request for each thousand objects. 0 never.", atLeast(0)),
	def("varve.tier.prefix", String, "", "What every object key begins with, after the prefix in varve.tier.store."),
	def("varve.tier.read.parallelism", Int, "12", "How many reads of the bucket run at once for one reader that runs ahead.", between(1, 1024)),
	def("varve.tier.store", String, "", "The bucket: file:///path or s3://bucket/prefix?endpoint=…&region=…&path-style=true; empty means that topics cannot be tiered."),
	def("varve.tier.upload.max.bytes.per.second", Long, "", "The most bytes uploaded per second; null means remote.log.manager.copy.max.bytes.per.second.", null, atLeast(1), dynamic),
}
