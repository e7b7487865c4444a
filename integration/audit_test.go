package integration

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/nodetest"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/ops/audit"
	"github.com/varvelog/varve/tier/objstore"
)

// audited is a stopped node's directory and its bucket, to be broken.
type audited struct {
	t      *testing.T
	data   string // log.dirs
	second string // the same as another node's, when a plant needs two
	bucket string
}

// TestAuditFindsPlantedFlaws stops a node with local and tiered data in order,
// and audits it: nothing is found. Then each kind of flaw is planted in a copy.
func TestAuditFindsPlantedFlaws(t *testing.T) {
	source := t.TempDir()
	bucket := filepath.Join(source, "bucket")
	if err := os.Mkdir(bucket, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Run("node", func(t *testing.T) { makeAuditable(t, source, bucket) })
	if t.Failed() {
		return
	}
	intact := &audited{t: t, data: filepath.Join(source, "data"), bucket: bucket}
	r := intact.audit(time.Hour)
	if r.Flaws != 0 {
		t.Fatalf("the intact node has flaws: %+v", r.Findings)
	}
	if r.Batches < 100 || r.Objects < 2 || r.Replicas < 2 || r.Partitions < 2 {
		t.Fatalf("little was audited: %+v", r)
	}
	for _, p := range auditPlants {
		t.Run(p.name, func(t *testing.T) {
			dir := t.TempDir()
			a := &audited{t: t, data: filepath.Join(dir, "data"), bucket: filepath.Join(dir, "bucket")}
			copyTree(t, intact.data, a.data)
			copyTree(t, intact.bucket, a.bucket)
			p.plant(a)
			r := a.audit(0)
			found := slices.IndexFunc(r.Findings, func(f audit.Finding) bool { return f.Kind == p.kind && !f.Note })
			if found < 0 {
				t.Errorf("no finding of kind %s among %+v", p.kind, r.Findings)
			}
			if r.Flaws == 0 {
				t.Error("no flaw is counted")
			}
		})
	}
}

func makeAuditable(t *testing.T, dir, bucket string) {
	n := nodetest.Start(t, dir, "--store", "file://"+bucket)
	settings := allRemote()
	settings["segment.bytes"] = "1048576"
	n.CreateTopic("cold", 1, settings)
	settings["local.retention.ms"] = "-1"
	n.CreateTopic("warm", 1, settings)
	n.CreateTopic("hot", 1, map[string]string{"segment.bytes": "1048576"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cl := n.Client(kgo.ProducerBatchCompression(kgo.NoCompression()))
	for i := range 400 {
		for _, topic := range []string{"cold", "warm", "hot"} {
			if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: bytes.Repeat(fmt.Append(nil, i), 3000)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	waitAllRemote(t, n.Client(), "cold", 0, time.Minute)
	nodetest.Eventually(t, time.Minute, "warm is all in the bucket, too", func() error {
		last, _, err := nodetest.OffsetAt(ctx, cl, "warm", 0, nodetest.LastTiered)
		if err == nil && last != 399 {
			err = fmt.Errorf("last tiered is %d", last)
		}
		return err
	})
	n.Stop()
}

func (a *audited) audit(orphanAge time.Duration) *audit.Report {
	a.t.Helper()
	st, err := objstore.Open(a.t.Context(), "file://"+a.bucket, objstore.Options{})
	if err != nil {
		a.t.Fatal(err)
	}
	dirs := []string{a.data}
	if a.second != "" {
		dirs = append(dirs, a.second)
	}
	r, err := audit.Run(a.t.Context(), audit.Input{Dirs: dirs, Store: st, OrphanAge: orphanAge})
	if err != nil {
		a.t.Fatal(err)
	}
	return r
}

// twin makes the same directory another node's.
func (a *audited) twin() {
	a.second = a.data + "-2"
	copyTree(a.t, a.data, a.second)
	path := filepath.Join(a.second, "meta", "meta.properties")
	a.edit(path, func(b []byte) []byte { return bytes.Replace(b, []byte("node.id=1"), []byte("node.id=2"), 1) })
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// edit changes a file.
func (a *audited) edit(path string, change func(b []byte) []byte) {
	a.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		a.t.Fatal(err)
	}
	fresh := change(slices.Clone(b))
	if bytes.Equal(fresh, b) {
		a.t.Fatalf("%s is as it was", path)
	}
	if err := os.WriteFile(path, fresh, 0o644); err != nil {
		a.t.Fatal(err)
	}
}

func flip(at int) func([]byte) []byte {
	return func(b []byte) []byte {
		if at < 0 {
			at += len(b)
		}
		b[at] ^= 1
		return b
	}
}

// files are those of a partition with an ending, in order.
func (a *audited) files(dir, topic, ext string) []string {
	a.t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "log", topic+"-0.*", "*"+ext))
	if err != nil || len(all) == 0 {
		a.t.Fatalf("%s has no %s: %v", topic, ext, err)
	}
	return all
}

// headOf is the head manifest of a topic's partition.
func (a *audited) headOf(topic string) string {
	a.t.Helper()
	dir := filepath.Base(filepath.Dir(a.files(a.data, topic, ".log")[0])) // topic-0.ID
	_, id, _ := strings.Cut(dir, ".")
	for _, path := range a.objects("/head") {
		if strings.Contains(path, id) {
			return path
		}
	}
	a.t.Fatalf("no manifest of %s", dir)
	return ""
}

// objects are the keys in the bucket that contain a part.
func (a *audited) objects(part string) []string {
	a.t.Helper()
	var found []string
	err := filepath.WalkDir(a.bucket, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.Contains(path, part) {
			found = append(found, path)
		}
		return err
	})
	if err != nil || len(found) == 0 {
		a.t.Fatalf("no object with %s: %v", part, err)
	}
	slices.Sort(found)
	return found
}

// rewriteFirst changes the first batch of a segment so that its checksum is
// good.
func rewriteFirst(b []byte) []byte {
	size := 12 + int(binary.BigEndian.Uint32(b[8:]))
	b[size-10] ^= 1
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:size], castagnoli))
	return b
}

