package ops

import (
	"fmt"
	"net/http"
)

// healthz says whether the process should go on living.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	if err := s.deps.Failed(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
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
}
