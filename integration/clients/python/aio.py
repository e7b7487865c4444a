"""Drives aiokafka through the verbs of integration/clients."""
import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition


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


asyncio.run({"produce": produce, "verify": verify}[sys.argv[1]](*sys.argv[2:]))
