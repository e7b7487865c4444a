package batch_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/varvelog/varve/hot/batch"
)

// TestReadsWhatKafkaWrites reads batches of Kafka 4.4.0's own Java library
// (MemoryRecordsBuilder): the records of sample(60) from producer 5, epoch 2,
// sequence 9, with every codec at its default and its highest level.
func TestReadsWhatKafkaWrites(t *testing.T) {
	files, err := filepath.Glob("testdata/kafka-4.4.0/*.bin")
	if err != nil || len(files) != 8 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			in, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			before := bytes.Clone(in)
			v, err := batch.Validate(in, options())
			if err != nil {
				t.Fatal(err)
			}
			if v.Rebuilt || !bytes.Equal(in, before) {
				t.Fatal("a good batch was changed")
			}
			b := v.Bytes
			if v.OffsetOfMaxTimestamp != 6 || b.ProducerID() != 5 || b.ProducerEpoch() != 2 || b.BaseSequence() != 9 || b.LastSequence() != 68 {
				t.Fatalf("header: %+v", v)
			}
			sameRecords(t, readAll(t, b), sample(60))
		})
	}
}

// TestBuildsWhatKafkaBuilds compares an uncompressed batch byte by byte.
func TestBuildsWhatKafkaBuilds(t *testing.T) {
	want, err := os.ReadFile("testdata/kafka-4.4.0/none.bin")
	if err != nil {
		t.Fatal(err)
	}
	got := build(t, batch.Options{LeaderEpoch: -1, Producer: &batch.Producer{ID: 5, Epoch: 2, Sequence: 9}}, sample(60))
	if !bytes.Equal(got, want) {
		t.Fatalf("built\n%x\nKafka's\n%x", []byte(got), want)
	}
}
