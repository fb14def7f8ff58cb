// Package run measures: it starts a system, puts a workload on it, and judges what came of it.
package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/bench/api"
	"github.com/weir-log/weir/bench/limit"
	"github.com/weir-log/weir/bench/load"
	"github.com/weir-log/weir/bench/meter"
	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
	"github.com/weir-log/weir/internal/ledger"
)

// Cell is one measurement: a system in a mode, a workload at a rate. Figures are nil if a promise
// was broken or the measurement is void: such a cell has no number in any format.
type Cell struct {
	System   string          `json:"system"`
	Build    string          `json:"build,omitempty"` // which of two programs measured it; "": there was one
	About    string          `json:"about,omitempty"` // what it is, at which version
	Mode     system.Mode     `json:"mode"`
	Settings system.Settings `json:"settings"`
	Workload string          `json:"workload"`
	Rate     string          `json:"rate"`
	Run      int             `json:"run"`
	Seed     uint32          `json:"seed"`
	Data     string          `json:"data_sha256,omitempty"`  // of the file that its prices are from
	Given    bool            `json:"server_given,omitempty"` // its PostgreSQL was there before: that one's disk and processors are not in the figures
	Kept     string          `json:"kept,omitempty"`         // where the system's files are, if they were kept

	Verdict ledger.Verdict `json:"verdict"`
	Void    string         `json:"void,omitempty"`    // why there is no figure, although no promise was broken
	NotRun  string         `json:"not_run,omitempty"` // why the system was not measured
	Figures *Figures       `json:"figures,omitempty"`
	Raw     *Raw           `json:"raw,omitempty"`

	Before limit.Limits `json:"limits_before"`
	After  limit.Limits `json:"limits_after"`
	Moved  bool         `json:"machine_changed,omitempty"` // its limits differ by more than a quarter
}

// Problem is what is wrong with a cell, in words; "": nothing.
func (c Cell) Problem() string {
	switch {
	case c.NotRun != "":
		return "not run: " + c.NotRun
	case !c.Verdict.Clean():
		return "VIOLATION: " + c.Verdict.String() + prefixed(": ", c.Verdict.First)
	case c.Void != "":
		return "void: " + c.Void
	}
	return ""
}

// Figures are what was measured. Latencies, but for Projected and those of Readings, are from when
// a call was due, and nil at rate max.
type Figures struct {
	PerSecond float64   `json:"events_per_second"`            // acknowledged; of a queue: done
	Offered   float64   `json:"offered_per_second,omitempty"` // the rate; 0: as many as are taken
	Call      *Latency  `json:"call,omitempty"`               // until the answer
	EndToEnd  *Latency  `json:"end_to_end,omitempty"`         // until a reader, or a worker, had the event
	Done      *Latency  `json:"done,omitempty"`               // of a queue: until the acknowledgement was durable
	Projected *Latency  `json:"projected,omitempty"`          // by the clock of the service: from the arrival of a command until its event was projected
	Readings  *Readings `json:"readings,omitempty"`           // of a workload that fills
	Idle      *Idle     `json:"idle,omitempty"`               // of the rate none
	Ratios    *Ratios   `json:"ratios,omitempty"`             // of a durable cell
	Late      Duration  `json:"generator_late_p99_ms"`
	CPU       float64   `json:"cpu_us_per_event"`                     // of this process: the client, and a system that is embedded in it
	ServerCPU float64   `json:"server_cpu_us_per_event"`              // of the processes that were started for the system: a broker, a database
	RSS       int64     `json:"rss_bytes"`                            // of this process
	ServerRSS int64     `json:"server_rss_bytes"`                     // of the others
	Written   float64   `json:"written_bytes_per_event"`              // to storage, by all of them
	Stored    float64   `json:"stored_bytes_per_event,omitempty"`     // by which the files grew; of a log and of streams
	Requests  *Requests `json:"bucket_requests_per_second,omitempty"` // of a system that keeps its data in a bucket
	Conflicts int64     `json:"conflicts,omitempty"`
	Seconds   []int64   `json:"seconds"`           // events acknowledged in each second; of a queue: done
	Last      Duration  `json:"last_ms,omitempty"` // when the last of them was

	Windows   []Window   `json:"windows,omitempty"`   // of a workload with a fault
	Repeated  int64      `json:"repeated,omitempty"`  // deliveries that came again after a fault, before they were acknowledged
	Recovered []Duration `json:"recovered,omitempty"` // from each kill until the first call after it was answered
	Refused   int64      `json:"refused,omitempty"`   // calls of a workload with a fault that failed, or whose outcome is unknown
}

