package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	txnOngoing = "Ongoing"
	// abortPause is between a try to end a transaction and the next, while its markers are written.
	abortPause = 50 * time.Millisecond
	// abortTimeout is the transaction timeout that the fenced producer's id is left with.
	abortTimeout = time.Minute
)

var txnStates = []string{"Empty", txnOngoing, "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence", "Dead"}

// listedTxn is a transactional id in the answer of `varve txn list`.
type listedTxn struct {
	ID          string `json:"id"`
	Producer    int64  `json:"producer"`
	State       string `json:"state"`
	Coordinator int32  `json:"coordinator"`
}

func (t listedTxn) cells() []string {
	return []string{t.ID, fmt.Sprint(t.Producer), t.State, fmt.Sprint(t.Coordinator)}
}

func txnCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "txn", Short: "List, describe and abort transactions",
		Long: "List, describe and abort transactions, which hold up readers with read_committed while they are open.",
	}, txnList(), txnDescribe(), txnAbort())
}

// txnError adds to a broker's error what the caller can do about it.
func txnError(id string, err error) error {
	if err == nil {
		return nil
	}
	hint := ""
	switch {
	case errors.Is(err, kerr.TransactionalIDNotFound):
		hint = "`varve txn list` shows what there is"
	case errors.Is(err, kerr.CoordinatorNotAvailable), errors.Is(err, kerr.CoordinatorLoadInProgress):
		hint = "its coordinator starts: try again in a moment"
	}
	return advise(fmt.Errorf("transactional id %s: %w", id, refused(err, "")), hint)
}

func txnList() *cobra.Command {
	var (
		c      client
		out    output
		states []string
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List transactional ids, the producer that each stands for, and its state",
		Example: "  varve txn list\n" +
			"  varve txn list --state Ongoing",
		Args: needs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := choices("--state", states, txnStates); err != nil {
				return err
			}
			return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				all, err := adm.ListTransactions(ctx, nil, states)
				if !someAnswered(err) {
					return err
				}
				var list []listedTxn
				for _, t := range all.Sorted() {
					list = append(list, listedTxn{t.TxnID, t.ProducerID, t.State, t.Coordinator})
				}
				return cmp.Or(rows(&out, cmd.OutOrStdout(), []string{"ID", "PRODUCER", "STATE", "COORDINATOR"}, list, listedTxn.cells), err)
			})
		},
	}
	c.flags(cmd)
	out.flags(cmd)
	cmd.Flags().StringSliceVar(&states, "state", nil, "only these states: "+strings.Join(txnStates, ", "))
	return cmd
}

// txnView is a transactional id as `varve txn describe` shows it. Started is nil
// when no transaction is open.
type txnView struct {
	ID          string             `json:"id"`
	State       string             `json:"state"`
	Producer    int64              `json:"producer"`
	Epoch       int16              `json:"epoch"`
	Coordinator int32              `json:"coordinator"`
	TimeoutMS   int32              `json:"timeoutMs"`
	Started     *int64             `json:"startedAt"`
	Partitions  map[string][]int32 `json:"partitions"`
}

func (a *admin) viewTxn(ctx context.Context, id string) (*txnView, error) {
	var d kadm.DescribedTransaction
	if err := patiently(ctx, a.patience, func() error {
		all, err := a.DescribeTransactions(ctx, id)
		if err != nil {
			return err
		}
		d = all[id]
		return d.Err
	}); err != nil {
		return nil, txnError(id, err)
	}
	v := &txnView{ID: id, State: d.State, Producer: d.ProducerID, Epoch: d.ProducerEpoch, Coordinator: d.Coordinator, TimeoutMS: d.TimeoutMillis, Partitions: lists(d.Topics)}
	if d.StartTimestamp >= 0 {
		v.Started = &d.StartTimestamp
	}
	return v, nil
}

func (v *txnView) cells() []string {
	started := "-"
	if v.Started != nil {
		started = moment(*v.Started)
	}
	timeout := time.Duration(v.TimeoutMS) * time.Millisecond
	return []string{v.ID, v.State, fmt.Sprint(v.Producer), fmt.Sprint(v.Epoch), fmt.Sprint(v.Coordinator), timeout.String(), started, groupMember{Assigned: v.Partitions}.assigned()}
}

func txnDescribe() *cobra.Command {
	var (
		c   client
		out output
	)
	cmd := &cobra.Command{
		Use:   "describe ID…",
		Short: "Show a transactional id's producer, its open transaction and the partitions in it",
		Args:  needs("ID…"),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				var views []*txnView
				for _, id := range ids {
					v, err := adm.viewTxn(ctx, id)
					if err != nil {
						return err
					}
					views = append(views, v)
				}
				header := []string{"ID", "STATE", "PRODUCER", "EPOCH", "COORDINATOR", "TIMEOUT", "STARTED", "PARTITIONS"}
				return rows(&out, cmd.OutOrStdout(), header, views, (*txnView).cells)
			})
		},
	}
	c.flags(cmd)
	out.flags(cmd)
	return cmd
}

