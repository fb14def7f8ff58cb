package run

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/weir-log/weir/bench/load"
	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
)

const name = "measured" // of the topic, and of the queue

// kind is what the workload does with the system; ok is false if the system cannot do it.
func (m *measurement) kind() (k kind, ok bool) {
	target := m.server.Target()
	switch m.workload.Kind {
	case workload.Log:
		if l, is := target.(system.Log); is {
			return m.log(l), true
		}
	case workload.Queue:
		if q, is := target.(system.Queue); is {
			return m.queue(q), true
		}
	case workload.Streams:
		if s, is := target.(system.Streams); is {
			return m.streams(s), true
		}
	}
	return kind{}, false
}

// once makes create safe to call again.
func once(create func(context.Context) error) func(context.Context) error {
	var mu sync.Mutex
	done := false
	return func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if done {
			return nil
		}
		err := create(ctx)
		done = err == nil
		return err
	}
}

// log publishes; each writer has a key of its own, so that its events have an order.
func (m *measurement) log(l system.Log) kind {
	w := m.workload
	k := kind{groups: int64(w.Groups), after: func(context.Context) error { return nil }}
	k.create = once(func(ctx context.Context) error { return l.Create(ctx, name, w.Partitions) })
	k.read = func(ctx context.Context) error {
		if err := k.create(ctx); err != nil {
			return err
		}
		var all sync.WaitGroup
		errs := make([]error, w.Groups)
		for g := range w.Groups {
			group := "group-" + strconv.Itoa(g)
			m.book.Group(group)
			all.Go(func() {
				errs[g] = l.Consume(ctx, name, group, w.Members, func(value []byte) {
					m.got(group, value)
					m.read.Add(1)
				})
			})
		}
		all.Wait()
		return errors.Join(errs...)
	}
	k.send = func(ctx context.Context, writer int, values [][]byte) error {
		if err := k.create(ctx); err != nil {
			return err
		}
		events := make([]system.Event, len(values))
		for i, v := range values {
			events[i] = system.Event{Key: []byte("writer-" + strconv.Itoa(writer)), Value: v}
		}
		return l.Publish(ctx, name, events)
	}
	return k
}

// queue enqueues and works. The events per second are those that are done: acknowledged durably.
func (m *measurement) queue(q system.Queue) kind {
	const workers = "workers"
	w := m.workload
	m.book.Group(workers)
	k := kind{groups: 1}
	k.create = once(func(ctx context.Context) error { return q.CreateQueue(ctx, name) })
	k.read = func(ctx context.Context) error {
		if err := k.create(ctx); err != nil {
			return err
		}
		return q.Work(ctx, name, w.Workers, w.Batch, func(value []byte) { m.got(workers, value) }, func(value []byte) {
			if s, err := load.Read(value); err == nil && s.Run == m.seed && s.Writer < markers && m.counted(time.Duration(s.Due)) {
				m.done.note(time.Since(m.begin) - time.Duration(s.Due))
			}
			m.read.Add(1)
		})
	}
	k.send = func(ctx context.Context, _ int, values [][]byte) error {
		if err := k.create(ctx); err != nil {
			return err
		}
		return q.Enqueue(ctx, name, values)
	}
	k.after = func(ctx context.Context) error {
		left, err := q.Left(ctx, name)
		if err == nil && left > 0 {
			m.book.Gap(fmt.Sprintf("after the run the queue has %d messages, all of which were acknowledged", left))
		}
		return err
	}
	return k
}

// streams appends at expected versions. Each writer has streams of its own, so that a conflict is a
// fault; everything is read back, and must have every version once.
func (m *measurement) streams(s system.Streams) kind {
	const reader = "reader"
	w := m.workload
	m.book.Group(reader)
	versions := make([][]int64, w.Writers)
	turn := make([]int, w.Writers)
	for i := range versions {
		versions[i] = make([]int64, w.Streams/w.Writers)
	}
	stream := func(writer, n int) string { return fmt.Sprintf("stream-%d-%d", writer, n) }
	k := kind{read: func(ctx context.Context) error { <-ctx.Done(); return nil }}
	k.create = once(s.CreateStreams)
	k.send = func(ctx context.Context, writer int, values [][]byte) error {
		if err := k.create(ctx); err != nil {
			return err
		}
		n := turn[writer]
		turn[writer] = (n + 1) % len(versions[writer])
		expected := versions[writer][n]
		after, err := s.Append(ctx, stream(writer, n), expected, values)
		var conflict *system.Conflict
		switch {
		case errors.As(err, &conflict):
			m.conflicts.Add(1)
			versions[writer][n] = conflict.Actual
			return err
		case err != nil:
			return err
		case after != expected+int64(len(values)):
			m.book.Gap(fmt.Sprintf("an append of %d events at version %d led to version %d", len(values), expected, after))
		}
		versions[writer][n] = after
		return nil
	}
	k.after = func(ctx context.Context) error {
		for writer := range versions {
			for n := range versions[writer] {
				if versions[writer][n] == 0 {
					continue
				}
				at, values, err := s.ReadStream(ctx, stream(writer, n))
				if err != nil {
					return err
				}
				for i, v := range values {
					if at[i] != int64(i) {
						m.book.Gap(fmt.Sprintf("event %d of %s has version %d", i, stream(writer, n), at[i]))
					}
					m.book.Delivered(reader, v)
				}
			}
		}
		return nil
	}
	return k
}