// Idle is what a system uses while nobody does anything: its readers, or its workers, wait.
type Idle struct {
	CPU       float64 `json:"cpus"`        // processors that this process uses
	ServerCPU float64 `json:"server_cpus"` // processors that the others use
	Written   float64 `json:"written_bytes_per_second"`
}

// Duration is written in milliseconds.
type Duration time.Duration

// MarshalJSON writes milliseconds.
func (d Duration) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "%.3f", float64(d)/float64(time.Millisecond)), nil
}

// UnmarshalJSON reads milliseconds.
func (d *Duration) UnmarshalJSON(text []byte) error {
	var ms float64
	if _, err := fmt.Sscanf(string(text), "%g", &ms); err != nil {
		return err
	}
	*d = Duration(ms * float64(time.Millisecond))
	return nil
}

func (d Duration) String() string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// Latency is a distribution.
type Latency struct {
	Count int64    `json:"count"`
	Mean  Duration `json:"mean_ms"`
	P50   Duration `json:"p50_ms"`
	P95   Duration `json:"p95_ms"`
	P99   Duration `json:"p99_ms"`
	P999  Duration `json:"p999_ms"`
	Max   Duration `json:"max_ms"`
}

// times gathers latencies.
type times struct {
	mu  sync.Mutex // guards all
	all *hdrhistogram.Histogram
}

func newTimes() *times { return &times{all: hdrhistogram.New(1, time.Hour.Microseconds(), 3)} }

func (t *times) note(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.all.RecordValue(max(0, d.Microseconds())) // its range is an hour
}

func (t *times) latency() *Latency {
	t.mu.Lock()
	defer t.mu.Unlock()
	return latencyOf(t.all)
}

// latencyOf is what figures have of a histogram; nil if it is empty.
func latencyOf(all *hdrhistogram.Histogram) *Latency {
	if all.TotalCount() == 0 {
		return nil
	}
	at := func(p float64) Duration {
		return Duration(time.Duration(all.ValueAtPercentile(p)) * time.Microsecond)
	}
	return &Latency{Count: all.TotalCount(), Mean: Duration(all.Mean() * float64(time.Microsecond)), P50: at(50), P95: at(95), P99: at(99), P999: at(99.9), Max: Duration(time.Duration(all.Max()) * time.Microsecond)}
}

// Bounds of a measurement, beside those that the workload has.
const (
	readyWait    = 30 * time.Second       // for the readers to have seen a marker
	fillReadWait = 100 * time.Microsecond // more, for each event that was there before
	settle       = 300 * time.Millisecond // after everything has come: for what comes again
	failedMost   = 0.001                  // of the calls: above that a system has failed
	stillComes   = time.Second            // how long a reader may take to show that it still reads
	readAgain    = 50 * time.Millisecond  // after a reader failed
)

// lateLeast is how late the generator may be at p99, whatever the latency is. Tests share their
// machine.
var lateLeast = 2 * time.Millisecond

