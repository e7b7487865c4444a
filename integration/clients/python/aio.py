"""Drives aiokafka through the verbs of integration/clients."""
import asyncio
import sys
import time

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, InvalidProducerEpoch, ProducerFenced


async def produce(bootstrap, topic, codec, count, first):
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=5,
        compression_type=None if codec == "none" else codec)
    await producer.start()
    try:
        sent = [
            await producer.send(
                topic, key=f"k{i}".encode(), value=(f"{i} " + ("varve " * 34)[:200]).encode(),
                partition=0, timestamp_ms=1600000000000 + 1000 * i)
            for i in range(int(first), int(first) + int(count))]
        await asyncio.wait_for(asyncio.gather(*sent), 60)
    finally:
        await producer.stop()


async def verify(bootstrap, topic, group, count, times):
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest",
        enable_auto_commit=False)
    await consumer.start()
    try:
        for _ in range(int(count)):
            m = await asyncio.wait_for(consumer.getone(), 60)
            print(m.offset, m.timestamp, m.key.decode(), m.value.decode(), sep="\t")
        await consumer.commit()
        tp = TopicPartition(topic, 0)
        for ts in times.split(","):
            found = (await consumer.offsets_for_times({tp: int(ts)}))[tp]
            print("time", ts, found.offset if found else -1, sep="\t")
    finally:
        await consumer.stop()


def consumer_in(bootstrap, topic, group):
    return AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
        isolation_level="read_committed", session_timeout_ms=3000, heartbeat_interval_ms=300)


async def member(bootstrap, topic, group, _):
    told = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    consumer = consumer_in(bootstrap, topic, group)
    await consumer.start()
    try:
        last = None
        while not told.done():
            records = await consumer.getmany(timeout_ms=100, max_records=100)
            mine = sorted(tp.partition for tp in consumer.assignment())
            if mine != last:
                last = mine
                print("assigned", ",".join(map(str, mine)), sep="\t", flush=True)
            for m in (m for part in records.values() for m in part):
                print("record", m.partition, m.offset, sep="\t", flush=True)
            if records:
                try:
                    await consumer.commit()
                except (CommitFailedError, IllegalStateError):
                    pass  # what is not committed comes again, to whoever has the partition then
    finally:
        await consumer.stop()


def transactional(bootstrap, transactional_id):
    return AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=10000, linger_ms=5)


async def transform(bootstrap, topic, out, group, transactional_id, _, count):
    producer, consumer = transactional(bootstrap, transactional_id), consumer_in(bootstrap, topic, group)
    await producer.start()
    await consumer.start()
    copied, turn, deadline = 0, 0, time.time() + 100
    while copied < int(count):
        if time.time() > deadline:
            sys.exit(f"{copied} records copied")
        records = await consumer.getmany(timeout_ms=200, max_records=50)
        if not records:
            continue
        await producer.begin_transaction()
        for m in (m for part in records.values() for m in part):
            await producer.send(out, key=m.key, value=m.value)
        await producer.send_offsets_to_transaction({tp: part[-1].offset + 1 for tp, part in records.items()}, group)
        turn += 1
        if turn % 4 == 3:  # for no reason: its records come again
            await producer.abort_transaction()
            for tp, part in records.items():
                consumer.seek(tp, part[0].offset)
        else:
            await producer.commit_transaction()
            copied += sum(map(len, records.values()))
    await consumer.stop()
    await producer.stop()


async def fence(bootstrap, topic, transactional_id):
    async def write(producer, name):
        await producer.begin_transaction()
        for i in range(10):
            await producer.send_and_wait(topic, value=f"{name}-{i}".encode())

    old, young = transactional(bootstrap, transactional_id), transactional(bootstrap, transactional_id)
    await old.start()
    await write(old, "kept")
    await old.commit_transaction()
    await write(old, "dropped")
    await old.abort_transaction()
    await write(old, "zombie")
    await young.start()
    try:
        await old.commit_transaction()
        sys.exit("the zombie has committed")
    except (ProducerFenced, InvalidProducerEpoch):
        print("fenced")
    await write(young, "young")
    await young.commit_transaction()
    await young.stop()
    await old.stop()


verbs = {"produce": produce, "verify": verify, "member": member, "transform": transform, "fence": fence}
asyncio.run(verbs[sys.argv[1]](*sys.argv[2:]))
