// Command s3server runs the S3 server of the tests (versitygw, built on first use) until it is interrupted, for trying
// Varve on a real bucket and for scripts:
//
//	go run ./integration/s3server -dir /var/tmp/s3 -bucket archive -env s3.env &
//
// Once the server answers, it prints what lets clients in, as shell assignments, and writes the same to the -env file:
// the AWS chain's variables, AWS_ENDPOINT_URL, and VARVE_STORE with a store URL for the bucket. With -build it only
// builds the server, so that later test runs find it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/varvelog/varve/tier/objstore/objstoretest"
)

func main() {
	dir := flag.String("dir", "", "folder that holds the buckets (default: a temporary one, removed at the end)")
	bucket := flag.String("bucket", "varve", "bucket to make")
	envFile := flag.String("env", "", "file to write the shell assignments to")
	build := flag.Bool("build", false, "only build the server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *dir, *bucket, *envFile, *build); err != nil {
		fmt.Fprintln(os.Stderr, "s3server:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, bucket, envFile string, build bool) (err error) {
	binary, err := objstoretest.BuildVersityGW(ctx)
	if err != nil || build {
		return err
	}
	if dir == "" {
		if dir, err = os.MkdirTemp("", "s3server-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	server, err := objstoretest.StartServer(ctx, binary, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	if err := server.MakeBucket(bucket); err != nil {
		return err
	}
	env := append(server.Env(), "AWS_ENDPOINT_URL="+server.Endpoint, "VARVE_STORE="+server.URL(bucket, ""))
	text := "export '" + strings.Join(env, "'\nexport '") + "'\n"
	if envFile != "" {
		temp := envFile + ".tmp" // whoever waits for the file must see all of it
		if err := errors.Join(os.WriteFile(temp, []byte(text), 0o600), os.Rename(temp, envFile)); err != nil {
			return err
		}
	}
	fmt.Print(text)
	select {
	case <-ctx.Done():
		return nil
	case <-server.Done():
		return fmt.Errorf("versitygw ended: %s", server.Log())
	}
}
