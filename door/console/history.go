package console

import (
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/broker"
)

// The plots show historyLasts of the past, a point for each processEvery. What is read from the
// store is read each storeEvery, and when somebody looks, but no more often than each storeLeast.
const (
	historyLasts = time.Hour
	processEvery = 5 * time.Second
	storeEvery   = time.Minute
	storeLeast   = 5 * time.Second
	pointsMax    = int(historyLasts / processEvery)
	// rateOver is the time over which the overview shows the rates of one process: its key has new
	// counters each second, or less often if commits cost money.
	rateOver = time.Minute
	// sizeEvery is how often it is noted what topics hold.
	sizeEvery = 15 * time.Second
)

// point is what all processes together had done at one time, since this one began to look, and how
// much waited in the store when it was read last.
type point struct {
	at time.Time
	broker.Counters
	waits *waits // nil: the store was not read yet
}

// History keeps what the plots show, in memory: measuring costs no call of the store. What other
// processes do is in the keys that brokers read of each other in any case. Its methods may be
// called concurrently.
type History struct {
	process, store prometheus.Gatherer
	brokers        func() *broker.View         // nil: there is no other process
	log            *eventlog.Log               // nil: nothing is known of the store
	topics         func() map[string]topicSize // nil: what topics hold is not known

	looking sync.Mutex // held while the store is asked

	mu      sync.Mutex         // guards all below
	points  []point            // the newest last
	lives   map[string][]point // what each process that lives has told, by its life, in the last rateOver
	last    seen
	sizes   []sized   // what topics held, in the last rateOver, each sizeEvery
	epoch   int32     // the log's leader epoch
	epochAt time.Time // when it was seen to begin; zero: this process has seen none begin
	groups  []lagsAt  // the lags of groups in the last historyLasts, each storeEvery at most
	lags    []seen    // the lags of projections, as they were read in the last 2*rateOver
}

// NewHistory returns a history that measures while Run runs. Process are the metrics of this
// process, which are read every few seconds. Store are those that are read from the store, once a
// minute, and when somebody looks; nil: none are.
func NewHistory(process, store prometheus.Gatherer) *History {
	return &History{process: process, store: store, lives: make(map[string][]point)}
}

// Beside tells the history of the other processes on the store. It must be called before Run.
func (h *History) Beside(brokers func() *broker.View) { h.brokers = brokers }

