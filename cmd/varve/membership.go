package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// commitEvery is how often a member commits what it has printed.
	commitEvery = time.Second
	// partLimit bounds how long a member that ends tries to commit, and to leave its group.
	partLimit = 15 * time.Second
)

// membership is a member of a consumer group that prints what the group gives
// it to read, and commits what it has printed.
type membership struct {
	name     string
	protocol string     // of the group, or as it was asked for
	placed   bool       // --from was given
	begin    kgo.Offset // where a partition begins that the group has committed nothing of
}

func (m *membership) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&m.name, "group", "g", "", "read as a member of this consumer group, and commit what was printed")
	cmd.Flags().StringVar(&m.protocol, "group-protocol", "", "with --group: classic, or consumer (KIP-848) (default: the one the group has; classic for a new one)")
}

// check refuses what cannot go with a group, or only goes with one.
func (m *membership) check(cmd *cobra.Command, s *span) error {
	m.placed = cmd.Flags().Changed("from")
	switch {
	case m.name == "" && cmd.Flags().Changed("group"):
		return errors.New("--group is empty: name the group, or leave it out to read for nobody else")
	case m.name == "" && m.protocol != "":
		return errors.New("--group-protocol goes with --group NAME")
	case m.name == "":
		return nil
	case m.protocol != "" && m.protocol != groupClassic && m.protocol != groupConsumer:
		return fmt.Errorf("--group-protocol %q: choose %s or %s", m.protocol, groupClassic, groupConsumer)
	case len(s.partitions) > 0:
		return errors.New("--partition cannot go with --group, which says itself which member reads what: leave out one of the two")
	case s.disorder != "":
		return errors.New("--disorder cannot go with --group, which leaves nothing out: reading stops before the first record at or after --to; leave out --disorder, or --group")
	}
	return nil
}

// committed is where the group goes on, by partition; it settles the protocol, too.
func (m *membership) committed(ctx context.Context, adm *admin) (map[partitionKey]int64, error) {
	var v *groupView
	err := patiently(ctx, adm.patience, func() (err error) {
		v, err = adm.viewGroup(ctx, m.name)
		return err
	})
	if errors.Is(err, kerr.GroupIDNotFound) { // the first member makes it
		v, err = &groupView{Type: groupClassic}, nil
	}
	if err != nil {
		return nil, err
	}
	if v.Type != groupClassic && v.Type != groupConsumer {
		return nil, advise(fmt.Errorf("group %s is a %s group, which has no members that commit offsets", m.name, v.Type), "name another group with --group")
	}
	if m.protocol == "" {
		m.protocol = v.Type
	}
	return v.committed(), nil
}

// resolveGroup asks the cluster where the group goes on, and up to where it is
// to read.
func (c *consumeRun) resolveGroup(ctx context.Context, adm *admin, topics []string, now time.Time) (*reading, error) {
	from, to, err := c.span.places(now)
	if err != nil {
		return nil, err
	}
	keys, err := topicPartitions(ctx, adm, topics)
	if err != nil {
		return nil, err
	}
	had, err := c.group.committed(ctx, adm)
	if err != nil {
		return nil, err
	}
	var at [4]map[partitionKey]int64
	for i, p := range []place{{kind: placeEarliest}, from, to, {kind: placeLatest}} {
		if at[i], err = offsetsAt(ctx, adm.raw, keys, p, c.span.committed); err != nil {
			return nil, err
		}
	}
	first, begin, until, last := at[0], at[1], at[2], at[3]
	c.group.begin = begins(from)
	r := &reading{starts: map[partitionKey]int64{}, since: math.MinInt64, before: math.MaxInt64}
	if !c.span.follow {
		r.ends = map[partitionKey]int64{}
	}
	known := 0
	for _, k := range keys {
		start, ok := had[k]
		switch {
		case !ok:
			start = min(begin[k], last[k])
		case start < first[k]:
			r.notes = append(r.notes, fmt.Sprintf("%s-%d has offsets %d to %d: %d, where the group was, is gone, reading begins at %d", k.topic, k.partition, first[k], last[k]-1, start, first[k]))
		}
		if ok {
			known++
		}
		r.starts[k] = max(start, first[k])
		if r.ends != nil {
			r.ends[k] = min(until[k], last[k])
		}
	}
	if c.group.placed && known > 0 {
		r.notes = append(r.notes, fmt.Sprintf("group %s goes on where it was in %d of %d partitions: --from is for those it has committed nothing of; `varve group reset %s --to %s --apply` moves it",
			c.group.name, known, len(keys), c.group.name, c.span.from))
	}
	return r, nil
}

// begins is where a member begins in a partition of which the group has committed nothing.
func begins(at place) kgo.Offset {
	switch at.kind {
	case placeLatest:
		return kgo.NewOffset().AtEnd()
	case placeOffset:
		return kgo.NewOffset().At(at.at)
	case placeTime:
		return kgo.NewOffset().AfterMilli(at.at)
	}
	return kgo.NewOffset().AtStart()
}

