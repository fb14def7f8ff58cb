package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/judge"
)

// reactions is the category to which the process manager appends: for each event of a stream one
// event to the stream of the same name.
const reactions, managerName = "reactions", "reacting"

// manage keeps a process manager in a process.
func (w *world) manage(p *life) {
	if !w.acts("stream") || len(w.skies) > 1 { // on shards its streams may lie elsewhere than the group, and it is refused
		return
	}
	w.tries(p, "manage", func(ctx context.Context) error {
		into, err := p.log.Category(ctx, reactions)
		if err != nil {
			return err
		}
		_, err = p.log.Manage(ctx, weir.ProcessManager{
			Name: managerName, Categories: []string{judge.Accounts}, Start: weir.Earliest, Session: 3 * time.Second, CommitEvery: time.Second,
			Retry: weir.Retry{Attempts: -1, First: 100 * time.Millisecond, Max: time.Second},
			React: func(_ context.Context, e weir.CategoryEvent) ([]weir.StreamPart, error) {
				if p.host.isDead() {
					return nil, errLost
				}
				w.history.Add(fmt.Sprintf("%s reacts to version %d of %s, attempt %d", p.name, e.Version, e.Stream, e.Attempt), e.Stream)
				if e.Deleted {
					return nil, nil
				}
				return []weir.StreamPart{{Category: into, Stream: e.Stream, Expected: weir.AnyVersion, Events: []weir.NewStreamEvent{{Type: "reacted", Data: fmt.Append(nil, e.Version)}}}}, nil
			},
		})
		return err
	})
}

// judgeReactions waits until the process manager has got everything: to each event it reacted once,
// in their order.
func (w *world) judgeReactions(p *life, past map[string]*judge.StreamPast) {
	if len(w.skies) > 1 || len(past) == 0 {
		return
	}
	late := time.Now().Add(settleMax)
	for {
		ctx, cancel := asks()
		g, err := p.log.Group(ctx, managerName)
		cancel()
		if err == nil && g.Lag == 0 && len(g.Offsets) > 0 {
			break
		}
		if time.Now().After(late) {
			w.model.Broken("G8", []string{managerName}, "%v after the last fault the process manager is at %+v (%v)", settleMax, g, err)
			return
		}
		time.Sleep(time.Second)
	}
	ctx, cancel := asks()
	defer cancel()
	c, err := p.log.Category(ctx, reactions)
	for stream, of := range past {
		var got, want []string
		for v := range of.Values {
			want = append(want, fmt.Sprint(v))
		}
		if err == nil {
			for e, bad := range c.Events(ctx, stream, weir.StreamRange{}) {
				if err = bad; bad != nil {
					break
				}
				got = append(got, string(e.Data))
			}
		}
		if err != nil {
			w.model.Broken("L5", []string{stream}, "read the reactions to %s: %v", stream, err)
			return
		}
		if !slices.Equal(got, want) {
			w.model.Broken("S6", []string{stream}, "the process manager reacted to %s, which has %d events, with %q", stream, len(of.Values), got)
		}
	}
}

const (
	scheduled = "scheduled"
	// ticksLate is how late the message of a tick may come.
	ticksLate = 2 * time.Minute
)

// keepSchedule sets the schedule again and again, always the same: so no tick may come twice, and
// none may be missing. Its zone has a change of summer time in the middle of the history.
func (w *world) keepSchedule(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		if p := w.any(random); p != nil {
			try, cancel := asks()
			_, err := p.log.SetSchedule(try, scheduled, weir.Schedule{Name: "minute", Cron: "* * * * *", Zone: "Europe/Berlin", Message: weir.NewMessage{Value: []byte("tick")}})
			cancel()
			w.history.Add(fmt.Sprintf("%s sets the schedule: %v", p.name, err), scheduled)
			if err == nil && w.scheduled.IsZero() && !p.host.isDead() {
				w.scheduled = time.Now()
			}
		}
		sleep(ctx, upTo(random, 10*paceOf))
	}
}

// judgeTicks: each minute since the schedule was set has one message.
func (w *world) judgeTicks(p *life) {
	if w.scheduled.IsZero() || !w.acts("queue") {
		return
	}
	ctx, cancel := asks()
	defer cancel()
	seen := map[time.Time]bool{}
	t, err := p.parts.Log.TopicNow(ctx, scheduled)
	for n := range t.Partitions {
		for e, bad := range p.log.Read(ctx, weir.TopicPartition{Topic: scheduled, Partition: int32(n)}, weir.Earliest) {
			if bad != nil {
				err = bad
				break
			}
			for _, h := range e.Headers {
				if h.Key != weir.HeaderTick {
					continue
				}
				tick, _ := time.Parse(time.RFC3339, string(h.Value))
				if seen[tick] {
					w.model.Broken("QS", []string{scheduled}, "two messages are of the tick %v", tick)
				}
				seen[tick] = true
			}
		}
	}
	if err != nil {
		w.model.Broken("QS", []string{scheduled}, "read the scheduled messages: %v", err)
	}
	for tick := w.scheduled.Truncate(time.Minute).Add(time.Minute); tick.Before(time.Now().Add(-ticksLate)); tick = tick.Add(time.Minute) {
		if !seen[tick] {
			w.model.Broken("QS", []string{scheduled}, "the tick %v has no message by %v; the schedule was set by %v", tick, time.Now(), w.scheduled)
		}
	}
}
