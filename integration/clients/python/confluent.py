"""Drives confluent-kafka (librdkafka) through the verbs of integration/clients."""
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition


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


def consumer_in(bootstrap, group, protocol, **more):
    settings = {
        "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "isolation.level": "read_committed", "group.protocol": protocol, **more}
    if protocol == "classic":
        settings |= {
            "session.timeout.ms": 3000, "heartbeat.interval.ms": 300,
            "partition.assignment.strategy": "cooperative-sticky"}
    return Consumer(settings)


def member(bootstrap, topic, group, protocol):
    told = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), told.set()), daemon=True).start()
    consumer = consumer_in(bootstrap, group, protocol)
    consumer.subscribe([topic])
    last = None
    while not told.is_set():
        records = consumer.consume(100, 0.1)
        mine = sorted(tp.partition for tp in consumer.assignment())
        if mine != last:
            last = mine
            print("assigned", ",".join(map(str, mine)), sep="\t", flush=True)
        good = [m for m in records if not m.error()]
        for m in good:
            print("record", m.partition(), m.offset(), sep="\t", flush=True)
        if good:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException:
                pass  # what is not committed comes again, to whoever has the partition then
    consumer.close()


def transactional(bootstrap, transactional_id):
    producer = Producer({
        "bootstrap.servers": bootstrap, "transactional.id": transactional_id,
        "transaction.timeout.ms": 10000, "linger.ms": 5})
    producer.init_transactions(30)
    return producer


def transform(bootstrap, topic, out, group, transactional_id, protocol, count):
    producer, consumer = transactional(bootstrap, transactional_id), consumer_in(bootstrap, group, protocol)
    consumer.subscribe([topic])
    copied, turn, deadline = 0, 0, time.time() + 100
    while copied < int(count):
        if time.time() > deadline:
            sys.exit(f"{copied} records copied")
        records = [m for m in consumer.consume(50, 0.2) if not m.error()]
        if not records:
            continue
        producer.begin_transaction()
        first, following = {}, {}
        for m in records:
            producer.produce(out, key=m.key(), value=m.value())
            first.setdefault(m.partition(), m.offset())
            following[m.partition()] = m.offset() + 1
        producer.send_offsets_to_transaction(
            [TopicPartition(topic, p, o) for p, o in following.items()], consumer.consumer_group_metadata(), 30)
        turn += 1
        if turn % 4 == 3:  # for no reason: its records come again
            producer.abort_transaction(30)
            for p, o in first.items():
                consumer.seek(TopicPartition(topic, p, o))
        else:
            producer.commit_transaction(30)
            copied += len(records)
    consumer.close()


def fence(bootstrap, topic, transactional_id):
    def write(producer, name):
        producer.begin_transaction()
        for i in range(10):
            producer.produce(topic, value=f"{name}-{i}")
        producer.flush(30)

    old = transactional(bootstrap, transactional_id)
    write(old, "kept")
    old.commit_transaction(30)
    write(old, "dropped")
    old.abort_transaction(30)
    write(old, "zombie")
    young = transactional(bootstrap, transactional_id)
    try:
        old.commit_transaction(30)
        sys.exit("the zombie has committed")
    except KafkaException as refused:
        if refused.args[0].code() not in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
            raise
        print("fenced")
    write(young, "young")
    young.commit_transaction(30)


verbs = {"produce": produce, "verify": verify, "member": member, "transform": transform, "fence": fence}
verbs[sys.argv[1]](*sys.argv[2:])
