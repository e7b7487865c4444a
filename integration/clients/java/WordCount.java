import java.util.*;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;

/**
 * Counts words with Kafka Streams, exactly once (version 2), until its standard input ends.
 *
 * WordCount BOOTSTRAP APPLICATION classic|streams STATE_DIR IN OUT
 *
 * Every word of a record in IN makes one record in OUT: the word, and how often it has come. Words go through a repartition topic, and
 * counts into a store with a changelog. Prints the state of the application whenever that changes.
 */
public class WordCount {
    public static void main(String[] a) throws Exception {
        var props = new Properties();
        props.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, a[0]);
        props.put(StreamsConfig.APPLICATION_ID_CONFIG, a[1]);
        props.put("group.protocol", a[2]);
        props.put(StreamsConfig.STATE_DIR_CONFIG, a[3]);
        props.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        props.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        props.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        props.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0); // no update is merged with the next
        props.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 3);
        props.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        props.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        props.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        props.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 20_000);
        if (a[2].equals("classic")) {
            props.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 10_000);
            props.put(StreamsConfig.consumerPrefix(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG), 500);
        }
        var builder = new StreamsBuilder();
        builder.<String, String>stream(a[4])
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(n -> Long.toString(n))
            .to(a[5]);
        var app = new KafkaStreams(builder.build(), props);
        app.setStateListener((now, before) -> System.out.println(now));
        app.setUncaughtExceptionHandler(e -> {
            e.printStackTrace();
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        app.start();
        while (System.in.read() >= 0) { }
        app.close(java.time.Duration.ofSeconds(20));
        System.exit(0); // whatever has not ended by now
    }
}
