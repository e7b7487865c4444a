import java.time.Duration;
import java.util.*;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;

/** Drives Apache Kafka's own Java client through the verbs of integration/clients. */
public class Client {
    public static void main(String[] a) throws Exception {
        switch (a[0]) {
            case "produce" -> produce(a[1], a[2], a[3], Integer.parseInt(a[4]), Integer.parseInt(a[5]));
            case "verify" -> verify(a[1], a[2], a[3], Integer.parseInt(a[4]), a[5]);
            case "member" -> Groups.member(a[1], a[2], a[3], a[4]);
            case "transform" -> Groups.transform(a[1], a[2], a[3], a[4], a[5], a[6], Integer.parseInt(a[7]));
            case "share" -> Shares.share(a[1], a[2], a[3]);
            case "fence" -> Groups.fence(a[1], a[2], a[3]);
            default -> throw new IllegalArgumentException(a[0]);
        }
    }

    static void produce(String bootstrap, String topic, String codec, int count, int first) throws Exception {
        var props = new Properties();
        props.put("bootstrap.servers", bootstrap);
        props.put("compression.type", codec);
        props.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        props.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        var text = "varve ".repeat(34).substring(0, 200);
        try (var producer = new KafkaProducer<String, String>(props)) {
            var sent = new ArrayList<Future<RecordMetadata>>();
            for (int i = first; i < first + count; i++)
                sent.add(producer.send(new ProducerRecord<>(topic, 0, 1600000000000L + 1000L * i, "k" + i, i + " " + text)));
            for (var f : sent) f.get();
        }
    }

    static void verify(String bootstrap, String topic, String group, int count, String times) {
        var props = new Properties();
        props.put("bootstrap.servers", bootstrap);
        props.put("group.id", group);
        props.put("auto.offset.reset", "earliest");
        props.put("enable.auto.commit", "false");
        props.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        props.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        var out = new StringBuilder();
        try (var consumer = new KafkaConsumer<String, String>(props)) {
            consumer.subscribe(List.of(topic));
            long deadline = System.nanoTime() + 100_000_000_000L;
            for (int left = count; left > 0; ) {
                if (System.nanoTime() > deadline) throw new IllegalStateException(left + " records missing");
                for (var r : consumer.poll(Duration.ofMillis(500))) {
                    out.append(r.offset()).append('\t').append(r.timestamp()).append('\t').append(r.key()).append('\t').append(r.value()).append('\n');
                    left--;
                }
            }
            consumer.commitSync();
            var tp = new TopicPartition(topic, 0);
            for (var ts : times.split(",")) {
                var found = consumer.offsetsForTimes(Map.of(tp, Long.parseLong(ts))).get(tp);
                out.append("time\t").append(ts).append('\t').append(found == null ? -1 : found.offset()).append('\n');
            }
        }
        System.out.print(out);
    }
}