// measure measures one cell on a fresh server, which it starts and stops.
func (o One) measure(ctx context.Context, s system.System) (c Cell, err error) {
	mode, w, rate, seed := o.Mode, o.Workload, o.Rate, o.Seed
	c = Cell{System: s.Name, About: s.About, Mode: mode, Settings: s.Modes[mode], Workload: w.Name, Rate: rate.String(), Seed: seed}
	if o.Prices != nil && w.Payload == workload.Price {
		c.Data = o.Prices.SHA256
	}
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return c, err
	}
	place := system.Place{Dir: dir, Keep: o.Keep}
	if c.Given = o.Postgres != "" && s.OnPostgres(); c.Given {
		place.Postgres = o.Postgres
	}
	if o.Keep {
		c.Kept = dir
	} else {
		defer os.RemoveAll(dir)
	}
	var disks sight
	if c.Before, disks, err = limits(dir); err != nil {
		return c, err
	}
	server, err := start(ctx, s, mode, w, place)
	if err != nil {
		return c, fmt.Errorf("start %s: %w", s.Name, err)
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	ordered := s.Ordered
	if d, is := server.(system.Described); is {
		c.Settings, ordered = d.Described()
	}
	if e, is := server.(system.Elsewhere); is && e.Elsewhere() {
		c.Given = true
	}
	m := &measurement{
		workload: w, prices: o.Prices, rate: o.Events, book: ledger.New(seed, ordered && w.Kind == workload.Log), seed: seed, server: server,
		call: newTimes(), endToEnd: newTimes(), done: newTimes(), projectedIn: newTimes(), next: make([]uint64, w.Writers*max(w.Keys, 1)), turn: make([]int, w.Writers), once: rate.Once, idle: rate.None, damage: newDamage(w),
	}
	faults, ok := able(server, w.Fault)
	if !ok {
		c.NotRun = fmt.Sprintf("nothing is known of how %s can have a %s", s.Name, w.Fault.Kind)
		return c, nil
	}
	if w.Fault.Kind != "" {
		m.book.AtLeastOnce()
	}
	kind, ok := m.kind()
	if !ok {
		c.NotRun = fmt.Sprintf("%s has no %s", s.Name, map[workload.Kind]string{workload.Log: "log", workload.Queue: "queue", workload.Streams: "streams", workload.Decisions: "appends within a boundary of tags"}[w.Kind])
		return c, nil
	}
	if err := kind.create(ctx); err != nil {
		return c, err
	}
	if kind.fill != nil {
		if err := kind.fill(ctx); err != nil {
			return c, err
		}
	}
	durable := mode == system.Durable && !c.Given // what is written there is not known
	if s.OnS3() {
		disks = sight{}
	}
	if durable && !rate.Once && !rate.None {
		if c.Void, err = m.flushes(ctx, kind, c.Before, disks, dir); err != nil || c.Void != "" {
			c.Void += hint(s, c.Void)
			return c, err
		}
	}
	bytes, events := m.stored(ctx), m.acked.Load()
	figures, err := m.measure(ctx, kind, faults)
	if err != nil {
		return c, fmt.Errorf("%s, %s: %w", s.Name, w.Name, err)
	}
	if grown, more := m.stored(ctx)-bytes, m.acked.Load()-events; bytes > 0 && grown > 0 && more > 0 && w.Kind != workload.Queue {
		figures.Stored = float64(grown) / float64(more)
	}
	if c.After, err = limit.Measure(dir); err != nil {
		return c, err
	}
	c.Moved = c.Before.Differ(c.After)
	if c.Verdict = m.book.Close(); m.slow != "" && c.Verdict.OnlyLost() {
		c.Verdict, c.Void = c.Verdict.Found(), m.slow
	}
	figures.Repeated = c.Verdict.Repeated
	if w.Fault.Kind != "" {
		figures.Refused = c.Verdict.Failed + c.Verdict.Unknown
	}
	if c.Verdict.Clean() {
		if c.Void == "" {
			c.Void = m.void(c.Verdict, figures)
		}
		if c.Void == "" && durable {
			c.Void = m.unwritten(disks)
			c.Void += hint(s, c.Void)
		}
		if c.Void == "" {
			c.Figures = figures
			figures.Ratios = c.Ratios(w)
			if c.Raw, err = m.raw(); err != nil {
				return c, err
			}
		}
	}
	return c, nil
}

// stored is how many bytes the server's data take on disk; 0: it does not say.
func (m *measurement) stored(ctx context.Context) (size int64) {
	if s, is := m.server.(system.Sizer); is {
		size, _ = s.Size(ctx) // beside the point of the measurement
	}
	return size
}

// start starts a system, or a process that answers HTTP requests for it.
func start(ctx context.Context, s system.System, mode system.Mode, w workload.Workload, place system.Place) (system.Server, error) {
	if w.Door == workload.HTTP {
		return api.Start(ctx, api.Options{System: s.Name, Mode: mode, Place: place, Project: w.Follow})
	}
	return s.Start(ctx, place, mode)
}

