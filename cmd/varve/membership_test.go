package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// screen is a standard output that can be closed: what is written then fails.
type screen struct {
	mu     sync.Mutex // guards the following
	text   bytes.Buffer
	closed bool
	wrote  func(all string)
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, errors.New("nobody reads this")
	}
	s.text.Write(p)
	if s.wrote != nil {
		s.wrote(s.text.String())
	}
	return len(p), nil
}

func (s *screen) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

func (s *screen) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Fields(s.text.String())
}

// consumeTo runs `varve consume events` with the arguments and out as its standard output.
func consumeTo(ctx context.Context, n *node, out *screen, args ...string) (said string, err error) {
	var errs bytes.Buffer
	cmd := rootCommand()
	cmd.SetArgs(append([]string{"consume", "events", "--bootstrap", n.Kafka}, args...))
	cmd.SetOut(out)
	cmd.SetErr(&errs)
	err = cmd.ExecuteContext(ctx)
	return errs.String(), err
}

// groupIsAt fails unless the group has committed exactly this offset of events-0.
func groupIsAt(t *testing.T, n *node, group string, want int64) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Kafka))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	all, err := kadm.NewClient(cl).FetchOffsets(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := all.Lookup("events", 0); o.At != want {
		t.Errorf("group %s has committed %d, not %d", group, o.At, want)
	}
	described, err := kadm.NewClient(cl).DescribeGroups(t.Context(), group)
	if err == nil && len(described[group].Members) > 0 {
		t.Errorf("group %s still has a member: %s", group, described[group].Members[0].MemberID)
	}
}

func numbers(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

func TestAMemberCommitsWhatIsOnStandardOutputAndNothingElse(t *testing.T) {
	for _, protocol := range []string{groupClassic, groupConsumer} {
		t.Run(protocol, func(t *testing.T) {
			n := startWith(t)
			createTopic(t, n, "events")
			write := func(from, to int) {
				if err := produceTo(t.Context(), n, "events", numbers(from, to), &logText{}); err != nil {
					t.Error(err)
				}
			}
			write(0, 100)
			seen := make(chan struct{})
			out := &screen{}
			out.wrote = func(all string) {
				if strings.HasSuffix(all, "\n99\n") {
					close(seen)
				}
			}
			ended := make(chan error, 1)
			go func() {
				_, err := consumeTo(t.Context(), n, out, "--group", "g", "--group-protocol", protocol, "--follow")
				ended <- err
			}()
			<-seen
			out.close()
			write(100, 200)
			err := <-ended
			if err == nil || !strings.Contains(err.Error(), "print the records: nobody reads this") {
				t.Errorf("with its output closed it ends with %v", err)
			}
			groupIsAt(t, n, "g", 100)

			rest := &screen{}
			if said, err := consumeTo(t.Context(), n, rest, "--group", "g", "--count", "7"); err != nil || said != "" {
				t.Errorf("it says %q and ends with %v", said, err)
			}
			groupIsAt(t, n, "g", 107)
			if _, err := consumeTo(t.Context(), n, rest, "--group", "g"); err != nil {
				t.Error(err)
			}
			groupIsAt(t, n, "g", 200)
			if got := append(out.lines(), rest.lines()...); !slices.Equal(got, strings.Fields(numbers(0, 200))) {
				t.Errorf("in all it printed %v", got)
			}
		})
	}
}

func TestAStoppedMemberCommitsAndLeaves(t *testing.T) {
	n := startWith(t)
	createTopic(t, n, "events")
	if err := produceTo(t.Context(), n, "events", numbers(0, 10), &logText{}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	out := &screen{wrote: func(string) { stop() }}
	if _, err := consumeTo(ctx, n, out, "--group", "g", "--follow"); err != nil {
		t.Errorf("stopping what has no end is no failure: %v", err)
	}
	groupIsAt(t, n, "g", int64(len(out.lines())))

	// Somebody else holds the only partition, and reads nothing.
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Kafka), kgo.ConsumerGroup("held"), kgo.ConsumeTopics("events"), kgo.DisableAutoCommit())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if cl.PollFetches(t.Context()).NumRecords() == 0 {
		t.Fatal("the other member has nothing")
	}
	ctx, stop = context.WithCancel(t.Context())
	go func() {
		defer stop()
		adm := kadm.NewClient(cl)
		for joined := 0; joined < 2 && t.Context().Err() == nil; {
			all, err := adm.DescribeGroups(t.Context(), "held")
			if err != nil {
				t.Errorf("describe the group: %v", err)
				return
			}
			joined = len(all["held"].Members)
			<-time.After(20 * time.Millisecond)
		}
	}()
	if _, err := consumeTo(ctx, n, &screen{}, "--group", "held"); !errors.Is(err, errInterrupted) {
		t.Errorf("stopped before the group has read everything it ends with %v", err)
	}
}

// TestAMemberBeginsWhereItWasReckonedFrom: a time before now is not another one by the time that the member joins.
func TestAMemberBeginsWhereItWasReckonedFrom(t *testing.T) {
	n := startWith(t)
	createTopic(t, n, "events")
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Kafka))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	c := consumeRun{span: span{from: "-1h"}, group: membership{name: "g"}}
	now := time.UnixMilli(1_700_000_000_000)
	if _, err := c.resolveGroup(t.Context(), &admin{Client: kadm.NewClient(cl), raw: cl, patience: 5 * time.Second}, []string{"events"}, now); err != nil {
		t.Fatal(err)
	}
	if want := kgo.NewOffset().AfterMilli(now.Add(-time.Hour).UnixMilli()); c.group.begin != want {
		t.Errorf("it begins at %v, not %v", c.group.begin, want)
	}
}

func TestWhichFaultsOfAGroupPass(t *testing.T) {
	var told []string
	heard := &groupFaults{group: "g", tell: func(text string) { told = append(told, text) }}
	for _, err := range []error{kerr.RebalanceInProgress, kerr.UnknownMemberID, kerr.CoordinatorNotAvailable, errors.New("connection refused"), errors.New("connection reset"), kerr.RebalanceInProgress} {
		if err := heard.session(&kgo.ErrGroupSession{Err: err}); err != nil {
			t.Errorf("%v", err)
		}
	}
	if len(told) != 4 || !strings.Contains(told[3], "group g: connection refused; trying again") {
		t.Errorf("it tells %q", told)
	}
	err := heard.session(&kgo.ErrGroupSession{Err: kerr.InconsistentGroupProtocol})
	if !errors.Is(err, kerr.InconsistentGroupProtocol) || !strings.Contains(err.Error(), "--group-protocol") {
		t.Errorf("members with another assignor: %v", err)
	}
	if err := heard.session(kgo.ErrClientClosed); !errors.Is(err, kgo.ErrClientClosed) {
		t.Errorf("not of the group: %v", err)
	}
}
