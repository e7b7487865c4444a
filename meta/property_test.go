package meta

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// history makes a random history of decisions and returns its commands, as the
// log holds them, with the image after each.
func history(t *rapid.T, check func(before, after *Image)) ([][]byte, []*Image) {
	b, err := conf.ParseBroker(map[string]string{"varve.tier.store": "mem:"})
	if err != nil {
		t.Fatal(err)
	}
	img := newImage()
	var log [][]byte
	images := []*Image{img}
	for step := range rapid.IntRange(1, 40).Draw(t, "steps") {
		changes := randomDecision(t, img, &b)
		if len(changes) == 0 {
			continue
		}
		c := Command{Base: img.Index, Changes: changes}
		encoded := c.Encode()
		decoded, err := DecodeCommand(encoded)
		if err != nil {
			t.Fatal(err)
		}
		before := img.EncodeSnapshot()
		next, err := img.Apply(decoded, uint64(step+1))
		if err != nil {
			t.Fatalf("a decision does not apply: %v", err)
		}
		if !bytes.Equal(before, img.EncodeSnapshot()) {
			t.Fatal("applying a command changed the image before it")
		}
		check(img, next)
		img = next
		log = append(log, encoded)
		images = append(images, img)
	}
	return log, images
}

// randomDecision draws an event and decides on it.
func randomDecision(t *rapid.T, img *Image, b *conf.Broker) []Change {
	id := rapid.Int32Range(1, 5).Draw(t, "broker")
	name := rapid.SampledFrom([]string{"a", "b.c", "b_c", "d"}).Draw(t, "topic")
	epoch := img.Brokers[id].Epoch
	switch rapid.IntRange(0, 15).Draw(t, "event") {
	case 0, 1:
		r := Registration{ID: id, Host: "h", Incarnation: drawID(t), Fenced: rapid.Bool().Draw(t, "fenced"), MayLackRecords: rapid.Bool().Draw(t, "lossy")}
		if rapid.Bool().Draw(t, "again") {
			r.Incarnation = img.Brokers[id].Incarnation
		}
		changes, err := decideRegister(img, b, r, false)
		if err != nil {
			t.Fatal(err)
		}
		return changes
	case 2:
		changes, _ := decideBroker(img, b, ChangeBroker{ID: id, Epoch: epoch, Fenced: rapid.Bool().Draw(t, "fence"), ShuttingDown: rapid.Bool().Draw(t, "stop")})
		return changes
	case 3, 4:
		_, changes := decideCreateTopics(img, b, []NewTopic{{
			Name: name, Partitions: rapid.Int32Range(1, 5).Draw(t, "partitions"), ReplicationFactor: int16(rapid.IntRange(1, 3).Draw(t, "factor")),
			Configs: randomConfigs(t),
		}}, func() topic.ID { return drawID(t) })
		return changes
	case 5:
		_, changes := decideDeleteTopics(img, b, []TopicRef{{Name: name}})
		return changes
	case 6:
		_, changes := decideCreatePartitions(img, []MorePartitions{{Name: name, Count: rapid.Int32Range(1, 8).Draw(t, "count")}})
		return changes
	case 7:
		for _, d := range img.DeletedTopics() {
			return decideConfirmDeleted(img, ConfirmDeleted{ID: d.ID, Broker: id, Tier: rapid.Bool().Draw(t, "tier")})
		}
		return nil
	case 8, 9:
		return randomAlter(t, img, b, name)
	case 10, 11, 12:
		return randomReassign(t, img, b, name)
	case 13:
		_, changes := decideElection(img, b, rapid.IntRange(0, 3).Draw(t, "unclean") == 0, nil)
		return changes
	case 14:
		value := rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "min isr")
		_, changes := decideConfigs(img, b, 1, []ConfigChange{{
			ConfigResource: ConfigResource{Kind: TopicConfig, Name: name}, Edits: []ConfigEdit{{Name: minISRSetting, Op: OpSet, Value: &value}},
		}})
		return changes
	case 15:
		if rapid.IntRange(0, 3).Draw(t, "unregister") == 0 {
			changes, _ := decideUnregister(img, b, id)
			return changes
		}
		return nil
	default:
		_, changes, _ := decideProducerIDs(img, id, epoch)
		return changes
	}
}

