package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func topicCommand() *cobra.Command {
	return group(&cobra.Command{Use: "topic", Short: "Create, list, describe, alter and delete topics"},
		topicCreate(), topicList(), topicDescribe(), topicAlter(), topicDelete())
}

// topicError adds to a broker's error what the caller can do about it.
func topicError(topic string, err error, message string) error {
	if err == nil {
		return nil
	}
	err = refused(unsharded(err), message)
	hint := ""
	switch {
	case errors.Is(err, kerr.InvalidConfig):
		hint = "`varve topic describe TOPIC --all` shows the settings of a topic"
	case errors.Is(err, kerr.TopicAlreadyExists):
		hint = "see it with `varve topic describe " + topic + "`"
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		hint = "`varve topic list` shows what there is"
	}
	return advise(fmt.Errorf("topic %s: %w", topic, err), hint)
}

// refusal is a broker's error code with the broker's own words.
type refusal struct {
	code    *kerr.Error
	message string
}

func (r *refusal) Error() string { return r.code.Message + ": " + strings.TrimSuffix(r.message, ".") }
func (r *refusal) Unwrap() error { return r.code }

// refused gives err the broker's own words, or, when it sent none, the text
// that goes with the code.
func refused(err error, message string) error {
	var code *kerr.Error
	switch {
	case !errors.As(err, &code):
		return err
	case message != "":
		return &refusal{code, message}
	case err == error(code):
		return &refusal{code, code.Description}
	}
	return err
}

func topicCreate() *cobra.Command {
	var (
		c           client
		out         output
		partitions  int32
		replication int16
		configs     []string
		tiered      bool
		ifNotExists bool
	)
	cmd := &cobra.Command{
		Use:     "create TOPIC…",
		Short:   "Create topics",
		Example: "  varve topic create events --partitions 6 --tiered --config retention.ms=-1 --config local.retention.ms=86400000",
		Args:    needs("TOPIC…"),
		RunE: func(cmd *cobra.Command, topics []string) error {
			settings, err := settingsArg(configs)
			if err != nil {
				return err
			}
			if tiered {
				on := "true"
				settings["remote.storage.enable"] = &on
			}
			return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				resps, err := adm.CreateTopics(ctx, partitions, replication, settings, topics...)
				if err != nil {
					return err
				}
				var errs []error
				rows := []createdTopic{}
				for _, r := range resps.Sorted() {
					if ifNotExists && errors.Is(r.Err, kerr.TopicAlreadyExists) {
						row, err := existing(ctx, adm, r.Topic)
						if errs = append(errs, err); err == nil {
							rows = append(rows, row)
						}
						continue
					}
					if r.Err != nil {
						errs = append(errs, topicError(r.Topic, r.Err, r.ErrMessage))
						continue
					}
					rows = append(rows, createdTopic{r.Topic, true, int(r.NumPartitions), int(r.ReplicationFactor)})
				}
				if out.json {
					return errors.Join(append(errs, out.object(cmd.OutOrStdout(), rows))...)
				}
				for _, row := range rows {
					fmt.Fprintln(cmd.OutOrStdout(), row)
				}
				return errors.Join(errs...)
			})
		},
	}
	c.flags(cmd)
	out.flags(cmd)
	cmd.Flags().Int32VarP(&partitions, "partitions", "p", -1, "partitions (-1: the broker's num.partitions)")
	cmd.Flags().Int16VarP(&replication, "replication-factor", "r", -1, "replicas (-1: the broker's default.replication.factor)")
	cmd.Flags().StringArrayVarP(&configs, "config", "c", nil, "topic setting NAME=VALUE, repeatable")
	cmd.Flags().BoolVar(&tiered, "tiered", false, "keep sealed segments in the bucket (remote.storage.enable=true)")
	cmd.Flags().BoolVar(&ifNotExists, "if-not-exists", false, "an existing topic is no error: it is left as it is, with its partitions and settings")
	return cmd
}

