package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func groupReset() *cobra.Command {
	var (
		c             client
		out           output
		to            string
		topics        []string
		dryRun, apply bool
	)
	cmd := &cobra.Command{
		Use:   "reset GROUP --to WHERE --dry-run|--apply",
		Short: "Have a group without members go on from another place",
		Long: "Have a group without members go on from another place: from the earliest record, the latest, an offset, or\n" +
			"the first record at or after a time. --dry-run shows what would be committed; --apply commits it.\n\n" +
			"Without --topic it is for every partition that the group has an offset for. --topic NAME is for all of a\n" +
			"topic's partitions, NAME:0,3 for some of them; a classic group that does not exist yet begins there. An\n" +
			"offset outside of a partition becomes the nearest that is inside.",
		Example: "  varve group reset billing --to 2024-03-03T14:05Z --dry-run\n" +
			"  varve group reset billing --to earliest --topic events:0,3 --apply",
		Args: needs("GROUP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case to == "":
				return errors.New("say where to with --to: " + placeForms)
			case dryRun == apply:
				return errors.New("choose --dry-run, to see where the group would go on, or --apply, to have it go on there")
			}
			where, err := parsePlace("--to", to, time.Now())
			if err != nil {
				return err
			}
			return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				plan, err := adm.planReset(ctx, args[0], topics, where)
				if err != nil {
					return err
				}
				if apply {
					if err := adm.applyReset(ctx, plan); err != nil {
						return err
					}
				}
				return rows(&out, cmd.OutOrStdout(), []string{"TOPIC", "PARTITION", "FROM", "TO"}, plan.Moves, resetMove.cells)
			})
		},
	}
	c.flags(cmd)
	out.flags(cmd)
	cmd.Flags().StringVar(&to, "to", "", placeForms)
	cmd.Flags().StringArrayVar(&topics, "topic", nil, "only this topic, or these partitions of it: NAME or NAME:0,3, repeatable")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be committed")
	cmd.Flags().BoolVar(&apply, "apply", false, "commit it")
	return cmd
}

// resetMove is one partition of a reset; From is nil where the group had none.
type resetMove struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      *int64 `json:"from"`
	To        int64  `json:"to"`
}

func (m resetMove) cells() []string {
	return []string{m.Topic, fmt.Sprint(m.Partition), offsetText(m.From), fmt.Sprint(m.To)}
}

type resetPlan struct {
	group, kind string
	Moves       []resetMove
}

func (a *admin) planReset(ctx context.Context, name string, topics []string, to place) (*resetPlan, error) {
	plan := &resetPlan{group: name, kind: groupClassic}
	had := map[partitionKey]int64{}
	v, err := a.viewGroup(ctx, name)
	switch {
	case errors.Is(err, kerr.GroupIDNotFound) && len(topics) > 0: // it begins with its offsets
	case err != nil:
		return nil, err
	case len(v.Members) > 0:
		return nil, fmt.Errorf("group %s has %d members, which would go on where they are: stop them first (`varve group describe %s` lists them)", name, len(v.Members), name)
	default:
		plan.kind = v.Type
		had = v.committed()
	}
	keys, err := a.resetKeys(ctx, name, topics, had)
	if err != nil {
		return nil, err
	}
	target, err := offsetsAt(ctx, a.raw, keys, to, false)
	if err != nil {
		return nil, err
	}
	first, err := listOffsets(ctx, a.raw, keys, timestampEarliest, false)
	if err != nil {
		return nil, err
	}
	last, err := listOffsets(ctx, a.raw, keys, timestampLatest, false)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		m := resetMove{Topic: k.topic, Partition: k.partition, To: min(max(target[k], first[k].offset), last[k].offset)}
		if from, ok := had[k]; ok {
			m.From = &from
		}
		plan.Moves = append(plan.Moves, m)
	}
	slices.SortFunc(plan.Moves, func(x, y resetMove) int {
		return cmp.Or(cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition))
	})
	return plan, nil
}

// resetKeys are the partitions that a reset is for.
func (a *admin) resetKeys(ctx context.Context, name string, topics []string, had map[partitionKey]int64) ([]partitionKey, error) {
	if len(topics) == 0 {
		if len(had) == 0 {
			return nil, fmt.Errorf("group %s has no offsets: name what to read with --topic", name)
		}
		var keys []partitionKey
		for k := range had {
			keys = append(keys, k)
		}
		return keys, nil
	}
	var keys []partitionKey
	for _, arg := range topics {
		topic, list, some := strings.Cut(arg, ":")
		all, err := topicPartitions(ctx, a, []string{topic})
		if err != nil {
			return nil, err
		}
		s := span{}
		if some {
			for text := range strings.SplitSeq(list, ",") {
				p, err := strconv.ParseInt(text, 10, 32)
				if err != nil {
					return nil, fmt.Errorf("--topic %s: write NAME, or NAME:0,3 for some of its partitions", arg)
				}
				s.partitions = append(s.partitions, int32(p))
			}
		}
		chosen, err := s.chosen(all)
		if err != nil {
			return nil, err
		}
		keys = append(keys, chosen...)
	}
	return keys, nil
}

func (a *admin) applyReset(ctx context.Context, plan *resetPlan) error {
	offsets := kadm.Offsets{}
	for _, m := range plan.Moves {
		offsets.Add(kadm.Offset{Topic: m.Topic, Partition: m.Partition, At: m.To, LeaderEpoch: -1})
	}
	if plan.kind != groupShare {
		return groupError(plan.group, patiently(ctx, a.patience, func() error { return a.CommitAllOffsets(ctx, plan.group, offsets) }), "")
	}
	resp, err := a.AlterShareGroupOffsets(ctx, plan.group, offsets)
	if err != nil {
		return groupError(plan.group, err, "")
	}
	var errs []error
	for topic, partitions := range resp {
		for p, err := range partitions {
			if err != nil {
				errs = append(errs, groupError(plan.group, fmt.Errorf("%s-%d: %w", topic, p, err), ""))
			}
		}
	}
	return errors.Join(errs...)
}