// void says why a clean measurement has no figure.
func (m *measurement) void(v ledger.Verdict, f *Figures) string {
	calls := v.Acked + v.Unknown + v.Failed
	if calls == 0 || m.workload.Fault.Kind == "" && float64(v.Failed+v.Unknown) > failedMost*float64(calls) {
		return fmt.Sprintf("failed: %d of %d events were refused or of unknown outcome; the first error: %v", v.Failed+v.Unknown, calls, m.firstError())
	}
	if f.Call != nil && time.Duration(f.Late) > max(lateLeast, time.Duration(f.Call.P99)/10) {
		return fmt.Sprintf("the generator was too slow: it was %v late at p99; try fewer callers, a machine that does nothing else, or a longer measurement", f.Late)
	}
	return ""
}

// measurement is the state of one cell.
type measurement struct {
	workload             workload.Workload
	prices               *load.Prices // nil: they are made
	rate                 float64      // events a second; 0: max
	book                 *ledger.Ledger
	seed                 uint32
	server               system.Server
	call, endToEnd, done *times
	projectedIn          *times    // by the clock of the service, since the command arrived
	readings             *Readings // nil: none
	requests             *Requests // nil: there is no bucket
	next                 []uint64  // the next sequence number, of each key of each writer; used by the writer alone
	turn                 []int     // counts the calls of each writer, which take its keys in turn; used by the writer alone
	once                 bool      // each writer makes one call
	idle                 bool      // nobody makes one
	damage               *damage

	begin     time.Time
	acked     atomic.Int64 // events
	bytes     atomic.Int64 // of the events that are acknowledged since begin
	written   int64        // bytes to storage since begin; negative: they are not all known
	read      atomic.Int64 // deliveries, of all groups; of a queue: done
	gone      atomic.Int64 // of a queue: messages whose acknowledgement is durable
	conflicts atomic.Int64
	mu        sync.Mutex // guards seconds, last and failure
	seconds   []int64
	last      time.Duration // when the last event of seconds was acknowledged
	failure   error
	slow      string // why what had not come is not lost; "": it is
}

func (m *measurement) firstError() error { m.mu.Lock(); defer m.mu.Unlock(); return m.failure }

// counted reports whether what was due at a time is in the measurement.
func (m *measurement) counted(due time.Duration) bool {
	return m.once || due >= m.workload.Phases.Warm
}

// kind is what differs between logs, queues and streams.
type kind struct {
	groups int64 // deliveries of each event
	create func(ctx context.Context) error
	fill   func(ctx context.Context) error // makes what is to be there before; nil: nothing
	// read starts what reads, and returns when ctx ended.
	read func(ctx context.Context) error
	// send sends events of a writer, and returns how many of them are of which outcome: nil is
	// acknowledged.
	send func(ctx context.Context, writer int, values [][]byte) error
	// after reads everything back when the writers have stopped.
	after func(ctx context.Context) error
}

// Writers with numbers from ownWriters on are the measurement's own: what they send is checked, and
// in no figure. Before the clock runs some fill, one looks how long an acknowledgement takes, and
// markers show that the readers read.
const (
	ownWriters  = 1 << 20
	flushWriter = ownWriters
	fillWriter  = ownWriters + 1 // and above
	markers     = ownWriters + 1<<10
)

// figure reports whether an event is in the figures, if it is due in time.
func figure(s ledger.Stamp) bool { return s.Writer < ownWriters }