func drawID(t *rapid.T) topic.ID {
	return topic.ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Filter(func(b []byte) bool { return b[0] != 0 }).Draw(t, "id"))
}

func randomConfigs(t *rapid.T) []ConfigValue {
	var list []ConfigValue
	for _, kv := range [][2]string{{"remote.storage.enable", "true"}, {"min.insync.replicas", "2"}, {"unclean.leader.election.enable", "true"}} {
		if rapid.Bool().Draw(t, kv[0]) {
			list = append(list, ConfigValue{Name: kv[0], Value: &kv[1]})
		}
	}
	return list
}

func randomReassign(t *rapid.T, img *Image, b *conf.Broker, name string) []Change {
	w := Reassign{PartitionRef: PartitionRef{Topic: name}}
	if rapid.IntRange(0, 3).Draw(t, "cancel") > 0 {
		w.Replicas = rapid.SliceOfNDistinct(rapid.Int32Range(1, 5), 1, 3, rapid.ID).Draw(t, "target")
	}
	_, changes := decideReassign(img, b, []Reassign{w}, rapid.Bool().Draw(t, "factor"))
	return changes
}

func randomAlter(t *rapid.T, img *Image, b *conf.Broker, name string) []Change {
	tp, p := img.Partition(name, 0)
	if p == nil || p.Leader == NoLeader {
		return nil
	}
	w := AlterPartition{ID: tp.ID, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Recovering: p.Recovering && rapid.Bool().Draw(t, "recovering")}
	for _, id := range p.Replicas {
		if id == p.Leader || rapid.Bool().Draw(t, "in") {
			w.ISR = append(w.ISR, BrokerState{ID: id, Epoch: img.Brokers[id].Epoch})
		}
	}
	_, changes, err := decideAlterPartition(img, b, p.Leader, img.Brokers[p.Leader].Epoch, []AlterPartition{w})
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

func TestTheSameLogGivesTheSameImage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log, images := history(t, func(_, _ *Image) {})
		// From the start, and from a snapshot anywhere in between.
		from := rapid.IntRange(0, len(log)).Draw(t, "snapshot")
		img, err := DecodeSnapshot(images[from].EncodeSnapshot())
		if err != nil {
			t.Fatal(err)
		}
		img.ControllerID = 77 // whom this node takes for the controller is not in the log
		for i := from; i < len(log); i++ {
			c, err := DecodeCommand(log[i])
			if err != nil {
				t.Fatal(err)
			}
			if img, err = img.Apply(c, images[i+1].Index); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(img.EncodeSnapshot(), images[i+1].EncodeSnapshot()) {
				t.Fatalf("command %d gives another image the second time", i)
			}
		}
	})
}

