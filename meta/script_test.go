package meta

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// script drives the controller's decisions over an image, without raft. Each
// decision's changes are applied through their encoding, as the quorum does.
type script struct {
	img    *Image
	broker conf.Broker
	index  uint64
	ids    byte
}

func TestControllerScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/controller", func(t *testing.T, path string) {
		s := &script{img: newImage()}
		var err error
		if s.broker, err = conf.ParseBroker(nil); err != nil {
			t.Fatal(err)
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			if err := s.run(&out, d); err != nil {
				fmt.Fprintf(&out, "error: %s\n", describe(err))
			}
			return out.String()
		})
	})
}

// describe names the sentinel beside the message: both reach clients.
func describe(err error) string {
	if e, ok := err.(*Error); ok && e.Kind.Error() != e.Message {
		return fmt.Sprintf("%s [%s]", e.Message, e.Kind)
	}
	return err.Error()
}

func (s *script) apply(changes []Change) error {
	if len(changes) == 0 {
		return nil
	}
	c := Command{Base: s.img.Index, Changes: changes}
	c, err := DecodeCommand(c.Encode())
	if err != nil {
		return err
	}
	s.index++
	next, err := s.img.Apply(c, s.index)
	if err == nil {
		s.img = next
	}
	return err
}

func (s *script) newID() topic.ID {
	s.ids++
	return topic.ID{s.ids}
}

// run runs one directive. Lines of its input are one item each.
func (s *script) run(out *strings.Builder, d *datadriven.TestData) error {
	switch d.Cmd {
	case "settings":
		var err error
		s.broker, err = conf.ParseBroker(pairs(d.Input))
		return err
	case "register":
		return s.register(out, d)
	case "fence", "unfence", "shutdown":
		id := argInt(d, "id", 0)
		want := ChangeBroker{ID: int32(id), Epoch: argInt(d, "epoch", s.img.Brokers[int32(id)].Epoch), Fenced: d.Cmd == "fence", ShuttingDown: d.Cmd == "shutdown"}
		changes, err := decideBroker(s.img, &s.broker, want)
		if err != nil {
			return err
		}
		return s.applyAndPrint(out, changes)
	case "unregister":
		changes, err := decideUnregister(s.img, &s.broker, int32(argInt(d, "id", 0)))
		if err != nil {
			return err
		}
		return s.applyAndPrint(out, changes)
	case "create":
		return s.create(out, d)
	case "delete":
		return s.delete(out, d)
	case "partitions":
		return s.partitions(out, d)
	case "configs":
		return s.configs(out, d)
	case "alter-isr":
		return s.alterISR(out, d)
	case "elect":
		return s.elect(out, d)
	case "reassign":
		return s.reassign(out, d)
	case "balance":
		moves, changes := decideMoves(s.img, &s.broker, nextMoves(s.img, &s.broker, s.sizes(d.Input)))
		for _, m := range moves {
			fmt.Fprintf(out, "%s-%d %v -> %v bytes=%d %s\n", m.Topic, m.Index, m.From, m.To, m.Bytes, m.Why)
		}
		return s.applyAndPrint(out, changes)
	case "catch-up":
		return s.catchUp(out)
	case "preferred":
		changes, _ := decidePreferred(s.img, &s.broker)
		return s.applyAndPrint(out, changes)
	case "holds":
		fmt.Fprintf(out, "%d replicas\n", s.img.Holds(int32(argInt(d, "id", 0))))
		return nil
	case "reassignments":
		for _, r := range s.img.Reassignments(nil) {
			fmt.Fprintf(out, "%s-%d replicas=%v adding=%v removing=%v\n", r.Topic, r.Index, r.Replicas, r.Adding, r.Removing)
		}
		return nil
	case "confirm":
		id, err := topicID(s.img, d)
		if err != nil {
			return err
		}
		return s.apply(decideConfirmDeleted(s.img, ConfirmDeleted{ID: id, Broker: int32(argInt(d, "broker", -1)), Tier: d.HasArg("tier")}))
	case "producer-ids":
		block, changes, err := decideProducerIDs(s.img, int32(argInt(d, "id", 1)), argInt(d, "epoch", s.img.Brokers[int32(argInt(d, "id", 1))].Epoch))
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%d to %d\n", block.First, block.First+int64(block.Count)-1)
		return s.apply(changes)
	case "quotas":
		return s.quotas(out, d)
	case "filter":
		return s.filter(out, d)
	case "image":
		s.print(out)
		return nil
	}
	return fmt.Errorf("no such directive: %s", d.Cmd)
}

