package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by release builds with -ldflags "-X main.version=…".
var version = "0.1.0-dev"

func versionCommand() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the Kafka level it speaks and the build",
		Args:  needs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := struct {
				Version  string `json:"version"`
				Kafka    string `json:"kafka"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
				Revision string `json:"revision,omitempty"`
			}{version, "4.4", runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, revision()}
			if out.json {
				return out.object(cmd.OutOrStdout(), v)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "varve %s (speaks Kafka %s; %s %s)\n", v.Version, v.Kafka, v.Go, v.Platform)
			return err
		},
	}
	out.flags(cmd)
	return cmd
}

func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}