func TestWhatHoldsOfEveryImage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history(t, func(before, after *Image) {
			if err := checkImage(after); err != nil {
				t.Fatal(err)
			}
			if err := checkStep(before, after); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// checkImage checks what must hold of an image by itself.
func checkImage(img *Image) error {
	partitions := 0
	load := make(map[int32]brokerLoad)
	for _, t := range img.Topics() {
		partitions += len(t.Partitions)
		for i := range t.Partitions {
			for j, id := range t.Partitions[i].Replicas {
				l := load[id]
				l.holds++
				if j == 0 {
					l.leads++
				}
				load[id] = l
			}
		}
		if img.TopicByID(t.ID) != t || img.Topic(t.Name) != t {
			return fmt.Errorf("topic %s is not found by name and id", t.Name)
		}
	}
	if err := checkPartitions(img); err != nil {
		return err
	}
	if partitions != img.PartitionCount() {
		return fmt.Errorf("%d partitions, counted as %d", partitions, img.PartitionCount())
	}
	if len(load)+len(img.load) > 0 && !reflect.DeepEqual(load, img.load) {
		return fmt.Errorf("loads %v, counted as %v", load, img.load)
	}
	return nil
}

func checkPartitions(img *Image) error {
	for _, t := range img.Topics() {
		for i := range t.Partitions {
			if err := checkPartition(img, &t.Partitions[i]); err != nil {
				return fmt.Errorf("%s-%d: %w: %s", t.Name, i, err, partitionText(&t.Partitions[i]))
			}
		}
	}
	return nil
}

func checkPartition(img *Image, p *Partition) error {
	for _, list := range [][]int32{p.Replicas, p.ISR, p.ELR, p.LastKnownELR, p.AddingReplicas, p.RemovingReplicas} {
		for i, id := range list {
			if !slices.Contains(p.Replicas, id) || slices.Contains(list[:i], id) {
				return fmt.Errorf("broker %d is no replica, or twice there", id)
			}
		}
	}
	for _, id := range p.ISR {
		if !img.registered(id) || !img.Brokers[id].Active() {
			return fmt.Errorf("broker %d is in sync and not active", id) // invariant 7
		}
		if slices.Contains(p.ELR, id) {
			return fmt.Errorf("broker %d is in ISR and ELR", id)
		}
	}
	if p.Leader != NoLeader && !slices.Contains(p.ISR, p.Leader) {
		return fmt.Errorf("the leader is not in sync")
	}
	if p.Leader == NoLeader && len(p.ISR) > 0 {
		return fmt.Errorf("somebody is in sync and nobody leads")
	}
	for _, id := range p.LastKnownELR {
		if slices.Contains(p.ISR, id) || slices.Contains(p.ELR, id) {
			return fmt.Errorf("broker %d is among the last known and eligible", id)
		}
	}
	wanted := except(p.Replicas, p.RemovingReplicas)
	if len(wanted) == 0 || len(except(p.Replicas, p.AddingReplicas)) == 0 {
		return fmt.Errorf("a reassignment to or from nothing")
	}
	if p.Reassigning() && !p.Recovering && len(except(wanted, p.ISR)) == 0 {
		return fmt.Errorf("a reassignment that is done and goes on")
	}
	return nil
}

// checkStep checks what must hold from one image to the next.
func checkStep(before, after *Image) error {
	if after.Index <= before.Index || after.NextProducerID < before.NextProducerID {
		return fmt.Errorf("the index or the producer ids went back")
	}
	for id, b := range after.Brokers {
		if b.Epoch < before.Brokers[id].Epoch {
			return fmt.Errorf("broker %d's epoch went back", id)
		}
	}
	for _, t := range after.Topics() {
		old := before.TopicByID(t.ID)
		if old == nil {
			continue
		}
		if old.Tiered && !t.Tiered {
			return fmt.Errorf("topic %s forgot that it was tiered", t.Name)
		}
		for i := range old.Partitions {
			if err := checkPartitionStep(before, after, t, &old.Partitions[i], &t.Partitions[i]); err != nil {
				return fmt.Errorf("%s-%d: %w\nfrom %s\nto   %s", t.Name, i, err, partitionText(&old.Partitions[i]), partitionText(&t.Partitions[i]))
			}
		}
	}
	for _, d := range before.DeletedTopics() {
		if after.TopicByID(d.ID) != nil {
			return fmt.Errorf("a deleted topic's id lives again")
		}
	}
	return nil
}

func checkPartitionStep(before, after *Image, t *Topic, old, now *Partition) error {
	same := partitionText(old) == partitionText(now)
	switch {
	case now.LeaderEpoch < old.LeaderEpoch || now.PartitionEpoch < old.PartitionEpoch:
		return fmt.Errorf("an epoch went back") // invariant 2
	case !same && now.PartitionEpoch == old.PartitionEpoch:
		return fmt.Errorf("it changed under one partition epoch") // invariant 4
	case old.Leader != now.Leader && now.LeaderEpoch == old.LeaderEpoch:
		return fmt.Errorf("two leaders in one leader epoch") // invariant 2
	}
	if l := now.Leader; l != NoLeader && old.LeaderEpoch == now.LeaderEpoch && before.Brokers[l].Incarnation != after.Brokers[l].Incarnation {
		return fmt.Errorf("a new start of broker %d leads in an old leader epoch", l)
	}
	if err := checkHolders(t, old, now); err != nil {
		return err
	}
	// The leader that reports the last replica in sync may itself be one that goes.
	done := len(except(old.Replicas, now.Replicas)) > 0 && len(except(now.Replicas, now.ISR)) == 0
	clean := slices.Contains(old.ISR, now.Leader) || slices.Contains(old.ELR, now.Leader)
	if now.Leader != NoLeader && old.Leader != now.Leader && !clean && !done && now.UncleanEpoch != now.LeaderEpoch {
		return fmt.Errorf("an unclean election that is not recorded") // invariant 8
	}
	return nil
}

// checkHolders checks who is said to hold every committed record: the in-sync
// set and the ELR. Without an unclean election that can only become less by
// itself; more it becomes by what a leader reports.
func checkHolders(t *Topic, old, now *Partition) error {
	if now.UncleanEpoch != old.UncleanEpoch {
		return nil // what an unclean election may have lost is recorded
	}
	before, after := slices.Concat(old.ISR, old.ELR), slices.Concat(now.ISR, now.ELR)
	taken := except(old.Replicas, now.Replicas)
	done := len(taken) > 0 && len(except(now.Replicas, now.ISR)) == 0 // a reassignment, all of it in sync
	if len(taken) > 0 && now.LeaderEpoch == old.LeaderEpoch {
		return fmt.Errorf("replicas %v were taken away under one leader epoch", taken)
	}
	if least := (topicRules{minISRDefault: 1}).minISR(t); len(except(before, now.Replicas)) > 0 && len(now.ISR) < now.MinISR(least) {
		return fmt.Errorf("replicas %v were taken away with too few left in sync", taken) // invariant 37
	}
	if extra := except(now.ELR, before); len(extra) > 0 {
		return fmt.Errorf("%v are eligible all of a sudden", extra)
	}
	if extra := except(now.ISR, before); len(extra) > 0 && old.Leader != now.Leader && !done {
		return fmt.Errorf("%v are in sync all of a sudden", extra)
	}
	if lost := len(except(before, slices.Concat(after, now.LastKnownELR))) == len(before); lost && len(before) > 0 && !done {
		return fmt.Errorf("all that held every committed record are forgotten")
	}
	return nil
}

// TestReassignmentsEnd makes any history, and then lets every broker live and
// every leader bring all its replicas in sync: no reassignment must be left,
// and every partition must be led.
func TestReassignmentsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, images := history(t, func(_, _ *Image) {})
		img := images[len(images)-1]
		b, err := conf.ParseBroker(nil)
		if err != nil {
			t.Fatal(err)
		}
		decide := func(changes []Change, err error) {
			if err != nil {
				t.Fatal(err)
			}
			if len(changes) == 0 {
				return
			}
			if img, err = img.Apply(Command{Base: img.Index, Changes: changes}, img.Index+1); err != nil {
				t.Fatal(err)
			}
			if err := checkPartitions(img); err != nil {
				t.Fatal(err)
			}
		}
		for id := range int32(6) {
			decide(decideRegister(img, &b, Registration{ID: id, Incarnation: topic.ID{0xee, byte(id)}}, false))
		}
		_, changes := decideElection(img, &b, true, nil)
		decide(changes, nil)
		for range 2 { // the first time a new leader may be elected that says so once more
			for _, tp := range img.Topics() {
				for i := range tp.Partitions {
					p := img.Topic(tp.Name).Partitions[i]
					w := AlterPartition{ID: tp.ID, Index: int32(i), LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
					for _, id := range p.Replicas {
						w.ISR = append(w.ISR, BrokerState{ID: id, Epoch: img.Brokers[id].Epoch})
					}
					_, changes, err := decideAlterPartition(img, &b, p.Leader, img.Brokers[p.Leader].Epoch, []AlterPartition{w})
					decide(changes, err)
				}
			}
		}
		for _, tp := range img.Topics() {
			for i := range tp.Partitions {
				if p := &tp.Partitions[i]; p.Leader == NoLeader || p.Reassigning() || len(p.ISR) != len(p.Replicas) {
					t.Fatalf("%s-%d: %s", tp.Name, i, partitionText(p))
				}
			}
		}
		if list := img.Reassignments(nil); len(list) > 0 {
			t.Fatal(list)
		}
	})
}
