package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func clusterRemove() *cobra.Command {
	var (
		c   client
		out output
	)
	cmd := &cobra.Command{
		Use:   "remove ID",
		Short: "Forget a node for good, after it was drained and stopped",
		Long: "Forget a node for good: it leaves the metadata quorum, and its id is free. It must hold no replicas\n" +
			"(`varve cluster drain ID` moves them away) and must have stopped: a running node would register again.",
		Args: needs("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := brokerArg(args[0])
			if err != nil {
				return err
			}
			return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				if err := adm.removeNode(ctx, id); err != nil {
					return err
				}
				hint, err := adm.votersHint(ctx, id)
				if err != nil {
					return fmt.Errorf("node %d is removed; look who votes: %w", id, err)
				}
				if hint == "" {
					return out.done(cmd.OutOrStdout(), map[string]any{"removed": id}, "removed node %d", id)
				}
				return out.done(cmd.OutOrStdout(), map[string]any{"removed": id, "hint": hint}, "removed node %d; %s", id, hint)
			})
		},
	}
	c.flags(cmd)
	out.flags(cmd)
	return cmd
}

// stopNews is how long the cluster may take to notice that a node has stopped:
// a session of Kafka's length, when it stopped without taking leave, and an
// election before that, when it led the quorum.
const stopNews = 15 * time.Second

func (a *admin) removeNode(ctx context.Context, id int32) error {
	began := time.Now()
	var b *brokerView
	if err := every(ctx, pollInterval, func() (bool, error) {
		v, err := a.viewCluster(ctx)
		if err != nil {
			return false, err
		}
		b = v.broker(id)
		runs := b != nil && b.Replicas == 0 && (b.State == stateActive || b.State == stateDraining)
		return !runs || time.Since(began) > stopNews, nil
	}); err != nil {
		return err
	}
	switch {
	case b == nil:
		return advise(fmt.Errorf("there is no node %d", id), listsNodes)
	case b.Replicas > 0:
		return fmt.Errorf("node %d holds %d replicas, which would lose a copy: move them away with `varve cluster drain %d` first", id, b.Replicas, id)
	case b.State == stateActive || b.State == stateDraining:
		return fmt.Errorf("node %d runs: stop it first, or it would register again", id)
	}
	if slices.Contains(b.Roles, "voter") {
		if err := a.removeVoter(ctx, id); err != nil {
			return err
		}
	}
	if b.State == stateUnregistered {
		return nil
	}
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = id
	resp, err := req.RequestWith(ctx, a.raw)
	if err != nil {
		return err
	}
	if err := answered(resp.ErrorCode, resp.ErrorMessage); err != nil && !errors.Is(err, kerr.BrokerIDNotRegistered) { // it was a moment ago: see settled
		return fmt.Errorf("unregister broker %d: %w", id, err)
	}
	return nil
}

// votersHint says, after a node was removed, what an even number of voters means,
// and who could be a further one; it is empty when their number is odd.
func (a *admin) votersHint(ctx context.Context, removed int32) (string, error) {
	p, _, err := a.describeQuorum(ctx)
	if err != nil {
		return "", err
	}
	n := len(p.CurrentVoters)
	if n%2 != 0 {
		return "", nil
	}
	hint := fmt.Sprintf("%d nodes vote now, which survives the loss of %d: ", n, (n-1)/2)
	for _, o := range p.Observers {
		if o.ReplicaID != removed {
			return fmt.Sprintf("%smake a further one a voter with `varve cluster voters add %d`", hint, o.ReplicaID), nil
		}
	}
	return hint + "have a further node join, and make it a voter with `varve cluster voters add ID`", nil
}

func clusterVoters() *cobra.Command {
	verb := func(use, short, did string, votes bool, change func(*admin, context.Context, int32) error) *cobra.Command {
		var (
			c   client
			out output
		)
		cmd := &cobra.Command{
			Use: use, Short: short, Args: needs("ID"),
			RunE: func(cmd *cobra.Command, args []string) error {
				id, err := brokerArg(args[0])
				if err != nil {
					return err
				}
				return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
					if err := change(adm, ctx, id); err != nil {
						return err
					}
					return out.done(cmd.OutOrStdout(), map[string]any{"node": id, "voter": votes}, did, id)
				})
			},
		}
		c.flags(cmd)
		out.flags(cmd)
		return cmd
	}
	return group(&cobra.Command{
		Use: "voters", Short: "Change who votes in the metadata quorum",
		Long: "Change who votes in the metadata quorum. Up to five nodes vote; an odd number is best: three survive the\n" +
			"loss of one, five that of two. The others observe, and can be made voters at any time. A vote that was taken\n" +
			"stays taken until it is added again; a node that comes back with an empty disk counts as another.",
	},
		verb("add ID", "Make a node that observes the quorum a voter", "node %d votes", true, (*admin).addVoter),
		verb("remove ID", "Take a voter's vote; it goes on as an observer while it runs", "node %d votes no longer", false, (*admin).removeVoter))
}

