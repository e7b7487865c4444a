package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupView is a group of any type as `varve group describe` shows it. Epochs
// are nil in classic groups.
type groupView struct {
	Group           string        `json:"group"`
	Type            string        `json:"type"`
	State           string        `json:"state"`
	Coordinator     int32         `json:"coordinator"`
	Assignor        string        `json:"assignor"`
	Epoch           *int32        `json:"epoch"`
	AssignmentEpoch *int32        `json:"assignmentEpoch"`
	Members         []groupMember `json:"members"`
	Offsets         []groupOffset `json:"offsets"`
}

// groupMember is one member. Assigned is what it reads by topic; in a streams
// group its active tasks by subtopology.
type groupMember struct {
	ID       string             `json:"id"`
	Instance string             `json:"instance"`
	Client   string             `json:"client"`
	Host     string             `json:"host"`
	Assigned map[string][]int32 `json:"assigned"`
}

// groupOffset is how far a group is with a partition. What is not known is nil:
// the offset of a partition that nothing was committed for, or the lag of a
// share group whose share-partition says none.
type groupOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    *int64 `json:"offset"`
	End       *int64 `json:"end"`
	Lag       *int64 `json:"lag"`
	Member    string `json:"member"`
}

// committed is where a group goes on, by partition.
func (v *groupView) committed() map[partitionKey]int64 {
	at := map[partitionKey]int64{}
	for _, o := range v.Offsets {
		if o.Offset != nil {
			at[partitionKey{o.Topic, o.Partition}] = *o.Offset
		}
	}
	return at
}

// findGroup says of which type a group is and who coordinates it.
func (a *admin) findGroup(ctx context.Context, name string) (kadm.ListedGroup, error) {
	all, err := a.ListGroups(ctx)
	g, ok := all[name] // whoever else does not answer
	switch {
	case !ok && err != nil:
		return g, err
	case !ok:
		return g, groupError(name, kerr.GroupIDNotFound, "there is no such group")
	}
	g.GroupType = strings.ToLower(cmp.Or(g.GroupType, groupClassic))
	return g, nil
}

func (a *admin) viewGroup(ctx context.Context, name string) (*groupView, error) {
	g, err := a.findGroup(ctx, name)
	if err != nil {
		return nil, err
	}
	v := &groupView{Group: name, Type: g.GroupType, State: g.State, Coordinator: g.Coordinator, Members: []groupMember{}, Offsets: []groupOffset{}}
	describe := map[string]func(context.Context, *admin) error{
		groupClassic: v.describeClassic, groupConsumer: v.describeConsumer, groupShare: v.describeShare, groupStreams: v.describeStreams,
	}[v.Type]
	if describe == nil {
		return nil, fmt.Errorf("group %s is of type %s, which this version does not know", name, v.Type)
	}
	if err := describe(ctx, a); err != nil {
		return nil, groupError(name, err, "")
	}
	offsets := v.readOffsets
	if v.Type == groupShare {
		offsets = v.readShareOffsets
	}
	if err := offsets(ctx, a); err != nil {
		return nil, groupError(name, err, "")
	}
	return v, nil
}

func (v *groupView) describeClassic(ctx context.Context, a *admin) error {
	all, err := a.DescribeGroups(ctx, v.Group)
	if err != nil {
		return err
	}
	d := all[v.Group]
	v.State, v.Assignor = cmp.Or(d.State, v.State), d.Protocol
	for _, m := range d.Members {
		assigned := map[string][]int32{}
		if c, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range c.Topics {
				assigned[t.Topic] = append(assigned[t.Topic], t.Partitions...)
			}
		}
		v.add(m.MemberID, m.InstanceID, m.ClientID, m.ClientHost, assigned)
	}
	return d.Err
}

func (v *groupView) describeConsumer(ctx context.Context, a *admin) error {
	all, err := a.DescribeConsumerGroups(ctx, v.Group)
	if err != nil {
		return err
	}
	d := all[v.Group]
	v.State, v.Assignor, v.Epoch, v.AssignmentEpoch = cmp.Or(d.State, v.State), d.AssignorName, &d.Epoch, &d.AssignmentEpoch
	for _, m := range d.Members {
		v.add(m.MemberID, m.InstanceID, m.ClientID, m.ClientHost, lists(m.Assignment))
	}
	return d.Err
}

func (v *groupView) describeShare(ctx context.Context, a *admin) error {
	all, err := a.DescribeShareGroups(ctx, v.Group)
	if err != nil {
		return err
	}
	d := all[v.Group]
	v.State, v.Assignor, v.Epoch, v.AssignmentEpoch = cmp.Or(d.GroupState, v.State), d.Assignor, &d.GroupEpoch, &d.AssignmentEpoch
	for _, m := range d.Members {
		v.add(m.MemberID, nil, m.ClientID, m.ClientHost, lists(m.Assignment))
	}
	return d.Err
}

