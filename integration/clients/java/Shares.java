import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;

/** The verb of integration/clients for share groups. */
class Shares {
    /**
     * A member of a share group that accepts what it gets, releasing some records the first time, until its standard input ends.
     * It prints what it has accepted: "record" when the broker has said yes, "unsure" when nobody can know.
     */
    static void share(String bootstrap, String topic, String group) throws Exception {
        var props = Groups.props(bootstrap, "group.id", group, "share.acknowledgement.mode", "explicit", "max.poll.records", "50");
        var over = new Thread(() -> {
            try { while (System.in.read() >= 0) { } } catch (java.io.IOException e) { }
        });
        over.setDaemon(true);
        over.start();
        try (var consumer = new KafkaShareConsumer<String, String>(props)) {
            consumer.subscribe(List.of(topic));
            while (over.isAlive()) {
                var polled = new ArrayList<ConsumerRecord<String, String>>();
                try {
                    for (var r : consumer.poll(Duration.ofMillis(300))) {
                        boolean first = r.deliveryCount().orElse((short) 1) == 1;
                        if (first && r.offset() % 7 == 0) {
                            consumer.acknowledge(r, AcknowledgeType.RELEASE);
                            continue;
                        }
                        polled.add(r);
                        consumer.acknowledge(r, AcknowledgeType.ACCEPT);
                    }
                } catch (KafkaException e) {
                    say("unsure", polled);
                    System.err.println(e);
                    continue;
                }
                Map<TopicIdPartition, Optional<KafkaException>> outcome = Map.of();
                boolean known = true;
                try {
                    outcome = consumer.commitSync(Duration.ofSeconds(20));
                } catch (KafkaException e) {
                    System.err.println(e);
                    known = false;
                }
                for (var r : polled) {
                    boolean sure = known;
                    for (var o : outcome.entrySet())
                        if (o.getKey().topicPartition().equals(new TopicPartition(r.topic(), r.partition())) && o.getValue().isPresent()) {
                            System.err.println(r.partition() + " " + r.offset() + " " + o.getValue().get());
                            sure = false;
                        }
                    say(sure ? "record" : "unsure", List.of(r));
                }
            }
        }
    }

    static void say(String what, List<ConsumerRecord<String, String>> records) {
        for (var r : records) Groups.out.println(what + "\t" + r.partition() + "\t" + r.offset());
        Groups.out.flush();
    }
}
