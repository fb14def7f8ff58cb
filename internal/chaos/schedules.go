package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-log/weir/internal/judge"
)

// scheduled is a queue whose only messages are those of a schedule, one each minute. Nobody claims
// them before the end.
const scheduled = "scheduled"

// keepSchedule sets the schedule again and again, through both brokers and always the same: so no
// tick may come twice, and none may be missing.
func (w *world) keepSchedule(ctx context.Context) {
	random := w.random("schedule")
	w.schedule.tried = time.Now()
	for ctx.Err() == nil {
		_, o, err := w.brokers[random.IntN(2)].call(ctx, "PUT", "/v1/queues/"+scheduled+"/schedules/minute",
			map[string]any{"cron": "* * * * *", "message": map[string]any{"value": "tick"}}, nil)
		w.history.Add(fmt.Sprintf("the schedule is set: %v %v", o, err), scheduled)
		if o == judge.Done && w.schedule.set.IsZero() {
			w.schedule.set = time.Now()
		}
		pause(ctx, time.Duration(500+random.IntN(5000))*time.Millisecond)
	}
}

const (
	// ticksMax is how many messages the end reads: a run of 16 hours.
	ticksMax = 1000
	// tickMax is how late a message of a schedule may come: a process may hear of it a minute after
	// it was set, and all may be down for a while.
	tickMax = 2 * time.Minute
)

// judgeTicks compares the messages of the schedule with the minutes that passed.
func (w *world) judgeTicks(ctx context.Context) error {
	var answer struct {
		Messages []struct {
			ID      string
			Headers []struct{ Name, Value string }
		}
	}
	if err := w.brokers[0].get(ctx, fmt.Sprintf("/v1/queues/%s/messages?max=%d", scheduled, ticksMax), &answer); err != nil {
		return fmt.Errorf("list the scheduled messages: %w", err)
	}
	first := map[time.Time]string{}
	for _, m := range answer.Messages {
		var tick time.Time
		for _, h := range m.Headers {
			if h.Name == "weir.queue.tick" {
				tick, _ = time.Parse(time.RFC3339, h.Value)
			}
		}
		switch other, twice := first[tick]; {
		case twice:
			w.model.Broken("QS", []string{scheduled}, "messages %s and %s are both of the tick %v", other, m.ID, tick)
		case !tick.Equal(tick.Truncate(time.Minute)) || tick.Before(w.schedule.tried.Add(-time.Second)) || tick.After(time.Now()):
			w.model.Broken("QS", []string{scheduled}, "message %s is of the tick %v, and the schedule was first set after %v", m.ID, tick, w.schedule.tried)
		}
		first[tick] = m.ID
	}
	w.counts.addN("ticks of a schedule", len(first))
	if !w.schedule.set.IsZero() && time.Since(w.schedule.set) > tickMax+time.Minute && len(first) == 0 {
		w.model.Broken("QS", []string{scheduled}, "the schedule was set at %v, and has no message", w.schedule.set)
	}
	return nil
}
