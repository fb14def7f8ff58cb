package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-log/weir"
)

// rates are the read model: the newest price of each pair, and how late events came.
type rates struct {
	mu       sync.Mutex // guards what follows
	newest   map[string]rate
	versions map[string]int64 // of the next event of each stream
	delays   []time.Duration
	next     int // where the next of delays goes, once there are delaysMax
	count    int
}

// rate is what is known of a pair.
type rate struct {
	command
	Events int `json:"events"` // how many there were
}

// delaysMax bounds the delays that are kept: the newest ones.
const delaysMax = 100_000

func newRates() *rates {
	return &rates{newest: make(map[string]rate), versions: make(map[string]int64)}
}

// apply applies an event that is projected now. One that comes again changes nothing.
func (r *rates) apply(e weir.ProjectedEvent, now time.Time) error {
	if e.Type != eventType || e.Deleted {
		return nil
	}
	var data added
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return weir.Permanent(fmt.Errorf("event %d of stream %s: %w", e.Version, e.Stream, err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch next := r.versions[e.Stream]; {
	case e.Version < next:
		return nil
	case e.Version > next:
		return fmt.Errorf("stream %s: event %d came, but %d is next", e.Stream, e.Version, next)
	}
	r.versions[e.Stream]++
	newest := r.newest[data.Pair]
	newest.Events++
	if !data.Time.Before(newest.Time) {
		newest.command = data.command
	}
	r.newest[data.Pair] = newest
	r.count++
	if delay := now.Sub(data.APICallTime); len(r.delays) < delaysMax {
		r.delays = append(r.delays, delay)
	} else {
		r.delays[r.next] = delay
		r.next = (r.next + 1) % delaysMax
	}
	return nil
}

func (r *rates) of(pair string) (rate, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	newest, is := r.newest[pair]
	return newest, is
}

// delays tells how long events took from the request to the projection.
type delays struct {
	Events int     `json:"numberOfElements"`
	Mean   float64 `json:"averageMs"`
	P50    float64 `json:"p50Ms"`
	P99    float64 `json:"p99Ms"`
	Max    float64 `json:"maxMs"`
}

func (r *rates) latency() delays {
	r.mu.Lock()
	sorted, count := slices.Clone(r.delays), r.count
	r.mu.Unlock()
	if len(sorted) == 0 {
		return delays{}
	}
	slices.Sort(sorted)
	var sum time.Duration
	for _, d := range sorted {
		sum += d
	}
	at := func(share float64) float64 { return ms(sorted[int(share*float64(len(sorted)-1))]) }
	return delays{Events: count, Mean: ms(sum) / float64(len(sorted)), P50: at(0.5), P99: at(0.99), Max: at(1)}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
