package conf

// groupDefs are the settings of one consumer, share or streams group (KIP-848, KIP-932, KIP-1071).
var groupDefs = []Def{
	def("consumer.assignment.interval.ms", Int, "1000", "The least time between two assignments of a consumer group, in milliseconds.", atLeast(0), from("group.consumer.assignment.interval.ms")),
	def("consumer.heartbeat.interval.ms", Int, "5000", "How often a member of a consumer group sends a heartbeat, in milliseconds.", atLeast(1), from("group.consumer.heartbeat.interval.ms")),
	def("consumer.session.timeout.ms", Int, "45000", "How long a silent member of a consumer group is kept, in milliseconds.", atLeast(1), from("group.consumer.session.timeout.ms")),
	def("errors.deadletterqueue.copy.record.enable", Boolean, "false", "Whether a dead-letter entry carries the whole record rather than its place only."),
	def("errors.deadletterqueue.topic.name", String, "", "The topic that takes this share group's dead letters; empty means none."),
	def("share.assignment.interval.ms", Int, "1000", "The least time between two assignments of a share group, in milliseconds.", atLeast(0), from("group.share.assignment.interval.ms")),
	def("share.auto.offset.reset", String, "latest", "Where a share group starts on a partition it has no state for: latest, earliest, or by_duration:<ISO-8601 duration>.", check(shareOffsetReset)),
	def("share.delivery.count.limit", Int, "5", "How many times a share group is given one record.", atLeast(2), from("group.share.delivery.count.limit")),
	def("share.heartbeat.interval.ms", Int, "5000", "How often a member of a share group sends a heartbeat, in milliseconds.", atLeast(1), from("group.share.heartbeat.interval.ms")),
	def("share.isolation.level", String, "read_uncommitted", "Whether a share group sees records of open and aborted transactions.", oneOf("read_committed", "read_uncommitted")),
	def("share.partition.max.record.locks", Int, "2000", "How many records of one partition a share group may hold locked.", atLeast(100), from("group.share.partition.max.record.locks")),
	def("share.record.lock.duration.ms", Int, "30000", "How long a share group's member may hold a record, in milliseconds.", atLeast(1000), from("group.share.record.lock.duration.ms")),
	def("share.renew.acknowledge.enable", Boolean, "true", "Whether a share group's member may extend its hold on a record."),
	def("share.session.timeout.ms", Int, "45000", "How long a silent member of a share group is kept, in milliseconds.", atLeast(1), from("group.share.session.timeout.ms")),
	def("streams.assignment.interval.ms", Int, "1000", "The least time between two assignments of a streams group, in milliseconds.", atLeast(0), from("group.streams.assignment.interval.ms")),
	def("streams.assignor.name", String, "sticky", "The assignor of a streams group; sticky is the one there is, and others are refused.", oneOf("sticky"), from("group.streams.assignors")),
	def("streams.heartbeat.interval.ms", Int, "5000", "How often a member of a streams group sends a heartbeat, in milliseconds.", atLeast(1), from("group.streams.heartbeat.interval.ms")),
	def("streams.initial.rebalance.delay.ms", Int, "3000", "How long a new streams group waits for more members before its first assignment, in milliseconds.", atLeast(0), from("group.streams.initial.rebalance.delay.ms")),
	def("streams.num.standby.replicas", Int, "0", "How many standby copies of each stateful task a streams group keeps.", atLeast(0), from("group.streams.num.standby.replicas")),
	def("streams.rack.aware.assignment.tags", List, "", "The client tags across which a streams group spreads standby copies.", from("group.streams.rack.aware.assignment.tags")),
	def("streams.session.timeout.ms", Int, "45000", "How long a silent member of a streams group is kept, in milliseconds.", atLeast(1), from("group.streams.session.timeout.ms")),
}
