package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/varvelog/varve/meta/balance"
)

func clusterDrain() *cobra.Command {
	var (
		c              client
		out            output
		cancel, noWait bool
	)
	cmd := &cobra.Command{
		Use:   "drain ID",
		Short: "Empty a broker: its replicas move to others, and it gets no new ones",
		Long: "Empty a broker: the controller moves its replicas to others, a few at a time (varve.balancer.moves.max), and\n" +
			"gives it no new ones. Nothing is out of sync meanwhile. `varve cluster remove ID` follows, when it is to go.",
		Args: needs("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := brokerArg(args[0])
			if err != nil {
				return err
			}
			return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				if cancel {
					if err := adm.setDrain(ctx, id, false); err != nil {
						return err
					}
					return out.done(cmd.OutOrStdout(), map[string]any{"broker": id, "draining": false}, "broker %d is used again; what has moved away stays away (`varve cluster balance` evens that out)", id)
				}
				if err := adm.drainable(ctx, id); err != nil {
					return err
				}
				if err := adm.setDrain(ctx, id, true); err != nil {
					return err
				}
				if noWait {
					return out.done(cmd.OutOrStdout(), map[string]any{"broker": id, "draining": true, "empty": false}, "broker %d is being drained; `varve cluster describe` shows how far that is", id)
				}
				if err := adm.awaitDrained(cmd, id); err != nil {
					return err
				}
				return out.done(cmd.OutOrStdout(), map[string]any{"broker": id, "draining": true, "empty": true}, "broker %d holds no replicas", id)
			})
		},
	}
	c.flags(cmd)
	out.flags(cmd)
	cmd.Flags().BoolVar(&cancel, "cancel", false, "take it back")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "end at once, not when the broker is empty")
	return cmd
}

// drainable refuses what could never end: a partition needs as many brokers as
// it has replicas.
func (a *admin) drainable(ctx context.Context, id int32) error {
	v, err := a.viewCluster(ctx)
	if err != nil {
		return err
	}
	if b := v.broker(id); b == nil || b.State == stateUnregistered {
		return advise(fmt.Errorf("there is no broker %d", id), listsNodes)
	}
	others := 0
	for _, b := range v.Brokers {
		if b.ID != id && b.State == stateActive {
			others++
		}
	}
	m, err := a.Metadata(ctx)
	if err != nil {
		return err
	}
	return undrainable(m.Topics, id, others)
}

// undrainable names all topics that have more replicas than other brokers could
// hold, internal ones too.
func undrainable(topics kadm.TopicDetails, id int32, others int) error {
	var list []string
	for _, t := range topics.Sorted() {
		most := 0
		for _, p := range t.Partitions {
			if slices.Contains(p.Replicas, id) {
				most = max(most, len(p.Replicas))
			}
		}
		if most > others {
			list = append(list, fmt.Sprintf("%s (%d)", t.Topic, most))
		}
	}
	if len(list) == 0 {
		return nil
	}
	return fmt.Errorf("there are %d other brokers, and these topics have more replicas: %s; start a further broker, or give each of them fewer with `varve cluster reassign TOPIC --replicas …`",
		others, strings.Join(list, ", "))
}

func (a *admin) awaitDrained(cmd *cobra.Command, id int32) error {
	before := -1
	return every(cmd.Context(), pollInterval, func() (bool, error) {
		m, err := a.Metadata(cmd.Context())
		if err != nil {
			return false, err
		}
		left := 0
		m.Topics.EachPartition(func(p kadm.PartitionDetail) {
			if slices.Contains(p.Replicas, id) {
				left++
			}
		})
		if left != before && left > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "%d replicas left\n", left)
		}
		before = left
		return left == 0, nil
	})
}

