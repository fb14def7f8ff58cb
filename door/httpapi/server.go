// Package httpapi is the HTTP door: health, readiness and metrics.
package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Bounds of one request. A client that is slower is cut off, so that it costs a connection for a while and no more.
const (
	headerTimeout  = 5 * time.Second
	readTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = time.Minute
	drainTimeout   = 3 * time.Second
	headerBytesMax = 16 << 10
	scrapesMax     = 4 // at once; more get 503
)

// Config says what the door can see.
type Config struct {
	Ready   func() error        // nil while the store answers, else why not
	Metrics prometheus.Gatherer // what /metrics shows
	Profile bool                // serve Go's profiles under /debug/pprof/
	Logger  *slog.Logger
}

// Server answers HTTP clients.
type Server struct {
	cfg Config
}

// New makes a server.
func New(cfg Config) *Server { return &Server{cfg} }

// Serve answers requests on l until ctx ends. Then it finishes those in progress, for at most drainTimeout, and returns nil.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytesMax,
		ErrorLog:          slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
	drained := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(drained)
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		if server.Shutdown(patience) != nil {
			server.Close()
		}
	})
	err := server.Serve(l)
	if stop() {
		return fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
	}
	<-drained
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
	}
	return nil
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.cfg.Metrics, promhttp.HandlerOpts{MaxRequestsInFlight: scrapesMax}))
	if s.cfg.Profile {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// healthz says that the process runs. It does not look at the store: restarting weir would not mend that.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	text(w, http.StatusOK, "ok")
}

// readyz says whether sending clients here makes sense.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	if err := s.cfg.Ready(); err != nil {
		text(w, http.StatusServiceUnavailable, "not ready: "+err.Error())
		return
	}
	text(w, http.StatusOK, "ready")
}

func text(w http.ResponseWriter, code int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	fmt.Fprintln(w, line)
}
