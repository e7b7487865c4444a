package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/meta/conf"
)

const (
	defaultHTTP = "127.0.0.1:9644"
	defaultS3   = "127.0.0.1:9000"
	// stopLimit is how long a node may take to end in order.
	stopLimit = 60 * time.Second
)

// devSettings are the settings of one node on embedded defaults: everything
// under dir, with a folder as the bucket unless a store is named. Like Kafka's
// quickstart it has new groups wait for nobody.
func devSettings(dir, listen, http, store string) settings {
	if store == "" {
		if abs, err := filepath.Abs(dir); err == nil {
			dir = abs
		}
		store = "file://" + filepath.Join(dir, "bucket")
	}
	return settings{
		"node.id":                          "1",
		"listeners":                        "PLAINTEXT://" + listen,
		"log.dirs":                         dir,
		"group.initial.rebalance.delay.ms": "0",
		"varve.http.listen":                http,
		"varve.tier.store":                 store,
	}
}

func devCommand() *cobra.Command {
	var (
		dir, listen, http, store, s3 string
		nodes                        int
		set                          []string
		run                          runner
	)
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run one node, or with --nodes a local cluster, on embedded defaults",
		Long: "Run one node on embedded defaults, with a folder as its bucket. Settings come from the flags alone:\n" +
			"neither a file nor the environment is read (`varve serve` reads both).\n\n" +
			"With --nodes 3 it runs a cluster: three processes, to be killed at will, and an S3 server over DIR/bucket\n" +
			"that they share. Node 2 listens a port above node 1, and so on; the quorum's ports are 100 above those.",
		Example: "  varve dev\n" +
			"  varve dev --nodes 3\n" +
			"  varve dev --dir /data --store 's3://bucket/varve?region=eu-central-1' --set num.partitions=6",
		Args: needs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if nodes != 1 {
				d := devCluster{dir: dir, listen: listen, http: http, s3: s3, store: store, logLevel: run.logLevel, nodes: nodes, set: settings{}, out: cmd.OutOrStdout()}
				return d.start(cmd, set)
			}
			s := devSettings(dir, listen, http, store)
			if err := s.addPairs(set); err != nil {
				return err
			}
			if s.inMemory() {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning: the store is in memory: what is in the bucket only is gone when this node ends")
			}
			return run.run(cmd.Context(), s, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().IntVar(&nodes, "nodes", 1, "how many nodes: 1, or a local cluster of up to 5")
	cmd.Flags().StringVar(&s3, "s3", defaultS3, "with --nodes: HOST:PORT of the S3 server")
	cmd.Flags().StringVar(&dir, "dir", "varve-data", "where everything is kept")
	cmd.Flags().StringVar(&listen, "listen", defaultListen, "HOST:PORT for Kafka clients (port 0: any free one)")
	cmd.Flags().StringVar(&http, "http", defaultHTTP, "HOST:PORT of the console, metrics and health (empty: none)")
	cmd.Flags().StringVar(&store, "store", "", "the bucket: file:///path or s3://bucket/prefix?endpoint=…&region=…&path-style=true (default: DIR/bucket)")
	cmd.Flags().StringArrayVar(&set, "set", nil, "any broker setting by Kafka's name, NAME=VALUE, repeatable")
	run.flags(cmd)
	return cmd
}

func serveCommand() *cobra.Command {
	var (
		config string
		join   []string
		set    []string
		run    runner
	)
	cmd := &cobra.Command{
		Use:   "serve --config FILE",
		Short: "Run a node in production, alone or in a cluster, from a YAML file, the environment and flags",
		Long: "Settings carry Kafka's names and defaults; Varve's own start with varve. They are taken from the\n" +
			"file, then from the environment (VARVE_NUM_PARTITIONS is num.partitions, VARVE_TIER_STORE is\n" +
			"varve.tier.store), then from --set; the later wins. An unknown name is an error, but for the variables\n" +
			"that Kubernetes injects for a Service named varve: those are left out, with a warning.\n\n" +
			"A cluster is formed by nodes that have the same controller.quorum.voters (1@HOST:PORT,2@…, their CONTROLLER\n" +
			"listeners); a further node joins it with --join HOST:PORT of running brokers. Each has a node.id of its own,\n" +
			"which is kept with its data.",
		Example: "  varve serve --config varve.yaml\n" +
			"  varve serve --config varve.yaml --join broker1.example.com:9092,broker2.example.com:9092",
		Args: needs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := settings{}
			var fileErr error
			if config != "" {
				fileErr = s.addFile(config)
			}
			ignored, envErr := s.addEnvironment(os.Environ())
			if len(join) > 0 {
				set = append(set, "controller.quorum.bootstrap.servers="+strings.Join(join, ","))
			}
			if err := errors.Join(fileErr, envErr, s.addPairs(set)); err != nil {
				return err
			}
			if len(s) == 0 {
				return errors.New("no settings: name a file with --config FILE; for a node on embedded defaults use `varve dev`")
			}
			run.ignored = ignored
			if s.inMemory() {
				return errors.New("varve.tier.store=mem: keeps the archive in memory, where it is gone at exit: name an s3:// or file:/// store")
			}
			return run.run(cmd.Context(), s, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "YAML file of broker settings")
	cmd.Flags().StringSliceVar(&join, "join", nil, "HOST:PORT,… of running brokers whose cluster to join (controller.quorum.bootstrap.servers)")
	cmd.Flags().StringArrayVar(&set, "set", nil, "a broker setting, NAME=VALUE, repeatable")
	run.flags(cmd)
	return cmd
}

// runner runs a node until it is told to stop.
type runner struct {
	readyFile string
	logLevel  string
	logJSON   bool
	ignored   []string // environment variables that were left out
}

func (r *runner) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.readyFile, "ready-file", "", "write the addresses as JSON here once the node serves")
	cmd.Flags().StringVar(&r.logLevel, "log-level", "info", "debug, info, warn or error")
	cmd.Flags().BoolVar(&r.logJSON, "log-json", false, "log JSON lines instead of text")
}

