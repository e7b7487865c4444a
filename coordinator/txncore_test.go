package coordinator

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// txnScript drives one txnCore from a file of testdata/txn. Its output is what the core did: replies by ticket, records, and
// transactions to end in their partitions.
//
//	init id=ID [timeout=MS] [pid=N epoch=N]         InitProducerId; pid and epoch: what the producer goes on from
//	add id=ID pid=N epoch=N p=TOPIC/N,… [v=2]        AddPartitionsToTxn; verify asks only
//	end id=ID pid=N epoch=N do=commit|abort [v=2]    EndTxn
//	ended id=ID pid=N epoch=N                        the markers are written
//	known id=ID pid=N epoch=N                        the log says of an id, without a transaction, how far its epochs have got
//	describe id=ID | list [state=S] [pid=N] [older=MS] [pattern=RE]
//	advance MILLIS | reload | state
//
// A producer id is supplied, counting from 100, when the core asks for one.
type txnScript struct {
	t       *testing.T
	cfg     Config
	core    *txnCore
	now     int64
	ticket  uint64
	nextID  int64
	records map[string]record
	order   []string
}

func TestTransactionScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/txn", func(t *testing.T, path string) {
		s := &txnScript{t: t, cfg: DefaultConfig(), now: scriptStart, nextID: 100, records: map[string]record{}}
		s.core = newTxnCore(&s.cfg, s.now)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(d) })
	})
}

func (s *txnScript) run(d *datadriven.TestData) string {
	a := args{}
	for _, x := range d.CmdArgs {
		a[x.Key] = strings.Join(x.Vals, ",")
	}
	who := Producer{ID: a.int("pid", noProducer), Epoch: int16(a.int("epoch", int64(noEpoch)))}
	switch d.Cmd {
	case "advance":
		return s.advance(a)
	case "reload":
		s.core = newTxnCore(&s.cfg, s.now)
		for _, k := range s.order {
			if err := s.core.replay(noProducer, s.records[k].key, s.records[k].value); err != nil {
				s.t.Fatal(err)
			}
		}
		s.core.loaded(s.now)
		return s.effects()
	case "init":
		q := InitProducerRequest{TransactionalID: a["id"], TimeoutMillis: int32(a.int("timeout", 60_000)), Current: who, newID: noProducer}
		return s.step(func(fresh int64) any { q.newID = fresh; return &q })
	case "end":
		q := EndTxnRequest{TransactionalID: a["id"], Producer: who, Commit: a["do"] == "commit", Version: int8(a.int("v", 1)), newID: noProducer}
		return s.step(func(fresh int64) any { q.newID = fresh; return &q })
	case "add", "verify":
		q := &AddPartitionsRequest{TransactionalID: a["id"], Producer: who, Version: int8(a.int("v", 1)), VerifyOnly: d.Cmd == "verify"}
		for _, p := range strings.Split(a["p"], ",") {
			var at TxnPartition
			at.Topic, p, _ = strings.Cut(p, "/")
			fmt.Sscan(p, &at.Partition)
			q.Partitions = append(q.Partitions, at)
		}
		return s.step(func(int64) any { return q })
	case "known":
		r := txnRecord(&transaction{
			id: a["id"], producer: who, lastEpoch: noEpoch, previous: noProducer, next: noProducer, timeout: 60_000, state: TxnEmpty, start: -1,
			updated: s.now,
		})
		if err := s.core.replay(noProducer, r.key, r.value); err != nil {
			s.t.Fatal(err)
		}
		return ""
	case "ended":
		return s.step(func(int64) any { return txnEnded{id: a["id"], producer: who} })
	case "describe":
		return s.step(func(int64) any { return describeTxn{a["id"]} })
	case "list":
		q := &ListTxnsRequest{OlderMillis: a.int("older", -1)}
		if state, ok := ParseTxnState(a["state"]); ok {
			q.States = []TxnState{state}
		}
		if who.ID != noProducer {
			q.ProducerIDs = []int64{who.ID}
		}
		if p := a["pattern"]; p != "" {
			q.Pattern = regexp.MustCompile("^(?:" + p + ")$")
		}
		return s.step(func(int64) any { return q })
	}
	d.Fatalf(s.t, "unknown command")
	return ""
}

