package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func clusterCommand() *cobra.Command {
	return group(&cobra.Command{Use: "cluster", Short: "Look at a cluster and change its members, voters, leaders and features"},
		clusterDescribe(), clusterDrain(), clusterRemove(), clusterVoters(), clusterBalance(), clusterReassign(), clusterElect(), clusterFeatures())
}

// clusterView is a cluster as `cluster describe` shows it.
type clusterView struct {
	Cluster    string         `json:"cluster"`
	Controller int32          `json:"controller"` // -1: none at the moment
	Brokers    []brokerView   `json:"brokers"`
	Partitions partitionsView `json:"partitions"`
}

// brokerView is one node. A voter that is no registered broker is one, too.
type brokerView struct {
	ID    int32    `json:"id"`
	Host  string   `json:"host"`
	Port  int32    `json:"port"`
	Rack  string   `json:"rack"`
	State string   `json:"state"` // active, draining, fenced or unregistered
	Roles []string `json:"roles"` // broker; voter or observer; controller

	Leads    int   `json:"leads"`
	Replicas int   `json:"replicas"`
	InSync   int   `json:"inSync"`
	Lag      int64 `json:"metadataLag"` // changes of the metadata it has yet to take; -1: not known
}

type partitionsView struct {
	Total           int `json:"total"`
	UnderReplicated int `json:"underReplicated"`
	Offline         int `json:"offline"`
	Reassigning     int `json:"reassigning"`
}

const (
	stateActive       = "active"
	stateDraining     = "draining"
	stateFenced       = "fenced"
	stateUnregistered = "unregistered"
)

func clusterDescribe() *cobra.Command {
	var (
		c   client
		out output
	)
	cmd := &cobra.Command{
		Use:   "describe",
		Short: "List the nodes: where they are, in what state, and what part they take",
		Long: "List the nodes: where they are, in what state, and what part they take.\n\n" +
			"A node is active; draining, when nothing new is placed on it (`varve cluster drain`); fenced, when the\n" +
			"controller does not hear from it: it leads nothing then; or unregistered, a voter that is no broker.",
		Args: needs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withAdmin(cmd, func(ctx context.Context, adm *admin) error {
				v, err := adm.viewCluster(ctx)
				if err != nil {
					return err
				}
				if out.json {
					return out.object(cmd.OutOrStdout(), v)
				}
				var rows [][]string
				for _, b := range v.Brokers {
					rows = append(rows, []string{
						strconv.Itoa(int(b.ID)), b.Host + ":" + strconv.Itoa(int(b.Port)), cmp.Or(b.Rack, "-"), b.State, strings.Join(b.Roles, ","),
						strconv.Itoa(b.Leads), strconv.Itoa(b.Replicas), strconv.Itoa(b.InSync), lagText(b.Lag),
					})
				}
				p := v.Partitions
				fmt.Fprintf(cmd.OutOrStdout(), "cluster %s, controller %d; partitions: %d, under-replicated %d, offline %d, reassigning %d\n\n",
					v.Cluster, v.Controller, p.Total, p.UnderReplicated, p.Offline, p.Reassigning)
				return out.table(cmd.OutOrStdout(), []string{"ID", "ADDRESS", "RACK", "STATE", "ROLES", "LEADS", "REPLICAS", "IN SYNC", "METADATA LAG"}, rows)
			})
		},
	}
	c.flags(cmd)
	out.flags(cmd)
	return cmd
}

func lagText(lag int64) string {
	if lag < 0 {
		return "?"
	}
	return strconv.FormatInt(lag, 10)
}

// viewCluster gathers what the cluster says of itself.
func (a *admin) viewCluster(ctx context.Context) (*clusterView, error) {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType, req.IncludeFencedBrokers = 1, true
	resp, err := req.RequestWith(ctx, a.raw)
	if err != nil {
		return nil, err
	}
	if err := answered(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return nil, fmt.Errorf("describe the cluster: %w", err)
	}
	v := &clusterView{Cluster: resp.ClusterID, Controller: -1}
	for _, b := range resp.Brokers {
		view := brokerView{ID: b.NodeID, Host: b.Host, Port: b.Port, Rack: plain(b.Rack), State: stateActive, Roles: []string{"broker"}, Lag: -1}
		if b.IsFenced {
			view.State = stateFenced
		}
		v.Brokers = append(v.Brokers, view)
	}
	if err := a.addQuorum(ctx, v); err != nil {
		return nil, err
	}
	if err := a.addPartitions(ctx, v); err != nil {
		return nil, err
	}
	a.addDrained(ctx, v)
	slices.SortFunc(v.Brokers, func(a, b brokerView) int { return cmp.Compare(a.ID, b.ID) })
	return v, nil
}

// metadataTopic is the name under which Kafka's protocol speaks of the quorum.
const metadataTopic = "__cluster_metadata"

