package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	populationSize  = 100_000
	populationConns = 8
	populationBusy  = 256 // requests under way
	// probes are how many of them are asked after a restart: enough that every
	// partition of the internal topic has some.
	probes = 1000
)

// population is many groups, or many transactional ids.
type population struct {
	part, run string
	prepare   func(ctx context.Context, s *system) error // until the internal topic is there
	add       func(ctx context.Context, to requester, i int) error
	probe     func(ctx context.Context, to requester, which []int) error // nil when all of them are there
}

// population measures what many groups or transactional ids take in memory,
// and how long their coordinator takes after kill -9 until it knows all of them.
func (b *bench) population(ctx context.Context, s *system, round int, p population) error {
	f, err := b.populate(ctx, s, p)
	if err == nil {
		err = b.reload(ctx, s, p, f)
	}
	if err != nil {
		return fmt.Errorf("%s on %s: %w", p.run, s.name, err)
	}
	return b.note(measured{p.part, p.run, s.name, round, f})
}

func (b *bench) populate(ctx context.Context, s *system, p population) (figures, error) {
	if err := p.prepare(ctx, s); err != nil {
		return nil, err
	}
	before, err := b.liveBytes(ctx, s)
	if err != nil {
		return nil, err
	}
	clients, err := dialMany(s.addr, populationConns)
	if err != nil {
		return nil, err
	}
	defer closeAll(clients)
	brokers := make([]requester, len(clients))
	for i, cl := range clients {
		if brokers[i], err = onlyBroker(ctx, cl); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	var next atomic.Int64
	failed := make([]error, populationBusy)
	var wg sync.WaitGroup
	for worker := range failed {
		wg.Go(func() { // ends when all are added, or one could not be
			for failed[worker] == nil {
				i := int(next.Add(1)) - 1
				if i >= populationSize {
					return
				}
				failed[worker] = p.add(ctx, brokers[worker%len(brokers)], i)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	took := time.Since(began)
	after, err := b.liveBytes(ctx, s)
	if err != nil {
		return nil, err
	}
	return figures{"added_per_s": populationSize / took.Seconds(), "live_bytes_each": (after - before) / populationSize}, nil
}

// reload kills the broker and starts it again; s is then the new process.
func (b *bench) reload(ctx context.Context, s *system, p population, f figures) error {
	which := make([]int, probes)
	for i := range which {
		which[i] = i * (populationSize / probes)
	}
	if err := p.probeAt(ctx, s.addr, which); err != nil { // the probe itself is sound
		return err
	}
	again, began, err := s.again()
	if err != nil {
		return err
	}
	*s = again
	if err := waitFor(func() error {
		cl, err := dial(s.addr)
		if err != nil {
			return err
		}
		defer cl.Close()
		return cl.Ping(ctx)
	}); err != nil {
		return err
	}
	f["answers_s"] = time.Since(began).Seconds()
	err = waitFor(func() error { return p.probeAt(ctx, s.addr, which) })
	f["loaded_s"] = time.Since(began).Seconds()
	f["loading_s"] = f["loaded_s"] - f["answers_s"]
	return err
}

func (p population) probeAt(ctx context.Context, addr string, which []int) error {
	cl, err := dial(addr)
	if err != nil {
		return err
	}
	defer cl.Close()
	to, err := onlyBroker(ctx, cl)
	if err != nil {
		return err
	}
	return p.probe(ctx, to, which)
}

// onlyBroker is the broker of a cluster of one: requests to it need no search
// for a coordinator.
func onlyBroker(ctx context.Context, cl *kgo.Client) (requester, error) {
	m, err := kadm.NewClient(cl).BrokerMetadata(ctx)
	if err != nil {
		return nil, err
	}
	if len(m.Brokers) != 1 {
		return nil, fmt.Errorf("%d brokers", len(m.Brokers))
	}
	return cl.Broker(int(m.Brokers[0].NodeID)), nil
}

// groupPopulation has groups of one committed offset each.
func groupPopulation() population {
	const topic = "population"
	var id kadm.TopicID
	name := func(i int) string { return fmt.Sprintf("population-%06d", i) }
	return population{
		part: "groups", run: "groups-100000",
		prepare: func(ctx context.Context, s *system) error {
			err := createTopic(ctx, s.addr, topic, 1, 1, nil)
			if err == nil {
				id, err = topicID(ctx, s.addr, topic)
			}
			if err != nil {
				return err
			}
			cl, err := dial(s.addr)
			if err != nil {
				return err
			}
			defer cl.Close()
			return commitOffset(ctx, cl, "first", topic, id, 0, 1)
		},
		add: func(ctx context.Context, to requester, i int) error {
			return commitOffset(ctx, to, name(i), topic, id, 0, int64(i))
		},
		probe: func(ctx context.Context, to requester, which []int) error {
			req := kmsg.NewPtrOffsetFetchRequest()
			want := map[string]int64{}
			for _, i := range which {
				g := kmsg.NewOffsetFetchRequestGroup()
				g.Group = name(i)
				req.Groups = append(req.Groups, g)
				want[g.Group] = int64(i)
			}
			resp, err := to.Request(ctx, req)
			if err != nil {
				return err
			}
			for _, g := range resp.(*kmsg.OffsetFetchResponse).Groups {
				if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
					return err
				}
				if len(g.Topics) != 1 || len(g.Topics[0].Partitions) != 1 || g.Topics[0].Partitions[0].Offset != want[g.Group] {
					return fmt.Errorf("%s has %+v", g.Group, g.Topics)
				}
				delete(want, g.Group)
			}
			return missing(len(want))
		},
	}
}

// txnPopulation has transactional ids that have written nothing yet.
func txnPopulation() population {
	name := func(i int) string { return fmt.Sprintf("population-%06d", i) }
	return population{
		part: "transactions", run: "transactional-ids-100000",
		prepare: func(context.Context, *system) error { return nil }, // transactions were measured before
		add: func(ctx context.Context, to requester, i int) error {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.TransactionalID, req.TransactionTimeoutMillis = kmsg.StringPtr(name(i)), 60_000
			return waitFor(func() error { // a broker refuses while it waits for a further block of producer ids
				resp, err := to.Request(ctx, req)
				if err != nil {
					return err
				}
				return kerr.ErrorForCode(resp.(*kmsg.InitProducerIDResponse).ErrorCode)
			})
		},
		probe: func(ctx context.Context, to requester, which []int) error {
			req := kmsg.NewPtrDescribeTransactionsRequest()
			for _, i := range which {
				req.TransactionalIDs = append(req.TransactionalIDs, name(i))
			}
			resp, err := to.Request(ctx, req)
			if err != nil {
				return err
			}
			found := 0
			for _, t := range resp.(*kmsg.DescribeTransactionsResponse).TransactionStates {
				if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
					return err
				}
				found++
			}
			return missing(len(which) - found)
		},
	}
}

func missing(n int) error {
	if n > 0 {
		return fmt.Errorf("%d are missing", n)
	}
	return nil
}

// liveBytes is what a broker's heap holds after a collection.
func (b *bench) liveBytes(ctx context.Context, s *system) (float64, error) {
	if s.http == "" {
		text, err := exec.CommandContext(ctx, "jcmd", strconv.Itoa(s.pid), "GC.class_histogram").Output()
		if err != nil {
			return 0, fmt.Errorf("jcmd: %w", err)
		}
		// Its last line is: Total <instances> <bytes>
		fields := strings.Fields(string(text[bytes.LastIndex(bytes.TrimSpace(text), []byte("\n"))+1:]))
		if len(fields) != 3 || fields[0] != "Total" {
			return 0, fmt.Errorf("jcmd ends with %q", fields)
		}
		return strconv.ParseFloat(fields[2], 64)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.http+"/debug/pprof/heap?gc=1&debug=1", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "# HeapAlloc = "); ok {
			return strconv.ParseFloat(rest, 64)
		}
	}
	return 0, errors.Join(errors.New("the heap profile does not say HeapAlloc"), lines.Err())
}
