package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Types of groups, as brokers name them.
const (
	groupClassic  = "classic"
	groupConsumer = "consumer"
	groupShare    = "share"
	groupStreams  = "streams"
)

var (
	groupTypes  = []string{groupClassic, groupConsumer, groupShare, groupStreams}
	groupStates = []string{"Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "NotReady", "Dead"}
)

func groupCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "group", Short: "List, describe, reset and delete groups of readers",
		Long: "List, describe, reset and delete groups of readers: classic and consumer groups (KIP-848), share groups\n" +
			"(KIP-932) and streams groups (KIP-1071).",
	}, groupList(), groupDescribe(), groupReset(), groupDelete())
}

// groupError adds to a broker's error what the caller can do about it.
func groupError(name string, err error, message string) error {
	if err == nil {
		return nil
	}
	err = unsharded(err)
	hint := ""
	switch {
	case errors.Is(err, kerr.GroupIDNotFound):
		hint = "`varve group list` shows what there is"
	case errors.Is(err, kerr.CoordinatorNotAvailable), errors.Is(err, kerr.CoordinatorLoadInProgress):
		hint = "its coordinator starts: try again in a moment"
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		hint = "its members balance in a way that this one does not know, or speak another protocol (--group-protocol): `varve group describe " + name + "` shows who they are"
	case errors.Is(err, kerr.NonEmptyGroup), errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.IllegalGeneration), errors.Is(err, kerr.StaleMemberEpoch):
		hint = "stop its members first: `varve group describe " + name + "` lists them"
	}
	return advise(fmt.Errorf("group %s: %w", name, refused(err, message)), hint)
}

func groupList() *cobra.Command {
	var (
		c      client
		out    output
		states []string
		types  []string
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List groups, their type and state, and which broker coordinates them",
		Example: "  varve group list\n" +
			"  varve group list --type share --state Empty",
		Args: needs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(choices("--state", states, groupStates), choices("--type", types, groupTypes)); err != nil {
				return err
			}
			return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				groups, err := adm.ListGroupsByType(ctx, types, states...)
				if !someAnswered(err) {
					return err
				}
				var list []listedGroup
				for _, g := range groups.Sorted() {
					list = append(list, listedGroup{g.Group, strings.ToLower(cmp.Or(g.GroupType, groupClassic)), g.State, g.ProtocolType, g.Coordinator})
				}
				header := []string{"GROUP", "TYPE", "STATE", "PROTOCOL", "COORDINATOR"}
				return cmp.Or(rows(&out, cmd.OutOrStdout(), header, list, listedGroup.cells), err)
			})
		},
	}
	c.flags(cmd)
	out.flags(cmd)
	cmd.Flags().StringSliceVar(&states, "state", nil, "only groups in these states: "+strings.Join(groupStates, ", "))
	cmd.Flags().StringSliceVar(&types, "type", nil, "only these types: "+strings.Join(groupTypes, ", "))
	return cmd
}

// listedGroup is a group in the answer of `varve group list`.
type listedGroup struct {
	Group       string `json:"group"`
	Type        string `json:"type"`
	State       string `json:"state"`
	Protocol    string `json:"protocol"`
	Coordinator int32  `json:"coordinator"`
}

func (g listedGroup) cells() []string {
	return []string{g.Group, g.Type, g.State, cmp.Or(g.Protocol, "-"), fmt.Sprint(g.Coordinator)}
}

func groupDescribe() *cobra.Command {
	var (
		c   client
		out output
	)
	cmd := &cobra.Command{
		Use:   "describe GROUP…",
		Short: "Show a group's members, what each reads, and how far the group is behind",
		Args:  needs("GROUP…"),
		RunE: func(cmd *cobra.Command, names []string) error {
			return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				views := []*groupView{}
				for _, name := range names {
					v, err := adm.viewGroup(ctx, name)
					if err != nil {
						return err
					}
					views = append(views, v)
				}
				if out.json {
					return out.object(cmd.OutOrStdout(), views)
				}
				for _, v := range views {
					if err := v.print(cmd, &out); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	c.flags(cmd)
	out.flags(cmd)
	return cmd
}

func (v *groupView) print(cmd *cobra.Command, out *output) error {
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "%s  %s, %s, coordinator %d", v.Group, v.Type, v.State, v.Coordinator)
	if v.Assignor != "" {
		fmt.Fprintf(w, ", assignor %s", v.Assignor)
	}
	if v.Epoch != nil {
		fmt.Fprintf(w, ", epoch %d (assigned: %d)", *v.Epoch, *v.AssignmentEpoch)
	}
	fmt.Fprintln(w)
	if len(v.Members) > 0 {
		var rows [][]string
		for _, m := range v.Members {
			rows = append(rows, []string{m.ID, cmp.Or(m.Instance, "-"), m.Client, m.Host, m.assigned()})
		}
		if err := out.table(w, []string{"  MEMBER", "INSTANCE", "CLIENT", "HOST", "READS"}, indent(rows)); err != nil {
			return err
		}
	}
	if len(v.Offsets) == 0 {
		return nil
	}
	var rows [][]string
	for _, o := range v.Offsets {
		rows = append(rows, []string{o.Topic, strconv.Itoa(int(o.Partition)), offsetText(o.Offset), offsetText(o.End), offsetText(o.Lag), cmp.Or(o.Member, "-")})
	}
	return out.table(w, []string{"  TOPIC", "PARTITION", "OFFSET", "END", "LAG", "MEMBER"}, indent(rows))
}

func offsetText(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}

// assigned is what a member reads: events[0 1 2], by topic, or by subtopology
// in a streams group.
func (m groupMember) assigned() string {
	var list []string
	for name, partitions := range m.Assigned {
		list = append(list, fmt.Sprintf("%s%v", name, partitions))
	}
	slices.Sort(list)
	return cmp.Or(strings.Join(list, " "), "-")
}

func groupDelete() *cobra.Command {
	var (
		c        client
		out      output
		ifExists bool
	)
	cmd := &cobra.Command{
		Use:   "delete GROUP…",
		Short: "Delete groups without members, with their offsets",
		Args:  needs("GROUP…"),
		RunE: func(cmd *cobra.Command, names []string) error {
			return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				var errs []error
				deleted := []string{}
				for _, name := range names {
					var said string
					err := patiently(ctx, adm.patience, func() error {
						resps, err := adm.DeleteGroups(ctx, name)
						if err != nil {
							return err
						}
						said = resps[name].ErrMessage
						return resps[name].Err
					})
					switch {
					case ifExists && errors.Is(err, kerr.GroupIDNotFound):
					case err != nil:
						errs = append(errs, groupError(name, err, said))
					default:
						deleted = append(deleted, name)
					}
				}
				return errors.Join(append(errs, out.deleted(cmd.OutOrStdout(), deleted))...)
			})
		},
	}
	c.flags(cmd)
	out.flags(cmd)
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "an absent group is no error")
	return cmd
}