// dropLast cuts the last batch off.
func dropLast(b []byte) []byte {
	last := 0
	for at := 0; at < len(b); at += 12 + int(binary.BigEndian.Uint32(b[at+8:])) {
		last = at
	}
	return b[:last]
}

// withSum puts a checksum over everything from byte 12 on at byte 8, as the
// small files of a partition have it.
func withSum(change func(b []byte)) func([]byte) []byte {
	return func(b []byte) []byte {
		change(b)
		binary.BigEndian.PutUint32(b[8:], crc32.Checksum(b[12:], castagnoli))
		return b
	}
}

var auditPlants = []struct {
	name  string
	kind  audit.Kind
	plant func(a *audited)
}{
	{"a flipped bit in a sealed segment", audit.Damaged, func(a *audited) { a.edit(a.files(a.data, "hot", ".log")[0], flip(5000)) }},
	{"a flipped bit in the last segment", audit.Damaged, func(a *audited) {
		logs := a.files(a.data, "hot", ".log")
		a.edit(logs[len(logs)-1], flip(100))
	}},
	{"a segment is gone", audit.Gap, func(a *audited) { a.remove(a.files(a.data, "hot", ".log")[1]) }},
	{"the first segment is gone", audit.Gap, func(a *audited) { a.remove(a.files(a.data, "hot", ".log")[0]) }},
	{"a batch twice", audit.Gap, func(a *audited) {
		a.edit(a.files(a.data, "hot", ".log")[0], func(b []byte) []byte { return append(b, b[:12+int(binary.BigEndian.Uint32(b[8:]))]...) })
	}},
	{"one replica has other bytes", audit.Divergent, func(a *audited) { a.twin(); a.edit(a.files(a.second, "hot", ".log")[0], rewriteFirst) }},
	{"an epoch differs between replicas", audit.Divergent, func(a *audited) {
		a.twin()
		a.edit(a.files(a.second, "hot", ".log")[0], func(b []byte) []byte { b[15]++; return b })
	}},
	{"the bucket has other bytes", audit.Divergent, func(a *audited) { a.edit(a.files(a.data, "warm", ".log")[0], rewriteFirst) }},
	{"a replica in the ISR ends early", audit.Short, func(a *audited) {
		a.twin()
		logs := a.files(a.data, "hot", ".log")
		a.edit(logs[len(logs)-1], dropLast)
	}},
	{"the end is below the high watermark", audit.Checkpoint, func(a *audited) {
		logs := a.files(a.data, "hot", ".log")
		a.edit(logs[len(logs)-1], dropLast)
	}},
	{"the journal is gone", audit.Checkpoint, func(a *audited) { a.remove(filepath.Join(a.data, "log", "journal")) }},
	{"the chain names another epoch", audit.Epochs, func(a *audited) {
		a.write(filepath.Join(filepath.Dir(a.files(a.data, "hot", ".log")[0]), "leader-epochs"), chainFile(7, 0))
	}},
	{"the chain's checksum is wrong", audit.Epochs, func(a *audited) {
		a.write(filepath.Join(filepath.Dir(a.files(a.data, "hot", ".log")[0]), "leader-epochs"), flip(20)(chainFile(1, 0)))
	}},
	{"epochs fall", audit.Epochs, func(a *audited) {
		a.edit(a.files(a.data, "hot", ".log")[0], func(b []byte) []byte { b[15] = 9; return b })
	}},
	{"an index entry points beside a batch", audit.Index, func(a *audited) {
		path := a.files(a.data, "hot", ".index")[0]
		a.edit(path, func(b []byte) []byte {
			binary.BigEndian.PutUint32(b[4:], binary.BigEndian.Uint32(b[4:])+1)
			seed := crc32.Checksum(make([]byte, 8), castagnoli) // of base offset 0
			binary.BigEndian.PutUint32(b[20:], crc32.Update(seed, castagnoli, b[:20]))
			return b
		})
	}},
	{"a producer's last sequence is another", audit.Producers, func(a *audited) {
		all := a.files(a.data, "hot", ".snapshot")
		a.edit(all[len(all)-1], withSum(func(b []byte) { b[len(b)-21]++ })) // last sequence of the last batch
	}},
	{"a producer snapshot is damaged", audit.Producers, func(a *audited) {
		all := a.files(a.data, "hot", ".snapshot")
		a.edit(all[len(all)-1], flip(-3))
	}},
	{"a manifest is damaged", audit.Manifest, func(a *audited) { a.edit(a.objects("/head")[0], flip(80)) }},
	{"a manifest has a gap", audit.Manifest, func(a *audited) {
		a.edit(a.objects("/head")[0], func(b []byte) []byte {
			binary.BigEndian.PutUint64(b[52:], binary.BigEndian.Uint64(b[52:])+1) // the end
			body := b[:len(b)-4]
			binary.BigEndian.PutUint32(b[len(b)-4:], crc32.Checksum(body, castagnoli))
			return b
		})
	}},
	{"an object is gone", audit.Object, func(a *audited) { a.remove(a.objects("/seg/")[0]) }},
	{"an object is damaged", audit.Object, func(a *audited) { a.edit(a.objects("/seg/")[0], flip(300)) }},
	{"an object is cut", audit.Object, func(a *audited) {
		a.edit(a.objects("/seg/")[0], func(b []byte) []byte { return b[:len(b)-1] })
	}},
	{"what left the disk is not in the bucket", audit.Seam, func(a *audited) { a.remove(a.headOf("cold")) }},
	{"an object that nobody names", audit.Orphan, func(a *audited) {
		path := a.objects("/seg/")[0]
		b, err := os.ReadFile(path)
		if err != nil {
			a.t.Fatal(err)
		}
		a.write(path[:len(path)-16]+"0123456789abcdef", b)
	}},
	{"a topic that the metadata does not know", audit.Stray, func(a *audited) {
		dir := filepath.Dir(a.files(a.data, "hot", ".log")[0])
		copyTree(a.t, dir, filepath.Join(a.data, "log", "other-0."+topic.NewID().String()))
	}},
	{"a replica's directory is gone", audit.Missing, func(a *audited) {
		if err := os.RemoveAll(filepath.Dir(a.files(a.data, "hot", ".log")[0])); err != nil {
			a.t.Fatal(err)
		}
	}},
	{"the metadata log is damaged", audit.Metadata, func(a *audited) {
		a.alterLast(a.data, func(l *raft.Log) { l.Data = append(slices.Clone(l.Data), 0) }, false)
	}},
	{"two nodes have different metadata", audit.Metadata, func(a *audited) {
		a.twin()
		a.alterLast(a.second, func(l *raft.Log) { l.Type, l.Data = raft.LogNoop, nil }, true)
	}},
	{"two clusters", audit.Metadata, func(a *audited) {
		a.twin()
		a.edit(filepath.Join(a.second, "meta", "meta.properties"), func(b []byte) []byte { return bytes.Replace(b, []byte("cluster.id="), []byte("cluster.id=x"), 1) })
	}},
}

