package weir

import (
	"context"

	"github.com/weir-log/weir/use/queue"
)

// ErrUnknownSchedule: the queue has no schedule of this name.
var ErrUnknownSchedule = queue.ErrUnknownSchedule

// Schedule enqueues a message at each tick of a cron expression, once however many processes run.
type Schedule = queue.Schedule

// Headers of a message that a schedule enqueued: the schedule's name, and the tick's time (RFC 3339, UTC).
const (
	HeaderSchedule = queue.HeaderSchedule
	HeaderTick     = queue.HeaderTick
)

// SetSchedule makes a schedule of a queue, durably, or puts this one in the place of the one that has its name, and tells it with its next tick. So every
// process may call it when it starts: a tick that is due is not lost while Cron and Zone stay. *InvalidError when something of it is not allowed.
func (l *Log) SetSchedule(ctx context.Context, name string, s Schedule) (set Schedule, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		set, err = q.SetSchedule(ctx, s)
		return err
	})
	return set, err
}

// Schedules lists the schedules of a queue, by name.
func (l *Log) Schedules(ctx context.Context, name string) (list []Schedule, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		list, err = q.Schedules(ctx)
		return err
	})
	return list, err
}

// Schedule returns a schedule of a queue. ErrUnknownSchedule when there is none of that name.
func (l *Log) Schedule(ctx context.Context, name, schedule string) (found Schedule, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		found, err = q.Schedule(ctx, schedule)
		return err
	})
	return found, err
}

// DeleteSchedule ends a schedule of a queue. What it enqueued stays. ErrUnknownSchedule when there is none of that name.
func (l *Log) DeleteSchedule(ctx context.Context, name, schedule string) error {
	return l.withQueue(ctx, name, func(q *queue.Queue) error { return q.DeleteSchedule(ctx, schedule) })
}