// Run measures until ctx ends, and returns nil.
func (h *History) Run(ctx context.Context) error {
	tick := time.NewTicker(processEvery)
	defer tick.Stop()
	for {
		h.measure(time.Now())
		h.size(time.Now())
		h.look(storeEvery)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// ownLife is the key of this process in lives.
const ownLife = ""

// Counters returns what this process has done, as it was measured last; nil before that.
func (h *History) Counters() *broker.Counters {
	h.mu.Lock()
	defer h.mu.Unlock()
	if told := h.lives[ownLife]; len(told) > 0 {
		c := told[len(told)-1].Counters // a copy: told changes with the next point
		return &c
	}
	return nil
}

// measure adds a point.
func (h *History) measure(now time.Time) {
	own, err := countersOf(h.process)
	if err != nil {
		return
	}
	told := map[string]broker.Counters{ownLife: own}
	if h.brokers != nil {
		view := h.brokers()
		for _, b := range view.All() {
			if !view.Is(b) && b.Counters != nil {
				told[b.Life] = *b.Counters
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(now, told)
	if h.log != nil && h.log.LeaderEpoch() != h.epoch {
		h.epoch, h.epochAt = h.log.LeaderEpoch(), now
	}
}

// add adds a point made of what each process has told. What a process did before it was first heard
// of is not counted: nobody knows when that was. h.mu is held.
func (h *History) add(now time.Time, told map[string]broker.Counters) {
	maps.DeleteFunc(h.lives, func(life string, _ []point) bool { _, lives := told[life]; return !lives })
	sum := point{at: now, waits: h.last.waits()}
	if len(h.points) > 0 {
		sum.Counters = h.points[len(h.points)-1].Counters
	}
	for life, counters := range told {
		before := h.lives[life]
		if len(before) > 0 {
			sum.Counters = plus(sum.Counters, before[len(before)-1].Counters, counters)
		}
		if len(before) > 0 && now.Sub(before[0].at) > rateOver {
			before = slices.Delete(before, 0, 1)
		}
		h.lives[life] = append(before, point{at: now, Counters: counters})
	}
	if h.points = append(h.points, sum); len(h.points) > pointsMax {
		h.points = slices.Delete(h.points, 0, len(h.points)-pointsMax)
	}
}

// plus adds to a sum what a process did between two of its counters.
func plus(sum, from, to broker.Counters) broker.Counters {
	sum.Records += max(0, to.Records-from.Records)
	sum.Bytes += max(0, to.Bytes-from.Bytes)
	sum.Fetched += max(0, to.Fetched-from.Fetched)
	sum.Flushes = plusBuckets(sum.Flushes, from.Flushes, to.Flushes)
	sum.Deliveries = plusBuckets(sum.Deliveries, from.Deliveries, to.Deliveries)
	return sum
}

func plusBuckets(sum, from, to []broker.Bucket) (all []broker.Bucket) {
	counts := make(map[float64]float64)
	for _, b := range sum {
		counts[b.UpTo] = b.Count
	}
	if len(from) == len(to) {
		for i, b := range to {
			counts[b.UpTo] += max(0, b.Count-from[i].Count)
		}
	}
	for _, upTo := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, broker.Bucket{UpTo: upTo, Count: counts[upTo]})
	}
	return all
}

// series are the columns of the plots: times in seconds since 1970, and a rate or a duration for
// each. A number that is not known is null.
type series struct {
	Times   []int64    `json:"t"`
	Records []*float64 `json:"records"` // appended a second
	Bytes   []*float64 `json:"bytes"`
	Fetched []*float64 `json:"fetched"`
	Flush   []*float64 `json:"flush"`   // 99th percentile of a flush, in ms
	Lag     []*float64 `json:"lag"`     // records that groups have not committed
	Ready   []*float64 `json:"ready"`   // messages of queues
	Dead    []*float64 `json:"dead"`    // dead letters
	Deliver []*float64 `json:"deliver"` // 99th percentile of weir_delivery_seconds, in ms
}

// series returns the last hour as rates.
func (h *History) series() series {
	h.mu.Lock()
	defer h.mu.Unlock()
	var s series
	for i := 1; i < len(h.points); i++ {
		if d, ok := between(h.points[i-1], h.points[i]); ok {
			s.Times = append(s.Times, h.points[i].at.Unix())
			s.Records = append(s.Records, &d.Records)
			s.Bytes = append(s.Bytes, &d.Bytes)
			s.Fetched = append(s.Fetched, &d.Fetched)
			s.Flush = append(s.Flush, d.Flush)
			s.Deliver = append(s.Deliver, d.Deliver)
			var lag, ready, dead *float64
			if w := h.points[i].waits; w != nil {
				lag, ready, dead = &w.lag, &w.ready, &w.dead
			}
			s.Lag, s.Ready, s.Dead = append(s.Lag, lag), append(s.Ready, ready), append(s.Dead, dead)
		}
	}
	return s
}

// rates are what was done in a second.
type rates struct {
	Records, Bytes, Fetched float64
	// Flush and Deliver are the 99th percentile of a flush, and of the time from a record's
	// timestamp to a reader that waited, in ms; nil: there was none.
	Flush, Deliver *float64
}

// Line shows the rates in words.
func (r *rates) Line() rateLine {
	if r == nil {
		return rateLine{"–", "–", "–", "–", "–"}
	}
	return rateLine{perSecond(r.Records), byteCount(int64(r.Bytes)), byteCount(int64(r.Fetched)), inMS(r.Flush), inMS(r.Deliver)}
}

func inMS(v *float64) string {
	if v == nil {
		return "–"
	}
	return strconv.FormatFloat(*v, 'f', -1, 64) + " ms"
}

// rateLine is rates as a table shows them.
type rateLine struct{ Records, Bytes, Fetched, Flush, Deliver string }

// between returns the rates between two points; false if there is no time between them.
func between(a, b point) (rates, bool) {
	seconds := b.at.Sub(a.at).Seconds()
	if seconds <= 0 {
		return rates{}, false
	}
	rate := func(from, to float64) float64 { return max(0, to-from) / seconds }
	return rates{rate(a.Records, b.Records), rate(a.Bytes, b.Bytes), rate(a.Fetched, b.Fetched), slowest(a.Flushes, b.Flushes), slowest(a.Deliveries, b.Deliveries)}, true
}

// process is one process on the overview.
type process struct {
	ID        int32
	Host      string
	Addresses string
	This      bool
	Rates     *rates // over the last rateOver; nil: not known
}

// processes returns the processes that serve Kafka clients on the store, by id.
func (h *History) processes() (all []process) {
	if h.brokers == nil {
		return nil
	}
	view := h.brokers()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range view.All() {
		life := b.Life
		if view.Is(b) {
			life = ownLife
		}
		p := process{ID: b.ID, Host: b.Host, Addresses: b.Where(), This: view.Is(b)}
		if told := h.lives[life]; len(told) > 0 {
			if d, ok := between(told[0], told[len(told)-1]); ok {
				p.Rates = &d
			}
		}
		all = append(all, p)
	}
	return all
}

// slowest returns the 99th percentile in milliseconds of what came between two points: the upper
// bound of the bucket that has the percentile; if it is above all of them, the highest bound. nil:
// nothing came. A bucket that is new at the second point had nothing in it before.
func slowest(before, after []broker.Bucket) *float64 {
	count := func(i int) float64 {
		for _, b := range before {
			if b.UpTo == after[i].UpTo {
				return after[i].Count - b.Count
			}
		}
		return after[i].Count
	}
	if len(after) == 0 || count(len(after)-1) <= 0 {
		return nil
	}
	for i := range after {
		if count(i) >= 0.99*count(len(after)-1) {
			if after[i].UpTo == math.MaxFloat64 && i > 0 {
				i-- // it is longer than that, which no bucket says
			}
			ms := 1000 * after[i].UpTo
			return &ms
		}
	}
	return nil
}
