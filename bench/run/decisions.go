package run

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/weir-log/weir/bench/load"
	"github.com/weir-log/weir/bench/system"
)

// decisions enrol students in courses: each reads the events with the tags of its course and of its
// student, and appends one if there is a place. A course that is full is followed by another.
type decisions struct {
	m      *measurement
	tagged system.Tagged
	open   []atomic.Int64 // the courses that are open
	last   atomic.Int64   // the newest course
	turn   []int64        // of each writer; its own
}

func (m *measurement) decisions(t system.Tagged) kind {
	d := &decisions{m: m, tagged: t, open: make([]atomic.Int64, m.workload.Courses), turn: make([]int64, m.workload.Writers)}
	for i := range d.open {
		d.open[i].Store(d.last.Add(1))
	}
	m.book.Group(reader)
	return kind{
		create: t.CreateStreams, send: d.send, after: d.after,
		read: func(ctx context.Context) error { <-ctx.Done(); return nil },
	}
}

func course(n int64) string { return fmt.Sprintf("course-%d", n) }

func (d *decisions) send(ctx context.Context, writer int, values [][]byte) error {
	d.turn[writer]++
	student := fmt.Sprintf("student-%d-%d", writer, d.turn[writer])
	for {
		slot := &d.open[(int64(writer)+d.turn[writer])%int64(len(d.open))]
		n := slot.Load()
		tags := []string{course(n), student}
		have, boundary, err := d.tagged.ReadTagged(ctx, tags)
		if err != nil {
			return err
		}
		if len(have) >= d.m.workload.Capacity {
			slot.CompareAndSwap(n, d.last.Add(1)) // or another writer opened one; a number may be left out
			continue
		}
		err = d.tagged.AppendWithin(ctx, tags, boundary, course(n), values[0])
		if errors.Is(err, system.ErrBoundary) {
			d.m.conflicts.Add(1)
			if ctx.Err() == nil {
				continue
			}
		}
		return err
	}
}

// after reads every course: it has no more events than places, and each event once.
func (d *decisions) after(ctx context.Context) error {
	for n := int64(1); n <= d.last.Load(); n++ {
		have, _, err := d.tagged.ReadTagged(ctx, []string{course(n)})
		if err != nil {
			return fmt.Errorf("read %s: %w", course(n), err)
		}
		if len(have) > d.m.workload.Capacity {
			d.m.book.Gap(fmt.Sprintf("%s has %d students and %d places", course(n), len(have), d.m.workload.Capacity))
		}
		for _, v := range have {
			load.Deliver(d.m.book, reader, v)
		}
	}
	return nil
}