func clusterBalance() *cobra.Command {
	var (
		c             client
		out           output
		dryRun, apply bool
		threshold     int
		moves         int
		wait          bool
	)
	cmd := &cobra.Command{
		Use:   "balance --dry-run|--apply",
		Short: "Even out replicas, bytes and leaders over the brokers",
		Long: "Even out replicas, bytes and leaders over the brokers, such as after one has joined. --dry-run shows which\n" +
			"partitions would move and how many bytes that copies; --apply moves them. The controller does the same by\n" +
			"itself where varve.balancer.enable=true.",
		Args: needs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dryRun == apply {
				return errors.New("choose --dry-run, to see what would move, or --apply, to move it")
			}
			return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				plan, err := adm.planBalance(ctx, balance.Options{Even: true, ThresholdPercent: threshold, MovesMax: moves})
				if err != nil {
					return err
				}
				if err := showPlan(cmd, &out, plan); err != nil || dryRun || len(plan) == 0 {
					return err
				}
				var req kadm.AlterPartitionAssignmentsReq
				for _, m := range plan {
					req.Assign(m.Topic, m.Index, m.To)
				}
				if _, err := adm.reassign(ctx, req); err != nil {
					return err
				}
				if !wait {
					fmt.Fprintln(cmd.ErrOrStderr(), "moving; `varve cluster reassign` shows how far that is")
					return nil
				}
				return adm.awaitMoves(ctx, nil)
			})
		},
	}
	c.flags(cmd)
	out.flags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the moves")
	cmd.Flags().BoolVar(&apply, "apply", false, "make the moves")
	cmd.Flags().BoolVar(&wait, "wait", false, "with --apply: end when the partitions have moved")
	cmd.Flags().IntVar(&threshold, "threshold", 10, "leave brokers alone that are within so many percent of the mean")
	cmd.Flags().IntVar(&moves, "moves", 0, "the most partitions to move (0: all that is needed)")
	return cmd
}

// planBalance works out the moves from what the cluster says of itself.
func (a *admin) planBalance(ctx context.Context, o balance.Options) ([]balance.Move, error) {
	v, err := a.settledView(ctx)
	if err != nil {
		return nil, err
	}
	c := &balance.Cluster{}
	for _, b := range v.Brokers {
		if b.State != stateUnregistered {
			c.Brokers = append(c.Brokers, balance.Broker{ID: b.ID, Rack: b.Rack, Takes: b.State == stateActive, Drain: b.State == stateDraining})
		}
	}
	m, err := a.Metadata(ctx)
	if err != nil {
		return nil, err
	}
	dirs, err := a.DescribeAllLogDirs(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("read the sizes of partitions: %w", err)
	}
	bytes := map[string]map[int32]int64{}
	dirs.Each(func(d kadm.DescribedLogDir) {
		d.Topics.Each(func(p kadm.DescribedLogDirPartition) {
			if bytes[p.Topic] == nil {
				bytes[p.Topic] = map[int32]int64{}
			}
			bytes[p.Topic][p.Partition] = max(bytes[p.Topic][p.Partition], p.Size)
		})
	})
	moving, err := a.ListPartitionReassignments(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list reassignments: %w", err)
	}
	m.Topics.EachPartition(func(p kadm.PartitionDetail) {
		_, fixed := moving[p.Topic][p.Partition]
		c.Partitions = append(c.Partitions, balance.Partition{
			Topic: p.Topic, Index: p.Partition, Replicas: p.Replicas, Bytes: bytes[p.Topic][p.Partition], Fixed: fixed || p.Leader < 0,
		})
	})
	return balance.Plan(c, o), nil
}

// settledView is the cluster once every node takes part, or after viewPatience:
// the broker that answers may not have heard yet of a node that has just joined,
// and a plan without it would move nothing to it.
func (a *admin) settledView(ctx context.Context) (v *clusterView, err error) {
	began := time.Now()
	err = every(ctx, pollInterval, func() (bool, error) {
		if v, err = a.viewCluster(ctx); err != nil {
			return false, err
		}
		waits := slices.ContainsFunc(v.Brokers, func(b brokerView) bool { return b.State != stateActive && b.State != stateDraining })
		return !waits || time.Since(began) > viewPatience, nil
	})
	return v, err
}

const viewPatience = 3 * time.Second

// planMove is a move as --json shows it.
type planMove struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	From      []int32 `json:"from"`
	To        []int32 `json:"to"`
	Bytes     int64   `json:"bytes"`
	Why       string  `json:"why"`
}

func showPlan(cmd *cobra.Command, out *output, plan []balance.Move) error {
	list := []planMove{}
	var rows [][]string
	total := int64(0)
	for _, m := range plan {
		list = append(list, planMove{m.Topic, m.Index, m.From, m.To, m.Bytes, string(m.Why)})
		rows = append(rows, []string{fmt.Sprintf("%s-%d", m.Topic, m.Index), ids(m.From), ids(m.To), humanBytes(m.Bytes), string(m.Why)})
		total += m.Bytes
	}
	if out.json {
		return out.object(cmd.OutOrStdout(), list)
	}
	if len(plan) == 0 {
		fmt.Fprintln(cmd.OutOrStdout(), "the cluster is balanced")
		return nil
	}
	if err := out.table(cmd.OutOrStdout(), strings.Fields("PARTITION FROM TO BYTES WHY"), rows); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "\n%d partitions, %s to copy\n", len(plan), humanBytes(total))
	return nil
}
