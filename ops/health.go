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
	waiting, all := 0, 0
	first := ""
	for _, t := range s.deps.Meta.Image().Topics() {
		for i, p := range t.Partitions {
			if p.Leader != s.deps.NodeID {
				continue
			}
			all++
			if !s.deps.Replica.Ready(t.Name, int32(i)) {
				waiting++
				if first == "" {
					first = fmt.Sprintf("%s-%d", t.Name, i)
				}
			}
		}
	}
	if waiting > 0 {
		http.Error(w, fmt.Sprintf("%d of %d partitions are not served yet, the first is %s", waiting, all, first), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintf(w, "ok: %d partitions served\n", all)
}