// quorumMember finds a member of the quorum and where it listens for the others.
func (a *admin) quorumMember(ctx context.Context, id int32) (r kmsg.DescribeQuorumResponseTopicPartitionReplicaState, n kmsg.DescribeQuorumResponseNode, votes bool, err error) {
	p, nodes, err := a.describeQuorum(ctx)
	if err != nil {
		return r, n, false, err
	}
	is := func(r kmsg.DescribeQuorumResponseTopicPartitionReplicaState) bool { return r.ReplicaID == id }
	if i := slices.IndexFunc(nodes, func(n kmsg.DescribeQuorumResponseNode) bool { return n.NodeID == id }); i >= 0 {
		n = nodes[i]
	}
	if i := slices.IndexFunc(p.CurrentVoters, is); i >= 0 {
		return p.CurrentVoters[i], n, true, nil
	}
	if i := slices.IndexFunc(p.Observers, is); i >= 0 {
		return p.Observers[i], n, false, nil
	}
	return r, n, false, advise(fmt.Errorf("node %d is no member of the metadata quorum", id), listsNodes)
}

func (a *admin) addVoter(ctx context.Context, id int32) error {
	member, node, votes, err := a.quorumMember(ctx, id)
	if err != nil {
		return err
	}
	if votes {
		return fmt.Errorf("node %d votes already", id)
	}
	req := kmsg.NewPtrAddRaftVoterRequest()
	req.VoterID, req.VoterDirectoryID, req.TimeoutMillis, req.AckWhenCommitted = id, member.ReplicaDirectoryID, 30_000, true
	for _, l := range node.Listeners {
		rl := kmsg.NewAddRaftVoterRequestListener()
		rl.Name, rl.Host, rl.Port = l.Name, l.Host, l.Port
		req.Listeners = append(req.Listeners, rl)
	}
	resp, err := req.RequestWith(ctx, a.raw)
	if err != nil {
		return err
	}
	if err := answered(resp.ErrorCode, resp.ErrorMessage); err != nil && !(errors.Is(err, kerr.DuplicateVoter) && a.settled(ctx, id, true)) {
		return fmt.Errorf("add voter %d: %w", id, err)
	}
	return nil
}

func (a *admin) removeVoter(ctx context.Context, id int32) error {
	member, _, votes, err := a.quorumMember(ctx, id)
	if err != nil {
		return err
	}
	if !votes {
		return fmt.Errorf("node %d does not vote", id)
	}
	req := kmsg.NewPtrRemoveRaftVoterRequest()
	req.VoterID, req.VoterDirectoryID = id, member.ReplicaDirectoryID
	resp, err := req.RequestWith(ctx, a.raw)
	if err != nil {
		return err
	}
	if err := answered(resp.ErrorCode, resp.ErrorMessage); err != nil && !(errors.Is(err, kerr.VoterNotFound) && a.settled(ctx, id, false)) {
		return fmt.Errorf("remove voter %d: %w", id, err)
	}
	return nil
}

// settled says whether a node votes, or not, as was asked for. When an answer is
// lost, such as that of a controller which took its own vote and leads no more,
// the request is made again on the way, and refused because it has been granted.
func (a *admin) settled(ctx context.Context, id int32, votes bool) bool {
	_, _, now, err := a.quorumMember(ctx, id)
	return err == nil && now == votes
}

