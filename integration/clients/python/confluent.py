"""Drives confluent-kafka (librdkafka) through the verbs of integration/clients."""
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition


def produce(bootstrap, topic, codec, count, first):
    errors = []
    producer = Producer({
        "bootstrap.servers": bootstrap, "compression.type": codec,
        "enable.idempotence": True, "linger.ms": 5,
    })
    for i in range(int(first), int(first) + int(count)):
        producer.produce(
            topic, key=f"k{i}", value=f"{i} " + ("varve " * 34)[:200], partition=0,
            timestamp=1600000000000 + 1000 * i,
            on_delivery=lambda err, _: errors.append(err) if err else None)
        producer.poll(0)
    if producer.flush(60) or errors:
        sys.exit(f"not delivered: {errors[:3]}")


def verify(bootstrap, topic, group, count, times):
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": group,
        "auto.offset.reset": "earliest", "enable.auto.commit": False,
    })
    consumer.subscribe([topic])
    left, deadline = int(count), time.time() + 100
    while left:
        if time.time() > deadline:
            sys.exit(f"{left} records missing")
        m = consumer.poll(1.0)
        if m is None:
            continue
        if m.error():
            sys.exit(str(m.error()))
        print(m.offset(), m.timestamp()[1], m.key().decode(), m.value().decode(), sep="\t")
        left -= 1
    consumer.commit(asynchronous=False)
    for ts in times.split(","):
        found = consumer.offsets_for_times([TopicPartition(topic, 0, int(ts))], timeout=30)[0]
        if found.error:
            sys.exit(str(found.error))
        # librdkafka shows "none" as OFFSET_END (-1).
        print("time", ts, found.offset, sep="\t")
    consumer.close()


{"produce": produce, "verify": verify}[sys.argv[1]](*sys.argv[2:])