// createdTopic is a topic that `topic create` has made, or has left as it was.
type createdTopic struct {
	Topic       string `json:"topic"`
	Created     bool   `json:"created"`
	Partitions  int    `json:"partitions"`
	Replication int    `json:"replicationFactor"`
}

func (t createdTopic) String() string {
	if !t.Created {
		return fmt.Sprintf("%s exists and is left as it is: %d partitions, replication factor %d", t.Topic, t.Partitions, t.Replication)
	}
	return fmt.Sprintf("created %s: %d partitions, replication factor %d", t.Topic, t.Partitions, t.Replication)
}

// existing is what --if-not-exists has left alone.
func existing(ctx context.Context, adm *admin, topic string) (createdTopic, error) {
	details, err := adm.ListTopicsWithInternal(ctx, topic)
	if err != nil {
		return createdTopic{}, err
	}
	t := details[topic]
	if t.Err != nil {
		return createdTopic{}, topicError(topic, t.Err, "")
	}
	return createdTopic{topic, false, len(t.Partitions), t.Partitions.NumReplicas()}, nil
}

func settingsArg(args []string) (map[string]*string, error) {
	settings := make(map[string]*string, len(args))
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("setting %q: write NAME=VALUE, such as retention.ms=-1", arg)
		}
		settings[name] = &value
	}
	return settings, nil
}

func topicList() *cobra.Command {
	var (
		c        client
		out      output
		internal bool
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List topics",
		Args:  needs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				list := adm.ListTopics
				if internal {
					list = adm.ListTopicsWithInternal
				}
				topics, err := list(ctx)
				if err != nil {
					return err
				}
				var listed []listedTopic
				for _, t := range topics.Sorted() {
					listed = append(listed, listedTopic{t.Topic, topicID(t.ID), len(t.Partitions), t.Partitions.NumReplicas()})
				}
				return rows(&out, cmd.OutOrStdout(), []string{"TOPIC", "PARTITIONS", "REPLICAS", "ID"}, listed, listedTopic.cells)
			})
		},
	}
	c.flags(cmd)
	out.flags(cmd)
	cmd.Flags().BoolVar(&internal, "internal", false, "list internal topics too")
	return cmd
}

// listedTopic is a topic in the answer of `varve topic list`.
type listedTopic struct {
	Topic       string `json:"topic"`
	ID          string `json:"id"`
	Partitions  int    `json:"partitions"`
	Replication int    `json:"replicationFactor"`
}

func (t listedTopic) cells() []string {
	return []string{t.Topic, strconv.Itoa(t.Partitions), strconv.Itoa(t.Replication), t.ID}
}

// topicID prints an id as Kafka's own tools do.
func topicID(id kadm.TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// described is what `topic describe` prints.
type described struct {
	Topic      string               `json:"topic"`
	ID         string               `json:"id"`
	Configs    map[string]string    `json:"configs"`
	Partitions []describedPartition `json:"partitions"`
}

type describedPartition struct {
	Partition int32   `json:"partition"`
	Leader    int32   `json:"leader"`
	Epoch     int32   `json:"leaderEpoch"`
	Replicas  []int32 `json:"replicas"`
	ISR       []int32 `json:"isr"`
}

func topicDescribe() *cobra.Command {
	var (
		c   client
		out output
		all bool
	)
	cmd := &cobra.Command{
		Use:   "describe TOPIC…",
		Short: "Show a topic's partitions and the settings that differ from the default",
		Args:  needs("TOPIC…"),
		RunE: func(cmd *cobra.Command, topics []string) error {
			return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				list, missing := describeTopics(ctx, adm, topics, all)
				if out.json && (len(list) > 0 || missing == nil) {
					return errors.Join(out.object(cmd.OutOrStdout(), list), missing)
				}
				for _, d := range list {
					names := make([]string, 0, len(d.Configs))
					for name := range d.Configs {
						names = append(names, name)
					}
					sort.Strings(names)
					fmt.Fprintf(cmd.OutOrStdout(), "%s  id %s\n", d.Topic, d.ID)
					for _, name := range names {
						fmt.Fprintf(cmd.OutOrStdout(), "  %s=%s\n", name, d.Configs[name])
					}
					cells := make([][]string, 0, len(d.Partitions))
					for _, p := range d.Partitions {
						cells = append(cells, []string{fmt.Sprint(p.Partition), fmt.Sprint(p.Leader), fmt.Sprint(p.Epoch), fmt.Sprint(p.Replicas), fmt.Sprint(p.ISR)})
					}
					if err := out.table(cmd.OutOrStdout(), []string{"  PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR"}, indent(cells)); err != nil {
						return err
					}
				}
				return missing
			})
		},
	}
	c.flags(cmd)
	out.flags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "show every setting, defaults too")
	return cmd
}

