package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

// consumeRun is what `varve consume` was told.
type consumeRun struct {
	client
	span   span
	group  membership
	out    output
	format string
	count  int64
	idle   time.Duration
	regex  bool
	rack   string
	quiet  bool
}

func consumeCommand() *cobra.Command {
	var r consumeRun
	cmd := &cobra.Command{
		Use:   "consume TOPIC…",
		Short: "Print records from an offset or a time on, to the end, to a time, or for ever",
		Long: "Print records of all partitions, or of those given, each partition in its order.\n\n" +
			"With times, exactly the records whose timestamp is at or after --from and before --to are printed, whatever\n" +
			"order they were written in. Reading begins at the first record at or after --from, found without reading.\n" +
			"Where the last one before --to is cannot be asked, so each partition is read to its end as it is at the start,\n" +
			"unless --disorder says how far out of order timestamps are: 0s where they only rise, 1h where no record is more\n" +
			"than an hour earlier than one before it. Records that are further out of order are then missed.\n\n" +
			"With --group NAME it is a member of a consumer group, which shares the partitions out among its members. The\n" +
			"group goes on behind what it has committed; --from says where partitions begin that it has committed nothing\n" +
			"of, and reading stops before the first record at or after --to. What is on standard output is committed, every\n" +
			"second and at the end, and nothing else: what a member had no time to commit is printed again by another one.\n" +
			"Without --follow it ends when the group, by whichever member, has read what was there when it began.\n" +
			"--count, SIGINT and SIGTERM commit and leave the group as well.\n\n" +
			"--format takes %t topic, %p partition, %o offset, %k key, %v value, %h{%k=%v } headers,\n" +
			"%d{go#RFC3339#} time, \\n, or the word json (one object a line; --json is the same).",
		Example: "  varve consume events --from 2024-03-03T14:05Z --to 2024-03-03T15:00Z\n" +
			"  varve consume events --from 2024-03-03 --to 2024-03-04 --disorder 1h\n" +
			"  varve consume events --from -36h --format '%d{go#RFC3339#} %k %v\\n'\n" +
			"  varve consume events --from latest --follow\n" +
			"  varve consume events --group billing --follow\n" +
			"  varve consume 'orders-.*' --regex --group billing --count 100",
		Args: needs("TOPIC…"),
		RunE: r.run,
	}
	r.flags(cmd)
	r.span.flags(cmd)
	r.group.flags(cmd)
	cmd.Flags().BoolVar(&r.regex, "regex", false, "each TOPIC is a regular expression for whole names; a group takes up topics that are made later, too")
	cmd.Flags().StringVar(&r.format, "format", "%v\\n", "how to print a record, or json")
	cmd.Flags().BoolVar(&r.out.json, "json", false, "print one JSON object a line, as --format json does; errors and notes as JSON too, on standard error")
	cmd.Flags().Int64VarP(&r.count, "count", "n", 0, "stop after this many records (0: no limit)")
	cmd.Flags().DurationVar(&r.idle, "idle", 0, "with --follow: stop when no record has come for this long (0: never)")
	cmd.Flags().StringVar(&r.rack, "rack", "", "read from replicas in this rack where brokers allow it (replica.selector.class)")
	cmd.Flags().BoolVar(&r.quiet, "quiet", false, "no progress")
	return cmd
}

func (c *consumeRun) run(cmd *cobra.Command, args []string) error {
	if c.out.json {
		c.format = "json"
	}
	print, err := printer(c.format)
	if err != nil {
		return err
	}
	if err := c.check(cmd); err != nil {
		return err
	}
	var topics []string
	var r *reading
	if err := c.withAdmin(cmd, func(ctx context.Context, adm *admin) (err error) {
		if topics, err = c.topics(ctx, adm, args); err != nil {
			return err
		}
		if c.group.name != "" {
			r, err = c.resolveGroup(ctx, adm, topics, time.Now())
		} else {
			r, err = c.span.resolve(ctx, adm, topics, time.Now())
		}
		return err
	}); err != nil {
		return err
	}
	for _, text := range r.notes {
		c.out.note(cmd.ErrOrStderr(), text)
	}
	if r.nothing() {
		if len(r.notes) == 0 {
			c.out.note(cmd.ErrOrStderr(), c.nothing(topics))
		}
		return nil
	}
	// Beside records on the same terminal a bar would only be in the way.
	bar := progress(cmd.ErrOrStderr(), r.total(), "reading", c.quiet || isTerminal(cmd.OutOrStdout()), progressbar.OptionShowBytes(false), progressbar.OptionShowCount())
	p := newPrinting(cmd.OutOrStdout(), print, r, bar)
	p.count, p.idle, p.patience = c.count, c.idle, c.timeout
	if c.group.name != "" {
		err = c.readAsMember(cmd, args, p)
	} else {
		err = c.read(cmd, p, r)
	}
	_ = bar.Finish()
	err = c.explain(err)
	if err == nil && p.printed == 0 && cmd.Context().Err() == nil {
		c.out.note(cmd.ErrOrStderr(), c.none(topics))
	}
	return err
}

