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

	"github.com/weir-log/weir/bench/ledger"
	"github.com/weir-log/weir/bench/limit"
	"github.com/weir-log/weir/bench/load"
	"github.com/weir-log/weir/bench/meter"
	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
)

// Cell is one measurement: a system in a mode, a workload at a rate. Figures are nil if a promise
// was broken or the measurement is void: such a cell has no number in any format.
type Cell struct {
	System   string          `json:"system"`
	Build    string          `json:"build,omitempty"` // which of two programs measured it; "": there was one
	Mode     system.Mode     `json:"mode"`
	Settings system.Settings `json:"settings"`
	Workload string          `json:"workload"`
	Rate     string          `json:"rate"`
	Run      int             `json:"run"`
	Seed     uint32          `json:"seed"`

	Verdict ledger.Verdict `json:"verdict"`
	Void    string         `json:"void,omitempty"`    // why there is no figure, although no promise was broken
	NotRun  string         `json:"not_run,omitempty"` // why the system was not measured
	Figures *Figures       `json:"figures,omitempty"`

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
		return "VIOLATION: " + c.Verdict.String()
	case c.Void != "":
		return "void: " + c.Void
	}
	return ""
}

// Figures are what was measured. Latencies are from when a call was due, and nil at rate max.
type Figures struct {
	PerSecond float64  `json:"events_per_second"`    // acknowledged; of a queue: done
	Call      *Latency `json:"call,omitempty"`       // until the answer
	EndToEnd  *Latency `json:"end_to_end,omitempty"` // until a reader, or a worker, had the event
	Done      *Latency `json:"done,omitempty"`       // of a queue: until the acknowledgement was durable
	Late      Duration `json:"generator_late_p99_ms"`
	CPU       float64  `json:"cpu_us_per_event"`        // of this process: the client, and a system that is embedded in it
	ServerCPU float64  `json:"server_cpu_us_per_event"` // of the processes that were started for the system: a broker, a database
	RSS       int64    `json:"rss_bytes"`               // of this process
	ServerRSS int64    `json:"server_rss_bytes"`        // of the others
	Written   float64  `json:"written_bytes_per_event"` // to storage, by all of them
	Conflicts int64    `json:"conflicts,omitempty"`
	Seconds   []int64  `json:"seconds"` // events acknowledged in each second
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
	if t.all.TotalCount() == 0 {
		return nil
	}
	at := func(p float64) Duration {
		return Duration(time.Duration(t.all.ValueAtPercentile(p)) * time.Microsecond)
	}
	return &Latency{Count: t.all.TotalCount(), P50: at(50), P95: at(95), P99: at(99), P999: at(99.9), Max: Duration(time.Duration(t.all.Max()) * time.Microsecond)}
}

// Bounds of a measurement, beside those that the workload has.
const (
	backlogMost = 100_000                // events that readers may lag behind at rate max: what is measured is what is also read
	readyWait   = 30 * time.Second       // for the readers to have seen a marker
	settle      = 300 * time.Millisecond // after everything has come: for what comes again
	failedMost  = 0.001                  // of the calls: above that a system has failed
	lateLeast   = 2 * time.Millisecond
)

// Measure measures one cell on a fresh server, which it starts and stops.
func Measure(ctx context.Context, s system.System, mode system.Mode, w workload.Workload, rate workload.Rate, eventsPerSecond float64, seed uint32) (c Cell, err error) {
	c = Cell{System: s.Name, Mode: mode, Settings: s.Modes[mode], Workload: w.Name, Rate: rate.String(), Seed: seed}
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return c, err
	}
	defer os.RemoveAll(dir)
	if c.Before, err = limit.Measure(dir); err != nil {
		return c, err
	}
	server, err := s.Start(ctx, system.Place{Dir: dir}, mode)
	if err != nil {
		return c, fmt.Errorf("start %s: %w", s.Name, err)
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	m := &measurement{
		workload: w, rate: eventsPerSecond, book: ledger.New(seed, s.Ordered && w.Kind == workload.Log), seed: seed, server: server,
		call: newTimes(), endToEnd: newTimes(), done: newTimes(), next: make([]uint64, w.Writers),
	}
	kind, ok := m.kind()
	if !ok {
		c.NotRun = fmt.Sprintf("%s has no %s", s.Name, map[workload.Kind]string{workload.Log: "log", workload.Queue: "queue", workload.Streams: "streams"}[w.Kind])
		return c, nil
	}
	if mode == system.Durable {
		if c.Void, err = m.flushes(ctx, kind, c.Before, dir); err != nil || c.Void != "" {
			return c, err
		}
	}
	figures, err := m.measure(ctx, kind)
	if err != nil {
		return c, fmt.Errorf("%s, %s: %w", s.Name, w.Name, err)
	}
	if c.After, err = limit.Measure(dir); err != nil {
		return c, err
	}
	c.Moved = c.Before.Differ(c.After)
	c.Verdict = m.book.Close()
	if c.Verdict.Clean() {
		if c.Void == "" {
			c.Void = m.void(c.Verdict, figures)
		}
		if c.Void == "" {
			c.Figures = figures
		}
	}
	return c, nil
}

