package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
)

// output prints results as a table for people or as JSON for programs.
type output struct{ json bool }

func (o *output) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON; errors too, on standard error, as {\"error\": …, \"fix\": …}")
}

// object prints one value as indented JSON.
func (o *output) object(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// done says what was changed: text, or v as JSON.
func (o *output) done(w io.Writer, v any, text string, args ...any) error {
	if o.json {
		return o.object(w, v)
	}
	_, err := fmt.Fprintf(w, text+"\n", args...)
	return err
}

// note says what a user may not expect and is no error: a line that begins with
// "note:", or an object.
func (o *output) note(w io.Writer, text string) {
	if o.json {
		_ = json.NewEncoder(w).Encode(map[string]string{"note": text})
		return
	}
	fmt.Fprintln(w, "note:", text)
}

// deleted says what is no more: a line for each name, or a list of them under "deleted".
func (o *output) deleted(w io.Writer, names []string) error {
	if o.json {
		return o.object(w, map[string][]string{"deleted": names})
	}
	for _, name := range names {
		fmt.Fprintf(w, "deleted %s\n", name)
	}
	return nil
}

// table prints rows under a header, columns aligned.
func (o *output) table(w io.Writer, header []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(header, "\t"))
	for _, row := range rows {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}

// rows prints a list: a line of a table for each, or all as JSON, where none
// are an empty list.
func rows[T any](out *output, w io.Writer, header []string, list []T, cells func(T) []string) error {
	if out.json {
		return out.object(w, append([]T{}, list...))
	}
	table := make([][]string, 0, len(list))
	for _, x := range list {
		table = append(table, cells(x))
	}
	return out.table(w, header, table)
}

// humanBytes prints a size in binary units.
func humanBytes(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
