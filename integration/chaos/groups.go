//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/integration/history"
)

// claimed notes what a group gives to a member.
func (r *recorder) claimed(group, member string, generation int32, keys []string) {
	r.add(history.Event{Process: int(r.process.Add(1)), Type: history.OK, F: history.Claim, GroupID: group, Member: member, Generation: generation, Keys: keys})
}

// released notes what a member begins to give up, and why.
func (r *recorder) released(group, member, why string, keys []string) {
	r.add(history.Event{Process: int(r.process.Add(1)), Type: history.OK, F: history.Release, GroupID: group, Member: member, State: why, Keys: keys})
}

func (r *recorder) wroteLast(key string, offset int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[key] = max(r.last[key], offset)
}

func (r *recorder) wrote(key string) (int64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, known := r.last[key]
	return o, known
}

// watchGroups asks coordinators what groups have committed and who owns what,
// over and over.
func watchGroups(ctx context.Context, rec *recorder, bootstrap []string, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 78))
	groups := groupsOf()
	names := sorted(groups)
	for ctx.Err() == nil {
		f := franz{bootstrap: bootstrap}
		cl, err := kgo.NewClient(f.options()...)
		if err != nil {
			return
		}
		process := int(rec.process.Add(1))
		for range 100 {
			name := names[rng.IntN(len(names))]
			_ = noteCommitted(ctx, rec, cl, process, name, groups[name], false)
			_ = noteOwners(ctx, rec, cl, process, name, groups[name], false)
			if pause(ctx, 60*time.Millisecond); ctx.Err() != nil {
				break
			}
		}
		cl.Close()
	}
}

// noteCommitted asks what a group has committed. What an open transaction is
// about to change is no answer: a producer is told of its commit before the
// group's coordinator is.
func noteCommitted(ctx context.Context, rec *recorder, cl *kgo.Client, process int, group string, keys []string, final bool) error {
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	e := history.Event{Process: process, Type: history.Invoke, F: history.Committed, GroupID: group, Final: final}
	rec.add(e)
	steps, err := askCommitted(limited, cl, group, keys)
	e.Type, e.Steps, e.Error = history.OK, steps, text(err)
	if err != nil {
		e.Type = history.Info
	}
	rec.add(e)
	return err
}

func askCommitted(ctx context.Context, cl *kgo.Client, group string, keys []string) ([]history.Step, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	rg := kmsg.NewOffsetFetchRequestGroup()
	rg.Group, rg.MemberEpoch = group, -1
	for _, key := range keys {
		topic, partition := splitKey(key)
		i := slices.IndexFunc(rg.Topics, func(t kmsg.OffsetFetchRequestGroupTopic) bool { return t.Topic == topic })
		if i < 0 {
			rt := kmsg.NewOffsetFetchRequestGroupTopic()
			rt.Topic = topic
			i, rg.Topics = len(rg.Topics), append(rg.Topics, rt)
		}
		rg.Topics[i].Partitions = append(rg.Topics[i].Partitions, partition)
	}
	req.Groups = append(req.Groups, rg)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	var steps []history.Step
	for _, g := range resp.Groups {
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return nil, err
		}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, err
				}
				steps = append(steps, history.Step{F: history.Committed, Key: joinKey(t.Topic, p.Partition), Offset: p.Offset})
			}
		}
	}
	return steps, nil
}

// noteOwners asks who owns what in a group.
func noteOwners(ctx context.Context, rec *recorder, cl *kgo.Client, process int, group string, keys []string, final bool) error {
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	e := history.Event{Process: process, Type: history.Invoke, F: history.Group, GroupID: group, Final: final, Keys: keys}
	rec.add(e)
	state, epoch, owners, err := asking(group)(limited, cl, group)
	e.Type, e.State, e.Generation, e.Owners, e.Error = history.OK, state, epoch, owners, text(err)
	if err != nil {
		e.Type = history.Info
	}
	rec.add(e)
	return err
}

// asking is how a group is asked for its members.
func asking(group string) func(context.Context, *kgo.Client, string) (string, int32, map[string][]string, error) {
	if strings.HasSuffix(group, "-848") {
		return askConsumer
	}
	return askClassic
}

