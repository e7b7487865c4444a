package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/ops"
)

// answerBytesMax bounds what is read of a node's answer: some 300 bytes a
// segment, for a topic of a million segments.
const answerBytesMax = 512 << 20

func segmentsCommand() *cobra.Command {
	var (
		out       output
		address   string
		partition int
		timeout   time.Duration
	)
	cmd := &cobra.Command{
		Use:   "segments TOPIC",
		Short: "Show a topic's segments: local, in the bucket or both, with offsets, times and sizes",
		Args:  needs("TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			// As a browser has it, too.
			address = strings.TrimRight(strings.TrimPrefix(address, "http://"), "/")
			list, err := fetchSegments(ctx, address, args[0], partition)
			if err != nil {
				return err
			}
			if out.json {
				return out.object(cmd.OutOrStdout(), list)
			}
			for _, p := range list {
				if p.Error != "" {
					fmt.Fprintf(cmd.ErrOrStderr(), "varve: partition %d: the list may be incomplete: %s\n", p.Partition, p.Error)
				}
				if p.Damage != nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "varve: partition %d: %s\n", p.Partition, p.Damage)
				}
			}
			return out.table(cmd.OutOrStdout(), []string{"PARTITION", "FROM", "TO", "WHERE", "SIZE", "STORED", "NEWEST RECORD", "WRITTEN", "OBJECT"}, segmentCells(list))
		},
	}
	def := defaultHTTP
	if env := os.Getenv("VARVE_HTTP"); env != "" {
		def = env
	}
	out.flags(cmd)
	cmd.Flags().StringVar(&address, "http", def, "HOST:PORT of the node's console (or VARVE_HTTP)")
	cmd.Flags().IntVar(&partition, "partition", -1, "only this partition (-1: all)")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "give up after this long")
	return cmd
}

func fetchSegments(ctx context.Context, address, topic string, partition int) ([]ops.PartitionSegments, error) {
	u := url.URL{Scheme: "http", Host: address, Path: "/admin/v1/topics/" + topic + "/segments"}
	if partition >= 0 {
		u.RawQuery = fmt.Sprint("partition=", partition)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, advise(fmt.Errorf("no node answers at %s (%w)", address, err), "name the console of a node with --http HOST:PORT")
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, answerBytesMax))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", address, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, advise(fmt.Errorf("the node at %s answers: %s", address, strings.TrimSpace(string(body))), "`varve topic list` shows what there is")
	}
	var list []ops.PartitionSegments
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("answer of %s: %w", address, err)
	}
	return list, nil
}

func segmentCells(list []ops.PartitionSegments) [][]string {
	var cells [][]string
	for _, p := range list {
		for _, s := range p.Segments {
			where := s.Where
			switch {
			case s.Damaged:
				where += ", damaged"
			case !s.Sealed:
				where += ", active"
			}
			if s.Fault != "" {
				where += ", object " + s.Fault
			}
			stored, newest := "-", "-"
			if s.StoredBytes > 0 {
				stored = humanBytes(s.StoredBytes)
			}
			if s.MaxTimestamp != nil {
				newest = moment(*s.MaxTimestamp)
			}
			key := s.Key
			if key == "" {
				key = "-"
			}
			cells = append(cells, []string{fmt.Sprint(p.Partition), fmt.Sprint(s.Base), fmt.Sprint(s.End), where,
				humanBytes(s.Bytes), stored, newest, moment(s.Modified), key})
		}
	}
	return cells
}

// moment prints a timestamp in milliseconds; a negative one is none.
func moment(ms int64) string {
	if ms < 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}
