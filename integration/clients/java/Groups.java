import java.time.Duration;
import java.util.*;
import java.util.stream.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.*;

/** The verbs of integration/clients for groups and transactions. */
class Groups {
    /** Kafka's logger writes to what System.out is at its start: what the verbs print goes past it. */
    static final java.io.PrintStream out = System.out;
    static { System.setOut(System.err); }

    static Properties props(String bootstrap, Object... more) {
        var props = new Properties();
        props.put("bootstrap.servers", bootstrap);
        for (var side : List.of("key", "value")) {
            props.put(side + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            props.put(side + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        for (int i = 0; i < more.length; i += 2) props.put(more[i], more[i + 1]);
        return props;
    }

    static Properties group(String bootstrap, String group, String protocol) {
        var props = props(bootstrap, "group.id", group, "group.protocol", protocol, "auto.offset.reset", "earliest",
            "enable.auto.commit", "false", "isolation.level", "read_committed");
        if (protocol.equals("classic")) {
            props.put("session.timeout.ms", "3000");
            props.put("heartbeat.interval.ms", "300");
            props.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        }
        return props;
    }

    static volatile boolean told;

    static void member(String bootstrap, String topic, String group, String protocol) {
        var waiter = new Thread(() -> {
            try { while (System.in.read() >= 0) { } } catch (java.io.IOException ended) { }
            told = true;
        });
        waiter.setDaemon(true);
        waiter.start();
        try (var consumer = new KafkaConsumer<String, String>(group(bootstrap, group, protocol))) {
            consumer.subscribe(List.of(topic));
            Set<TopicPartition> last = null;
            while (!told) {
                var records = consumer.poll(Duration.ofMillis(100));
                if (!consumer.assignment().equals(last)) {
                    last = new HashSet<>(consumer.assignment());
                    out.println("assigned\t" + last.stream().map(p -> "" + p.partition()).sorted().collect(Collectors.joining(",")));
                }
                for (var r : records) out.println("record\t" + r.partition() + "\t" + r.offset());
                out.flush();
                try {
                    if (!records.isEmpty()) consumer.commitSync();
                } catch (CommitFailedException | RetriableCommitFailedException | RebalanceInProgressException moved) {
                    // what is not committed comes again, to whoever has the partition then
                }
            }
        }
    }

    static KafkaProducer<String, String> producer(String bootstrap, String id) {
        return new KafkaProducer<>(props(bootstrap, "transactional.id", id, "transaction.timeout.ms", "10000", "linger.ms", "5"));
    }

    /** Copies until count records are copied; begins again from what is committed whenever anything fails. */
    static void transform(String bootstrap, String in, String to, String group, String id, String protocol, int count) {
        long deadline = System.nanoTime() + 150_000_000_000L;
        for (int round[] = {0}; ; ) {
            if (System.nanoTime() > deadline) throw new IllegalStateException("not all is copied");
            try (var producer = producer(bootstrap, id); var consumer = new KafkaConsumer<String, String>(group(bootstrap, group, protocol))) {
                producer.initTransactions();
                consumer.subscribe(List.of(in));
                while (System.nanoTime() < deadline) {
                    if (copy(consumer, producer, in, to, round, count)) return;
                }
            } catch (KafkaException failed) {
                System.err.println("begins again: " + failed);
            }
        }
    }

    static boolean copy(KafkaConsumer<String, String> consumer, KafkaProducer<String, String> producer, String in, String to, int[] round, int count) {
        var records = consumer.poll(Duration.ofMillis(100));
        if (records.isEmpty()) {
            var all = consumer.partitionsFor(in).stream().map(p -> new TopicPartition(in, p.partition())).collect(Collectors.toSet());
            return consumer.committed(all).values().stream().filter(Objects::nonNull).mapToLong(OffsetAndMetadata::offset).sum() >= count;
        }
        producer.beginTransaction();
        var offsets = new HashMap<TopicPartition, OffsetAndMetadata>();
        var first = new HashMap<TopicPartition, Long>();
        for (var r : records) {
            producer.send(new ProducerRecord<>(to, r.key(), r.value()));
            var at = new TopicPartition(r.topic(), r.partition());
            first.putIfAbsent(at, r.offset());
            offsets.put(at, new OffsetAndMetadata(r.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        if (round[0]++ % 4 == 3) { // for no reason: its records come again
            producer.abortTransaction();
            first.forEach(consumer::seek);
        } else {
            producer.commitTransaction();
        }
        return false;
    }

    static void fence(String bootstrap, String topic, String id) throws Exception {
        try (var old = producer(bootstrap, id); var young = producer(bootstrap, id)) {
            old.initTransactions();
            write(old, topic, "kept");
            old.commitTransaction();
            write(old, topic, "dropped");
            old.abortTransaction();
            write(old, topic, "zombie");
            young.initTransactions();
            try {
                old.commitTransaction();
                throw new IllegalStateException("the zombie has committed");
            } catch (ProducerFencedException | InvalidProducerEpochException refused) {
                out.println("fenced");
            }
            write(young, topic, "young");
            young.commitTransaction();
        }
    }

    static void write(KafkaProducer<String, String> producer, String topic, String name) {
        producer.beginTransaction();
        for (int i = 0; i < 10; i++) producer.send(new ProducerRecord<>(topic, null, name + "-" + i));
        producer.flush();
    }
}
