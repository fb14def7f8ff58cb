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
	dto "github.com/prometheus/client_model/go"

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

// waits is what waits: records for groups, messages that are ready, dead letters. Of each, the
// metrics have the 500 largest numbers.
type waits struct{ lag, ready, dead float64 }

// named is a number that a metric has for one name, and in one state.
type named struct {
	Name, State string
	Value       float64
}

// seen is what was read from the store last.
type seen struct {
	at                                                           time.Time
	topicLag                                                     []named // the group is in State
	lag, members, messages, oldest, projectionLag, projectionAge []named
	delayed, groups, queues                                      float64
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

// topicSize is what a topic holds, all partitions together.
type topicSize struct {
	Offsets int64 // from the first offset to the end
	Ends    int64 // the sum of the end offsets: it grows by one with each record
	Bytes   int64
}

// sized is what topics held at one time.
type sized struct {
	at     time.Time
	topics map[string]topicSize
}

// lagsAt is how far groups were behind at one time.
type lagsAt struct {
	at  time.Time
	lag map[string]float64
}

// NewHistory returns a history that measures while Run runs. Process are the metrics of this
// process, which are read every few seconds. Store are those that are read from the store, once a
// minute, and when somebody looks; nil: none are.
func NewHistory(process, store prometheus.Gatherer) *History {
	return &History{process: process, store: store, lives: make(map[string][]point)}
}

// Beside tells the history of the other processes on the store. It must be called before Run.
func (h *History) Beside(brokers func() *broker.View) { h.brokers = brokers }

// Watch has the history see what the topics of a log hold, as this process knows it, which costs no
// call of the store. It must be called before Run.
func (h *History) Watch(log *eventlog.Log) {
	h.log, h.epoch = log, log.LeaderEpoch()
	h.topics = func() map[string]topicSize {
		all := make(map[string]topicSize)
		for _, t := range log.Topics() {
			var size topicSize
			for _, p := range t.Partitions {
				b, _ := log.Known(p)
				size.Offsets += int64(b.Next - b.First)
				size.Ends += int64(b.Next)
				size.Bytes += b.Bytes
			}
			all[t.Name] = size
		}
		return all
	}
}

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

// storeState is what the log knows of its store without asking it.
type storeState struct {
	ReadOnly bool
	Behind   float64 // seconds, of a log that is read only
	Shards   int
	Epoch    int64 // when a leader epoch began in the last hour, in milliseconds since 1970; 0: none did
}

func (h *History) storeState() (s storeState) {
	if h.log == nil {
		return s
	}
	s.ReadOnly, s.Shards = h.log.ReadOnly(), h.log.Shards()
	if s.ReadOnly {
		s.Behind = h.log.Behind().Seconds()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.epochAt.IsZero() && time.Since(h.epochAt) < historyLasts {
		s.Epoch = h.epochAt.UnixMilli()
	}
	return s
}

// size notes what topics hold, each sizeEvery.
func (h *History) size(now time.Time) {
	h.mu.Lock()
	due := h.topics != nil && (len(h.sizes) == 0 || now.Sub(h.sizes[len(h.sizes)-1].at) >= sizeEvery)
	h.mu.Unlock()
	if !due {
		return
	}
	next := sized{now, h.topics()}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.sizes) > 0 && now.Sub(h.sizes[0].at) >= rateOver {
		h.sizes = h.sizes[1:]
	}
	h.sizes = append(h.sizes, next)
}

// topicLine is a topic in a list, beside its name.
type topicLine struct {
	topicSize
	Rate *float64 // records appended in a second, over the last rateOver; nil: not known
}

// topicLines returns what is known of topics, by name.
func (h *History) topicLines() map[string]topicLine {
	h.mu.Lock()
	defer h.mu.Unlock()
	lines := make(map[string]topicLine)
	if len(h.sizes) == 0 {
		return lines
	}
	first, last := h.sizes[0], h.sizes[len(h.sizes)-1]
	for name, size := range last.topics {
		line := topicLine{topicSize: size}
		if before, was := first.topics[name]; was && last.at.After(first.at) {
			rate := max(0, float64(size.Ends-before.Ends)) / last.at.Sub(first.at).Seconds()
			line.Rate = &rate
		}
		lines[name] = line
	}
	return lines
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

// countersOf reads the counters of this process.
func countersOf(process prometheus.Gatherer) (c broker.Counters, err error) {
	if process == nil {
		return c, nil
	}
	families, err := process.Gather()
	if err != nil && len(families) == 0 {
		return c, err
	}
	for _, f := range families {
		switch f.GetName() {
		case "weir_appended_records_total":
			c.Records = total(f, "", "")
		case "weir_appended_bytes_total":
			c.Bytes = total(f, "", "")
		case "weir_fetched_bytes_total":
			c.Fetched = total(f, "", "")
		case "weir_flush_seconds":
			c.Flushes = bucketsOf(f)
		case "weir_delivery_seconds":
			c.Deliveries = bucketsOf(f)
		}
	}
	return c, nil
}

func bucketsOf(f *dto.MetricFamily) (all []broker.Bucket) {
	for _, m := range f.GetMetric() {
		for _, b := range m.GetHistogram().GetBucket() {
			all = append(all, broker.Bucket{UpTo: b.GetUpperBound(), Count: float64(b.GetCumulativeCount())})
		}
		all = append(all, broker.Bucket{UpTo: math.MaxFloat64, Count: float64(m.GetHistogram().GetSampleCount())})
	}
	return all
}

// look returns what was read from the store, not longer ago than age if the store answers. While
// one caller asks the store, others get what was read before.
func (h *History) look(age time.Duration) seen {
	h.mu.Lock()
	last := h.last
	h.mu.Unlock()
	if h.store == nil || time.Since(last.at) < age || !h.looking.TryLock() {
		return last
	}
	defer h.looking.Unlock()
	families, err := h.store.Gather()
	if err != nil && len(families) == 0 {
		return last
	}
	next := seen{at: time.Now()}
	for _, f := range families {
		switch f.GetName() {
		case "weir_group_lag_records":
			next.lag, next.topicLag = byName(f, "group", ""), byName(f, "topic", "group")
		case "weir_group_members":
			next.members = byName(f, "group", "")
		case "weir_queue_messages":
			next.messages = byName(f, "queue", "state")
		case "weir_queue_oldest_ready_seconds":
			next.oldest = byName(f, "queue", "")
		case "weir_queue_delayed_messages":
			next.delayed = total(f, "", "")
		case "weir_projection_lag_records":
			next.projectionLag = byName(f, "projection", "run")
		case "weir_projection_behind_seconds":
			next.projectionAge = byName(f, "projection", "run")
		case "weir_groups":
			next.groups = total(f, "", "")
		case "weir_queues":
			next.queues = total(f, "", "")
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = next
	h.noteLags(next)
	h.lags = append(slices.DeleteFunc(h.lags, func(s seen) bool { return next.at.Sub(s.at) > 2*rateOver }), seen{at: next.at, projectionLag: next.projectionLag})
	return next
}

// hasRun reports whether a projection had a run of this kind.
func hasRun(s seen, projection, run string) bool {
	return slices.ContainsFunc(s.projectionLag, func(n named) bool { return n.Name == projection && n.State == run })
}

// noteLags keeps how far groups are behind. h.mu is held.
func (h *History) noteLags(s seen) {
	if n := len(h.groups); n > 0 && s.at.Sub(h.groups[n-1].at) < storeEvery-storeLeast {
		return
	}
	now := lagsAt{s.at, make(map[string]float64, len(s.lag))}
	for _, n := range s.lag {
		now.lag[n.Name] = n.Value
	}
	h.groups = append(slices.DeleteFunc(h.groups, func(was lagsAt) bool { return s.at.Sub(was.at) > historyLasts }), now)
}

// lagOf returns how far a group was behind in the last hour.
func (h *History) lagOf(group string) (s lagSeries) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, was := range h.groups {
		s.Times = append(s.Times, was.at.Unix())
		lag, known := was.lag[group]
		s.Lag = append(s.Lag, &lag)
		if !known {
			s.Lag[len(s.Lag)-1] = nil
		}
	}
	return s
}

// lagSeries is the column of a group's plot.
type lagSeries struct {
	Times []int64    `json:"t"`
	Lag   []*float64 `json:"lag"`
}

// waits adds up what waits; nil: the store was not read yet.
func (s seen) waits() *waits {
	if s.at.IsZero() {
		return nil
	}
	var w waits
	for _, n := range s.lag {
		w.lag += n.Value
	}
	for _, n := range s.messages {
		switch n.State {
		case "ready":
			w.ready += n.Value
		case "dead":
			w.dead += n.Value
		}
	}
	return &w
}

// left returns how long a run of a projection, now or next, needs for what it has not handled yet,
// if it goes on as it did in the last minutes; nil: it comes no nearer to the end, or that is not
// known.
func (h *History) left(projection, run string) *time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	lag := func(s seen) float64 {
		if run == "now" && hasRun(s, projection, "next") != hasRun(h.last, projection, "next") {
			return -1 // a run has begun, or taken over: now may be another one since
		}
		i := slices.IndexFunc(s.projectionLag, func(n named) bool { return n.Name == projection && n.State == run })
		if i < 0 {
			return -1
		}
		return s.projectionLag[i].Value
	}
	for _, before := range h.lags {
		was, is, took := lag(before), lag(h.last), h.last.at.Sub(before.at)
		if was < 0 || took <= 0 {
			continue
		}
		if is <= 0 || was <= is {
			return nil
		}
		left := time.Duration(is / (was - is) * float64(took))
		return &left
	}
	return nil
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

// total adds up a metric, of all labels or of those with this one.
func total(f *dto.MetricFamily, label, value string) (sum float64) {
	for _, m := range f.GetMetric() {
		if label == "" || labelOf(m, label) == value {
			sum += valueOf(m)
		}
	}
	return sum
}

// byName adds up a metric by the name and the state that its labels say; the largest first.
func byName(f *dto.MetricFamily, name, state string) []named {
	sums := map[[2]string]float64{}
	for _, m := range f.GetMetric() {
		key := [2]string{labelOf(m, name)}
		if state != "" {
			key[1] = labelOf(m, state)
		}
		sums[key] += valueOf(m)
	}
	all := make([]named, 0, len(sums))
	for key, v := range sums {
		all = append(all, named{key[0], key[1], v})
	}
	slices.SortFunc(all, func(a, b named) int {
		switch {
		case a.Value > b.Value:
			return -1
		case a.Value < b.Value:
			return 1
		case a.Name < b.Name || a.Name == b.Name && a.State < b.State:
			return -1
		}
		return 1
	})
	return all
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.GetCounter().GetValue()
	case m.Gauge != nil:
		return m.GetGauge().GetValue()
	}
	return m.GetUntyped().GetValue()
}