// void says why a clean measurement has no figure.
func (m *measurement) void(v ledger.Verdict, f *Figures) string {
	calls := v.Acked + v.Unknown + v.Failed
	if calls == 0 || float64(v.Failed+v.Unknown) > failedMost*float64(calls) {
		return fmt.Sprintf("failed: %d of %d events were refused or of unknown outcome; the first error: %v", v.Failed+v.Unknown, calls, m.firstError())
	}
	if f.Call != nil && time.Duration(f.Late) > max(lateLeast, time.Duration(f.Call.P99)/10) {
		return fmt.Sprintf("the generator was too slow: it was %v late at p99", f.Late)
	}
	return ""
}

// measurement is the state of one cell.
type measurement struct {
	workload             workload.Workload
	rate                 float64 // events a second; 0: max
	book                 *ledger.Ledger
	seed                 uint32
	server               system.Server
	call, endToEnd, done *times
	next                 []uint64 // of each writer; its own

	begin     time.Time
	acked     atomic.Int64 // events
	read      atomic.Int64 // deliveries, of all groups; of a queue: done
	conflicts atomic.Int64
	mu        sync.Mutex // guards seconds and failure
	seconds   []int64
	failure   error
}

func (m *measurement) firstError() error { m.mu.Lock(); defer m.mu.Unlock(); return m.failure }

// counted reports whether what was due at a time is in the measurement.
func (m *measurement) counted(due time.Duration) bool { return due >= m.workload.Phases.Warm }

// kind is what differs between logs, queues and streams.
type kind struct {
	groups int64 // deliveries of each event
	create func(ctx context.Context) error
	// read starts what reads, and returns when ctx ended.
	read func(ctx context.Context) error
	// send sends events of a writer, and returns how many of them are of which outcome: nil is
	// acknowledged.
	send func(ctx context.Context, writer int, values [][]byte) error
	// after reads everything back when the writers have stopped.
	after func(ctx context.Context) error
}

// markers are written by writers with numbers from here on: they show that the readers read.
const markers = 1 << 20

// measure goes through the phases.
func (m *measurement) measure(ctx context.Context, k kind) (*Figures, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	readers := make(chan error, 1)
	go func() { readers <- k.read(reading) }()
	if err := m.ready(ctx, k); err != nil {
		stopReading()
		return nil, errors.Join(err, <-readers)
	}

	ph := m.workload.Phases
	length := ph.Warm + ph.Measure
	m.begin = time.Now() // readers of what is sent from now on know it
	before, beforeServers := meter.Self(), meter.Servers()
	writing, stopWriting := context.WithTimeout(ctx, length+ph.Drain)
	defer stopWriting()
	if e, ok := m.server.Target().(interface{ Ending() }); ok {
		ending := time.AfterFunc(length-length/10, e.Ending)
		defer ending.Stop()
	}
	late := load.Load{Writers: m.workload.Writers, PerCall: m.workload.Batch, Rate: m.rate, Length: length}.Run(writing, m.begin,
		func(ctx context.Context, writer int, due time.Duration) int { return m.send(ctx, k, writer, due) })
	drained := time.Now().Add(ph.Drain)
	for m.read.Load() < m.acked.Load()*k.groups && time.Now().Before(drained) && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
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
	warm, all := m.workload.Phases.Warm, int64(0)
	whole := int64(0)
	for i, n := range m.seconds {
		all += n
		if at := time.Duration(i) * time.Second; at >= warm.Truncate(time.Second) && at < (warm+m.workload.Phases.Measure).Truncate(time.Second) {
			whole += n
		}
	}
	if seconds := (warm + m.workload.Phases.Measure).Truncate(time.Second) - warm.Truncate(time.Second); seconds > 0 {
		f.PerSecond = float64(whole) / seconds.Seconds()
	} else { // shorter than a second: a test
		f.PerSecond = float64(all) / (warm + m.workload.Phases.Measure).Seconds()
	}
	if all > 0 {
		f.CPU, f.ServerCPU = float64(own.CPU.Microseconds())/float64(all), float64(servers.CPU.Microseconds())/float64(all)
		f.Written = float64(own.Disk+servers.Disk) / float64(all)
	}
	if m.rate > 0 {
		f.Call, f.EndToEnd, f.Done, f.Late = m.call.latency(), m.endToEnd.latency(), m.done.latency(), Duration(late.At(99))
	}
	return f
}

