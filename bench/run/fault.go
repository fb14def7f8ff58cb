package run

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
)

// Window is a part of a measurement during which something happened to the system, or before it,
// or afterwards.
type Window struct {
	Name      string   `json:"name"` // before, during, after
	PerSecond float64  `json:"events_per_second"`
	Latency   *Latency `json:"latency,omitempty"` // of a queue until done, of a log end to end; nil at rate max
	Size      int64    `json:"disk_bytes,omitempty"`

	from, to time.Duration // since the measurement began
}

// windows are those of a workload whose one fault has a length.
func windows(w workload.Workload) []Window {
	f := w.Fault
	if f.Kind == "" || f.Kind == workload.Kill || f.Times > 1 {
		return nil
	}
	begin, held, released, end := w.Phases.Warm, w.Phases.Warm+f.After, w.Phases.Warm+f.After+f.For, w.Phases.Warm+w.Phases.Measure
	return []Window{{Name: "before", from: begin, to: held}, {Name: "during", from: held, to: released}, {Name: "after", from: released, to: end}}
}

// damage is what happens to the system of a measurement.
type damage struct {
	windows []Window
	times   []*times // of the windows

	mu        sync.Mutex // guards all below
	since     time.Time  // of the last kill, until the first answer after it
	dead      time.Time  // when it had ended: calls before it may still have been answered
	recovered []Duration // from each kill until the first answer
}

func newDamage(w workload.Workload) *damage {
	d := &damage{windows: windows(w)}
	for range d.windows {
		d.times = append(d.times, newTimes())
	}
	return d
}

// note notes a latency in the window in which the event was due.
func (d *damage) note(due, took time.Duration) {
	for i, w := range d.windows {
		if due >= w.from && due < w.to {
			d.times[i].note(took)
		}
	}
}

// answered notes an acknowledgement of a call that began at a time.
func (d *damage) answered(began time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.since.IsZero() && !d.dead.IsZero() && began.After(d.dead) {
		d.recovered = append(d.recovered, Duration(time.Since(d.since)))
		d.since, d.dead = time.Time{}, time.Time{}
	}
}

// inflict does to the server what the workload says, and returns when all of it is over.
func (m *measurement) inflict(ctx context.Context, faults system.Faults) error {
	f := m.workload.Fault
	if f.Kind == "" {
		return nil
	}
	for i := range f.Times {
		if !until(ctx, m.begin.Add(m.workload.Phases.Warm+f.After+time.Duration(i)*f.Every)) {
			return nil
		}
		m.sized(ctx, 0)
		undo, err := m.fault(ctx, faults)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Kind, err)
		}
		if f.Kind != workload.Kill {
			until(ctx, m.begin.Add(m.workload.Phases.Warm+f.After+time.Duration(i)*f.Every+f.For))
			m.sized(ctx, 1)
		}
		if err := undo(); err != nil {
			return fmt.Errorf("after %s: %w", f.Kind, err)
		}
	}
	return nil
}

func (m *measurement) fault(ctx context.Context, faults system.Faults) (undo func() error, err error) {
	ended := func(f func()) func() error { return func() error { f(); return nil } }
	switch m.workload.Fault.Kind {
	case workload.Snapshot:
		release, err := faults.Hold(ctx)
		return ended(release), err
	case workload.Pause:
		resume, err := faults.Pause()
		return ended(resume), err
	case workload.Kill:
		m.damage.mu.Lock()
		m.damage.since = time.Now()
		m.damage.mu.Unlock()
		undo, err := faults.Kill()
		m.damage.mu.Lock()
		m.damage.dead = time.Now()
		m.damage.mu.Unlock()
		return undo, err
	}
	return nil, errors.New("nobody knows how")
}

// sized notes how much the data take at the end of a window.
func (m *measurement) sized(ctx context.Context, window int) {
	if s, is := m.server.(system.Sizer); is && window < len(m.damage.windows) && m.workload.Fault.Kind == workload.Snapshot {
		m.damage.windows[window].Size, _ = s.Size(ctx) // beside the point of the measurement
	}
}

// until waits for a time; it is false if ctx ended before.
func until(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// able reports whether a server can have the workload's fault.
func able(server system.Server, f workload.Fault) (system.Faults, bool) {
	var faults system.Faults
	if faulty, is := server.(system.Faulty); is {
		faults = faulty.Faults()
	}
	switch f.Kind {
	case workload.Kill:
		return faults, faults.Kill != nil
	case workload.Pause:
		return faults, faults.Pause != nil
	case workload.Snapshot:
		return faults, faults.Hold != nil
	}
	return faults, true
}