// topicID finds a topic, or a deleted one, by the argument topic.
func topicID(img *Image, d *datadriven.TestData) (topic.ID, error) {
	name := argText(d, "topic")
	if t := img.Topic(name); t != nil {
		return t.ID, nil
	}
	for _, t := range img.DeletedTopics() {
		if t.Name == name {
			return t.ID, nil
		}
	}
	return topic.ID{}, fmt.Errorf("no topic %q", name)
}

func argText(d *datadriven.TestData, name string) string {
	for _, a := range d.CmdArgs {
		if a.Key == name {
			return strings.Join(a.Vals, ",")
		}
	}
	return ""
}

func argInt(d *datadriven.TestData, name string, otherwise int64) int64 {
	for _, a := range d.CmdArgs {
		if a.Key == name {
			n, err := strconv.ParseInt(a.Vals[0], 10, 64)
			if err != nil {
				panic(err)
			}
			return n
		}
	}
	return otherwise
}

func (s *script) register(out *strings.Builder, d *datadriven.TestData) error {
	id := int32(argInt(d, "id", 0))
	r := Registration{ID: id, Host: fmt.Sprintf("host%d", id), Port: 9092, Fenced: d.HasArg("fenced"), MayLackRecords: d.HasArg("lossy")}
	r.Rack, r.ClusterID = argText(d, "rack"), argText(d, "cluster")
	r.Incarnation = topic.ID{0xff, byte(argInt(d, "start", int64(s.index)+1))}
	changes, err := decideRegister(s.img, &s.broker, r, d.HasArg("alive"))
	if err != nil {
		return err
	}
	return s.applyAndPrint(out, changes)
}

func (s *script) applyAndPrint(out *strings.Builder, changes []Change) error {
	before := s.img
	if err := s.apply(changes); err != nil {
		return err
	}
	s.printChanged(out, before)
	return nil
}

// printChanged prints the partitions that are not as they were.
func (s *script) printChanged(out *strings.Builder, before *Image) {
	for _, t := range s.img.Topics() {
		old := before.TopicByID(t.ID)
		for i := range t.Partitions {
			if old == nil || i >= len(old.Partitions) || partitionText(&old.Partitions[i]) != partitionText(&t.Partitions[i]) {
				fmt.Fprintf(out, "%s-%d %s\n", t.Name, i, partitionText(&t.Partitions[i]))
			}
		}
	}
}

func (s *script) create(out *strings.Builder, d *datadriven.TestData) error {
	var topics []NewTopic
	for line := range strings.Lines(d.Input) {
		t := NewTopic{Partitions: -1, ReplicationFactor: -1}
		for i, f := range strings.Fields(line) {
			k, v, _ := strings.Cut(f, "=")
			switch {
			case i == 0:
				t.Name, _ = strconv.Unquote(`"` + f + `"`)
			case k == "p":
				t.Partitions = int32(atoi(v))
			case k == "rf":
				t.ReplicationFactor = int16(atoi(v))
			case strings.HasPrefix(k, "@"):
				t.Assignment = append(t.Assignment, Assignment{Partition: int32(atoi(k[1:])), Brokers: brokerIDs(v)})
			case v == "null":
				t.Configs = append(t.Configs, ConfigValue{Name: k})
			default:
				t.Configs = append(t.Configs, ConfigValue{Name: k, Value: &v})
			}
		}
		topics = append(topics, t)
	}
	results, changes := decideCreateTopics(s.img, &s.broker, topics, s.newID)
	for _, r := range results {
		if r.Err != nil {
			fmt.Fprintf(out, "%s: %s\n", r.Name, describe(r.Err))
		} else {
			fmt.Fprintf(out, "%s: ok, %d partitions, %d replicas\n", r.Name, r.Partitions, r.ReplicationFactor)
		}
	}
	if d.HasArg("validate-only") {
		return nil
	}
	return s.applyAndPrint(out, changes)
}

func (s *script) delete(out *strings.Builder, d *datadriven.TestData) error {
	var refs []TopicRef
	for line := range strings.Lines(d.Input) {
		var r TopicRef
		for _, f := range strings.Fields(line) {
			if id, ok := strings.CutPrefix(f, "id="); ok {
				r.ID = topic.ID{byte(atoi(id))}
			} else {
				r.Name = f
			}
		}
		refs = append(refs, r)
	}
	results, changes := decideDeleteTopics(s.img, &s.broker, refs)
	for _, r := range results {
		if r.Err != nil {
			fmt.Fprintf(out, "%s %d: %s\n", r.Name, r.ID[0], describe(r.Err))
		} else {
			fmt.Fprintf(out, "%s %d: ok\n", r.Name, r.ID[0])
		}
	}
	return s.apply(changes)
}

