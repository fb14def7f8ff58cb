package queue

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/chance"
	"github.com/weir-log/weir/internal/longlock"
	"github.com/weir-log/weir/use/claims"
)

const (
	// schedulesEvery is about how often a process lists all schedules, to hear of those that other
	// processes set: a trip per thousand.
	schedulesEvery = time.Minute
	// tickGrace: a process that did not take the last tick waits this long, or up to twice that,
	// before it tries to take the next one. Without this each tick would cost every process a
	// refused change.
	tickGrace = 500 * time.Millisecond
	// firesMax is how many schedules are fired concurrently. Their entries share flushes.
	firesMax = 16
	// duesMax is how many schedules are fired before the scheduler checks again which are due.
	duesMax = 4 * firesMax
)

// errOvertaken: another process changed the schedule, or enqueued its message.
var errOvertaken = errors.New("the schedule was changed by another process")

// scheduler enqueues the messages of schedules. It runs in every process, and needs no other
// process: the message and the move to the next tick are one entry, which checks the version of the
// schedule's key. So a tick has one message, whichever process is first, and whenever a process
// dies.
type scheduler struct {
	owner  *Queues
	listed time.Time     // when ticks was read; zero: it must be read
	again  time.Duration // how long after listed it is read again
	asked  chan struct{} // holds one value when a schedule was changed here

	mu      longlock.Mutex  // guards what follows while schedules are fired
	ticks   map[string]tick // by key
	refused map[string]bool // by key: schedules for which it was logged that they cannot be enqueued

	turns  int            // how many turns there were
	served map[string]int // by queue: the last turn in which one of its schedules was fired
}

// tick is the next tick of a schedule: when it is due, and when this process tries to take it.
type tick struct{ due, at claims.Time }

func newScheduler(owner *Queues) *scheduler {
	return &scheduler{owner: owner, ticks: make(map[string]tick), refused: make(map[string]bool), served: make(map[string]int), asked: make(chan struct{}, 1)}
}

// ask lets the schedules be listed immediately: this process changed one.
func (s *scheduler) ask() {
	select {
	case s.asked <- struct{}{}:
	default:
	}
}

// run enqueues what is due until ctx ends. If there is no schedule it costs a trip each
// schedulesEvery.
func (s *scheduler) run(ctx context.Context) {
	changed := s.owner.log.IncarnationChanged()
	for failures := 0; ctx.Err() == nil; {
		wait, err := s.turn(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && failures == 0:
			s.owner.logger.Warn("scheduled messages cannot be enqueued; trying again", "err", err)
		case err == nil && failures > 0:
			s.owner.logger.Info("scheduled messages are enqueued again", "failures", failures)
		}
		if err != nil {
			failures++
			eventlog.Pause(ctx, failures)
			continue
		}
		failures = 0
		select {
		case <-ctx.Done():
		case <-s.asked:
			s.listed = time.Time{}
		case <-changed: // a schedule may be there again, or be at an earlier tick
			changed, s.listed = s.owner.log.IncarnationChanged(), time.Time{}
		case <-time.After(wait):
		}
	}
}

// turn enqueues the messages that are due, and returns how long to wait for the next turn.
func (s *scheduler) turn(ctx context.Context) (wait time.Duration, err error) {
	if s.listed.IsZero() || time.Since(s.listed) >= s.again {
		if err := s.list(ctx); err != nil {
			return 0, err
		}
	}
	wait = s.again - time.Since(s.listed)
	if len(s.ticks) == 0 {
		return wait, nil
	}
	now, _, err := s.owner.clock.Now(ctx)
	if err != nil {
		return 0, err
	}
	fires, failed := errgroup.WithContext(ctx) // failed stops no enqueue that has begun: it only prevents others from beginning
	fires.SetLimit(firesMax)
	for _, key := range s.due(now) {
		fires.Go(func() error {
			if failed.Err() != nil {
				return nil
			}
			return s.fire(ctx, key, now)
		})
	}
	if err := fires.Wait(); err != nil {
		return 0, err
	}
	for _, t := range s.ticks {
		wait = min(wait, max(time.Duration(t.at-now)*time.Millisecond, 0))
	}
	return wait, nil
}

// due lists schedules that are due, by key: duesMax at most. The queues take turns, each with the
// one that was due first; queues whose last turn is longest ago come first. Thus a queue's
// schedules, however many, delay each other, but another queue's schedule waits for only one of
// them.
func (s *scheduler) due(now claims.Time) []string {
	byQueue := make(map[string][]string)
	for key, t := range s.ticks {
		if t.at <= now {
			byQueue[queueOf(key)] = append(byQueue[queueOf(key)], key)
		}
	}
	turn := make(map[string]int) // by key: a schedule's turn in its queue
	var due []string
	for _, keys := range byQueue {
		slices.SortFunc(keys, func(a, b string) int { return cmp.Compare(s.ticks[a].due, s.ticks[b].due) })
		for i, key := range keys {
			turn[key] = i
		}
		due = append(due, keys...)
	}
	slices.SortFunc(due, func(a, b string) int {
		return cmp.Or(cmp.Compare(turn[a], turn[b]), cmp.Compare(s.served[queueOf(a)], s.served[queueOf(b)]), cmp.Compare(s.ticks[a].due, s.ticks[b].due))
	})
	due = due[:min(len(due), duesMax)]
	s.turns++
	for _, key := range due {
		s.served[queueOf(key)] = s.turns
	}
	return due
}

// queueOf returns the id, definition.schedules, in the key of a schedule: it stands for the queue.
func queueOf(key string) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(key, schedulePrefix), "/")
	return id
}

