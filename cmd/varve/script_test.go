package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/replica"
)

func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"varve": main})
}

// leakChecked fails a run of tests that leaves goroutines behind.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if code != 0 {
		return code
	}
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestScripts runs the command line as a user would, each script against a
// node of its own. $BOOT and $HTTP are its addresses.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			ctx := context.Background()
			n, err := startNode(ctx, devSettings(filepath.Join(env.WorkDir, "node"), "127.0.0.1:0", "127.0.0.1:0", ""), slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			env.Defer(func() {
				if err := n.Close(ctx); err != nil {
					t.Errorf("close the node: %v", err)
				}
			})
			env.Setenv("VARVE_BOOTSTRAP", n.Kafka)
			env.Setenv("VARVE_HTTP", n.HTTP)
			env.Setenv("BOOT", n.Kafka)
			env.Setenv("HTTP", n.HTTP)
			clients := &scriptClients{node: n, seed: n.Kafka, members: map[string]*kgo.Client{}}
			env.Values[clientsKey{}] = clients
			env.Defer(clients.close)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"eventually": eventually,
			"join":       func(ts *testscript.TestScript, _ bool, args []string) { clientsOf(ts).join(ts, args) },
			"leave":      func(ts *testscript.TestScript, _ bool, args []string) { clientsOf(ts).leave(ts, args) },
			"hang":       func(ts *testscript.TestScript, _ bool, args []string) { clientsOf(ts).hang(ts, args) },
			"transact":   func(ts *testscript.TestScript, _ bool, args []string) { clientsOf(ts).transact(ts, args) },
		},
	})
}

// scriptClients are the applications in a script: members of groups and
// transactional producers. Scripts run in one goroutine each.
type scriptClients struct {
	node    *node
	seed    string
	members map[string]*kgo.Client // by group
	writers []*kgo.Client
}

type clientsKey struct{}

func clientsOf(ts *testscript.TestScript) *scriptClients {
	return ts.Value(clientsKey{}).(*scriptClients)
}

func (c *scriptClients) client(ts *testscript.TestScript, opts ...kgo.Opt) *kgo.Client {
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.seed), kgo.ClientID("app")}, opts...)...)
	ts.Check(err)
	return cl
}

// join starts a member: `join GROUP TOPIC classic|consumer|share`, or
// `join GROUP TOPIC streams`, which sends one heartbeat of such a member.
func (c *scriptClients) join(ts *testscript.TestScript, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: join GROUP TOPIC classic|consumer|share|streams")
	}
	name, topic := args[0], args[1]
	opts := []kgo.Opt{kgo.ConsumerGroup(name), kgo.ConsumeTopics(topic)}
	switch args[2] {
	case groupClassic:
	case groupConsumer:
		opts = append(opts, kgo.ServerSideBalancer())
	case groupShare:
		opts = []kgo.Opt{kgo.ShareGroup(name), kgo.ConsumeTopics(topic)}
	case groupStreams:
		cl := c.client(ts)
		c.members[name] = cl
		req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
		req.Group, req.MemberID, req.RebalanceTimeoutMillis, req.ProcessID = name, "member-1", 60_000, kmsg.StringPtr("process-1")
		req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
		t := kmsg.NewStreamsGroupHeartbeatRequestTopology()
		s := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
		s.SubtopologyID, s.SourceTopics = "count", []string{topic}
		t.Subtopologies = append(t.Subtopologies, s)
		req.Topology = &t
		answer, err := cl.Broker(1).RetriableRequest(context.Background(), req)
		ts.Check(err)
		resp := answer.(*kmsg.StreamsGroupHeartbeatResponse)
		ts.Check(answered(resp.ErrorCode, resp.ErrorMessage))
		return
	default:
		ts.Fatalf("no such protocol: %s", args[2])
	}
	c.members[name] = c.client(ts, opts...)
}

