package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func clusterReassign() *cobra.Command {
	var (
		c        client
		out      output
		parts    []int32
		replicas []int32
		cancel   bool
		wait     bool
	)
	cmd := &cobra.Command{
		Use:   "reassign [TOPIC]",
		Short: "Move partitions to other brokers, cancel that, or list what is moving",
		Long: "Without a topic it lists what is moving. With one, its partitions (or those of --partition) move to the\n" +
			"brokers of --replicas, the first of which is the preferred leader. New replicas catch up before old ones go;\n" +
			"--cancel takes back what is under way.",
		Example: "  varve cluster reassign\n" +
			"  varve cluster reassign events --partition 3 --replicas 2,3,4 --wait\n" +
			"  varve cluster reassign events --cancel",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && (cancel || len(replicas) > 0 || len(parts) > 0):
				return errors.New("TOPIC is missing: varve cluster reassign TOPIC --replicas 1,2,3")
			case len(args) == 1 && cancel == (len(replicas) > 0):
				return errors.New("say where to with --replicas 1,2,3, or --cancel")
			}
			return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				if len(args) == 0 {
					return listMoves(cmd, adm, &out)
				}
				var (
					req kadm.AlterPartitionAssignmentsReq
					err error
				)
				if cancel {
					req, err = adm.movesToCancel(ctx, args[0], parts)
				} else {
					req, err = adm.movesTo(ctx, args[0], parts, replicas)
				}
				if err != nil {
					return err
				}
				n, err := adm.reassign(ctx, req)
				if err != nil {
					return err
				}
				if cancel {
					return out.done(cmd.OutOrStdout(), map[string]any{"cancelled": n}, "cancelled the moves of %d partitions", n)
				}
				if err := out.done(cmd.OutOrStdout(), map[string]any{"moving": n}, "%d partitions move", n); err != nil {
					return err
				}
				if wait {
					return adm.awaitMoves(ctx, kadm.TopicsSet{args[0]: {}})
				}
				return nil
			})
		},
	}
	c.flags(cmd)
	out.flags(cmd)
	cmd.Flags().Int32SliceVar(&parts, "partition", nil, "only these partitions")
	cmd.Flags().Int32SliceVar(&replicas, "replicas", nil, "the brokers that are to hold them, the preferred leader first")
	cmd.Flags().BoolVar(&cancel, "cancel", false, "take back moves that are under way")
	cmd.Flags().BoolVar(&wait, "wait", false, "end when the partitions have moved")
	return cmd
}

// moveView is one partition that is moving.
type moveView struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Replicas  []int32 `json:"replicas"`
	Adding    []int32 `json:"adding"`
	Removing  []int32 `json:"removing"`
}

func listMoves(cmd *cobra.Command, adm *admin, out *output) error {
	moving, err := adm.ListPartitionReassignments(cmd.Context(), nil)
	if err != nil {
		return err
	}
	list := []moveView{}
	var rows [][]string
	for _, m := range moving.Sorted() {
		list = append(list, moveView{m.Topic, m.Partition, m.Replicas, m.AddingReplicas, m.RemovingReplicas})
		rows = append(rows, []string{fmt.Sprintf("%s-%d", m.Topic, m.Partition), ids(m.Replicas), ids(m.AddingReplicas), ids(m.RemovingReplicas)})
	}
	if out.json {
		return out.object(cmd.OutOrStdout(), list)
	}
	if len(rows) == 0 {
		fmt.Fprintln(cmd.OutOrStdout(), "nothing is moving")
		return nil
	}
	return out.table(cmd.OutOrStdout(), []string{"PARTITION", "REPLICAS", "ADDING", "REMOVING"}, rows)
}

func ids(list []int32) string {
	if len(list) == 0 {
		return "-"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ","), "[]")
}

func (a *admin) movesTo(ctx context.Context, topic string, parts, replicas []int32) (kadm.AlterPartitionAssignmentsReq, error) {
	m, err := a.Metadata(ctx, topic)
	if err != nil {
		return nil, err
	}
	t := m.Topics[topic]
	if t.Err != nil {
		return nil, topicError(topic, t.Err, "")
	}
	if len(parts) == 0 {
		parts = t.Partitions.Numbers()
	}
	var req kadm.AlterPartitionAssignmentsReq
	for _, p := range parts {
		req.Assign(topic, p, replicas)
	}
	return req, nil
}

func (a *admin) movesToCancel(ctx context.Context, topic string, parts []int32) (kadm.AlterPartitionAssignmentsReq, error) {
	moving, err := a.ListPartitionReassignments(ctx, nil)
	if err != nil {
		return nil, err
	}
	only := map[int32]bool{}
	for _, p := range parts {
		only[p] = true
	}
	var req kadm.AlterPartitionAssignmentsReq
	for _, m := range moving.Sorted() {
		if m.Topic == topic && (len(parts) == 0 || only[m.Partition]) {
			req.CancelAssign(topic, m.Partition)
		}
	}
	if len(req) == 0 {
		return nil, advise(fmt.Errorf("nothing of topic %s is moving", topic), "`varve cluster reassign` lists what is")
	}
	return req, nil
}

// reassign has partitions moved, and says how many.
func (a *admin) reassign(ctx context.Context, req kadm.AlterPartitionAssignmentsReq) (int, error) {
	resps, err := a.AlterPartitionAssignments(ctx, req)
	if err != nil {
		return 0, err
	}
	n := 0
	var errs []error
	for _, r := range resps.Sorted() {
		if r.Err != nil && !errors.Is(r.Err, kerr.NoReassignmentInProgress) {
			errs = append(errs, fmt.Errorf("%s-%d: %w", r.Topic, r.Partition, refused(r.Err, r.ErrMessage)))
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

// awaitMoves waits until nothing of the topics is moving; nil means of any.
func (a *admin) awaitMoves(ctx context.Context, topics kadm.TopicsSet) error {
	return every(ctx, pollInterval, func() (bool, error) {
		moving, err := a.ListPartitionReassignments(ctx, nil)
		if err != nil {
			return false, err
		}
		for _, m := range moving.Sorted() {
			if _, ours := topics[m.Topic]; ours || topics == nil {
				return false, nil
			}
		}
		return true, nil
	})
}
