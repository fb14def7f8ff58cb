package httpapi

import (
	_ "embed" // for openapi.yaml
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/broker"
)

//go:embed openapi.yaml
var openAPI []byte

// operatorRoutes are not part of the API: they are for health checks, metrics and operators.
func (s *Server) operatorRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", s.operators(true, (*caller).mayMeasure, s.atMost(scrapesMax, promhttp.HandlerFor(s.cfg.Metrics, promhttp.HandlerOpts{}))))
	if s.cfg.Profile {
		mux.Handle("GET /debug/pprof/", s.operators(false, (*caller).mayOperate, http.HandlerFunc(pprof.Index)))
		mux.Handle("GET /debug/pprof/profile", s.operators(false, (*caller).mayOperate, http.HandlerFunc(pprof.Profile)))
		mux.Handle("GET /debug/pprof/trace", s.operators(false, (*caller).mayOperate, http.HandlerFunc(pprof.Trace)))
	}
}

// atMost bounds the requests in progress to a handler that is not of the API.
func (s *Server) atMost(most int64, h http.Handler) http.Handler {
	var inProgress atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer inProgress.Add(-1)
		if inProgress.Add(1) > most {
			s.turnDown(w, r, kindOverloaded.past(most, "there are already %d such requests in progress, the limit; try again later", most))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// healthz answers 200 while the process runs. It does not check the store: restarting weir would
// not help there.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	text(w, http.StatusOK, "ok\n")
}

// readyz reports whether this process can serve clients. If the process only reads the store, the
// answer also says how old what it serves may be.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if err := s.cfg.Ready(); err != nil {
		why := "the store does not answer"
		switch {
		case errors.Is(err, eventlog.ErrNoSpace):
			why = "the disk of the store is full"
		case errors.Is(err, eventlog.ErrUpgraded):
			why = "a newer weir has upgraded the store: restart this process with the new version"
		case errors.Is(err, broker.ErrAddressTaken):
			why = broker.ErrAddressTaken.Error()
		}
		if s.fromHere(r) {
			why = err.Error() // it names the store
		}
		text(w, http.StatusServiceUnavailable, "not ready: "+why+"\n")
		return
	}
	if s.cfg.Log.ReadOnly() {
		text(w, http.StatusOK, fmt.Sprintf("ready: follows the store read-only; it has all that was written up to %v ago\n", s.cfg.Log.Behind().Round(10*time.Millisecond)))
		return
	}
	text(w, http.StatusOK, "ready\n")
}

func text(w http.ResponseWriter, code int, body string) {
	w.Header()["Content-Type"] = textType
	w.WriteHeader(code)
	_, _ = w.Write([]byte(body)) // fails only if the client has disconnected
}

// document serves the description of this API.
func (s *Server) document(c *call) error {
	c.Header()["Content-Type"] = yamlType
	c.send(http.StatusOK, openAPI)
	return nil
}