// measure goes through the phases.
func (m *measurement) measure(ctx context.Context, k kind, faults system.Faults) (*Figures, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	readers := make(chan error, 1)
	go func() { readers <- m.keepReading(reading, k) }()
	if err := m.ready(ctx, k); err != nil {
		stopReading()
		return nil, errors.Join(err, <-readers)
	}

	ph := m.workload.Phases
	length := ph.Warm + ph.Measure
	if m.idle {
		until(ctx, time.Now().Add(ph.Warm))
		length = ph.Measure
	}
	count, err := m.requested()
	if err != nil {
		stopReading()
		return nil, errors.Join(err, <-readers)
	}
	m.begin = time.Now() // readers of what is sent from now on know it
	before, beforeServers := meter.Self(), meter.Servers()
	writing, stopWriting := context.WithTimeout(ctx, length+ph.Drain)
	defer stopWriting()
	if e, ok := m.server.Target().(interface{ Ending() }); ok {
		ending := time.AfterFunc(length-length/10, e.Ending)
		defer ending.Stop()
	}
	inflicted := make(chan error, 1)
	go func() { inflicted <- m.inflict(writing, faults) }()
	var late *load.Lateness
	if m.idle {
		until(writing, m.begin.Add(length))
	} else {
		late = load.Load{Writers: m.workload.Writers, PerCall: m.workload.Batch, Rate: m.rate, Length: length, Once: m.once}.Run(writing, m.begin,
			func(ctx context.Context, writer int, due time.Duration) int { return m.send(ctx, k, writer, due) })
	}
	m.requests, err = count()
	if err := errors.Join(err, <-inflicted); err != nil {
		stopReading()
		return nil, errors.Join(err, <-readers)
	}
	drained := time.Now().Add(ph.Drain)
	for m.behind(k) && time.Now().Before(drained) && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	m.judgeSpeed(ctx, k)
	if k.groups > 0 {
		time.Sleep(settle)
	}
	own, servers := meter.Self().Sub(before), meter.Servers().Sub(beforeServers)
	stopReading()
	if err := <-readers; err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if err := k.after(ctx); err != nil {
		return nil, fmt.Errorf("read everything back: %w", err)
	}
	return m.figures(late, own, servers), ctx.Err()
}

func (m *measurement) figures(late *load.Lateness, own, servers meter.Use) *Figures {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := &Figures{Seconds: m.seconds, RSS: own.RSS, ServerRSS: servers.RSS, Conflicts: m.conflicts.Load()}
	all := int64(0)
	for _, n := range m.seconds {
		all += n
	}
	f.Last = Duration(m.last)
	f.PerSecond = steady(m.seconds, m.workload.Phases, m.once, f.Last)
	f.Offered, f.Projected, f.Readings, f.Requests = m.rate, m.projectedIn.latency(), m.readings, m.requests
	f.Windows, f.Recovered = m.damage.windows, m.damage.recovered
	for i, w := range f.Windows {
		f.Windows[i].PerSecond, _ = perSecond(m.seconds, w.from, w.to)
		if m.rate > 0 {
			f.Windows[i].Latency = m.damage.times[i].latency()
		}
	}
	if all > 0 {
		f.CPU, f.ServerCPU = float64(own.CPU.Microseconds())/float64(all), float64(servers.CPU.Microseconds())/float64(all)
		f.Written = float64(own.Disk+servers.Disk) / float64(all)
	}
	if m.written = own.Disk + servers.Disk; own.Hidden || servers.Hidden {
		m.written = -1
	}
	if m.idle {
		share := func(cpu time.Duration) float64 { return cpu.Seconds() / m.workload.Phases.Measure.Seconds() }
		f.Idle = &Idle{CPU: share(own.CPU), ServerCPU: share(servers.CPU), Written: float64(own.Disk+servers.Disk) / m.workload.Phases.Measure.Seconds()}
	}
	if m.rate > 0 || m.once {
		f.Call, f.EndToEnd, f.Done, f.Late = m.call.latency(), m.endToEnd.latency(), m.done.latency(), Duration(late.At(99))
	}
	return f
}

// judgeSpeed tells slow readers from lost events: something still comes to readers that are slow.
func (m *measurement) judgeSpeed(ctx context.Context, k kind) {
	if !m.behind(k) {
		return
	}
	came := m.read.Load()
	until(ctx, time.Now().Add(stillComes))
	if m.read.Load() > came && m.behind(k) {
		m.slow = fmt.Sprintf("too slow: %d events had not come %v after the last call, and some still came", m.book.Missing(), m.workload.Phases.Drain)
	}
}

// behind reports whether something that was acknowledged is not read yet.
func (m *measurement) behind(k kind) bool {
	if m.workload.Fault.Kind != "" { // some of it was read again
		return m.book.Missing() > 0
	}
	return m.read.Load() < m.acked.Load()*k.groups
}

