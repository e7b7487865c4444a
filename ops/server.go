package ops

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/varvelog/varve/broker"
	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/replica"
	"github.com/varvelog/varve/tier"
	"github.com/varvelog/varve/tier/objstore"
)

// Deps are the rooms that are looked at.
type Deps struct {
	NodeID   int32
	Version  string
	StoreURL string // of the bucket, shown to operators; "" when there is none

	Meta    *meta.Node
	Hot     *hot.Store
	Replica *replica.Manager
	Broker  *broker.Server
	Tier    *tier.Manager     // nil without a bucket
	Archive *tier.Archive     // nil without a bucket
	Store   *objstore.Counted // nil without a bucket

	Coordinators Coordinators

	// Failed gives the failure that the process cannot live with, nil while
	// there is none.
	Failed func() error
	// StoreFailed gives the failure of a bucket that has not answered since the
	// start, nil once it has.
	StoreFailed func() error
	// Certificates gives until when the certificate of each TLS listener is good;
	// nil: there are none.
	Certificates func() map[string]time.Time
	Logger       *slog.Logger
}

// headerLimit bounds how long a client may take to send a request's header.
const headerLimit = 10 * time.Second

// Server serves operations over HTTP.
type Server struct {
	deps Deps
	http http.Server
}

// New wires the handlers; Serve begins to answer.
func New(deps Deps) *Server {
	s := &Server{deps: deps}
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newRooms(deps),
	)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.console)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(deps.Logger.Handler(), slog.LevelWarn)}))
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("GET /admin/v1/topics/{topic}/segments", s.segments)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	s.http = http.Server{Handler: mux, ReadHeaderTimeout: headerLimit, ErrorLog: slog.NewLogLogger(deps.Logger.Handler(), slog.LevelDebug)}
	return s
}

// Handler is what Serve serves.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// Serve answers on l until Close; it returns nil then.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close waits for requests that are being answered, until ctx ends; then it
// cuts them off.
func (s *Server) Close(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(err, s.http.Close())
	}
	return nil
}
