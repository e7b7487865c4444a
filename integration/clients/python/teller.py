"""confluent-kafka (librdkafka) with transactions, as a worker of integration/chaos.

One request a line on standard input, one answer a line on standard output, both
JSON. It ends with its input.

    {"op":"open","id":"t","group":"g","topics":["plain","ledger"],"millis":8000}
    {"op":"take","millis":300}
    {"op":"txn","steps":[{"f":"send","key":"ledger/0","value":7}],"from":{"plain/0":5},"commit":true,"bytes":100}
"""
import json
import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

BOOTSTRAP = sys.argv[1]
NETWORK = {"bootstrap.servers": BOOTSTRAP, "socket.timeout.ms": 8000, "metadata.max.age.ms": 3000,
           "topic.metadata.refresh.interval.ms": 3000, "reconnect.backoff.max.ms": 1000, "log_level": 0}


def join(topic, partition):
    return f"{topic}/{partition}"


def split(key):
    topic, partition = key.split("/")
    return topic, int(partition)


class Teller:
    def open(self, q):
        self.group = q.get("group")
        self.rebalanced = False
        self.consumer = self.member() if self.group else self.reader(q["topics"][1])
        if self.group:
            moved = lambda *_: setattr(self, "rebalanced", True)
            self.consumer.subscribe(q["topics"][:1], on_assign=moved, on_revoke=moved, on_lost=moved)
        self.producer = Producer({
            **NETWORK, "transactional.id": q["id"], "transaction.timeout.ms": q["millis"],
            "message.timeout.ms": 7000, "linger.ms": 0,
        })
        self.producer.init_transactions(9)
        return {}

    def member(self):
        config = {**NETWORK, "group.id": self.group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
                  "isolation.level": "read_committed", "fetch.wait.max.ms": 300}
        if self.group.endswith("-848"):
            config["group.protocol"] = "consumer"
        else:
            config.update({"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000, "max.poll.interval.ms": 30000})
        return Consumer(config)

    def reader(self, topic):
        consumer = Consumer({**NETWORK, "group.id": "nobody", "enable.auto.commit": False, "auto.offset.reset": "earliest",
                             "isolation.level": "read_committed", "fetch.wait.max.ms": 300})
        from confluent_kafka import OFFSET_END
        consumer.assign([TopicPartition(topic, p, OFFSET_END) for p in range(2)])
        return consumer

    def take(self, q):
        """What has come. After a rebalance within it nothing counts: what was
        read may be another's by now."""
        self.rebalanced = False
        got = self.consumer.consume(10, q["millis"] / 1000)
        if self.rebalanced:
            self.rewind()
            return {"reads": {}}
        reads = {}
        for m in got:
            if m.error():
                continue
            reads.setdefault(join(m.topic(), m.partition()), []).append([m.offset(), 0])
        return {"reads": reads}

    def rewind(self):
        """Goes back to what is committed, after a transaction that was not."""
        mine = self.consumer.assignment()
        if not mine:
            return
        for p in self.consumer.committed(mine, timeout=8):
            if p.offset < 0:
                p.offset = self.consumer.get_watermark_offsets(p, timeout=8)[0]
            self.consumer.seek(p)

    def txn(self, q):
        began = time.monotonic_ns()
        steps, decided = [], 0
        try:
            self.producer.begin_transaction()
            for s in q["steps"]:
                steps.extend(self.poll() if s["f"] == "poll" else [self.send(s, q["bytes"])])
            if self.producer.flush(8) > 0 or any(s["offset"] < 0 for s in steps if s["f"] == "send"):
                raise RuntimeError("not delivered")
            if q.get("from"):
                offsets = [TopicPartition(*split(k), o) for k, o in q["from"].items()]
                self.producer.send_offsets_to_transaction(offsets, self.consumer.consumer_group_metadata(), 8)
            if not q.get("commit"):
                raise Abort()
            decided = time.monotonic_ns() - began
            self.producer.commit_transaction(10)
            return {"outcome": "ok", "steps": steps, "decided": decided}
        except (KafkaException, RuntimeError, Abort) as e:
            answer = {"outcome": "info" if decided else "fail", "steps": steps or q["steps"], "decided": decided}
            known = {s["value"] for s in steps if s["f"] == "send"}
            answer["steps"] = steps + [s for s in q["steps"] if s["f"] == "send" and s["value"] not in known]
            if not isinstance(e, Abort):
                answer["error"] = str(e)
                return answer  # whoever asks lets go of us then
            try:
                self.producer.abort_transaction(8)
                if self.group:
                    self.rewind()
            except KafkaException as e:
                answer["error"] = str(e)
            return answer

    def send(self, s, size):
        topic, partition = split(s["key"])
        done = dict(s, offset=-1)

        def delivered(err, m):
            if not err:
                done["offset"] = m.offset()

        value = str(s["value"])
        self.producer.produce(topic, partition=partition, value=value + "." * max(0, size - len(value)), on_delivery=delivered)
        self.producer.poll(0)
        return done

    def poll(self):
        reads = {}
        for m in self.consumer.consume(200, 0.15):
            if not m.error():
                reads.setdefault(join(m.topic(), m.partition()), []).append([m.offset(), int(m.value().split(b".")[0])])
        return [{"f": "poll", "key": k, "offset": -1, "reads": r} for k, r in reads.items()]


class Abort(Exception):
    pass


def main():
    teller = Teller()
    for line in sys.stdin:
        q = json.loads(line)
        try:
            answer = getattr(teller, q["op"])(q)
        except (KafkaException, RuntimeError) as e:
            answer = {"error": str(e)}
        print(json.dumps(answer), flush=True)


main()