// setDrain sets or clears that a broker is to be emptied. It may be one that is
// gone for good, so not that broker is asked, as for its other settings, but
// whichever answers.
func (a *admin) setDrain(ctx context.Context, id int32, on bool) error {
	change := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	change.Name, change.Op = drainSetting, kmsg.IncrementalAlterConfigOpDelete
	if on {
		change.Op, change.Value = kmsg.IncrementalAlterConfigOpSet, kmsg.StringPtr("true")
	}
	of := kmsg.NewIncrementalAlterConfigsRequestResource()
	of.ResourceType, of.ResourceName = kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(id))
	of.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{change}
	all, err := a.ListBrokers(ctx)
	if err != nil {
		return err
	}
	for _, b := range all {
		q := kmsg.NewPtrIncrementalAlterConfigsRequest()
		q.Resources = []kmsg.IncrementalAlterConfigsRequestResource{of}
		var resp kmsg.Response
		if resp, err = a.raw.Broker(int(b.NodeID)).RetriableRequest(ctx, q); err != nil {
			continue // it has just gone
		}
		for _, r := range resp.(*kmsg.IncrementalAlterConfigsResponse).Resources {
			if err := answered(r.ErrorCode, r.ErrorMessage); err != nil {
				return fmt.Errorf("set %s of broker %d: %w", drainSetting, id, err)
			}
		}
		return nil
	}
	return err
}

func clusterElect() *cobra.Command {
	var (
		c       client
		out     output
		unclean bool
		parts   []int32
	)
	cmd := &cobra.Command{
		Use:   "elect [TOPIC…]",
		Short: "Have preferred replicas lead again, or, with --unclean, whoever is left",
		Long: "Have the first replica of every partition lead it again, of the topics named or of all.\n\n" +
			"--unclean is for partitions without a leader whose in-sync replicas are lost for good: a replica that may\n" +
			"lack acknowledged records leads then. What it lacks is lost. It needs topics named.",
		Example: "  varve cluster elect\n  varve cluster elect events --partition 3 --unclean",
		RunE: func(cmd *cobra.Command, topics []string) error {
			if unclean && len(topics) == 0 {
				return errors.New("--unclean may lose records: name the topics it is for")
			}
			if len(parts) > 0 && len(topics) != 1 {
				return errors.New("--partition goes with one topic")
			}
			return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				n, err := adm.elect(ctx, unclean, topics, parts)
				if err != nil {
					return err
				}
				return out.done(cmd.OutOrStdout(), map[string]any{"elected": n}, "%d leaders elected", n)
			})
		},
	}
	c.flags(cmd)
	out.flags(cmd)
	cmd.Flags().BoolVar(&unclean, "unclean", false, "elect replicas that may lack acknowledged records, which are lost then")
	cmd.Flags().Int32SliceVar(&parts, "partition", nil, "only these partitions of the topic")
	return cmd
}

func (a *admin) elect(ctx context.Context, unclean bool, topics []string, parts []int32) (int, error) {
	how := kadm.ElectPreferredReplica
	if unclean {
		how = kadm.ElectLiveReplica
	}
	var set kadm.TopicsSet
	if len(topics) > 0 {
		m, err := a.Metadata(ctx, topics...)
		if err != nil {
			return 0, err
		}
		set = kadm.TopicsSet{}
		for _, t := range m.Topics {
			if t.Err != nil {
				return 0, topicError(t.Topic, t.Err, "")
			}
			for _, p := range t.Partitions {
				if len(parts) == 0 || slices.Contains(parts, p.Partition) {
					set.Add(t.Topic, p.Partition)
				}
			}
		}
	}
	results, err := a.ElectLeaders(ctx, how, set)
	if err != nil {
		return 0, err
	}
	elected := 0
	var errs []error
	for topic, partitions := range results {
		for _, r := range partitions {
			switch {
			case errors.Is(r.Err, kerr.ElectionNotNeeded):
			case r.Err != nil:
				errs = append(errs, fmt.Errorf("%s-%d: %w", topic, r.Partition, refused(r.Err, r.ErrMessage)))
			default:
				elected++
			}
		}
	}
	return elected, errors.Join(errs...)
}

func clusterFeatures() *cobra.Command {
	var (
		c   client
		out output
	)
	cmd := &cobra.Command{
		Use:   "features",
		Short: "Show which features the brokers support and which level is in force",
		Long: "Show which features the brokers support and which level is in force. Brokers of version N and N-1 run\n" +
			"side by side while the level is that of N-1; `varve cluster features set NAME LEVEL` raises it when all are N.",
		Args: needs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				list, err := adm.features(ctx)
				if err != nil {
					return err
				}
				if out.json {
					return out.object(cmd.OutOrStdout(), list)
				}
				var rows [][]string
				for _, f := range list {
					rows = append(rows, []string{f.Name, strconv.Itoa(int(f.Level)), strconv.Itoa(int(f.Min)), strconv.Itoa(int(f.Max))})
				}
				return out.table(cmd.OutOrStdout(), []string{"FEATURE", "LEVEL", "LEAST", "MOST"}, rows)
			})
		},
	}
	c.flags(cmd)
	out.flags(cmd)
	cmd.AddCommand(featuresSet())
	return cmd
}

