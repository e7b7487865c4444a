// Drives kafkajs through the verbs of integration/clients.
const { Kafka, logLevel, CompressionTypes, CompressionCodecs } = require('kafkajs')
const snappy = require('snappyjs')
const lz4 = require('lz4-napi')
const { ZstdCodec } = require('zstd-codec')

// kafkajs brings gzip only; the others are plugged in. Snappy comes in the
// framing of xerial/snappy-java as well as plain.
const XERIAL = Buffer.from([130, 83, 78, 65, 80, 80, 89, 0])
function unsnappy(buffer) {
  if (!buffer.subarray(0, 8).equals(XERIAL)) return Buffer.from(snappy.uncompress(buffer))
  const parts = []
  for (let i = 16; i < buffer.length;) {
    const n = buffer.readUInt32BE(i)
    parts.push(Buffer.from(snappy.uncompress(buffer.subarray(i + 4, i + 4 + n))))
    i += 4 + n
  }
  return Buffer.concat(parts)
}
CompressionCodecs[CompressionTypes.Snappy] = () => ({
  compress: async (e) => Buffer.from(snappy.compress(e.buffer)),
  decompress: async (b) => unsnappy(b),
})
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (e) => lz4.compressFrame(e.buffer),
  decompress: async (b) => lz4.decompressFrame(b),
})
const zstd = new Promise((resolve) => ZstdCodec.run((z) => resolve(new z.Streaming())))
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (e) => Buffer.from((await zstd).compress(e.buffer)),
  decompress: async (b) => Buffer.from((await zstd).decompress(b)),
})
const codecs = {
  none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD,
}

const kafkaFor = (bootstrap) => new Kafka({ brokers: bootstrap.split(','), clientId: 'kafkajs', logLevel: logLevel.ERROR })

async function produce(bootstrap, topic, codec, count, first) {
  const producer = kafkaFor(bootstrap).producer({ idempotent: true })
  await producer.connect()
  const messages = []
  for (let i = Number(first); i < Number(first) + Number(count); i++) {
    messages.push({
      key: `k${i}`, value: `${i} ` + 'varve '.repeat(34).slice(0, 200), partition: 0,
      timestamp: String(1600000000000 + 1000 * i),
    })
  }
  for (let i = 0; i < messages.length; i += 500) {
    await producer.send({ topic, compression: codecs[codec], acks: -1, messages: messages.slice(i, i + 500) })
  }
  await producer.disconnect()
}

async function verify(bootstrap, topic, group, count, times) {
  const kafka = kafkaFor(bootstrap)
  const consumer = kafka.consumer({ groupId: group })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  let left = Number(count)
  const out = []
  let last
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`${left} records missing`)), 100000).unref()
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ message: m }) => {
        if (left <= 0) return
        out.push([m.offset, m.timestamp, m.key.toString(), m.value.toString()].join('\t'))
        last = m.offset
        if (--left === 0) resolve()
      },
    }).catch(reject)
  })
  await consumer.commitOffsets([{ topic, partition: 0, offset: String(BigInt(last) + 1n) }])
  await consumer.disconnect()
  const admin = kafka.admin()
  await admin.connect()
  const high = (await admin.fetchTopicOffsets(topic))[0].high
  for (const ts of times.split(',')) {
    const [p] = await admin.fetchTopicOffsetsByTimestamp(topic, Number(ts))
    // kafkajs answers the high watermark where Kafka answers none.
    out.push(['time', ts, p.offset === high ? '-1' : p.offset].join('\t'))
  }
  await admin.disconnect()
  await new Promise((done) => process.stdout.write(out.join('\n') + '\n', done)) // exit() drops what is not written
}

const consumerIn = (bootstrap, group) => kafkaFor(bootstrap).consumer({
  groupId: group, sessionTimeout: 3000, heartbeatInterval: 300, rebalanceTimeout: 6000, readUncommitted: false, maxWaitTimeInMs: 200,
})

async function member(bootstrap, topic, group) {
  const consumer = consumerIn(bootstrap, group)
  const assigned = (list) => process.stdout.write(`assigned\t${list.sort().join(',')}\n`)
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => assigned(payload.memberAssignment[topic] || []))
  consumer.on(consumer.events.REBALANCING, () => assigned([]))
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({ // commits after each batch
    eachMessage: async ({ partition, message: m }) => { process.stdout.write(`record\t${partition}\t${m.offset}\n`) },
  })
  await new Promise((resolve) => process.stdin.on('end', resolve).resume())
  await consumer.disconnect()
}

const transactional = (bootstrap, id) => kafkaFor(bootstrap).producer({
  transactionalId: id, idempotent: true, maxInFlightRequests: 1, transactionTimeout: 10000, retry: { retries: 8 },
})

async function transform(bootstrap, topic, out, group, id, _, count) {
  const producer = transactional(bootstrap, id)
  const consumer = consumerIn(bootstrap, group)
  await producer.connect()
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  let copied = 0
  let turn = 0
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`${copied} records copied`)), 100000).unref()
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: false,
      eachBatch: async ({ batch, resolveOffset, heartbeat }) => {
        for (let i = 0; i < batch.messages.length; i += 20) {
          const some = batch.messages.slice(i, i + 20)
          const following = String(BigInt(some[some.length - 1].offset) + 1n)
          for (;;) {
            const t = await producer.transaction()
            await t.send({ topic: out, messages: some.map(({ key, value }) => ({ key, value })) })
            await t.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions: [{ partition: batch.partition, offset: following }] }] })
            if (++turn % 4 !== 3) {
              await t.commit()
              break
            }
            await t.abort() // for no reason
          }
          resolveOffset(some[some.length - 1].offset)
          copied += some.length
          await heartbeat()
        }
        if (copied >= Number(count)) resolve()
      },
    }).catch(reject)
  })
  await consumer.disconnect()
  await producer.disconnect()
}

async function fence(bootstrap, topic, id) {
  // With keys: a record without one goes to another partition when kafkajs sends it again, and others go twice.
  const write = async (producer, name) => {
    const t = await producer.transaction()
    await t.send({ topic, messages: Array.from({ length: 10 }, (_, i) => ({ key: `${i}`, value: `${name}-${i}` })) })
    return t
  }
  const old = transactional(bootstrap, id)
  const young = transactional(bootstrap, id)
  await old.connect()
  await (await write(old, 'kept')).commit()
  await (await write(old, 'dropped')).abort()
  const zombie = await write(old, 'zombie')
  await young.connect()
  const after = await write(young, 'young')
  await zombie.commit().then(() => { throw new Error('the zombie has committed') }, (refused) => {
    if (!['PRODUCER_FENCED', 'INVALID_PRODUCER_EPOCH'].includes(refused.type)) throw refused
    process.stdout.write('fenced\n')
  })
  await after.commit()
  await young.disconnect()
  await old.disconnect()
}

const [verb, ...args] = process.argv.slice(2)
;({ produce, verify, member, transform, fence })[verb](...args).then(() => process.stdout.write('', () => process.exit(0)), (err) => {
  console.error('kafkajs:', err)
  process.exit(1)
})
