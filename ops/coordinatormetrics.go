package ops

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvelog/varve/coordinator"
)

// Coordinators are the three coordinators of a node; their figures carry the
// coordinator's name as a label.
type Coordinators struct {
	Groups       *coordinator.Coordinator
	Transactions *coordinator.Transactions
	Shares       *coordinator.Shares
}

var (
	groupCount         = gauge("kafka_coordinator_group_groupmetadatamanager_numgroups", "Groups of every kind that this node coordinates.")
	coordinatorParts   = gauge("varve_coordinator_partitions", "Partitions of the internal topic whose state is loaded here.", "coordinator")
	coordinatorHeld    = gauge("varve_coordinator_held", "Groups, transactional ids or share-partitions coordinated here.", "coordinator")
	coordinatorLoads   = counter("varve_coordinator_loads_total", "States of partitions read back.", "coordinator")
	coordinatorLoadSec = counter("varve_coordinator_loadseconds_total", "Time spent reading them back.", "coordinator")
	coordinatorUnread  = counter("varve_coordinator_loadfailures_total", "States that could not be read back; each is tried again.", "coordinator")
	coordinatorUnsaid  = counter("varve_coordinator_writefailures_total", "Changes that could not be written; the state is read back for each.", "coordinator")
)

func (r *rooms) coordinators(ch chan<- prometheus.Metric) {
	c := r.deps.Coordinators
	if c.Groups == nil {
		return
	}
	groups := c.Groups.Stats()
	groupCount.send(ch, float64(groups.Held))
	for name, s := range map[string]coordinator.Stats{"group": groups, "transaction": c.Transactions.Stats(), "share": c.Shares.Stats()} {
		coordinatorParts.send(ch, float64(s.Partitions), name)
		coordinatorHeld.send(ch, float64(s.Held), name)
		coordinatorLoads.send(ch, float64(s.Loads), name)
		coordinatorLoadSec.send(ch, s.LoadTime.Seconds(), name)
		coordinatorUnread.send(ch, float64(s.LoadsFailed), name)
		coordinatorUnsaid.send(ch, float64(s.WritesFailed), name)
	}
}