// featureView is one feature: the level in force and what every broker supports.
type featureView struct {
	Name  string `json:"name"`
	Level int16  `json:"level"`
	Min   int16  `json:"min"`
	Max   int16  `json:"max"`
}

// features asks every broker, since one of an older version supports less.
func (a *admin) features(ctx context.Context) ([]featureView, error) {
	all, err := a.ListBrokers(ctx)
	if err != nil {
		return nil, err
	}
	views := map[string]*featureView{}
	for i, b := range all {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "varve", version
		resp, err := req.RequestWith(ctx, a.raw.Broker(int(b.NodeID)))
		if err != nil {
			return nil, fmt.Errorf("ask broker %d: %w", b.NodeID, err)
		}
		for _, f := range resp.SupportedFeatures {
			v := views[f.Name]
			if v == nil && i == 0 {
				v = &featureView{Name: f.Name, Min: f.MinVersion, Max: f.MaxVersion}
				views[f.Name] = v
			}
			if v != nil {
				v.Min, v.Max = max(v.Min, f.MinVersion), min(v.Max, f.MaxVersion)
			}
		}
		for _, f := range resp.FinalizedFeatures {
			if v := views[f.Name]; v != nil {
				v.Level = f.MaxVersionLevel
			}
		}
	}
	var list []featureView
	for _, v := range views {
		list = append(list, *v)
	}
	slices.SortFunc(list, func(a, b featureView) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return list, nil
}

func featuresSet() *cobra.Command {
	var (
		c         client
		out       output
		downgrade bool
	)
	cmd := &cobra.Command{
		Use:   "set NAME LEVEL",
		Short: "Put another level of a feature in force",
		Long: "Put another level of a feature in force. A lower one takes --downgrade: clients and brokers do at once without\n" +
			"what the level had brought, such as the safer transactions of transaction.version 2 (KIP-890). A downgrade\n" +
			"that would lose metadata is refused.",
		Args: needs("NAME", "LEVEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			level, err := strconv.ParseInt(args[1], 10, 16)
			if err != nil || level < 0 {
				return advise(fmt.Errorf("level %q is no number from 0 on", args[1]), "`varve cluster features` shows the levels")
			}
			return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				if err := adm.setFeature(ctx, args[0], int16(level), downgrade); err != nil {
					return err
				}
				return out.done(cmd.OutOrStdout(), map[string]any{"feature": args[0], "level": level}, "%s is at level %d", args[0], level)
			})
		},
	}
	c.flags(cmd)
	out.flags(cmd)
	cmd.Flags().BoolVar(&downgrade, "downgrade", false, "allow a level below the one in force")
	return cmd
}

func (a *admin) setFeature(ctx context.Context, name string, level int16, downgrade bool) error {
	list, err := a.features(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(f featureView) bool { return f.Name == name })
	if i < 0 {
		return advise(fmt.Errorf("there is no feature %s", name), "`varve cluster features` lists them")
	}
	req := kmsg.NewPtrUpdateFeaturesRequest()
	u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	u.Feature, u.MaxVersionLevel, u.UpgradeType = name, level, 1
	if level < list[i].Level {
		if !downgrade {
			return fmt.Errorf("%s is at level %d, and %d is a downgrade: the cluster does without what the higher level brought from then on; add --downgrade if that is meant", name, list[i].Level, level)
		}
		u.UpgradeType = 2 // a downgrade that loses nothing
	}
	req.FeatureUpdates = append(req.FeatureUpdates, u)
	resp, err := req.RequestWith(ctx, a.raw)
	if err != nil {
		return err
	}
	if err := answered(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return fmt.Errorf("feature %s: %w", name, err)
	}
	for _, r := range resp.Results {
		if err := answered(r.ErrorCode, r.ErrorMessage); err != nil {
			return fmt.Errorf("feature %s: %w", r.Feature, err)
		}
	}
	return nil
}

// every calls look at once and then now and then, until it says that it is done.
func every(ctx context.Context, interval time.Duration, look func() (done bool, err error)) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		done, err := look()
		if done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
