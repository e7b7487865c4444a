package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/ops/audit"
	"github.com/varvelog/varve/tier/objstore"
)

func auditCommand() *cobra.Command {
	var (
		out           output
		dirs          []string
		store, prefix string
		orphanAge     time.Duration
		skim          bool
	)
	cmd := &cobra.Command{
		Use:   "audit --dir DIR [--dir DIR …] [--store URL]",
		Short: "Compare the directories of a stopped cluster with each other, the metadata and the bucket",
		Long: "Compare the data directories of stopped nodes with each other, with the metadata and with the bucket, byte for\n" +
			"byte, and print what does not fit. Nothing is changed. Name all directories of the cluster; with fewer, what is\n" +
			"missing is not compared. Lines of kind \"note\" need not be wrong. The status is 1 when something is.",
		Example: "  varve audit --dir /data/1 --dir /data/2 --dir /data/3 --store 's3://bucket/varve?region=eu-central-1'\n" +
			"  varve audit --dir varve-data --store file://$PWD/varve-data/bucket --json",
		Args: needs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(dirs) == 0 {
				return errors.New("--dir DIR is needed: the log.dirs of each node")
			}
			for _, dir := range dirs {
				if info, err := os.Stat(dir); err != nil || !info.IsDir() {
					return fmt.Errorf("--dir %s: there is no such directory", dir)
				}
			}
			in := audit.Input{Dirs: dirs, Prefix: prefix, OrphanAge: orphanAge, Skim: skim}
			if store != "" {
				var err error
				if in.Store, err = objstore.Open(cmd.Context(), store, objstore.Options{}); err != nil {
					return fmt.Errorf("--store %s: %w", store, err)
				}
			}
			report, err := audit.Run(cmd.Context(), in)
			if err != nil {
				return err
			}
			if out.json {
				err = out.object(cmd.OutOrStdout(), report)
			} else {
				err = printAudit(cmd, &out, report, store != "")
			}
			if err == nil && report.Flaws > 0 {
				err = fmt.Errorf("%d flaws were found", report.Flaws)
			}
			return err
		},
	}
	out.flags(cmd)
	cmd.Flags().StringArrayVar(&dirs, "dir", nil, "data directory (log.dirs) of a node, repeatable")
	cmd.Flags().StringVar(&store, "store", "", "the bucket, as in varve.tier.store (default: the bucket is left out)")
	cmd.Flags().StringVar(&prefix, "prefix", "", "varve.tier.prefix")
	cmd.Flags().DurationVar(&orphanAge, "orphan-age", 24*time.Hour, "from which age on an object that no manifest names is a flaw")
	cmd.Flags().BoolVar(&skim, "skim", false, "do not read the objects: they must be there, with the right length")
	return cmd
}

func printAudit(cmd *cobra.Command, out *output, r *audit.Report, bucket bool) error {
	cells := make([][]string, len(r.Findings))
	for i, f := range r.Findings {
		node, offset, kind := "-", "-", string(f.Kind)
		if f.Node >= 0 {
			node = fmt.Sprint(f.Node)
		}
		if f.Offset >= 0 {
			offset = fmt.Sprint(f.Offset)
		}
		if f.Note {
			kind = "note: " + kind
		}
		cells[i] = []string{kind, f.Partition, offset, node, f.Detail}
	}
	if len(cells) > 0 {
		if err := out.table(cmd.OutOrStdout(), []string{"KIND", "PARTITION", "OFFSET", "NODE", "WHAT"}, cells); err != nil {
			return err
		}
	}
	with := "the bucket was left out"
	if bucket {
		with = fmt.Sprintf("%d objects", r.Objects)
	}
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), "nodes %s: %d topics, %d partitions, %d replicas, %d batches in %s, %s\n",
		strings.Trim(fmt.Sprint(r.Nodes), "[]"), r.Topics, r.Partitions, r.Replicas, r.Batches, humanBytes(r.Bytes), with)
	return err
}
