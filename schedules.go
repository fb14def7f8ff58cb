package weir

import (
	"context"

	"github.com/weir-log/weir/use/queue"
)

// ErrUnknownSchedule: the queue has no schedule of this name.
var ErrUnknownSchedule = queue.ErrUnknownSchedule

// Schedule enqueues a message at each tick of a cron expression: one message, however many
// processes run.
type Schedule = queue.Schedule

// Headers of a message that a schedule enqueued: the schedule's name, and the tick's time (RFC
// 3339, UTC).
const (
	HeaderSchedule = queue.HeaderSchedule
	HeaderTick     = queue.HeaderTick
)

// SetSchedule creates a schedule of a queue, durably, or replaces the schedule that has its name.
// It returns the schedule with its next tick. Every process may call it when it starts: no tick
// that is due is lost if Cron and Zone stay the same. *InvalidError if a value is not allowed.
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

// DeleteSchedule deletes a schedule of a queue. The messages that it enqueued stay.
// ErrUnknownSchedule when there is none of that name.
func (l *Log) DeleteSchedule(ctx context.Context, name, schedule string) error {
	return l.withQueue(ctx, name, func(q *queue.Queue) error { return q.DeleteSchedule(ctx, schedule) })
}