func askClassic(ctx context.Context, cl *kgo.Client, group string) (string, int32, map[string][]string, error) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{group}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil || len(resp.Groups) != 1 {
		return "", 0, nil, cmp.Or(err, errNoAnswer)
	}
	g, owners := resp.Groups[0], owned{}
	for _, m := range g.Members {
		var a kmsg.ConsumerMemberAssignment
		if len(m.MemberAssignment) > 0 {
			if err := a.ReadFrom(m.MemberAssignment); err != nil {
				return "", 0, nil, fmt.Errorf("assignment of %s: %w", m.MemberID, err)
			}
		}
		owners.add(m.MemberID, "")
		for _, t := range a.Topics {
			owners.add(m.MemberID, t.Topic, t.Partitions...)
		}
	}
	return g.State, 0, owners, kerr.ErrorForCode(g.ErrorCode)
}

func askConsumer(ctx context.Context, cl *kgo.Client, group string) (string, int32, map[string][]string, error) {
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{group}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil || len(resp.Groups) != 1 {
		return "", 0, nil, cmp.Or(err, errNoAnswer)
	}
	g, owners := resp.Groups[0], owned{}
	for _, m := range g.Members {
		owners.add(m.MemberID, "")
		for _, t := range m.Assignment.TopicPartitions {
			owners.add(m.MemberID, t.Topic, t.Partitions...)
		}
	}
	return g.State, g.Epoch, owners, kerr.ErrorForCode(g.ErrorCode)
}

// errNoAnswer is returned when a coordinator says nothing of the group it was asked for.
var errNoAnswer = errors.New("no answer")

// owned is what each member of a group has; one that has nothing is in it, too.
type owned map[string][]string

func (o owned) add(member, topic string, partitions ...int32) {
	keys := o[member]
	for _, p := range partitions {
		keys = append(keys, joinKey(topic, p))
	}
	o[member] = keys
}

// settleGroups lets two members join a group of each protocol once all has healed, waits until it is stable, and notes who owns
// what: then every key has one owner.
func settleGroups(ctx context.Context, c *cluster, rec *recorder, r *raw) error {
	for _, group := range []string{"workers-franz-go", "workers-franz-848"} {
		if err := settleGroup(ctx, c, rec, r, group); err != nil {
			return err
		}
	}
	return nil
}

func settleGroup(ctx context.Context, c *cluster, rec *recorder, r *raw, group string) error {
	const members = 2
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	for range members {
		f := &franz{bootstrap: c.bootstrap(), owns: rec}
		defer f.crash()
		if err := f.subscribe(ctx, []string{plainTopic, tieredTopic}, group); err != nil {
			return err
		}
	}
	process := int(rec.process.Add(1))
	for {
		state, _, owners, err := asking(group)(ctx, r.cl, group)
		given := 0
		for _, keys := range owners {
			given += len(keys)
		}
		if err == nil && state == "Stable" && len(owners) == members && given >= len(allKeys) {
			return noteOwners(ctx, rec, r.cl, process, group, allKeys, true)
		}
		if pause(ctx, 200*time.Millisecond); ctx.Err() != nil {
			return errors.Join(fmt.Errorf("group %s does not settle: state %q, %v", group, state, owners), err)
		}
	}
}

// settleLimit is how long a group may take for that: members that ended without a word may have to be missed first.
const settleLimit = 45 * time.Second

// finalGroups notes what every group has committed in the end. A group that was
// never used has committed nothing.
func finalGroups(ctx context.Context, rec *recorder, r *raw) error {
	process := int(rec.process.Add(1))
	groups := groupsOf()
	for _, name := range sorted(groups) {
		for {
			err := noteCommitted(ctx, rec, r.cl, process, name, groups[name], true)
			if err == nil || errors.Is(err, kerr.GroupIDNotFound) {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("nobody tells what group %s has committed: %w", name, err)
			}
			pause(ctx, 500*time.Millisecond)
		}
	}
	return nil
}