func indent(rows [][]string) [][]string {
	for _, row := range rows {
		row[0] = "  " + row[0]
	}
	return rows
}

// describeTopics gives those of the topics that it can, and an error for the rest.
func describeTopics(ctx context.Context, adm *admin, topics []string, all bool) ([]described, error) {
	details, err := adm.ListTopicsWithInternal(ctx, topics...)
	if err != nil {
		return nil, err
	}
	var errs []error
	var known []string
	for _, t := range details.Sorted() {
		if t.Err != nil {
			errs = append(errs, topicError(t.Topic, t.Err, ""))
			continue
		}
		known = append(known, t.Topic)
	}
	if len(known) == 0 {
		return nil, errors.Join(errs...)
	}
	configs, err := adm.DescribeTopicConfigs(ctx, known...)
	if err != nil {
		return nil, err
	}
	var list []described
	for _, name := range known {
		d, err := describeTopic(details[name], configs, all)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list = append(list, d)
	}
	return list, errors.Join(errs...)
}

func describeTopic(t kadm.TopicDetail, configs kadm.ResourceConfigs, all bool) (described, error) {
	d := described{Topic: t.Topic, ID: topicID(t.ID), Configs: map[string]string{}}
	for _, p := range t.Partitions.Sorted() {
		d.Partitions = append(d.Partitions, describedPartition{p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR})
	}
	rc, err := configs.On(t.Topic, nil)
	if err != nil {
		return d, topicError(t.Topic, err, "")
	}
	if rc.Err != nil {
		return d, topicError(t.Topic, rc.Err, rc.ErrMessage)
	}
	for _, cfg := range rc.Configs {
		if all || cfg.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
			d.Configs[cfg.Key] = cfg.MaybeValue()
		}
	}
	return d, nil
}

func topicAlter() *cobra.Command {
	var (
		c          client
		out        output
		set        []string
		unset      []string
		partitions int
	)
	cmd := &cobra.Command{
		Use:     "alter TOPIC",
		Short:   "Change a topic's settings or add partitions",
		Example: "  varve topic alter events --config retention.ms=-1 --delete-config segment.ms --partitions 12",
		Args:    needs("TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			settings, err := settingsArg(set)
			if err != nil {
				return err
			}
			if len(settings) == 0 && len(unset) == 0 && partitions == 0 {
				return errors.New("nothing to change: give --config, --delete-config or --partitions")
			}
			return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				if err := alterSettings(ctx, adm, args[0], settings, unset); err != nil {
					return err
				}
				done := alteredTopic{args[0], settings, unset, 0}
				if partitions == 0 {
					return done.print(cmd, &out)
				}
				resps, err := adm.UpdatePartitions(ctx, partitions, args[0])
				if err != nil {
					return err
				}
				r, err := resps.On(args[0], nil)
				if err != nil {
					return err
				}
				if r.Err == nil {
					done.Partitions = partitions
				}
				return errors.Join(done.print(cmd, &out), topicError(args[0], r.Err, r.ErrMessage))
			})
		},
	}
	c.flags(cmd)
	out.flags(cmd)
	cmd.Flags().StringArrayVarP(&set, "config", "c", nil, "set NAME=VALUE, repeatable")
	cmd.Flags().StringArrayVar(&unset, "delete-config", nil, "give NAME its default again, repeatable")
	cmd.Flags().IntVarP(&partitions, "partitions", "p", 0, "raise the number of partitions to this")
	return cmd
}

