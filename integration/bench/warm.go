package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
)

// warm measures brokers whose data is in memory: all four systems, one after
// the other, in every round.
func (b *bench) warm(ctx context.Context) error {
	kafka, err := b.startKafka(ctx, false)
	if err != nil {
		return err
	}
	b.onStop(kafka.stop)
	replicated, err := b.startVarve("varve-replicated", nil, "--set", "varve.durability=replicated", "--set", "log.segment.delete.delay.ms=0")
	if err != nil {
		return err
	}
	b.onStop(replicated.stop)
	fsync, err := b.startVarve("varve-fsync", nil, "--set", "log.segment.delete.delay.ms=0")
	if err != nil {
		return err
	}
	b.onStop(fsync.stop)
	for round := range *rounds + 1 {
		if err := b.fdatasync(ctx, round); err != nil {
			return err
		}
		stub, err := b.startStub()
		if err != nil {
			return err
		}
		for _, s := range []system{stub, kafka, replicated, fsync} {
			if err := b.warmRound(ctx, s, round); err != nil {
				return err
			}
		}
		if err := stub.stop(); err != nil {
			return err
		}
	}
	return b.stopAll()
}

// load is one kind of load of the warm part.
type load struct {
	name string
	args []string
}

func warmLoads() []load {
	quick := "file.delete.delay.ms=0"
	return []load{
		{"produce-1024", []string{"produce", "-size", "1024", "-count", "1500000", "-configs", quick}},
		{"consume-1024", []string{"consume", "-count", "1500000"}},
		{"produce-100", []string{"produce", "-size", "100", "-count", "6000000", "-configs", quick}},
		{"small", []string{"small", "-size", "200", "-conns", "1000", "-seconds", "4", "-configs", quick}},
		{"paced-1000", []string{"paced", "-size", "1024", "-rate", "1000", "-seconds", "4", "-configs", quick}},
		{"paced-10000", []string{"paced", "-size", "1024", "-rate", "10000", "-seconds", "4", "-configs", quick}},
	}
}

func (b *bench) warmRound(ctx context.Context, s system, round int) error {
	topics := map[string]bool{}
	for _, l := range warmLoads() {
		topic := "r" + strconv.Itoa(round) + "-" + l.name
		if l.args[0] == "consume" {
			topic = "r" + strconv.Itoa(round) + "-produce-1024"
		}
		topics[topic] = true
		if l.args[0] == "produce" {
			if err := b.touch(ctx, "1600MiB"); err != nil {
				return err
			}
		}
		f, err := b.run(ctx, s, append(l.args, "-topic", topic)...)
		if err != nil {
			return err
		}
		if err := b.note(measured{"warm", l.name, s.name, round, f}); err != nil {
			return err
		}
	}
	return deleteTopics(ctx, s, topics)
}

// deleteTopics makes room for the next round; the stub is stopped instead.
func deleteTopics(ctx context.Context, s system, topics map[string]bool) error {
	if s.name == "stub" {
		return nil
	}
	cl, err := dial(s.addr)
	if err != nil {
		return err
	}
	defer cl.Close()
	for topic := range topics {
		if _, err := kadm.NewClient(cl).DeleteTopic(ctx, topic); err != nil {
			return fmt.Errorf("delete %s on %s: %w", topic, s.name, err)
		}
	}
	return nil
}

// fdatasync measures the disk itself, the denominator of a synced ack.
func (b *bench) fdatasync(ctx context.Context, round int) error {
	text, err := exec.CommandContext(ctx, b.limits, "fdatasync", "-dir", b.dir, "-rounds", "1").Output()
	if err != nil {
		return fmt.Errorf("limits fdatasync: %w", err)
	}
	f, err := limitFigures(text, "allocated")
	if err != nil {
		return err
	}
	return b.note(measured{"warm", "fdatasync", "limit", round, f})
}