// list reads the ticks of all schedules, without their messages.
func (s *scheduler) list(ctx context.Context) error {
	ticks, there, queues := make(map[string]tick), make(map[string]bool), make(map[string]bool)
	err := s.owner.log.ListAll(ctx, schedulePrefix, func(kv eventlog.KeyValue) error {
		there[kv.Key], queues[queueOf(kv.Key)] = true, true
		sc, err := parseSchedule(kv)
		if err != nil {
			s.refuse(kv.Key, err)
			return nil // the other schedules go on
		}
		if t, had := s.ticks[kv.Key]; had && t.due == sc.next && !sc.Paused {
			ticks[kv.Key] = t
			return nil
		}
		s.note(ticks, sc)
		return nil
	})
	if err != nil {
		return err
	}
	maps.DeleteFunc(s.refused, func(key string, _ bool) bool { return !there[key] })
	maps.DeleteFunc(s.served, func(id string, _ int) bool { return !queues[id] })
	s.ticks, s.listed, s.again = ticks, time.Now(), schedulesEvery*3/4+chance.N(schedulesEvery/2)
	return nil
}

// note keeps a schedule's next tick in ticks, or removes it if there is none.
func (s *scheduler) note(ticks map[string]tick, sc schedule) {
	if sc.next == 0 || sc.Paused {
		delete(ticks, sc.key)
		return
	}
	t := tick{due: sc.next, at: sc.next}
	if sc.writer != s.owner.process {
		t.at += claims.Time((tickGrace + chance.N(tickGrace)).Milliseconds())
	}
	ticks[sc.key] = t
}

// fire enqueues a schedule's message, if no other process has: three trips, and more if other
// processes change the schedule. A message that cannot be enqueued does not delay other messages:
// it is not tried until the schedules are listed again. After an unknown outcome the key is read
// again: either the first try took the tick, or the next try changes the version that the first one
// checks.
func (s *scheduler) fire(ctx context.Context, key string, now claims.Time) error {
	for range changesMax {
		sc, err := s.owner.readSchedule(ctx, key)
		if err != nil && !errors.Is(err, errBroken) {
			return err
		}
		if err == nil && sc.now == 0 {
			s.update(func() { delete(s.ticks, key) })
			return nil
		}
		if err == nil && (sc.Paused || sc.next == 0 || sc.next > now) {
			s.update(func() { s.note(s.ticks, sc) })
			return nil
		}
		if err == nil {
			err = s.enqueue(ctx, &sc, now)
		}
		switch {
		case err == nil:
			s.update(func() { delete(s.refused, key); s.note(s.ticks, sc) })
			return nil
		case errors.Is(err, errOvertaken):
		case ctx.Err() != nil, errors.Is(err, eventlog.ErrUnavailable), errors.Is(err, eventlog.ErrUnsure), errors.Is(err, eventlog.ErrClosed):
			return err
		case errors.Is(err, ErrUnknownQueue): // its schedules are being deleted
			s.update(func() { delete(s.ticks, key) })
			return nil
		default:
			s.update(func() { s.refuse(key, err) })
			return nil
		}
	}
	return nil // other processes keep changing the schedule
}

// update calls change, which changes ticks or refused, with s.mu held.
func (s *scheduler) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// refuse logs, once for each schedule, why its message cannot be enqueued.
func (s *scheduler) refuse(key string, err error) {
	if !s.refused[key] {
		s.owner.logger.Error("the message of a schedule cannot be enqueued; trying again every minute", "key", key, "err", err)
	}
	s.refused[key] = true
	delete(s.ticks, key)
}

// enqueue puts the message of the latest tick into its queue and moves the schedule on to the next
// tick after now, in one entry. Of ticks that were missed, only the latest gets a message. If the
// message has a unique key, and the message before is not done, the schedule moves on without a
// message.
func (s *scheduler) enqueue(ctx context.Context, sc *schedule, now claims.Time) error {
	c, err := parseCron(sc.Cron, sc.Zone)
	if err != nil {
		return err
	}
	moved := *sc
	at := c.latest(sc.next, now)
	moved.next, moved.last, moved.writer, moved.now = c.next(at), at, s.owner.process, sc.now.Next()
	id := queueOf(sc.key)
	err = s.owner.With(ctx, sc.queue, func(q *Queue) error {
		if q.def.Load().schedules != id {
			if err := q.redefine(ctx); err != nil {
				return err
			}
			if q.def.Load().schedules != id { // the queue was deleted, and a new queue has its name
				return ErrUnknownQueue
			}
		}
		return q.EnqueueWith(ctx, q.def.Load().topicID, func(ctx context.Context, e eventlog.Entry, _ []Going) (eventlog.Outcome, error) {
			if len(e.Checks) == 0 { // no message is to be enqueued
				e.Checks = []eventlog.Check{{Key: defKey(q.name), Version: q.def.Load().version}}
			}
			e.Checks = append(e.Checks, eventlog.Check{Key: sc.key, Version: sc.now})
			e.Puts = append(e.Puts, eventlog.Put{Key: sc.key, Version: moved.now, Value: moved.value()})
			outcome, err := q.log.Append(ctx, e)
			if isStale(err) {
				kv, failed := q.log.Get(ctx, sc.key)
				if failed == nil && kv.Version != sc.now {
					return outcome, errOvertaken
				}
			}
			return outcome, err
		}, ticked(sc.Name, sc.Message, at))
	})
	if err == nil {
		*sc = moved
	}
	return err
}

// ticked is a schedule's message for a tick.
func ticked(name string, m NewMessage, at claims.Time) NewMessage {
	m.Headers = append(slices.Clone(m.Headers),
		batch.RecordHeader{Key: HeaderSchedule, Value: []byte(name)},
		batch.RecordHeader{Key: HeaderTick, Value: []byte(time.UnixMilli(int64(at)).UTC().Format(time.RFC3339))})
	return m
}
