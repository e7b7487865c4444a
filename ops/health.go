package ops

import (
	"fmt"
	"io"
	"net/http"
)

// healthz says whether the process should go on living.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	if err := s.deps.Failed(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
	s.writeDegraded(w)
}

// readyz says whether clients should be sent here: the node has failed
// nowhere, and every partition that the metadata gives to it is served.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	if err := s.deps.Failed(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	r := s.deps.Replica.Readiness(s.deps.Meta.Image())
	if r.Waiting > 0 {
		http.Error(w, fmt.Sprintf("%d of %d partitions are not served yet, the first is %s", r.Waiting, r.Led, r.First), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintf(w, "ok: %d partitions served\n", r.Led)
	s.writeDegraded(w)
}

// writeDegraded names what does not work while the node goes on serving: a
// restart, or clients sent elsewhere, would mend neither of it.
func (s *Server) writeDegraded(w io.Writer) {
	if u := s.deps.Hot.Usage(); u.Full {
		fmt.Fprintf(w, "degraded: the disk is nearly full, appends are refused: %d bytes are free, %d are kept in reserve\n", u.DiskFree, u.Reserve)
	}
	for _, p := range s.deps.Replica.Partitions() {
		if d := damagedPartOf(p.Damage()); d != nil {
			fmt.Fprintf(w, "degraded: partition %s: %s\n", p.ID(), d)
			break
		}
	}
	if err := s.deps.StoreFailed(); err != nil {
		fmt.Fprintf(w, "degraded: the bucket does not answer: %v\n", err)
		return
	}
	if s.deps.Tier == nil {
		return
	}
	for _, r := range s.deps.Tier.Removals() {
		if r.Blocked {
			fmt.Fprintf(w, "degraded: the removal of deleted partition %s from the bucket waits for an operator: %v\n", r.Partition, r.LastError.Err)
			break
		}
	}
	for _, p := range s.deps.Tier.Status() {
		if p.LastError != nil {
			fmt.Fprintf(w, "degraded: the bucket fails, first seen for %s: %v\n", p.Partition, p.LastError.Err)
			return
		}
	}
}
