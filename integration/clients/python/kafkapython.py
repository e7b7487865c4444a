"""Drives kafka-python through the verbs of integration/clients."""
import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition


def produce(bootstrap, topic, codec, count, first):
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, acks="all", linger_ms=5,
        compression_type=None if codec == "none" else codec)
    futures = [
        producer.send(
            topic, key=f"k{i}".encode(), value=(f"{i} " + ("varve " * 34)[:200]).encode(),
            partition=0, timestamp_ms=1600000000000 + 1000 * i)
        for i in range(int(first), int(first) + int(count))]
    producer.flush(60)
    for f in futures:
        f.get(30)


def verify(bootstrap, topic, group, count, times):
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest",
        enable_auto_commit=False, consumer_timeout_ms=60000)
    left = int(count)
    for m in consumer:
        print(m.offset, m.timestamp, m.key.decode(), m.value.decode(), sep="\t")
        left -= 1
        if not left:
            break
    if left:
        sys.exit(f"{left} records missing")
    consumer.commit()
    tp = TopicPartition(topic, 0)
    for ts in times.split(","):
        found = consumer.offsets_for_times({tp: int(ts)})[tp]
        print("time", ts, found.offset if found else -1, sep="\t")
    consumer.close()


{"produce": produce, "verify": verify}[sys.argv[1]](*sys.argv[2:])