// keepReading reads until ctx ends. A reader that fails in a workload with a fault begins again.
func (m *measurement) keepReading(ctx context.Context, k kind) error {
	for {
		err := k.read(ctx)
		switch {
		case err == nil || m.workload.Fault.Kind == "":
			return err
		case ctx.Err() != nil:
			return nil // the fault may have ended it
		}
		until(ctx, time.Now().Add(readAgain))
	}
}

// ready sends a marker of each writer, and waits until every reader has all of them.
func (m *measurement) ready(ctx context.Context, k kind) error {
	if k.groups == 0 {
		return nil
	}
	all, sending := errgroup.WithContext(ctx)
	for w := range m.workload.Writers {
		all.Go(func() error {
			value := m.payload(ledger.Stamp{Run: m.seed, Writer: markers + uint32(w)})
			if err := k.send(sending, w*max(m.workload.Keys, 1), [][]byte{value}); err != nil {
				return fmt.Errorf("send a marker: %w", err)
			}
			m.book.Acked(markers+uint32(w), 0, 1)
			m.acked.Add(1)
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	wait := readyWait + time.Duration(m.workload.Fill)*fillReadWait
	for until := time.Now().Add(wait); m.read.Load() < m.acked.Load()*k.groups; time.Sleep(time.Millisecond) {
		if time.Now().After(until) || ctx.Err() != nil {
			return fmt.Errorf("the readers got %d of %d events within %v", m.read.Load(), m.acked.Load()*k.groups, wait)
		}
	}
	return nil
}

// send makes one call of a writer, and notes what came of it.
func (m *measurement) send(ctx context.Context, k kind, writer int, due time.Duration) int {
	for m.rate == 0 && m.acked.Load()-m.read.Load()/max(k.groups, 1) > m.workload.Backlog && k.groups > 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if keys := m.workload.Keys; keys > 1 { // each key is a writer of its own to the ledger
		m.turn[writer]++
		writer = writer*keys + m.turn[writer]%keys
	}
	first := m.next[writer]
	m.next[writer] += uint64(m.workload.Batch)
	values := make([][]byte, m.workload.Batch)
	for i := range values {
		values[i] = m.payload(ledger.Stamp{Run: m.seed, Writer: uint32(writer), Seq: first + uint64(i), Due: int64(due)})
	}
	called := time.Now()
	err := k.send(ctx, writer, values)
	now := time.Since(m.begin)
	switch {
	case ctx.Err() != nil: // everything had an end, and the answer had not come
		m.book.Unknown(uint32(writer), first, len(values))
		m.book.Unanswered(int64(len(values)))
		return len(values)
	case err == nil:
		m.book.Acked(uint32(writer), first, len(values))
		m.acked.Add(int64(len(values)))
		for _, v := range values {
			m.bytes.Add(int64(len(v)))
		}
		m.damage.answered(called)
		if m.workload.Kind != workload.Queue {
			m.second(now, len(values))
		}
		if m.counted(due) {
			m.call.note(now - due)
		}
		return len(values)
	case errors.Is(err, system.ErrUnsure):
		m.book.Unknown(uint32(writer), first, len(values))
	default:
		m.book.Failed(uint32(writer), first, len(values))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failure == nil {
		m.failure = err
	}
	return len(values)
}

// payload makes what is sent.
func (m *measurement) payload(s ledger.Stamp) []byte {
	if m.workload.Payload == workload.Price {
		return m.prices.Payload(s)
	}
	return ledger.Payload(s, m.workload.Size)
}

// second counts events in the second in which they were acknowledged.
func (m *measurement) second(at time.Duration, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := int(at / time.Second); len(m.seconds) <= i; {
		m.seconds = append(m.seconds, 0)
	}
	m.seconds[int(at/time.Second)] += int64(n)
	m.last = max(m.last, at)
}

// got notes that a reader of a group has an event. It returns when the event was due, and whether
// it is measured.
func (m *measurement) got(group string, value []byte) (due time.Duration, counted bool) {
	s, ok := load.Deliver(m.book, group, value)
	due = time.Duration(s.Due)
	if counted = ok && figure(s) && m.counted(due); counted {
		took := time.Since(m.begin) - due
		m.endToEnd.note(took)
		if m.workload.Kind == workload.Log {
			m.damage.note(due, took)
		}
	}
	return due, counted
}
