package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/weir-log/weir"
)

// command is what a request adds, and with the pair and the time of the request the data of an
// event.
type command struct {
	Time       time.Time `json:"time"`
	TickVolume int       `json:"tickVolume"`
	RealVolume int       `json:"realVolume"`
	High       float64   `json:"high"`
	Low        float64   `json:"low"`
	Open       float64   `json:"open"`
	Close      float64   `json:"close"`
}

// added is the data of an event.
type added struct {
	command
	Pair        string    `json:"pair"`
	APICallTime time.Time `json:"apiCallTime"`
}

// eventType is the type of all events.
const eventType = "CurrencyInfoAdded"

const bodyMax = 64 << 10

// check returns what is wrong with a command.
func (c command) check() error {
	switch {
	case c.Time.IsZero():
		return errors.New("the time is missing")
	case c.Low > c.High, c.Open < c.Low, c.Open > c.High, c.Close < c.Low, c.Close > c.High:
		return fmt.Errorf("open %v and close %v must be between low %v and high %v", c.Open, c.Close, c.Low, c.High)
	case c.TickVolume < 0 || c.RealVolume < 0:
		return errors.New("a volume is negative")
	}
	return nil
}

// service answers requests.
type service struct {
	log       *weir.Log
	streams   *weir.Category
	one       bool
	rates     *rates
	projector *weir.Projector
	name      string // of the projection
}

// project begins the projection. The read model is in memory, so each process has a projection of
// its own, from the first event on.
func (s *service) project(ctx context.Context) (err error) {
	s.name = fmt.Sprintf("rates-%d-%d", os.Getpid(), time.Now().UnixNano())
	s.projector, err = s.log.Project(ctx, weir.Projection{
		Name: s.name, Categories: []string{category},
		Handler: func(_ context.Context, e weir.ProjectedEvent) error { return s.rates.apply(e, time.Now()) },
	})
	return err
}

// forgetProjection ends the projection, which the next process does not go on with.
func (s *service) forgetProjection(ctx context.Context) error {
	if s.projector == nil {
		return nil
	}
	return errors.Join(s.projector.Close(ctx), s.log.DeleteProjection(ctx, s.name))
}

func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /currency/{base}/{quote}", s.add)
	mux.HandleFunc("GET /currency/{base}/{quote}", s.latest)
	mux.HandleFunc("GET /latency", s.latency)
	return mux
}

// pair is the currency pair that a request names.
func pair(r *http.Request) string { return r.PathValue("base") + "/" + r.PathValue("quote") }

func (s *service) stream(pair string) string {
	if s.one {
		return oneStream
	}
	return pair
}

// add appends one event.
func (s *service) add(w http.ResponseWriter, r *http.Request) {
	e := added{Pair: pair(r), APICallTime: time.Now()}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, bodyMax))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&e.command)
	if err = cmp.Or(err, e.check()); err != nil {
		http.Error(w, "the body is not a price: "+err.Error(), http.StatusBadRequest)
		return
	}
	data, err := json.Marshal(e)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	done, err := s.append(r.Context(), s.stream(e.Pair), weir.NewStreamEvent{ID: rand.Text(), Type: eventType, Data: data, Time: e.Time})
	if err != nil {
		http.Error(w, err.Error(), statusOf(err))
		return
	}
	answer(w, map[string]int64{"version": done.Version})
}

// append appends an event, and again where the answer of the store was lost: by its id it is there
// once.
func (s *service) append(ctx context.Context, stream string, e weir.NewStreamEvent) (done weir.StreamAppended, err error) {
	done, err = s.streams.Append(ctx, stream, weir.AnyVersion, e)
	for again := 0; again < 3 && errors.Is(err, weir.ErrUnsure); again++ {
		if done, err = s.streams.Append(ctx, stream, weir.AnyVersion, e); err != nil { // what fails now says nothing of the try before
			err = fmt.Errorf("%w: %w", weir.ErrUnsure, err)
		}
	}
	return done, err
}

// statusOf tells a client what it may assume: after 4xx and 503 nothing was appended, after 500 the
// price may be there.
func statusOf(err error) int {
	switch {
	case errors.Is(err, weir.ErrUnsure):
		return http.StatusInternalServerError
	case errors.Is(err, weir.ErrEventIDReused):
		return http.StatusUnprocessableEntity
	case errors.Is(err, weir.ErrTooLarge), errors.As(err, new(*weir.InvalidError)):
		return http.StatusBadRequest
	case errors.Is(err, weir.ErrUnavailable):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// latest tells the newest price of a pair, as the projection has it; with ?at=, what it was then,
// by the events themselves.
func (s *service) latest(w http.ResponseWriter, r *http.Request) {
	if at := r.URL.Query().Get("at"); at != "" {
		s.priceAt(w, r, at)
		return
	}
	if rate, is := s.rates.of(pair(r)); is {
		answer(w, rate)
		return
	}
	http.Error(w, "no price of "+pair(r)+" is known", http.StatusNotFound)
}

func (s *service) priceAt(w http.ResponseWriter, r *http.Request, at string) {
	until, err := time.Parse(time.RFC3339, at)
	if err != nil {
		http.Error(w, "at must be a time as in RFC 3339, but is "+at, http.StatusBadRequest)
		return
	}
	of := pair(r)
	var last *added
	for e, err := range s.streams.Events(r.Context(), s.stream(of), weir.StreamRange{Until: until}) {
		var data added
		if err = cmp.Or(err, json.Unmarshal(e.Data, &data)); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if data.Pair == of && (last == nil || !data.Time.Before(last.Time)) {
			last = &data
		}
	}
	if last == nil {
		http.Error(w, "no price of "+of+" is known at "+at, http.StatusNotFound)
		return
	}
	answer(w, last.command)
}

// latency tells how long events took from the request to the projection.
func (s *service) latency(w http.ResponseWriter, _ *http.Request) { answer(w, s.rates.latency()) }

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}
