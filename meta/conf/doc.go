// Package conf is the table of every setting: Kafka 4.4's topic, broker and
// group settings with Kafka's names, types, defaults and rules, and Varve's
// own, whose names start with "varve.".
//
// A setting is a Def. ParseBroker and ParseTopic turn texts into typed values;
// both are strict: a name that is in no table is an error that offers the
// nearest one that is. Error texts are Kafka's wherever Kafka has one, because
// they travel to clients.
//
// # Non-obvious
//
//   - A topic's default is the broker's value of its synonym: segment.ms comes
//     from log.roll.ms, or else from log.roll.hours, converted.
//   - local.retention.ms/.bytes = -2 is kept as it is and resolved by the
//     methods of Topic; remote.copy.lag.ms/.bytes = -1 is resolved by tier,
//     which is the one to know how the two go together.
//   - Checks that compare a topic with what it was before (turning tiering off)
//     live in ParseTopicChange; ParseTopic sees one state only.
package conf
