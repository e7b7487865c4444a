package integration

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/nodetest"
)

// TestNearlyFullDiskRefusesWritesAndRecovers runs a node on a small file system
// of its own: writes are refused with the reserve still free, the metadata and
// reads go on, nothing acknowledged is lost, and writing goes on by itself once
// space is back.
func TestNearlyFullDiskRefusesWritesAndRecovers(t *testing.T) {
	const size, reserve = 160 << 20, 32 << 20
	dir := t.TempDir()
	switch err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); {
	case errors.Is(err, syscall.EPERM):
		t.Skip("needs the right to mount a file system (root)")
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nodetest.Eventually(t, 30*time.Second, "it is unmounted", func() error { return syscall.Unmount(dir, 0) })
	})
	t.Run("node", func(t *testing.T) { // its end stops the node before the unmount
		n := nodetest.Start(t, dir, "--store", "file://"+t.TempDir(), "--set", fmt.Sprintf("varve.disk.reserve.bytes=%d", reserve))
		n.CreateTopic("filler", 1, nil)
		n.CreateTopic("kept", 1, nil)
		acked := fill(t, n)
		if free := freeBytes(t, dir); free < reserve-4<<20 {
			t.Errorf("only %d bytes were free when writes were refused, the reserve is %d", free, reserve)
		}
		checkKept(t, n, acked)
		adm := kadm.NewClient(n.Client())
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := adm.DeleteTopic(ctx, "filler"); err != nil {
			t.Fatalf("delete a topic on a full disk: %v", err)
		}
		nodetest.Eventually(t, 90*time.Second, "writes are taken again", func() error {
			cl := n.Client(kgo.DefaultProduceTopic("kept"), kgo.RecordRetries(0), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.AllISRAcks()))
			return cl.ProduceSync(ctx, &kgo.Record{Value: []byte("after")}).FirstErr()
		})
		if got := readPartition(ctx, t, n, "kept", 0); string(got[len(got)-1].Value) != "after" {
			t.Errorf("the last record is %q", got[len(got)-1].Value)
		}
		n.Stop()
	})
}

// fill writes until writes are refused, now and then to the topic that is kept,
// and gives the number of records acknowledged there.
func fill(t *testing.T, n *nodetest.Node) int {
	t.Helper()
	opts := []kgo.Opt{kgo.RecordRetries(0), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerBatchCompression(kgo.NoCompression())}
	cl := n.Client(opts...)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	block := make([]byte, 512<<10)
	for kept := 0; ; kept++ {
		err := cl.ProduceSync(ctx, &kgo.Record{Topic: "kept", Value: fmt.Append(nil, kept)}).FirstErr()
		for i := 0; i < 4 && err == nil; i++ {
			err = cl.ProduceSync(ctx, &kgo.Record{Topic: "filler", Value: block}).FirstErr()
			if err != nil {
				kept++ // the small record before was acknowledged
			}
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, kerr.KafkaStorageError) {
			t.Fatalf("a nearly full disk answers %v, want KAFKA_STORAGE_ERROR", err)
		}
		return kept
	}
}

func checkKept(t *testing.T, n *nodetest.Node, acked int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	records := readPartition(ctx, t, n, "kept", 0)
	if len(records) < acked || acked == 0 {
		t.Fatalf("%d records are left of %d acknowledged", len(records), acked)
	}
	for i, r := range records {
		if string(r.Value) != fmt.Sprint(i) {
			t.Fatalf("record %d is %q", i, r.Value)
		}
	}
}

func freeBytes(t *testing.T, dir string) int64 {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	return int64(s.Bavail) * s.Bsize
}
