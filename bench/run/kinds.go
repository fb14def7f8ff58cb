package run

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

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
		if l, is := system.As[system.Log](target); is {
			return m.log(l), true
		}
	case workload.Queue:
		if q, is := system.As[system.Queue](target); is {
			return m.queue(q), true
		}
	case workload.Streams:
		if s, is := system.As[system.Streams](target); is {
			k := m.streams(s)
			return k, k.send != nil
		}
	case workload.Decisions:
		if t, is := system.As[system.Tagged](target); is {
			return m.decisions(t), true
		}
	}
	return kind{}, false
}

// log publishes; each writer has a key of its own, or several, so that its events have an order.
func (m *measurement) log(l system.Log) kind {
	w := m.workload
	k := kind{groups: int64(w.Groups), after: func(context.Context) error { return nil }}
	topics := []string{name}
	for t := 1; t < w.Topics; t++ {
		topics = append(topics, name+"-"+strconv.Itoa(t))
	}
	k.create = func(ctx context.Context) error {
		for _, topic := range topics {
			if err := l.Create(ctx, topic, w.Partitions); err != nil {
				return err
			}
		}
		return nil
	}
	k.read = func(ctx context.Context) error {
		all, ctx := errgroup.WithContext(ctx) // a reader that fails ends the others: all begin again
		for g := range w.Groups {
			group := "group-" + strconv.Itoa(g)
			m.book.Group(group)
			for t, topic := range topics {
				of := group
				if t > 0 { // a group reads one topic
					of += "-" + topic
				}
				all.Go(func() error {
					return l.Consume(ctx, topic, of, w.Members, func(value []byte) {
						m.got(group, value)
						m.read.Add(1)
					})
				})
			}
		}
		return all.Wait()
	}
	k.send = func(ctx context.Context, writer int, values [][]byte) error {
		events := make([]system.Event, len(values))
		for i, v := range values {
			events[i] = system.Event{Key: []byte("writer-" + strconv.Itoa(writer)), Value: v}
		}
		return l.Publish(ctx, topics[writer/max(w.Keys, 1)%len(topics)], events)
	}
	return k
}

// queue enqueues and works. The events per second are those that are done: acknowledged durably.
func (m *measurement) queue(q system.Queue) kind {
	const workers = "workers"
	w := m.workload
	m.book.Group(workers)
	k := kind{groups: 1}
	k.create = func(ctx context.Context) error { return q.CreateQueue(ctx, name) }
	k.read = func(ctx context.Context) error {
		return q.Work(ctx, name, w.Workers, w.Take, func(value []byte) { m.got(workers, value) }, func(value []byte) {
			if s, err := load.Read(value); err == nil && s.Run == m.seed {
				m.book.Done(workers, s)
				m.gone.Add(1)
				if figure(s) {
					m.finished(time.Duration(s.Due))
				}
			}
			m.read.Add(1)
		})
	}
	k.send = func(ctx context.Context, _ int, values [][]byte) error {
		return q.Enqueue(ctx, name, values)
	}
	k.after = func(ctx context.Context) error {
		if m.slow != "" {
			return nil
		}
		left, err := q.Left(ctx, name)
		most := int64(0)
		if w.Fault.Kind != "" { // what was not acknowledged comes again when its lease has ended
			most = m.book.Sent() - m.gone.Load()
		}
		if err == nil && left > most {
			m.book.Gap(fmt.Sprintf("after the run the queue has %d messages, and at most %d were not acknowledged", left, most))
		}
		return err
	}
	return k
}

// finished notes that the acknowledgement of a message is durable.
func (m *measurement) finished(due time.Duration) {
	now := time.Since(m.begin)
	m.second(now, 1)
	if m.counted(due) {
		m.done.note(now - due)
		m.damage.note(due, now-due)
	}
}