func txnAbort() *cobra.Command {
	var (
		c         client
		out       output
		topic     string
		partition int32
		producer  int64
	)
	cmd := &cobra.Command{
		Use:   "abort ID | abort --topic NAME --partition P --producer N",
		Short: "Abort an open transaction, or one that hangs in a partition and that no coordinator knows",
		Long: "Abort the open transaction of a transactional id; its producer is fenced and has to begin anew.\n\n" +
			"A transaction hangs when a partition holds it open and no coordinator knows of it, so that nobody ends it\n" +
			"(KIP-664). With --topic, --partition and --producer its end is written to that partition.",
		Example: "  varve txn list --state Ongoing\n" +
			"  varve txn abort etl-7\n" +
			"  varve txn abort --topic events --partition 3 --producer 4007",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hanging := topic != "" || partition >= 0 || producer >= 0
			switch {
			case len(args) == 1 && hanging, len(args) == 0 && !hanging:
				return errors.New("name the transactional id, or --topic, --partition and --producer of a transaction that hangs")
			case hanging && (topic == "" || partition < 0 || producer < 0):
				return advise(errors.New("a transaction that hangs is named by all of --topic, --partition and --producer"), "`varve txn list` shows those that do not")
			}
			return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				if hanging {
					if err := adm.abortHanging(ctx, topic, partition, producer); err != nil {
						return err
					}
					return out.done(cmd.OutOrStdout(), map[string]any{"aborted": true, "topic": topic, "partition": partition, "producer": producer},
						"aborted what producer %d had open in %s-%d", producer, topic, partition)
				}
				if err := adm.abortTxn(ctx, args[0]); err != nil {
					return err
				}
				return out.done(cmd.OutOrStdout(), map[string]any{"aborted": true, "id": args[0]},
					"aborted the transaction of %s; its producer is fenced", args[0])
			})
		},
	}
	c.flags(cmd)
	out.flags(cmd)
	cmd.Flags().StringVar(&topic, "topic", "", "the topic in which a transaction hangs")
	cmd.Flags().Int32Var(&partition, "partition", -1, "its partition")
	cmd.Flags().Int64Var(&producer, "producer", -1, "its producer's id")
	return cmd
}

// abortTxn takes the producer's place, which ends what it has open.
func (a *admin) abortTxn(ctx context.Context, id string) error {
	v, err := a.viewTxn(ctx, id)
	if err != nil {
		return err
	}
	if v.State != txnOngoing {
		return fmt.Errorf("transactional id %s has no open transaction: it is %s", id, v.State)
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &id, int32(abortTimeout.Milliseconds())
	return every(ctx, abortPause, func() (bool, error) {
		resp, err := req.RequestWith(ctx, a.raw)
		if err != nil {
			return false, err
		}
		err = kerr.ErrorForCode(resp.ErrorCode)
		if errors.Is(err, kerr.ConcurrentTransactions) { // the end is on its way
			return false, nil
		}
		return true, txnError(id, err)
	})
}

// abortHanging writes the end of a transaction to a partition, when nobody else
// would: the id that the producer has now must not have it open.
func (a *admin) abortHanging(ctx context.Context, topic string, partition int32, producer int64) error {
	set := kadm.TopicsSet{}
	set.Add(topic, partition)
	all, err := a.DescribeProducers(ctx, set)
	if err != nil {
		return topicError(topic, err, "")
	}
	p, ok := all[topic].Partitions[partition]
	if !ok {
		return topicError(topic, kerr.UnknownTopicOrPartition, "")
	}
	if p.Err != nil {
		return topicError(topic, p.Err, p.ErrMessage)
	}
	d, ok := p.ActiveProducers[producer]
	if !ok || d.CurrentTxnStartOffset < 0 {
		var open []string
		for id, d := range p.ActiveProducers {
			if d.CurrentTxnStartOffset >= 0 {
				open = append(open, strconv.FormatInt(id, 10))
			}
		}
		slices.Sort(open)
		return fmt.Errorf("producer %d has no transaction open in %s-%d; those that have: %s", producer, topic, partition, orNone(open))
	}
	listed, err := a.ListTransactions(ctx, []int64{producer}, nil)
	if err != nil {
		return err
	}
	for _, t := range listed {
		v, err := a.viewTxn(ctx, t.TxnID)
		if err != nil {
			return err
		}
		if v.Producer == producer && slices.Contains(v.Partitions[topic], partition) {
			return fmt.Errorf("the transaction does not hang: %s has it open (%s); abort it with `varve txn abort %s`", t.TxnID, v.State, t.TxnID)
		}
	}
	marker := kadm.TxnMarkers{ProducerID: producer, ProducerEpoch: d.ProducerEpoch, CoordinatorEpoch: max(d.CoordinatorEpoch, 0), Topics: set}
	resps, err := a.WriteTxnMarkers(ctx, marker)
	if err != nil {
		return err
	}
	var errs []error
	resps.EachPartition(func(r kadm.TxnMarkersPartitionResponse) { errs = append(errs, r.Err) })
	return topicError(topic, errors.Join(errs...), "")
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