// check refuses options that do not go together.
func (c *consumeRun) check(cmd *cobra.Command) error {
	switch {
	case c.count < 0:
		return fmt.Errorf("--count %d: write how many records to print, or leave it out", c.count)
	case c.idle < 0:
		return fmt.Errorf("--idle %s: write after how long without a record to stop, such as 10s", c.idle)
	case c.idle > 0 && !c.span.follow:
		return errors.New("--idle goes with --follow: without that, reading stops at the end anyway")
	}
	return c.group.check(cmd, &c.span)
}

// nothing says why nothing is read.
func (c *consumeRun) nothing(topics []string) string {
	if c.group.name != "" {
		return fmt.Sprintf("nothing is left for group %s in %s", c.group.name, strings.Join(topics, ", "))
	}
	return fmt.Sprintf("nothing to read in %s from %s on", strings.Join(topics, ", "), c.span.from)
}

// none says why nothing was printed.
func (c *consumeRun) none(topics []string) string {
	names := strings.Join(topics, ", ")
	switch {
	case c.span.follow:
		return fmt.Sprintf("no record of %s has come within %s", names, c.idle)
	case c.group.name != "":
		return fmt.Sprintf("other members of group %s have read what there was in %s", c.group.name, names)
	}
	return fmt.Sprintf("no record of %s lies in that span", names)
}

// wholly makes a regular expression one for whole names, as brokers take it.
func wholly(pattern string) string { return "^(?:" + pattern + ")$" }

// topics are those that were named, each once.
func (c *consumeRun) topics(ctx context.Context, adm *admin, args []string) ([]string, error) {
	if !c.regex {
		return slices.Compact(slices.Sorted(slices.Values(args))), nil
	}
	all, err := adm.ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	var topics []string
	for _, pattern := range args {
		_, err := regexp.Compile(pattern) // by itself: its error is to show what was written
		re, whole := regexp.Compile(wholly(pattern))
		if err = cmp.Or(err, whole); err != nil {
			return nil, fmt.Errorf("--regex: %q is no regular expression: %w", pattern, err)
		}
		for _, t := range all.Sorted() {
			if re.MatchString(t.Topic) && !slices.Contains(topics, t.Topic) {
				topics = append(topics, t.Topic)
			}
		}
	}
	if len(topics) == 0 {
		return nil, advise(fmt.Errorf("no topic has a name that %s matches", strings.Join(args, " or ")), "`varve topic list` shows what there is")
	}
	return topics, nil
}

// options are the client's for reading whatever is read.
func (c *consumeRun) options() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.FetchMaxWait(500 * time.Millisecond), kgo.FetchMaxPartitionBytes(4 << 20), kgo.Rack(c.rack),
		// Transaction markers are kept so that one at the very end shows that
		// the end is reached; they are never printed.
		kgo.KeepControlRecords(),
	}
	if c.span.committed {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	return opts
}

// read prints what a reading has, by itself and for nobody else.
func (c *consumeRun) read(cmd *cobra.Command, p *printing, r *reading) error {
	starts := map[string]map[int32]kgo.Offset{}
	for k, offset := range r.starts {
		if starts[k.topic] == nil {
			starts[k.topic] = map[int32]kgo.Offset{}
		}
		starts[k.topic][k.partition] = kgo.NewOffset().At(offset)
	}
	opts := append(c.options(), kgo.ConsumePartitions(starts))
	if !r.earliest { // what was asked for is not replaced by what is left
		opts = append(opts, kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	}
	cl, err := c.dial(cmd.Context(), opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	return p.all(cmd.Context(), cl, nil)
}

type recordPrinter func(io.Writer, *kgo.Record) error

func printer(format string) (recordPrinter, error) {
	if strings.EqualFold(format, "json") {
		return printJSON, nil
	}
	f, err := kgo.NewRecordFormatter(format)
	if err != nil {
		return nil, fmt.Errorf("--format %q: %w", format, err)
	}
	var buf []byte
	return func(w io.Writer, r *kgo.Record) error {
		buf = f.AppendRecord(buf[:0], r)
		_, err := w.Write(buf)
		return err
	}, nil
}

func printJSON(w io.Writer, r *kgo.Record) error {
	headers := make(map[string]string, len(r.Headers))
	for _, h := range r.Headers {
		headers[h.Key] = string(h.Value)
	}
	return json.NewEncoder(w).Encode(struct {
		Topic     string            `json:"topic"`
		Partition int32             `json:"partition"`
		Offset    int64             `json:"offset"`
		Timestamp int64             `json:"timestamp"`
		Key       *string           `json:"key"`
		Value     *string           `json:"value"`
		Headers   map[string]string `json:"headers,omitempty"`
	}{r.Topic, r.Partition, r.Offset, r.Timestamp.UnixMilli(), text(r.Key), text(r.Value), headers})
}

// text keeps a null key or value apart from an empty one.
func text(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}
