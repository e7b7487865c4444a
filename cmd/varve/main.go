// Command varve is the whole product in one binary: the broker (`dev`,
// `serve`), its tools (`topic`, `produce`, `consume`, `offsets`,
// `group`, `txn`, `quota`, `segments`) and a demonstration of the main job (`demo`).
//
// The tools speak Kafka's protocol, so they work against any Kafka cluster;
// only `segments` asks Varve's own HTTP endpoint.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd, err := rootCommand().ExecuteContextC(ctx)
	if err == nil {
		return
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errInterrupted
	}
	tellError(os.Stderr, cmd, os.Args[1:], err)
	var status exitStatus
	if errors.As(err, &status) {
		os.Exit(status.code)
	}
	os.Exit(1)
}

// exitStatus is an error that asks for a status other than 1.
type exitStatus struct {
	code int
	err  error
}

// errInterrupted is returned when the user stopped a command before it was
// done. Its status is a shell's for SIGINT.
var errInterrupted = exitStatus{130, errors.New("interrupted")}

func (e exitStatus) Error() string { return e.err.Error() }
func (e exitStatus) Unwrap() error { return e.err }

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "varve",
		Short: "A log service for data kept for years: Kafka's protocol, local disks, S3-compatible storage",
		Long: "Varve keeps recent segments on local disk and sealed segments in S3-compatible storage,\n" +
			"and serves both as one log over Kafka's protocol.\n\n" +
			"Try `varve demo` for the whole way in a minute, `varve dev` for a node to play with.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(flagError)
	return group(root,
		demoCommand(),
		devCommand(),
		serveCommand(),
		topicCommand(),
		produceCommand(),
		consumeCommand(),
		offsetsCommand(),
		groupCommand(),
		txnCommand(),
		quotaCommand(),
		segmentsCommand(),
		clusterCommand(),
		auditCommand(),
		versionCommand(),
	)
}