// alteredTopic is what `topic alter` has changed.
type alteredTopic struct {
	Topic      string             `json:"topic"`
	Set        map[string]*string `json:"set,omitempty"`
	Deleted    []string           `json:"deleted,omitempty"`
	Partitions int                `json:"partitions,omitempty"`
}

func (t *alteredTopic) print(cmd *cobra.Command, out *output) error {
	if len(t.Set) == 0 && len(t.Deleted) == 0 && t.Partitions == 0 {
		return nil
	}
	if out.json {
		return out.object(cmd.OutOrStdout(), t)
	}
	for _, line := range alterations(t.Topic, t.Set, t.Deleted) {
		fmt.Fprintln(cmd.OutOrStdout(), line)
	}
	if t.Partitions > 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "altered %s: %d partitions\n", t.Topic, t.Partitions)
	}
	return nil
}

// alterations says what has been changed, one line for each setting.
func alterations(topic string, set map[string]*string, unset []string) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(set)) {
		lines = append(lines, fmt.Sprintf("altered %s: %s=%s", topic, name, *set[name]))
	}
	for _, name := range unset {
		lines = append(lines, fmt.Sprintf("altered %s: %s has its default again", topic, name))
	}
	return lines
}

func alterSettings(ctx context.Context, adm *admin, topic string, set map[string]*string, unset []string) error {
	var changes []kadm.AlterConfig
	for name, value := range set {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: value})
	}
	for _, name := range unset {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name})
	}
	if len(changes) == 0 {
		return nil
	}
	if err := knownSettings(ctx, adm, topic, unset); err != nil {
		return err
	}
	resps, err := adm.AlterTopicConfigs(ctx, changes, topic)
	if err != nil {
		return err
	}
	r, err := resps.On(topic, nil)
	if err != nil {
		return err
	}
	return topicError(topic, r.Err, r.ErrMessage)
}

// knownSettings refuses names that no topic setting has. Brokers take the
// deletion of any name, as Kafka's do, so a misspelt one would change nothing
// and look done.
func knownSettings(ctx context.Context, adm *admin, topic string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	configs, err := adm.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return err
	}
	rc, err := configs.On(topic, nil)
	if err != nil {
		return err
	}
	if rc.Err != nil {
		return topicError(topic, rc.Err, rc.ErrMessage)
	}
	for _, name := range names {
		if !slices.ContainsFunc(rc.Configs, func(c kadm.Config) bool { return c.Key == name }) {
			return advise(fmt.Errorf("topic %s: there is no setting %q", topic, name), "`varve topic describe "+topic+" --all` lists them")
		}
	}
	return nil
}

func topicDelete() *cobra.Command {
	var (
		c        client
		out      output
		ifExists bool
	)
	cmd := &cobra.Command{
		Use:   "delete TOPIC…",
		Short: "Delete topics and all their data, in the bucket too",
		Args:  needs("TOPIC…"),
		RunE: func(cmd *cobra.Command, topics []string) error {
			return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				resps, err := adm.DeleteTopics(ctx, topics...)
				if err != nil {
					return err
				}
				var errs []error
				deleted := []string{}
				for _, r := range resps.Sorted() {
					if ifExists && errors.Is(r.Err, kerr.UnknownTopicOrPartition) {
						continue
					}
					if r.Err != nil {
						errs = append(errs, topicError(r.Topic, r.Err, r.ErrMessage))
						continue
					}
					deleted = append(deleted, r.Topic)
				}
				return errors.Join(append(errs, out.deleted(cmd.OutOrStdout(), deleted))...)
			})
		},
	}
	c.flags(cmd)
	out.flags(cmd)
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "an absent topic is no error")
	return cmd
}