// leave has a group's member leave in order: `leave GROUP`.
func (c *scriptClients) leave(ts *testscript.TestScript, args []string) {
	cl := c.members[args[0]]
	if cl == nil {
		ts.Fatalf("nobody has joined %s", args[0])
	}
	cl.Close()
	delete(c.members, args[0])
}

// transact leaves a transaction with one record open: `transact ID TOPIC`.
func (c *scriptClients) transact(ts *testscript.TestScript, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: transact ID TOPIC")
	}
	cl := c.client(ts, kgo.TransactionalID(args[0]), kgo.DefaultProduceTopic(args[1]))
	c.writers = append(c.writers, cl)
	ts.Check(cl.BeginTransaction())
	ts.Check(cl.ProduceSync(context.Background(), &kgo.Record{Value: []byte("open")}).FirstErr())
}

// hang opens a transaction in a partition of which no coordinator knows, as a
// broker without verification could leave one: `hang TOPIC PRODUCER`.
func (c *scriptClients) hang(ts *testscript.TestScript, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: hang TOPIC PRODUCER")
	}
	id, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	b := batch.NewBuilder(batch.Options{Transactional: true, Producer: &batch.Producer{ID: id}})
	ts.Check(b.Append(time.Now().UnixMilli(), nil, []byte("hangs"), nil))
	p, err := c.node.replica.Partition(args[0], 0)
	ts.Check(err)
	_, err = p.Append(slices.Clone(b.Bytes()), replica.AppendRequest{Acks: 1, Now: time.Now().UnixMilli(), Version: 11, TxnVerified: true})
	ts.Check(err)
}

func (c *scriptClients) close() {
	for _, cl := range c.members {
		cl.Close()
	}
	for _, cl := range c.writers {
		cl.Close()
	}
}

// eventually runs a command until its output matches: `eventually REGEXP varve …`.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually TEXT COMMAND…")
	}
	for range 400 {
		err := ts.Exec(args[1], args[2:]...)
		if err == nil && strings.Contains(ts.ReadFile("stdout"), args[0]) {
			return
		}
		_ = ts.Exec("sleep", "0.05")
	}
	ts.Fatalf("%q never appeared; last output:\n%s", args[0], ts.ReadFile("stdout"))
}

func TestDevRefusesATakenAddressAndABadSetting(t *testing.T) {
	ctx := context.Background()
	n, err := startNode(ctx, devSettings(t.TempDir(), "127.0.0.1:0", "", ""), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close(ctx)
	_, err = startNode(ctx, devSettings(t.TempDir(), n.Kafka, "", ""), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "choose another") {
		t.Errorf("taken address: %v", err)
	}
	s := devSettings(t.TempDir(), "0.0.0.0:0", "", "")
	if _, err = startNode(ctx, s, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "advertised.listeners") {
		t.Errorf("listening everywhere: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "none")
	if _, err = startNode(ctx, devSettings(dir, "127.0.0.1:0", n.Kafka, ""), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--http") {
		t.Errorf("taken address of the console: %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a taken address of the console is found only after data was opened")
	}
	s = devSettings(t.TempDir(), "127.0.0.1:0", "", "gopher://x")
	if _, err = startNode(ctx, s, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "varve.tier.store=gopher://x") {
		t.Errorf("unknown store: %v", err)
	}
	for dir, want := range map[string]string{"/proc/x": "--dir or log.dirs", t.TempDir(): "--store or varve.tier.store"} {
		s = devSettings(dir, "127.0.0.1:0", "", "file:///proc/nope")
		if _, err = startNode(ctx, s, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("a place where nothing can be made: %v", err)
		}
	}
	s = devSettings(t.TempDir(), "127.0.0.1:0", "", "")
	s["log.dirs"] = "/a,/b"
	if _, err = startNode(ctx, s, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "Varve keeps one") {
		t.Errorf("two directories: %v", err)
	}
	if _, err := os.Stat("/a"); err == nil {
		t.Error("a refused start left a directory")
	}
}