func (s *script) partitions(out *strings.Builder, d *datadriven.TestData) error {
	var topics []MorePartitions
	for line := range strings.Lines(d.Input) {
		fields := strings.Fields(line)
		m := MorePartitions{Name: fields[0], Count: int32(atoi(fields[1]))}
		for _, f := range fields[2:] {
			m.Assignment = append(m.Assignment, brokerIDs(strings.TrimPrefix(f, "@")))
		}
		topics = append(topics, m)
	}
	results, changes := decideCreatePartitions(s.img, topics)
	for _, r := range results {
		if r.Err != nil {
			fmt.Fprintf(out, "%s: %s\n", r.Name, describe(r.Err))
		}
	}
	return s.applyAndPrint(out, changes)
}

// configs reads edits: +name=value sets, -name deletes, >name=value appends,
// <name=value subtracts, ?name sets null.
func (s *script) configs(out *strings.Builder, d *datadriven.TestData) error {
	kinds := map[string]ConfigKind{"topic": TopicConfig, "broker": BrokerConfig, "group": GroupConfig}
	var list []ConfigChange
	for line := range strings.Lines(d.Input) {
		fields := strings.Fields(line)
		kind, name, _ := strings.Cut(fields[0], ":")
		c := ConfigChange{ConfigResource: ConfigResource{Kind: kinds[kind], Name: name}, Replace: d.HasArg("replace")}
		for _, f := range fields[1:] {
			k, v, _ := strings.Cut(f[1:], "=")
			e := ConfigEdit{Name: k, Value: &v}
			switch f[0] {
			case '-':
				e.Op, e.Value = OpDelete, nil
			case '>':
				e.Op = OpAppend
			case '<':
				e.Op = OpSubtract
			case '?':
				e.Value = nil
			}
			c.Edits = append(c.Edits, e)
		}
		list = append(list, c)
	}
	results, changes := decideConfigs(s.img, &s.broker, 1, list)
	for _, r := range results {
		if r.Err != nil {
			fmt.Fprintf(out, "%s: %s\n", r.Name, describe(r.Err))
		}
	}
	before := s.img
	if err := s.apply(changes); err != nil {
		return err
	}
	for _, r := range results {
		if r.Err == nil {
			fmt.Fprintf(out, "%s: %s\n", r.Name, mapText(s.img.configsOf(r.ConfigResource)))
		}
	}
	s.printChanged(out, before)
	return nil
}

func (s *script) alterISR(out *strings.Builder, d *datadriven.TestData) error {
	id, err := topicID(s.img, d)
	if err != nil {
		id = topic.ID{0xee}
	}
	_, p := s.img.PartitionByID(id, int32(argInt(d, "p", 0)))
	if p == nil {
		p = &Partition{}
	}
	w := AlterPartition{
		ID: id, Index: int32(argInt(d, "p", 0)), Recovering: d.HasArg("recovering"),
		LeaderEpoch: int32(argInt(d, "leader-epoch", int64(p.LeaderEpoch))), PartitionEpoch: int32(argInt(d, "partition-epoch", int64(p.PartitionEpoch))),
	}
	for _, b := range brokerIDs(argText(d, "isr")) {
		w.ISR = append(w.ISR, BrokerState{ID: b, Epoch: argInt(d, "isr-epoch", s.img.Brokers[b].Epoch)})
	}
	w.Lossy = brokerIDs(argText(d, "lossy"))
	leader := int32(argInt(d, "from", int64(p.Leader)))
	results, changes, err := decideAlterPartition(s.img, &s.broker, leader, argInt(d, "epoch", s.img.Brokers[leader].Epoch), []AlterPartition{w})
	if err != nil {
		return err
	}
	if r := results[0]; r.Err != nil {
		fmt.Fprintf(out, "%s\n", describe(r.Err))
	} else {
		fmt.Fprintf(out, "answer: %s\n", partitionText(&r.Partition))
	}
	return s.applyAndPrint(out, changes)
}

func (s *script) elect(out *strings.Builder, d *datadriven.TestData) error {
	var refs []PartitionRef
	for line := range strings.Lines(d.Input) {
		fields := strings.Fields(line)
		refs = append(refs, PartitionRef{Topic: fields[0], Index: int32(atoi(fields[1]))})
	}
	results, changes := decideElection(s.img, &s.broker, d.HasArg("unclean"), refs)
	for _, r := range results {
		if r.Err != nil {
			fmt.Fprintf(out, "%s-%d: %s\n", r.Topic, r.Index, describe(r.Err))
		}
	}
	return s.applyAndPrint(out, changes)
}