func (v *groupView) describeStreams(ctx context.Context, a *admin) error {
	req := kmsg.NewPtrStreamsGroupDescribeRequest()
	req.Groups = []string{v.Group}
	// The client does not know that this is for the coordinator.
	answer, err := a.raw.Broker(int(v.Coordinator)).RetriableRequest(ctx, req)
	if err != nil {
		return err
	}
	resp := answer.(*kmsg.StreamsGroupDescribeResponse)
	if len(resp.Groups) != 1 {
		return fmt.Errorf("%d groups are described instead of one", len(resp.Groups))
	}
	d := resp.Groups[0]
	if err := answered(d.ErrorCode, d.ErrorMessage); err != nil {
		return err
	}
	v.State, v.Epoch, v.AssignmentEpoch = cmp.Or(d.State, v.State), &d.Epoch, &d.AssignmentEpoch
	for _, m := range d.Members {
		assigned := map[string][]int32{}
		for _, t := range m.Assignment.ActiveTasks {
			assigned[t.SubtopologyID] = append(assigned[t.SubtopologyID], t.Partitions...)
		}
		v.add(m.MemberID, m.InstanceID, m.ClientID, m.ClientHost, assigned)
	}
	return nil
}

func (v *groupView) add(id string, instance *string, client, host string, assigned map[string][]int32) {
	for _, partitions := range assigned {
		slices.Sort(partitions)
	}
	v.Members = append(v.Members, groupMember{id, plain(instance), client, host, assigned})
}

func lists(set kadm.TopicsSet) map[string][]int32 {
	out := map[string][]int32{}
	for _, t := range set.IntoList() {
		out[t.Topic] = t.Partitions
	}
	return out
}

// readOffsets gathers what is committed, and what is assigned without that.
func (v *groupView) readOffsets(ctx context.Context, a *admin) error {
	committed, err := a.FetchOffsets(ctx, v.Group)
	if err != nil {
		return err
	}
	at := map[partitionKey]*groupOffset{}
	entry := func(topic string, partition int32) *groupOffset {
		k := partitionKey{topic, partition}
		if at[k] == nil {
			at[k] = &groupOffset{Topic: topic, Partition: partition}
		}
		return at[k]
	}
	committed.Each(func(o kadm.OffsetResponse) {
		if o.Err == nil && o.At >= 0 {
			entry(o.Topic, o.Partition).Offset = &o.At
		}
	})
	if v.Type != groupStreams { // whose members have tasks, not partitions
		for _, m := range v.Members {
			for topic, partitions := range m.Assigned {
				for _, p := range partitions {
					entry(topic, p).Member = m.ID
				}
			}
		}
	}
	ends, err := a.ends(ctx, at)
	if err != nil {
		return err
	}
	for k, o := range at {
		if end, ok := ends[k]; ok {
			o.End = &end.offset
			if o.Offset != nil {
				lag := max(0, end.offset-*o.Offset)
				o.Lag = &lag
			}
		}
		v.Offsets = append(v.Offsets, *o)
	}
	v.sortOffsets()
	return nil
}

// ends asks for the ends of partitions; those of topics that are gone have none.
func (a *admin) ends(ctx context.Context, of map[partitionKey]*groupOffset) (map[partitionKey]found, error) {
	topics := map[string]bool{}
	for k := range of {
		topics[k.topic] = true
	}
	var names []string
	for name := range topics {
		names = append(names, name)
	}
	if len(names) == 0 {
		return nil, nil
	}
	there, err := a.ListTopicsWithInternal(ctx, names...)
	if err != nil {
		return nil, err
	}
	var keys []partitionKey
	for k := range of {
		if t := there[k.topic]; t.Err == nil {
			if p, ok := t.Partitions[k.partition]; ok && p.Leader >= 0 {
				keys = append(keys, k)
			}
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	return listOffsets(ctx, a.raw, keys, timestampLatest, false)
}

// readShareOffsets asks the share coordinator; what members have fetched and not
// acknowledged counts as lag.
func (v *groupView) readShareOffsets(ctx context.Context, a *admin) error {
	all, err := a.DescribeShareGroupOffsets(ctx, v.Group)
	if err != nil {
		return err
	}
	d := all[v.Group]
	if d.Err != nil {
		return d.Err
	}
	for _, partitions := range d.Offsets {
		for _, o := range partitions {
			if o.Err != nil {
				return o.Err
			}
			row := groupOffset{Topic: o.Topic, Partition: o.Partition}
			if o.StartOffset >= 0 {
				row.Offset = &o.StartOffset
			}
			if o.Lag >= 0 {
				row.Lag = &o.Lag
			}
			v.Offsets = append(v.Offsets, row)
		}
	}
	v.sortOffsets()
	return nil
}

func (v *groupView) sortOffsets() {
	slices.SortFunc(v.Offsets, func(a, b groupOffset) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}