func (a *audited) remove(path string) {
	a.t.Helper()
	if err := os.Remove(path); err != nil {
		a.t.Fatal(err)
	}
}

func (a *audited) write(path string, b []byte) {
	a.t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		a.t.Fatal(err)
	}
}

func chainFile(epoch uint32, start uint64) []byte {
	b := append([]byte("VEPC"), 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)
	b = binary.BigEndian.AppendUint32(b, epoch)
	b = binary.BigEndian.AppendUint64(b, start)
	return withSum(func([]byte) {})(b)
}

// alterLast changes the newest entry of a metadata log, with a good seal or
// with the old one.
func (a *audited) alterLast(dir string, change func(*raft.Log), seal bool) {
	a.t.Helper()
	db, err := raftboltdb.NewBoltStore(filepath.Join(dir, "meta", "raft.db"))
	if err != nil {
		a.t.Fatal(err)
	}
	defer db.Close()
	last, err := db.LastIndex()
	if err != nil {
		a.t.Fatal(err)
	}
	var l raft.Log
	for ; l.Type != raft.LogCommand || l.Index == 0; last-- {
		if err := db.GetLog(last, &l); err != nil {
			a.t.Fatal(err)
		}
	}
	change(&l)
	if seal {
		var head [17]byte
		binary.BigEndian.PutUint64(head[0:], l.Index)
		binary.BigEndian.PutUint64(head[8:], l.Term)
		head[16] = byte(l.Type)
		l.Extensions = binary.BigEndian.AppendUint32([]byte{1}, crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, l.Data))
	}
	if err := db.StoreLog(&l); err != nil {
		a.t.Fatal(err)
	}
}