// reassign reads wishes: topic, index, and the wanted replicas or "cancel".
func (s *script) reassign(out *strings.Builder, d *datadriven.TestData) error {
	var wishes []Reassign
	for line := range strings.Lines(d.Input) {
		fields := strings.Fields(line)
		w := Reassign{PartitionRef: PartitionRef{Topic: fields[0], Index: int32(atoi(fields[1]))}}
		switch fields[2] {
		case "cancel":
		case "none":
			w.Replicas = []int32{}
		default:
			w.Replicas = brokerIDs(fields[2])
		}
		wishes = append(wishes, w)
	}
	results, changes := decideReassign(s.img, &s.broker, wishes, !d.HasArg("same-factor"))
	for _, r := range results {
		if r.Err != nil {
			fmt.Fprintf(out, "%s-%d: %s\n", r.Topic, r.Index, describe(r.Err))
		}
	}
	return s.applyAndPrint(out, changes)
}

// sizes reads how large partitions are: topic, index, bytes.
func (s *script) sizes(input string) map[topic.Partition]int64 {
	bytes := make(map[topic.Partition]int64)
	for line := range strings.Lines(input) {
		fields := strings.Fields(line)
		bytes[s.img.Topic(fields[0]).Key(int32(atoi(fields[1])))] = int64(atoi(fields[2]))
	}
	return bytes
}

// catchUp has every leader report all its live replicas in sync.
func (s *script) catchUp(out *strings.Builder) error {
	before := s.img
	for _, t := range before.Topics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			w := AlterPartition{ID: t.ID, Index: int32(i), LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
			for _, id := range activeOf(s.img, p.Replicas) {
				w.ISR = append(w.ISR, BrokerState{ID: id, Epoch: s.img.Brokers[id].Epoch})
			}
			if p.Leader == NoLeader || len(w.ISR) == len(p.ISR) {
				continue
			}
			_, changes, err := decideAlterPartition(s.img, &s.broker, p.Leader, s.img.Brokers[p.Leader].Epoch, []AlterPartition{w})
			if err != nil {
				return err
			}
			if err := s.apply(changes); err != nil {
				return err
			}
		}
	}
	s.printChanged(out, before)
	return nil
}

func (s *script) print(out *strings.Builder) {
	for _, id := range sortedIDs(s.img.Brokers) {
		b := s.img.Brokers[id]
		fmt.Fprintf(out, "broker %d epoch=%d fenced=%t shutting-down=%t rack=%s\n", id, b.Epoch, b.Fenced, b.ShuttingDown, b.Rack)
	}
	for _, t := range s.img.Topics() {
		fmt.Fprintf(out, "topic %s id=%d tiered=%t %s\n", t.Name, t.ID[0], t.Tiered, mapText(t.Configs))
		for i := range t.Partitions {
			fmt.Fprintf(out, "  %d %s\n", i, partitionText(&t.Partitions[i]))
		}
	}
	for _, t := range s.img.DeletedTopics() {
		fmt.Fprintf(out, "deleted %s id=%d partitions=%d brokers=%v tier=%t\n", t.Name, t.ID[0], t.Partitions, t.Brokers, t.Tier)
	}
}

func partitionText(p *Partition) string {
	text := fmt.Sprintf("leader=%d epoch=%d/%d replicas=%v isr=%v", p.Leader, p.LeaderEpoch, p.PartitionEpoch, p.Replicas, p.ISR)
	if len(p.ELR) > 0 {
		text += fmt.Sprintf(" elr=%v", p.ELR)
	}
	if len(p.LastKnownELR) > 0 {
		text += fmt.Sprintf(" last-known=%v", p.LastKnownELR)
	}
	if len(p.AddingReplicas) > 0 {
		text += fmt.Sprintf(" adding=%v", p.AddingReplicas)
	}
	if len(p.RemovingReplicas) > 0 {
		text += fmt.Sprintf(" removing=%v", p.RemovingReplicas)
	}
	if p.UncleanEpoch > 0 {
		text += fmt.Sprintf(" unclean=%d", p.UncleanEpoch)
	}
	if p.Recovering {
		text += " recovering"
	}
	return text
}

func mapText(m map[string]string) string {
	parts := make([]string, 0, len(m))
	for k, v := range m {
		parts = append(parts, k+"="+v)
	}
	slices.Sort(parts)
	return "{" + strings.Join(parts, " ") + "}"
}

func pairs(text string) map[string]string {
	m := make(map[string]string)
	for _, f := range strings.Fields(text) {
		k, v, _ := strings.Cut(f, "=")
		m[k] = v
	}
	return m
}

func brokerIDs(text string) []int32 {
	var ids []int32
	for _, f := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		ids = append(ids, int32(atoi(f)))
	}
	return ids
}

func atoi(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}
