package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// advice is an error and what the user can do about it.
type advice struct {
	err error
	fix string
}

// adviceSeparator is between an error and its fix.
const adviceSeparator = "; "

// advise adds a fix to err; an empty one adds nothing.
func advise(err error, fix string) error {
	if err == nil || fix == "" {
		return err
	}
	return &advice{err, fix}
}

func (a *advice) Error() string { return a.err.Error() + adviceSeparator + a.fix }
func (a *advice) Unwrap() error { return a.err }

// tellError says why a command failed: a line of text, or under --json one
// object with the error and, where there is one, the fix.
// Several errors are told one by one.
func tellError(w io.Writer, cmd *cobra.Command, args []string, err error) {
	if list := joined(err); len(list) > 1 {
		for _, err := range list {
			tellError(w, cmd, args, err)
		}
		return
	}
	if !wantsJSON(cmd, args) {
		fmt.Fprintln(w, "varve:", err)
		return
	}
	said := struct {
		Error string `json:"error"`
		Fix   string `json:"fix,omitempty"`
	}{Error: err.Error()}
	var a *advice
	if errors.As(err, &a) {
		said.Fix = a.fix
		said.Error = strings.Replace(said.Error, adviceSeparator+a.fix, "", 1)
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(said) // nobody is left to be told
}

// joined are the errors of errors.Join; others that wrap several are one.
func joined(err error) []error {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok || errors.Join(several.Unwrap()...).Error() != err.Error() {
		return nil
	}
	return several.Unwrap()
}

// wantsJSON looks at the arguments as well: a mistake in them ends their reading.
func wantsJSON(cmd *cobra.Command, args []string) bool {
	if cmd != nil {
		if f := cmd.Flags().Lookup("json"); f != nil && f.Changed {
			return f.Value.String() == "true"
		}
	}
	return slices.Contains(args, "--json")
}