// step takes one request, again with a producer id when one is needed.
func (s *txnScript) step(body func(fresh int64) any) string {
	s.ticket++
	s.core.step(event{ticket: s.ticket, body: body(noProducer)}, s.now)
	if r := s.core.out.replies; len(r) == 1 && r[0].err == errNeedProducerID {
		if len(s.core.out.records) > 0 {
			s.t.Fatal("asked for a producer id after it had written")
		}
		s.core.take()
		s.nextID++
		s.core.step(event{ticket: s.ticket, body: body(s.nextID - 1)}, s.now)
	}
	return s.effects()
}

func (s *txnScript) advance(a args) (out string) {
	s.now, out = advanceMachine(s.core, s.now, a.int("ms", 0), s.effects)
	return out
}

func (s *txnScript) effects() string {
	var out strings.Builder
	e := s.core.take()
	for _, r := range e.records {
		k := string(r.key)
		if _, ok := s.records[k]; !ok {
			s.order = append(s.order, k)
		}
		s.records[k] = r
		fmt.Fprintln(&out, "write", showTxnRecord(r))
	}
	for _, r := range e.replies {
		fmt.Fprintf(&out, "%d: %s\n", r.ticket, showTxnReply(r))
	}
	for _, x := range e.ends {
		verb := "abort"
		if x.commit {
			verb = "commit"
		}
		fmt.Fprintf(&out, "%s %s as %d/%d in%s\n", verb, x.id, x.producer.ID, x.producer.Epoch, showPartitions(x.partitions))
	}
	return out.String()
}

func showPartitions(list []partition) string {
	out := ""
	for _, p := range list {
		out += fmt.Sprintf(" %s/%d", p.topic, p.index)
	}
	return out
}

func showTxnRecord(r record) string {
	var k kmsg.TxnMetadataKey
	if err := k.ReadFrom(r.key); err != nil {
		panic(err)
	}
	if r.value == nil {
		return k.TransactionalID + " tombstone"
	}
	v := kmsg.NewTxnMetadataValue()
	if err := v.ReadFrom(r.value); err != nil {
		panic(err)
	}
	out := fmt.Sprintf("%s %s %d/%d", k.TransactionalID, TxnState(v.State), v.ProducerID, v.ProducerEpoch)
	if v.PreviousProducerID != noProducer || v.NextProducerID != noProducer {
		out += fmt.Sprintf(" previous=%d next=%d", v.PreviousProducerID, v.NextProducerID)
	}
	if v.StartTimestamp >= 0 {
		out += fmt.Sprintf(" since=+%d", v.StartTimestamp-scriptStart)
	}
	for _, t := range v.Topics {
		out += fmt.Sprintf(" %s%v", t.Topic, t.Partitions)
	}
	return out
}

func showTxnReply(r reply) string {
	out := "ok"
	if r.err != nil {
		out = showErr(r.err)
	}
	switch x := r.result.(type) {
	case Producer:
		if r.err == nil {
			out += fmt.Sprintf(" %d/%d", x.ID, x.Epoch)
		}
	case *AddPartitionsResult:
		for _, err := range x.Errs {
			if err == nil {
				out += " [ok]"
			} else {
				out += " [" + showErr(err) + "]"
			}
		}
	case *TxnDescription:
		out += fmt.Sprintf(" %s %d/%d timeout=%d", x.State, x.Producer.ID, x.Producer.Epoch, x.TimeoutMillis)
		for _, p := range x.Partitions {
			out += fmt.Sprintf(" %s/%d", p.Topic, p.Partition)
		}
	case []ListedTxn:
		for _, l := range x {
			out += fmt.Sprintf(" %s(%d,%s)", l.TransactionalID, l.ProducerID, l.State)
		}
	}
	return out
}
