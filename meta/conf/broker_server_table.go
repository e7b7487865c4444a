package conf

// brokerServerDefs are the broker settings that fit nowhere else.
var brokerServerDefs = []Def{
	def("alter.config.policy.class.name", Class, "", "Kafka's plugin that guards changes of settings; a value is refused, for there are no plugins and the guard would be missing.", null),
	def("authorizer.class.name", String, "", "Kafka's plugin that decides who may do what; a value is refused, for there is no authorizer: everyone may do everything."),
	def("background.threads", Int, "10", "Kafka's background threads; accepted without effect.", atLeast(1), dynamic),
	def("config.providers", List, "", "Kafka's plugins; accepted without effect.", dynamic),
	def("create.topic.policy.class.name", Class, "", "Kafka's plugin that guards new topics; a value is refused, for there are no plugins and the guard would be missing.", null),
	def("delegation.token.expiry.check.interval.ms", Long, "3600000", "How often expired delegation tokens are looked for, in milliseconds; accepted without effect: there are no delegation tokens.", atLeast(1)),
	def("delegation.token.expiry.time.ms", Long, "86400000", "How long a delegation token lasts unless it is renewed, in milliseconds; accepted without effect: there are no delegation tokens.", atLeast(1)),
	def("delegation.token.max.lifetime.ms", Long, "604800000", "How long a delegation token can be renewed for, in milliseconds; accepted without effect: there are no delegation tokens.", atLeast(1)),
	def("delegation.token.secret.key", Password, "", "The key that signs delegation tokens; accepted without effect: there are no delegation tokens.", null, sensitive),
	def("kafka.metrics.polling.interval.secs", Int, "10", "Kafka's metrics plugin; accepted without effect.", atLeast(1)),
	def("kafka.metrics.reporters", List, "", "Kafka's metrics plugin; accepted without effect."),
	def("metric.reporters", List, "org.apache.kafka.common.metrics.JmxReporter", "Kafka's metrics plugin; accepted without effect: metrics are at /metrics.", dynamic),
	def("metrics.num.samples", Int, "2", "Kafka's metrics plugin; accepted without effect.", atLeast(1)),
	def("metrics.recording.level", String, "INFO", "Kafka's metrics plugin; accepted without effect."),
	def("metrics.sample.window.ms", Long, "30000", "Kafka's metrics plugin; accepted without effect.", atLeast(1)),
	def("principal.builder.class", Class, "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder", "Kafka's plugin; accepted without effect.", dynamic),
	def("security.providers", String, "", "Kafka's plugin; accepted without effect.", null),
	def("telemetry.max.bytes", Int, "1048576", "The largest metrics report taken from a client, in bytes; accepted without effect: clients are asked for none.", atLeast(1)),
}