// ready sends a marker of each writer, and waits until every reader has all of them.
func (m *measurement) ready(ctx context.Context, k kind) error {
	if k.groups == 0 {
		return nil
	}
	for w := range m.workload.Writers {
		value := load.Payload(load.Stamp{Run: m.seed, Writer: markers + uint32(w)}, m.workload.Size)
		if err := k.send(ctx, w, [][]byte{value}); err != nil {
			return fmt.Errorf("send a marker: %w", err)
		}
		m.book.Acked(markers+uint32(w), 0, 1)
		m.acked.Add(1)
	}
	for until := time.Now().Add(readyWait); m.read.Load() < m.acked.Load()*k.groups; time.Sleep(time.Millisecond) {
		if time.Now().After(until) || ctx.Err() != nil {
			return fmt.Errorf("the readers got %d of %d markers within %v", m.read.Load(), m.acked.Load()*k.groups, readyWait)
		}
	}
	return nil
}

// send makes one call of a writer, and notes what came of it.
func (m *measurement) send(ctx context.Context, k kind, writer int, due time.Duration) int {
	for m.rate == 0 && m.acked.Load()-m.read.Load()/max(k.groups, 1) > backlogMost && k.groups > 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	first := m.next[writer]
	m.next[writer] += uint64(m.workload.Batch)
	values := make([][]byte, m.workload.Batch)
	for i := range values {
		values[i] = load.Payload(load.Stamp{Run: m.seed, Writer: uint32(writer), Seq: first + uint64(i), Due: int64(due)}, m.workload.Size)
	}
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
		m.second(now, len(values))
		if m.counted(due) {
			m.call.note(now - due)
		}
		return len(values)
	case errors.Is(err, system.ErrUnsure):
		m.book.Unknown(uint32(writer), first, len(values))
	default:
		m.book.Failed(len(values))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failure == nil {
		m.failure = err
	}
	return len(values)
}

// second counts events in the second in which they were acknowledged.
func (m *measurement) second(at time.Duration, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := int(at / time.Second); len(m.seconds) <= i; {
		m.seconds = append(m.seconds, 0)
	}
	m.seconds[int(at/time.Second)] += int64(n)
}

// got notes that a reader of a group has an event. It returns when the event was due, and whether
// it is measured.
func (m *measurement) got(group string, value []byte) (due time.Duration, counted bool) {
	s, ok := m.book.Delivered(group, value)
	due = time.Duration(s.Due)
	if counted = ok && s.Writer < markers && m.counted(due); counted {
		m.endToEnd.note(time.Since(m.begin) - due)
	}
	return due, counted
}

// flushLength is how long one caller publishes one event at a time, to see how long an answer
// takes.
const flushLength = 2 * time.Second

// flushes compares the time until an answer with that of a flush. A system that answers in less
// than a quarter of it has not flushed.
func (m *measurement) flushes(ctx context.Context, k kind, before limit.Limits, dir string) (void string, err error) {
	if err := k.create(ctx); err != nil {
		return "", err
	}
	took := newTimes()
	for i, until := uint64(0), time.Now().Add(min(flushLength, m.workload.Phases.Measure)); time.Now().Before(until) && ctx.Err() == nil; i++ {
		began := time.Now()
		if err := k.send(ctx, 0, [][]byte{load.Payload(load.Stamp{Run: m.seed, Writer: markers - 1, Seq: i}, m.workload.Size)}); err != nil {
			return "", fmt.Errorf("publish one event at a time: %w", err)
		}
		took.note(time.Since(began))
		m.book.Acked(markers-1, i, 1)
		m.acked.Add(1)
	}
	after, err := limit.Measure(dir)
	if err != nil {
		return "", err
	}
	flush := min(before.Flush4K, after.Flush4K) // a disk that others use meanwhile is slower than it is
	if p50 := time.Duration(took.latency().P50); p50 < flush/4 {
		return fmt.Sprintf("acks are not flushed: half of them came within %v, and a flush of this disk takes %v", p50, flush), nil
	}
	return "", nil
}