func (a *admin) describeQuorum(ctx context.Context) (*kmsg.DescribeQuorumResponseTopicPartition, []kmsg.DescribeQuorumResponseNode, error) {
	req := kmsg.NewPtrDescribeQuorumRequest()
	t := kmsg.NewDescribeQuorumRequestTopic()
	t.Topic, t.Partitions = metadataTopic, []kmsg.DescribeQuorumRequestTopicPartition{kmsg.NewDescribeQuorumRequestTopicPartition()}
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, a.raw)
	if err != nil {
		return nil, nil, fmt.Errorf("describe the metadata quorum: %w", err)
	}
	if err := answered(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return nil, nil, fmt.Errorf("describe the metadata quorum: %w", err)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, nil, fmt.Errorf("describe the metadata quorum: the answer names no quorum")
	}
	p := &resp.Topics[0].Partitions[0]
	if err := answered(p.ErrorCode, p.ErrorMessage); err != nil {
		return nil, nil, fmt.Errorf("describe the metadata quorum: %w", err)
	}
	return p, resp.Nodes, nil
}

func (a *admin) addQuorum(ctx context.Context, v *clusterView) error {
	p, nodes, err := a.describeQuorum(ctx)
	if err != nil {
		return err
	}
	v.Controller = p.LeaderID
	end := int64(-1)
	for _, r := range p.CurrentVoters {
		if r.ReplicaID == p.LeaderID {
			end = r.LogEndOffset
		}
	}
	for role, list := range map[string][]kmsg.DescribeQuorumResponseTopicPartitionReplicaState{"voter": p.CurrentVoters, "observer": p.Observers} {
		for _, r := range list {
			b := v.broker(r.ReplicaID)
			if b == nil {
				v.Brokers = append(v.Brokers, brokerView{ID: r.ReplicaID, State: stateUnregistered, Lag: -1})
				b = &v.Brokers[len(v.Brokers)-1]
			}
			b.Roles = append(b.Roles, role)
			if r.ReplicaID == p.LeaderID {
				b.Roles = append(b.Roles, "controller")
			}
			if end >= 0 && r.LogEndOffset >= 0 {
				b.Lag = max(0, end-r.LogEndOffset)
			}
		}
	}
	for _, n := range nodes {
		if b := v.broker(n.NodeID); b != nil && b.Host == "" && len(n.Listeners) > 0 {
			b.Host, b.Port = n.Listeners[0].Host, int32(n.Listeners[0].Port)
		}
	}
	return nil
}

func (v *clusterView) broker(id int32) *brokerView {
	for i := range v.Brokers {
		if v.Brokers[i].ID == id {
			return &v.Brokers[i]
		}
	}
	return nil
}

func (a *admin) addPartitions(ctx context.Context, v *clusterView) error {
	m, err := a.Metadata(ctx)
	if err != nil {
		return err
	}
	moving, err := a.ListPartitionReassignments(ctx, nil)
	if err != nil {
		return fmt.Errorf("list reassignments: %w", err)
	}
	v.Partitions.Reassigning = len(moving.Sorted())
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			v.Partitions.Total++
			if p.Leader < 0 {
				v.Partitions.Offline++
			}
			if len(p.ISR) < len(p.Replicas) {
				v.Partitions.UnderReplicated++
			}
			for _, id := range p.Replicas {
				if b := v.broker(id); b != nil {
					b.Replicas++
				}
			}
			for _, id := range p.ISR {
				if b := v.broker(id); b != nil {
					b.InSync++
				}
			}
			if b := v.broker(p.Leader); b != nil {
				b.Leads++
			}
		}
	}
	return nil
}

// drainSetting is the broker setting that keeps new replicas off a broker and
// has the balancer take those that it has.
const drainSetting = "varve.balancer.drain"

// addDrained marks the brokers that are being drained.
func (a *admin) addDrained(ctx context.Context, v *clusterView) {
	for i := range v.Brokers {
		if b := &v.Brokers[i]; b.State == stateActive && a.draining(ctx, b.ID) {
			b.State = stateDraining
		}
	}
}

// draining reports whether a broker is being drained, which it says itself: one
// that has gone meanwhile is not.
func (a *admin) draining(ctx context.Context, id int32) bool {
	configs, err := a.DescribeBrokerConfigs(ctx, id)
	if err != nil {
		return false
	}
	for _, c := range configs {
		for _, s := range c.Configs {
			if s.Key == drainSetting {
				return s.MaybeValue() == "true"
			}
		}
	}
	return false
}

// answered makes an error of an answer's code and message.
func answered(code int16, message *string) error {
	return refused(kerr.ErrorForCode(code), plain(message))
}

func plain(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// listsNodes is what to do about a node that there is not.
const listsNodes = "`varve cluster describe` lists them"

// brokerArg reads the id of a broker or voter.
func brokerArg(arg string) (int32, error) {
	id, err := strconv.ParseInt(arg, 10, 32)
	if err != nil || id < 0 {
		return 0, advise(fmt.Errorf("%q is no node id", arg), listsNodes)
	}
	return int32(id), nil
}

// pollInterval is how often a verb that waits looks again.
const pollInterval = 500 * time.Millisecond