func (r *runner) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(r.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q: choose debug, info, warn or error", r.logLevel)
	}
	opts := &slog.HandlerOptions{Level: level}
	if r.logJSON {
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return slog.New(slog.NewTextHandler(w, opts)), nil
}

func (r *runner) run(ctx context.Context, s settings, out, logTo io.Writer) (err error) {
	log, err := r.logger(logTo)
	if err != nil {
		return err
	}
	if len(r.ignored) > 0 {
		log.Warn("environment variables that are no settings are left out", "variables", r.ignored)
	}
	n, err := startNode(ctx, s, log)
	if err != nil {
		return err
	}
	limitMemory(&n.conf)
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		log.Info("stopping", "node", n.conf.NodeID)
		began := time.Now()
		if closing := n.Close(stop); closing != nil {
			err = errors.Join(err, closing)
			return
		}
		log.Info("stopped", "node", n.conf.NodeID, "took", time.Since(began).Round(time.Millisecond))
	}()
	fmt.Fprintf(out, "varve %s: Kafka clients at %s", version, n.Kafka)
	if n.HTTP != "" {
		fmt.Fprintf(out, ", console at http://%s/", n.HTTP)
	}
	fmt.Fprintln(out)
	if err := r.ready(n); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-n.failed:
		return err
	}
}

// memoryRoom is what the process may take beyond its bounded buffers.
const memoryRoom = 256 << 20

// limitMemory tells the collector how much the buffers and caches may take, so
// that a replay's garbage does not double them. GOMEMLIMIT wins.
func limitMemory(b *conf.Broker) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(b.VarveTierCacheBytes + b.VarveRequestMemoryBytes + memoryRoom)
	}
}

// ready writes the addresses in one step, so that a reader never sees half.
func (r *runner) ready(n *node) error {
	if r.readyFile == "" {
		return nil
	}
	b, err := json.Marshal(struct {
		Node  int32  `json:"node"`
		Kafka string `json:"kafka"`
		HTTP  string `json:"http"`
	}{n.conf.NodeID, n.Kafka, n.HTTP})
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.readyFile+".tmp", b, 0o644); err != nil {
		return fmt.Errorf("write the ready file: %w", err)
	}
	return os.Rename(r.readyFile+".tmp", r.readyFile)
}
