package sim

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// weather is what a store and the way to it are like.
type weather struct {
	away   bool    // no call reaches the store
	full   bool    // the store takes no records
	slow   int     // the factor by which calls take longer
	unsure float64 // how many of the commits have an unknown outcome
	fails  float64 // how many of the calls certainly do nothing
}

// and returns the weather where both kinds apply.
func (w weather) and(other weather) weather {
	return weather{
		away: w.away || other.away, full: w.full || other.full, slow: max(w.slow, other.slow, 1),
		unsure: max(w.unsure, other.unsure), fails: max(w.fails, other.fails),
	}
}

// sky is weather that changes.
type sky struct {
	mu sync.Mutex // guards is
	is weather
}

func (s *sky) now() weather {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.is
}

func (s *sky) change(set func(*weather)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set(&s.is)
}

// host is the machine of a process from its start to its end. All its ways to stores go through it.
type host struct {
	world  *world
	logger *slog.Logger
	skies  []*sky // of its way to each member of the store

	way  time.Duration // the usual time of a call to a store, and of its answer
	bulk time.Duration // what a PUT of more than a commit usually takes besides

	mu     sync.Mutex // guards what follows
	random *rand.Rand
	paused chan struct{} // not nil while the process stands still; closed when it goes on

	dead chan struct{} // closed when the process is killed
	once sync.Once
}

func (w *world) newHost(name string) *host {
	h := &host{world: w, logger: w.loggerOf(name), random: w.random(name), dead: make(chan struct{})}
	h.way = wayUsual
	if w.opt.Back { // some processes know later than others that a copy was put back
		h.way *= []time.Duration{1, 2, 4, 8}[h.random.IntN(4)]
	}
	if w.ledger != nil { // copies are put back while snapshots are on their way
		h.bulk = []time.Duration{0, 100 * time.Millisecond, time.Second}[h.random.IntN(3)]
	}
	for range w.skies {
		h.skies = append(h.skies, &sky{})
	}
	return h
}

var errLost = errors.New("the connection was lost")

func (h *host) kill() { h.once.Do(func() { close(h.dead) }) }

func (h *host) isDead() bool {
	select {
	case <-h.dead:
		return true
	default:
		return false
	}
}

// pause lets the process stand still for a while: what it sends and what it is answered waits.
func (h *host) pause(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.paused != nil {
		return
	}
	h.paused = make(chan struct{})
	time.AfterFunc(d, h.goOn)
}

// goOn ends a pause.
func (h *host) goOn() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.paused != nil {
		close(h.paused)
		h.paused = nil
	}
}

// awake waits while the process stands still.
func (h *host) awake(ctx context.Context) error {
	for {
		h.mu.Lock()
		paused := h.paused
		h.mu.Unlock()
		if paused == nil {
			return nil
		}
		select {
		case <-paused:
		case <-h.dead:
			return errLost
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// trip is what happens to one call: how long its ways take, and what the weather makes of it.
type trip struct {
	there, back time.Duration
	weather
	luck  float64
	later time.Duration // of what arrives when nobody waits any more
	again time.Duration // of what arrives a second time; 0: mostly
}

// draw decides what happens to a call to a member of the store.
func (h *host) draw(member int) trip {
	now := h.world.skies[member].now().and(h.skies[member].now())
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.way > wayUsual {
		now.slow = min(now.slow, 3)
	}
	way := func() time.Duration {
		d := time.Duration(h.random.ExpFloat64()*float64(h.way)) * time.Duration(now.slow)
		switch n := h.random.IntN(1000); {
		case n < 2 && !h.world.isOver(): // no more often: S3, where a commit takes seven ways and more, would stand still for a quarter of the time
			d += time.Duration(h.random.Int64N(int64(stallMax)))
		case n < 20:
			d += time.Duration(h.random.Int64N(int64(300 * time.Millisecond)))
		}
		return d // the seconds are not multiplied by slow: a call must end while Run waits for that at the end
	}
	t := trip{there: way(), back: way(), weather: now, luck: h.random.Float64()}
	t.later = 50 * t.back
	if h.way > wayUsual {
		t.later = 3 * t.back
	}
	if h.random.IntN(100) == 0 {
		t.again = way()
	}
	return t
}

// stallMax bounds how long one in five hundred ways takes, until everything is over.
const stallMax = 4 * time.Second

// wayUsual is the usual time of a call to the store, and of its answer, for most processes.
const wayUsual = 2 * time.Millisecond

// travel takes a while. It returns an error if the process is killed, or the caller gives up.
func (h *host) travel(ctx context.Context, d time.Duration) error {
	if err := h.awake(ctx); err != nil {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return h.awake(ctx)
	case <-h.dead:
		return errLost
	case <-ctx.Done():
		return ctx.Err()
	}
}

// upload returns what a PUT of more than a commit takes besides.
func (h *host) upload() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return min(time.Duration(h.random.ExpFloat64()*float64(h.bulk)), uploadMax)
}

// uploadMax is less than a PUT may take.
const uploadMax = 5 * time.Second

// number returns a random number below n, for what the process does not know and the weather does
// not decide.
func (h *host) number(n int64) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.random.Int64N(n)
}
