package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func quotaCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "quota", Short: "List, set and remove quotas of clients",
		Long: "List, set and remove quotas of clients: of a user, of a client id, of a user's clients with an id, or of an\n" +
			"address. The most specific one counts; the default is for each that has no other. By key, of each broker:\n\n" +
			"  producer_byte_rate        bytes of produce requests a second\n" +
			"  consumer_byte_rate        bytes of records fetched a second\n" +
			"  request_percentage        of one thread's time\n" +
			"  controller_mutation_rate  partitions created and deleted a second\n" +
			"  connection_creation_rate  connections of an address a second",
	}, quotaList(), quotaSet(), quotaUnset())
}

// quotaFlags name an entity.
type quotaFlags struct {
	user, clientID, ip                      string
	defaultUser, defaultClientID, defaultIP bool
}

func (f *quotaFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.user, "user", "", "clients of this user: a certificate's distinguished name, or ANONYMOUS")
	cmd.Flags().StringVar(&f.clientID, "client-id", "", "clients with this id")
	cmd.Flags().StringVar(&f.ip, "ip", "", "clients of this address")
	cmd.Flags().BoolVar(&f.defaultUser, "default-user", false, "each user that has no quota of its own")
	cmd.Flags().BoolVar(&f.defaultClientID, "default-client-id", false, "each client id that has none of its own")
	cmd.Flags().BoolVar(&f.defaultIP, "default-ip", false, "each address that has none of its own")
}

// quotaPart is one part of an entity; a nil Name is the default.
type quotaPart struct {
	Type string  `json:"type"`
	Name *string `json:"name"`
}

func (f *quotaFlags) parts() ([]quotaPart, error) {
	var parts []quotaPart
	for _, p := range []struct {
		is, name string
		whole    bool
	}{{"user", f.user, f.defaultUser}, {"client-id", f.clientID, f.defaultClientID}, {"ip", f.ip, f.defaultIP}} {
		switch {
		case p.name != "" && p.whole:
			return nil, fmt.Errorf("--%s and --default-%s are two different quotas: name one of them", p.is, p.is)
		case p.name != "":
			parts = append(parts, quotaPart{p.is, &p.name})
		case p.whole:
			parts = append(parts, quotaPart{p.is, nil})
		}
	}
	return parts, nil
}

func quotaPartsText(parts []quotaPart) string {
	list := make([]string, len(parts))
	for i, p := range parts {
		list[i] = p.Type + " <default>"
		if p.Name != nil {
			list[i] = p.Type + " " + *p.Name
		}
	}
	return strings.Join(list, ", ")
}

// quotaView is an entity with its quotas.
type quotaView struct {
	Entity []quotaPart        `json:"entity"`
	Values map[string]float64 `json:"values"`
}

func quotaList() *cobra.Command {
	var (
		c   client
		out output
		f   quotaFlags
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List quotas: all, or those of entities that have the parts named",
		Example: "  varve quota list\n" +
			"  varve quota list --user alice",
		Args: needs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			parts, err := f.parts()
			if err != nil {
				return err
			}
			filter := make([]kadm.DescribeClientQuotaComponent, len(parts))
			for i, p := range parts {
				filter[i] = kadm.DescribeClientQuotaComponent{Type: p.Type, MatchName: p.Name}
				if p.Name == nil {
					filter[i].MatchType = 1
				}
			}
			return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				list, err := adm.DescribeClientQuotas(ctx, false, filter)
				if err != nil {
					return err
				}
				views := []quotaView{}
				var rows [][]string
				for _, q := range list {
					v := quotaView{Values: map[string]float64{}}
					for _, p := range q.Entity {
						v.Entity = append(v.Entity, quotaPart{p.Type, p.Name})
					}
					for _, x := range q.Values {
						v.Values[x.Key] = x.Value
						rows = append(rows, []string{quotaPartsText(v.Entity), x.Key, strconv.FormatFloat(x.Value, 'f', -1, 64)})
					}
					views = append(views, v)
				}
				if out.json {
					return out.object(cmd.OutOrStdout(), views)
				}
				return out.table(cmd.OutOrStdout(), []string{"ENTITY", "KEY", "VALUE"}, rows)
			})
		},
	}
	c.flags(cmd)
	out.flags(cmd)
	f.flags(cmd)
	return cmd
}

func quotaSet() *cobra.Command {
	return quotaAlter(&cobra.Command{
		Use:   "set KEY=VALUE…",
		Short: "Set quotas of an entity",
		Example: "  varve quota set producer_byte_rate=1048576 --client-id loader\n" +
			"  varve quota set consumer_byte_rate=5000000 request_percentage=50 --default-user",
		Args: needs("KEY=VALUE…"),
	}, func(arg string) (kadm.AlterClientQuotaOp, error) {
		key, text, ok := strings.Cut(arg, "=")
		value, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil {
			return kadm.AlterClientQuotaOp{}, fmt.Errorf("%q is not KEY=VALUE with a number", arg)
		}
		return kadm.AlterClientQuotaOp{Key: key, Value: value}, nil
	})
}

func quotaUnset() *cobra.Command {
	return quotaAlter(&cobra.Command{
		Use:     "unset KEY…",
		Short:   "Remove quotas of an entity; one that is not there is no error",
		Example: "  varve quota unset producer_byte_rate --client-id loader",
		Args:    needs("KEY…"),
	}, func(key string) (kadm.AlterClientQuotaOp, error) {
		return kadm.AlterClientQuotaOp{Key: key, Remove: true}, nil
	})
}

// quotaAlter makes cmd change quotas, one for each argument.
func quotaAlter(cmd *cobra.Command, read func(string) (kadm.AlterClientQuotaOp, error)) *cobra.Command {
	var (
		c   client
		out output
		f   quotaFlags
	)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		parts, err := f.parts()
		if err != nil {
			return err
		}
		if len(parts) == 0 {
			return errors.New("say whose quota: --user, --client-id, --ip, or one of --default-user, --default-client-id, --default-ip")
		}
		entry := kadm.AlterClientQuotaEntry{}
		for _, p := range parts {
			entry.Entity = append(entry.Entity, kadm.ClientQuotaEntityComponent{Type: p.Type, Name: p.Name})
		}
		for _, arg := range args {
			op, err := read(arg)
			if err != nil {
				return err
			}
			entry.Ops = append(entry.Ops, op)
		}
		return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
			results, err := adm.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{entry})
			if err != nil {
				return err
			}
			for _, r := range results {
				if r.Err != nil {
					return advise(fmt.Errorf("quota of %s: %w", quotaPartsText(parts), refused(r.Err, r.ErrMessage)), "`varve quota --help` lists the keys and whose they are")
				}
			}
			slices.Sort(args)
			return out.done(cmd.OutOrStdout(), map[string]any{"entity": parts, cmd.Name(): args}, "%s: %s %s", quotaPartsText(parts), cmd.Name(), strings.Join(args, " "))
		})
	}
	c.flags(cmd)
	out.flags(cmd)
	f.flags(cmd)
	return cmd
}
