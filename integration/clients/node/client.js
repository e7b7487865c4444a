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

const kafkaFor = (bootstrap) => new Kafka({ brokers: [bootstrap], clientId: 'kafkajs', logLevel: logLevel.ERROR })

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

const [verb, ...args] = process.argv.slice(2)
;({ produce, verify })[verb](...args).then(() => process.exit(0), (err) => {
  console.error('kafkajs:', err)
  process.exit(1)
})
