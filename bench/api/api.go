// Package api is the service of the paper "Comparison of databases for event sourcing": commands
// over HTTP that append an event to a stream of any system, and a projection in its memory.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-log/weir/bench/system"
)

// Latest is an expected version: the one that the service knows of. It appends again where another
// append came first.
const Latest = -2

// bodyMost bounds a command.
const bodyMost = 64 << 10

// API answers commands for one system.
type API struct {
	name    string
	streams system.Streams
	about   about
	known   sync.Map // by stream: the version that it is at, as far as is known, an *atomic.Int64

	mu        sync.Mutex // guards all below
	projected []system.Followed
	sum       time.Duration // from the arrival of their commands
}

// about is what a system says of itself when it runs.
type about struct {
	Settings  system.Settings `json:"settings"`
	Elsewhere bool            `json:"elsewhere"` // this process did not start it
}

// aboutOf asks a server that runs.
func aboutOf(s system.System, mode system.Mode, server system.Server) (a about) {
	a.Settings = s.Modes[mode]
	if d, is := server.(system.Described); is {
		a.Settings, _ = d.Described()
	}
	if e, is := server.(system.Elsewhere); is {
		a.Elsewhere = e.Elsewhere()
	}
	return a
}

// Project follows the streams until ctx ends, if the system can be followed.
func (a *API) Project(ctx context.Context) error {
	f, is := a.streams.(system.Follower)
	if !is {
		<-ctx.Done()
		return nil
	}
	return f.Follow(ctx, func(e system.Followed) {
		var c called
		if json.Unmarshal(e.Value, &c) == nil {
			e.Called = time.Unix(0, c.At)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.projected = append(a.projected, e)
		a.sum += e.Saved.Sub(e.Called)
	})
}

// called is what the API adds to a command.
type called struct {
	At int64 `json:"apiCallTime"` // nanoseconds since 1970
}

// Handler returns the routes.
func (a *API) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/"+a.name+"/{stream}", a.add)
	mux.HandleFunc("GET /api/"+a.name+"/{stream}", a.read)
	mux.HandleFunc("GET /api/"+a.name+"/projected", a.events)
	mux.HandleFunc("GET /api/"+a.name+"/about", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, a.about) })
	mux.HandleFunc("GET /api/ProjectionLatency", a.latency)
	return mux
}

// appended is the answer to a command.
type appended struct {
	Version   int64 `json:"version"`
	Conflicts int   `json:"conflicts"` // that the service had until then
}

// refused is the answer to a command at a version that the stream is not at.
type refused struct {
	Actual int64 `json:"actual"`
}

// add appends the command as an event. Its ?expected is a version, any, or latest.
func (a *API) add(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMost))
	if err == nil && (len(body) < 2 || body[0] != '{' || !json.Valid(body)) {
		err = errors.New("a command is a JSON object")
	}
	expected, wrong := parseExpected(r.URL.Query().Get("expected"))
	if err = errors.Join(err, wrong); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	event := append(fmt.Appendf(nil, `{"apiCallTime":%d,`, now.UnixNano()), body[1:]...)
	done, err := a.append(r.Context(), r.PathValue("stream"), expected, event)
	var conflict *system.Conflict
	switch {
	case errors.As(err, &conflict):
		answer(w, http.StatusConflict, refused{conflict.Actual})
	case errors.Is(err, system.ErrUnsure):
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		answer(w, http.StatusOK, done)
	}
}

func parseExpected(text string) (int64, error) {
	switch text {
	case "any":
		return system.AnyVersion, nil
	case "latest":
		return Latest, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("expected is %q; it must be a version, any or latest", text)
	}
	return n, nil
}

func (a *API) append(ctx context.Context, stream string, expected int64, event []byte) (done appended, err error) {
	if expected != Latest {
		done.Version, err = a.streams.Append(ctx, stream, expected, [][]byte{event})
		return done, err
	}
	found, _ := a.known.LoadOrStore(stream, new(atomic.Int64))
	known := found.(*atomic.Int64)
	for {
		done.Version, err = a.streams.Append(ctx, stream, known.Load(), [][]byte{event})
		var conflict *system.Conflict
		if !errors.As(err, &conflict) {
			if err == nil {
				raise(known, done.Version)
			}
			return done, err
		}
		done.Conflicts++
		raise(known, conflict.Actual)
	}
}

// raise sets n to at least v.
func raise(n *atomic.Int64, v int64) {
	for old := n.Load(); old < v && !n.CompareAndSwap(old, v); old = n.Load() {
	}
}

// page is a part of a stream.
type page struct {
	Versions []int64  `json:"versions"`
	Values   [][]byte `json:"values"`
}

func (a *API) read(w http.ResponseWriter, r *http.Request) {
	from, err := strconv.ParseInt(r.URL.Query().Get("from"), 10, 64)
	most, wrong := strconv.Atoi(r.URL.Query().Get("most"))
	if err = errors.Join(err, wrong); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var p page
	if p.Versions, p.Values, err = a.streams.ReadStream(r.Context(), r.PathValue("stream"), from, most); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	answer(w, http.StatusOK, p)
}

// eventsMost bounds the events of an answer.
const eventsMost = 5000

// events tells what the projection had, from event ?from on.
func (a *API) events(w http.ResponseWriter, r *http.Request) {
	from, err := strconv.Atoi(r.URL.Query().Get("from"))
	if err != nil || from < 0 {
		http.Error(w, "from must be a number", http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	to := min(len(a.projected), from+eventsMost)
	some := a.projected[min(from, to):to:to]
	a.mu.Unlock()
	answer(w, http.StatusOK, some)
}

// latency is the paper's figure: the mean time from the arrival of a command until its event was
// projected.
func (a *API) latency(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	n, sum := len(a.projected), a.sum
	a.mu.Unlock()
	mean := 0.0
	if n > 0 {
		mean = sum.Seconds() * 1000 / float64(n)
	}
	answer(w, http.StatusOK, map[string]any{a.name: map[string]any{"averageMs": mean, "numberOfElements": n}})
}

func answer(w http.ResponseWriter, status int, with any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(with) // the client may be gone
}
