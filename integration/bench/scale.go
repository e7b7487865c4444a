package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const idlePartitions = 10_000

// scale measures memory of an empty node and of idle partitions, and how long a
// node with many takes from kill -9 to its first acknowledgement.
func (b *bench) scale(ctx context.Context) error {
	for round := range *rounds + 1 {
		if err := b.scaleRound(ctx, round); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) scaleRound(ctx context.Context, round int) error {
	name := "varve-scale" + strconv.Itoa(round)
	defer os.RemoveAll(filepath.Join(b.dir, name))
	s, err := b.startVarve(name, nil)
	if err != nil {
		return err
	}
	empty, err := resident(s.pid)
	if err != nil {
		return errors.Join(err, s.stop())
	}
	err = fillPartitions(ctx, s)
	full, rerr := resident(s.pid)
	if err := errors.Join(err, rerr); err != nil {
		return errors.Join(err, s.stop())
	}
	s, began, err := s.again()
	if err != nil {
		return err
	}
	defer s.stop()
	if err := firstAck(ctx, s); err != nil {
		return err
	}
	ack := time.Since(began)
	again, err := resident(s.pid)
	if err != nil {
		return err
	}
	return b.note(measured{"scale", "10000 partitions", "varve", round, figures{
		"empty_mib": empty, "idle_kib_per_partition": (full - empty) * 1024 / idlePartitions,
		"restarted_kib_per_partition": (again - empty) * 1024 / idlePartitions, "first_ack_s": ack.Seconds()}})
}

func fillPartitions(ctx context.Context, s system) error {
	cl, err := dial(s.addr)
	if err != nil {
		return err
	}
	defer cl.Close()
	for i := range 10 {
		if _, err := kadm.NewClient(cl).CreateTopic(ctx, idlePartitions/10, 1, nil, fmt.Sprint("idle", i)); err != nil {
			return err
		}
	}
	// The last one to be served shows that all are.
	return firstAck(ctx, s)
}

func firstAck(ctx context.Context, s system) error {
	cl, err := dial(s.addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer cl.Close()
	return cl.ProduceSync(ctx, &kgo.Record{Topic: "idle9", Partition: idlePartitions/10 - 1, Value: []byte("first")}).FirstErr()
}

// resident is a process's resident memory in MiB.
func resident(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib / 1024, err
		}
	}
	return 0, errors.New("no VmRSS")
}