// readAsMember joins the group and prints what it gets to read. Whatever ends
// that, what was printed is committed and the group is left.
func (c *consumeRun) readAsMember(cmd *cobra.Command, names []string, p *printing) error {
	heard := &groupFaults{tell: func(text string) { c.out.note(cmd.ErrOrStderr(), text) }, group: c.group.name}
	opts := append(c.options(),
		kgo.ConsumerGroup(c.group.name), kgo.ConsumeStartOffset(c.group.begin),
		// Any of the assignors that others come with, so that it can join their groups.
		kgo.Balancers(kgo.CooperativeStickyBalancer(), kgo.StickyBalancer(), kgo.RangeBalancer(), kgo.RoundRobinBalancer()),
		// Committed are marks, which are set once records are out; the client
		// commits them by itself before partitions are taken from it, which
		// waits until what was polled is dealt with.
		kgo.AutoCommitMarks(), kgo.AutoCommitInterval(commitEvery), kgo.AutoCommitCallback(heard.commit), kgo.BlockRebalanceOnPoll(),
	)
	if c.group.protocol == groupConsumer {
		opts = append(opts, kgo.ServerSideBalancer())
	}
	if c.regex {
		opts = append(opts, kgo.ConsumeRegex())
		for i, name := range names {
			names[i] = wholly(name)
		}
	}
	// A closed pipe is an error like any other, not the end: there is something to commit.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	cl, err := c.dial(cmd.Context(), append(opts, kgo.ConsumeTopics(names...))...)
	if err != nil {
		return err
	}
	defer cl.CloseAllowingRebalance()
	err = p.all(cmd.Context(), cl, heard)
	return errors.Join(err, c.group.leave(cmd.Context(), cl))
}

// leave commits what was printed, and leaves the group.
func (m *membership) leave(ctx context.Context, cl *kgo.Client) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), partLimit)
	defer cancel()
	err := cl.CommitMarkedOffsets(ctx)
	cl.AllowRebalance()
	left := cl.LeaveGroupContext(ctx)
	if err != nil {
		return advise(groupError(m.name, fmt.Errorf("what was printed last is not committed: %w", err), ""), "the group will read it again")
	}
	if left != nil {
		return groupError(m.name, fmt.Errorf("everything is committed, but the group was not left, and waits for this member until its session ends: %w", left), "")
	}
	return nil
}

// share marks what is out as the group's to commit, and lets partitions go to others.
func (p *printing) share(cl *kgo.Client, past map[string]map[int32]kgo.EpochOffset) {
	if _, generation := cl.GroupMetadata(); generation <= 0 {
		p.came = time.Now() // it has yet to join: idle counts from then on
	}
	cl.MarkCommitOffsets(past)
	cl.AllowRebalance()
}

// readByOthers looks which partitions other members have read to their ends,
// and of which nothing is left to read.
func (p *printing) readByOthers(ctx context.Context, cl *kgo.Client, group string) error {
	adm := &admin{Client: kadm.NewClient(cl), raw: cl}
	committed, err := adm.FetchOffsets(ctx, group)
	if err != nil {
		return passing(err)
	}
	keys := make([]partitionKey, 0, len(p.left))
	for k := range p.left {
		keys = append(keys, k)
	}
	first, err := listOffsets(ctx, adm.raw, keys, timestampEarliest, false)
	if err != nil {
		return passing(err)
	}
	for _, k := range keys {
		o, ok := committed.Lookup(k.topic, k.partition)
		if ok && o.At >= p.ends[k] || first[k].offset >= p.ends[k] {
			delete(p.left, k)
		}
	}
	return nil
}

// passing is nil for errors after which another try may go well.
func passing(err error) error {
	err = unsharded(err)
	var code *kerr.Error
	if !errors.As(err, &code) || code.Retriable { // the network's are others
		return nil
	}
	switch code {
	case kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.RebalanceInProgress, kerr.FencedMemberEpoch, kerr.StaleMemberEpoch:
		return nil
	}
	return err
}

// groupFaults hears what goes wrong between a member and its coordinator, and
// tells each passing fault once.
type groupFaults struct {
	tell  func(string)
	group string

	mu   sync.Mutex      // guards told
	told map[string]bool // by kind
}

// once tells of a fault of a kind that has not been told of.
func (g *groupFaults) once(err error, format string) {
	kind := "network"
	var code *kerr.Error
	if errors.As(err, &code) {
		kind = code.Message
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.told[kind] {
		return
	}
	if g.told == nil {
		g.told = map[string]bool{}
	}
	g.told[kind] = true
	g.tell(fmt.Sprintf(format, g.group, strings.ReplaceAll(err.Error(), "\n", "; ")))
}

// session is nil for the end of a membership that the client takes up again,
// and says in other cases what there is to do.
func (g *groupFaults) session(err error) error {
	var session *kgo.ErrGroupSession
	if !errors.As(err, &session) {
		return err
	}
	if err := passing(session.Err); err != nil {
		return groupError(g.group, err, "")
	}
	g.once(session.Err, "group %s: %s; trying again")
	return nil
}

// commit hears of commits that the client made by itself. One that fails is made
// up for by the next, unless its partitions went to another member meanwhile.
func (g *groupFaults) commit(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
	if err == nil && resp != nil {
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				err = errors.Join(err, kerr.ErrorForCode(p.ErrorCode))
			}
		}
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		g.once(err, "group %s: a commit failed (%s): records may be printed again")
	}
}
