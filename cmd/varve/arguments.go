package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// needs accepts exactly the named arguments, and says which one is missing.
// A last name that ends in "…" stands for one or more.
func needs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return fmt.Errorf("%s is missing: %s", strings.TrimSuffix(names[len(args)], "…"), cmd.UseLine())
		}
		many := len(names) > 0 && strings.HasSuffix(names[len(names)-1], "…")
		if len(args) > len(names) && !many {
			return fmt.Errorf("argument %q is one too many: %s", args[len(names)], cmd.UseLine())
		}
		return nil
	}
}

// group makes cmd a command that only leads to others: alone it prints its
// help, and a word that is none of them is an error that names them.
func group(cmd *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(subcommands...)
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		var known []string
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				known = append(known, sub.Name())
			}
		}
		return fmt.Errorf("%s has no command %q; it has %s", cmd.CommandPath(), args[0], strings.Join(known, ", "))
	}
	return cmd
}

// choices refuses what is none of known, and writes the rest as known has it.
func choices(flag string, given, known []string) error {
	for i, g := range given {
		at := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, g) })
		if at < 0 {
			return fmt.Errorf("%s %q: choose from %s", flag, g, strings.Join(known, ", "))
		}
		given[i] = known[at]
	}
	return nil
}

// flagError adds where the known flags are listed.
func flagError(cmd *cobra.Command, err error) error {
	return advise(err, "`"+cmd.CommandPath()+" --help` lists the flags")
}
