package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/queue"
)

const everyMinute = "* * * * *"

func setSchedule(t *testing.T, q *queue.Queue, s queue.Schedule) queue.Schedule {
	t.Helper()
	set, err := q.SetSchedule(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// ticks claims and acks all there is, and tells the ticks in their headers, sorted.
func ticks(t *testing.T, q *queue.Queue) (all []string) {
	t.Helper()
	for {
		got := claimN(t, q, 100)
		if len(got) == 0 {
			slices.Sort(all)
			return all
		}
		for _, m := range got {
			for _, h := range m.Headers {
				if h.Key == queue.HeaderTick {
					all = append(all, string(h.Value))
				}
			}
			if errs, err := q.Ack(t.Context(), m.Receipt); err != nil || errs[0] != nil {
				t.Fatal(err, errs)
			}
		}
	}
}

// minutes are the ticks of everyMinute in [from, to], in minutes after the beginning of a synctest
// bubble.
func minutes(from, to int) (all []string) {
	for n := from; n <= to; n++ {
		all = append(all, time.Date(2000, 1, 1, 0, n, 0, 0, time.UTC).Format(time.RFC3339))
	}
	return all
}

func expect(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: ticks %v, want %v", what, got, want)
	}
}

func TestATickHasOneMessageHoweverManyProcessesRunAndWhoeverStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		var all []process
		for range 3 {
			all = append(all, begin(t, store, 20*time.Second))
		}
		synctest.Wait()
		q := create(t, all[0].Queues, queue.Spec{Name: "mail", Partitions: 1})
		message := queue.NewMessage{Key: []byte("k"), Value: []byte("v"), Headers: []batch.RecordHeader{{Key: "h", Value: []byte("x")}}}
		set := setSchedule(t, q, queue.Schedule{Name: "often", Cron: everyMinute, Message: message})
		if want := time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC); !set.Next.Equal(want) {
			t.Fatalf("the next tick is %v, want %v", set.Next, want)
		}
		time.Sleep(5*time.Minute + 5*time.Second)
		all[0].stop() // the process that took all ticks
		time.Sleep(5 * time.Minute)
		all[1].stop()
		time.Sleep(5 * time.Minute)
		got := claimN(t, open(t, all[2].Queues, "mail"), 1)
		if m := got[0]; string(m.Key) != "k" || string(m.Value) != "v" || !slices.ContainsFunc(m.Headers, func(h batch.RecordHeader) bool { return h.Key == "h" && string(h.Value) == "x" }) ||
			!slices.ContainsFunc(m.Headers, func(h batch.RecordHeader) bool { return h.Key == queue.HeaderSchedule && string(h.Value) == "often" }) {
			t.Fatalf("the message is %+v", m)
		}
		expect(t, "after 15 minutes", ticks(t, open(t, all[2].Queues, "mail")), minutes(2, 15))
	})
}

func TestOfTicksThatWereMissedTheLatestHasAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a := begin(t, store, 20*time.Second)
		synctest.Wait()
		setSchedule(t, create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1}), queue.Schedule{Name: "often", Cron: everyMinute})
		time.Sleep(10 * time.Second)
		a.stop()
		time.Sleep(30 * time.Minute)
		b := begin(t, store, 20*time.Second)
		time.Sleep(2 * time.Second)
		q := open(t, b.Queues, "mail")
		expect(t, "after half an hour without a process", ticks(t, q), minutes(30, 30))
		time.Sleep(time.Minute)
		expect(t, "a minute later", ticks(t, q), minutes(31, 31))
	})
}

// vague loses the answer of the commits that move a schedule on: with commits it happened, else
// not. away: it is not reached.
type vague struct {
	eventlog.Store
	commits, away atomic.Bool
	lose          atomic.Int32
}

func (s *vague) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if s.away.Load() {
		return nil, eventlog.ErrUnavailable
	}
	moves := false
	for _, e := range flush {
		for _, p := range e.Puts {
			moves = moves || strings.HasPrefix(p.Key, "queue/schedule/")
		}
	}
	if !moves || s.lose.Add(-1) < 0 {
		return s.Store.Commit(ctx, flush)
	}
	if s.commits.Load() {
		if _, err := s.Store.Commit(ctx, flush); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("commit: %w", eventlog.ErrUnsure)
}

func (s *vague) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if s.away.Load() {
		return nil, eventlog.ErrUnavailable
	}
	return s.Store.List(ctx, prefix, after, limit)
}

func TestATickWhoseAnswerWasLostHasOneMessage(t *testing.T) {
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprint("it happened: ", commits), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &vague{Store: newStore(t)}
				store.commits.Store(commits)
				p := begin(t, store, 20*time.Second)
				synctest.Wait()
				q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
				setSchedule(t, q, queue.Schedule{Name: "often", Cron: everyMinute})
				time.Sleep(10 * time.Second)
				store.lose.Store(3)
				time.Sleep(3 * time.Minute)
				if store.lose.Load() > 0 {
					t.Fatal("no answer was lost")
				}
				expect(t, "after lost answers", ticks(t, q), minutes(1, 3))
			})
		})
	}
}

func TestATickThatPassedWhileTheStoreWasAwayHasItsMessageSoonAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &vague{Store: newStore(t)}
		p := begin(t, store, 20*time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		setSchedule(t, q, queue.Schedule{Name: "often", Cron: everyMinute})
		time.Sleep(10 * time.Second)
		store.away.Store(true)
		time.Sleep(100 * time.Second)
		store.away.Store(false)
		time.Sleep(5 * time.Second)
		expect(t, "5 s after the store came back", ticks(t, q), minutes(1, 1))
	})
}

func TestTicksFollowTheStoresClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &jumping{Store: newStore(t)}
		store.set(time.Date(2026, 5, 1, 11, 59, 30, 0, time.UTC)) // the process is years behind
		p := begin(t, store, 20*time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		setSchedule(t, q, queue.Schedule{Name: "noon", Cron: "0 12 * * *"})
		time.Sleep(29 * time.Second)
		expect(t, "before noon", ticks(t, q), nil)
		time.Sleep(2 * time.Second)
		expect(t, "after noon", ticks(t, q), []string{"2026-05-01T12:00:00Z"})
	})
}

// What the changes of the clock do to the ticks of a schedule that runs: cron_test.go has the rule.
func TestTicksAtTheChangesOfDaylightSaving(t *testing.T) {
	once(t)
	spring, autumn := time.Date(2026, 3, 28, 23, 10, 0, 0, time.UTC), time.Date(2026, 10, 24, 23, 10, 0, 0, time.UTC)
	for _, c := range []struct {
		cron string
		at   time.Time
		want []string
	}{
		{"30 2 * * *", spring, []string{"2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"}},
		{"30 2 * * *", autumn, []string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
		{"30 9 * * *", spring, []string{"2026-03-29T07:30:00Z"}},
		{"0 * * * *", autumn, []string{"2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"}},
		{"0 2-4 * * *", spring, []string{"2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z", "2026-03-30T00:00:00Z"}},
	} {
		t.Run(fmt.Sprint(c.cron, " ", c.at.Month()), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &jumping{Store: newStore(t)}
				store.set(c.at)
				p := begin(t, store, time.Hour)
				synctest.Wait()
				q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
				setSchedule(t, q, queue.Schedule{Name: "s", Cron: c.cron, Zone: "Europe/Berlin"})
				last, err := time.Parse(time.RFC3339, c.want[len(c.want)-1])
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(last.Sub(c.at) + time.Minute)
				got := ticks(t, q)
				if len(got) > len(c.want) {
					got = got[:len(c.want)]
				}
				expect(t, c.cron, got, c.want)
			})
		})
	}
}

func TestWhatIsNoScheduleIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1})
		for why, s := range map[string]queue.Schedule{
			"it never matches":                  {Cron: "0 0 30 2 *"},
			"five fields are needed":            {Cron: "0 0 0 1 1 *"},
			"or one of @hourly":                 {Cron: "@every 1s"},
			"end of range":                      {Cron: "70 * * * *"},
			"200 are allowed":                   {Cron: strings.Repeat("1,", 200) + "1 * * * *"},
			"not a name in this process's IANA": {Cron: everyMinute, Zone: "Europe/Nowhere"},
			"\"Local\"":                         {Cron: everyMinute, Zone: "Local"},
			"1 to 100 of a-z":                   {Cron: everyMinute, Name: "a/b"},
			"the schedule decides when":         {Cron: everyMinute, Message: queue.NewMessage{Delay: time.Second}},
			"the queue has the levels 0 to 0":   {Cron: everyMinute, Message: queue.NewMessage{Priority: 1}},
			"the queue does not accept unique":  {Cron: everyMinute, Message: queue.NewMessage{Unique: "u"}},
			"a message of a schedule may have":  {Cron: everyMinute, Message: queue.NewMessage{Value: make([]byte, 65<<10)}},
		} {
			if s.Name == "" {
				s.Name = "s"
			}
			_, err := q.SetSchedule(t.Context(), s)
			var invalid *eventlog.InvalidError
			if !errors.As(err, &invalid) && !errors.Is(err, eventlog.ErrTooLarge) || !strings.Contains(err.Error(), why) {
				t.Errorf("%+v: %v, want one that says %q", s.Cron, err, why)
			}
		}
		for n := range 100 {
			setSchedule(t, q, queue.Schedule{Name: fmt.Sprint("s", n), Cron: "0 0 29 2 *"})
		}
		if _, err := q.SetSchedule(t.Context(), queue.Schedule{Name: "more", Cron: everyMinute}); err == nil || !strings.Contains(err.Error(), "at most 100") {
			t.Errorf("the 101st schedule: %v", err)
		}
		if err := q.DeleteSchedule(t.Context(), "more"); !errors.Is(err, queue.ErrUnknownSchedule) {
			t.Errorf("delete of a schedule that is not there: %v", err)
		}
	})
}

func TestASchedulesQueueTakesItAlongWhenItIsDeletedAndKeepsItWhenItIsPurged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a, b := begin(t, store, 20*time.Second), begin(t, store, 20*time.Second)
		synctest.Wait()
		q := create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1})
		setSchedule(t, q, queue.Schedule{Name: "often", Cron: everyMinute})
		time.Sleep(70 * time.Second)
		if err := b.Purge(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		expect(t, "after a purge", ticks(t, open(t, a.Queues, "mail")), minutes(2, 2))
		if err := b.Delete(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		q = create(t, b.Queues, queue.Spec{Name: "mail", Partitions: 1})
		time.Sleep(5 * time.Minute)
		list, err := q.Schedules(t.Context())
		if err != nil || len(list) > 0 {
			t.Fatalf("the queue that was made anew has the schedules %v, %v", list, err)
		}
		var left []string
		if err := a.log.ListAll(t.Context(), "queue/schedule/", func(kv eventlog.KeyValue) error { left = append(left, kv.Key); return nil }); err != nil || len(left) > 0 {
			t.Fatalf("the store still has %v, %v", left, err)
		}
		got := ticks(t, q)
		for _, tick := range got {
			if tick > minutes(2, 2)[0] {
				t.Fatalf("the queue that was made anew got a message of the deleted one's schedule: %v", got)
			}
		}
	})
}

func TestAScheduleThatIsSetAgainKeepsItsTickAndChangesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a, b := begin(t, store, 20*time.Second), begin(t, store, 20*time.Second)
		synctest.Wait()
		q := create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1})
		other := open(t, b.Queues, "mail")
		first := setSchedule(t, q, queue.Schedule{Name: "s", Cron: "@hourly"})
		again := setSchedule(t, other, queue.Schedule{Name: "s", Cron: "@hourly", Message: queue.NewMessage{Value: []byte("new")}})
		if !again.Next.Equal(first.Next) {
			t.Fatalf("the next tick was %v and is %v", first.Next, again.Next)
		}
		paused := setSchedule(t, other, queue.Schedule{Name: "s", Cron: everyMinute, Paused: true})
		list, err := q.Schedules(t.Context())
		if err != nil || len(list) != 1 || !list[0].Paused || !paused.Next.IsZero() {
			t.Fatalf("schedules %+v, %v, and was told %+v", list, err, paused)
		}
		time.Sleep(2*time.Hour + 10*time.Second)
		expect(t, "while it is paused", ticks(t, q), nil)
		setSchedule(t, q, queue.Schedule{Name: "s", Cron: everyMinute})
		time.Sleep(2 * time.Minute)
		expect(t, "when it goes on", ticks(t, q), minutes(121, 122))
		if err := other.DeleteSchedule(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		expect(t, "when it is deleted", ticks(t, q), nil)
	})
}

func TestAScheduleWithAUniqueKeyWaitsForItsMessageAndOneThatCannotBeHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, newStore(t), 20*time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Unique: true}})
		setSchedule(t, q, queue.Schedule{Name: "s", Cron: everyMinute, Message: queue.NewMessage{Unique: "one at a time"}})
		broken := create(t, p.Queues, queue.Spec{Name: "broken", Partitions: 1})
		setSchedule(t, broken, queue.Schedule{Name: "a", Cron: everyMinute})
		if err := p.log.DeleteTopic(t.Context(), "broken"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5*time.Minute + 10*time.Second)
		expect(t, "nobody handled the first", ticks(t, q), minutes(1, 1))
		time.Sleep(time.Minute)
		expect(t, "it was handled", ticks(t, q), minutes(6, 6))
	})
}

func TestWithoutSchedulesAProcessAsksTheStoreOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &listed{Store: newStore(t)}
		p := begin(t, store, time.Hour)
		synctest.Wait()
		create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		store.lists.Store(0)
		time.Sleep(20 * time.Minute)
		if n := store.lists.Load(); n < 15 || n > 27 {
			t.Fatalf("%d lists of schedules in 20 minutes, want about 20", n)
		}
	})
}

// listed counts how often schedules are listed.
type listed struct {
	eventlog.Store
	lists atomic.Int64
}

func (s *listed) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if strings.HasPrefix(prefix, "queue/schedule/") {
		s.lists.Add(1)
	}
	return s.Store.List(ctx, prefix, after, limit)
}

// distant is a store that takes some time to read a schedule.
type distant struct {
	eventlog.Store
	trip time.Duration
	from time.Time // when it begins to
}

func (s distant) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if strings.HasPrefix(prefix, "queue/schedule/") && limit < 1000 && time.Now().After(s.from) {
		time.Sleep(s.trip)
	}
	return s.Store.List(ctx, prefix, after, limit)
}

// The schedules of one queue delay those of others little: they are fired side by side, and queues
// take turns.
func TestManySchedulesOfAQueueDelayThoseOfOthersLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, distant{Store: newStore(t), trip: 200 * time.Millisecond})
		many, few := create(t, qs, queue.Spec{Name: "many"}), create(t, qs, queue.Spec{Name: "few"})
		message := queue.NewMessage{Value: []byte("v")}
		for n := range 80 {
			setSchedule(t, many, queue.Schedule{Name: fmt.Sprint(n), Cron: "5 * * * *", Message: message})
		}
		setSchedule(t, few, queue.Schedule{Name: "a", Cron: "5 * * * *", Message: message})
		setSchedule(t, few, queue.Schedule{Name: "b", Cron: "5 * * * *", Message: message})
		due := time.Date(2000, 1, 1, 0, 5, 0, 0, time.UTC)
		late := func(q *queue.Queue, messages int) (latest time.Duration) {
			for range messages {
				got, err := q.Claim(t.Context(), queue.Claim{Wait: 5 * time.Minute})
				if err != nil || len(got) != 1 {
					t.Fatal(got, err)
				}
				latest = max(latest, got[0].Time.Sub(due))
			}
			return latest
		}
		time.Sleep(time.Until(due.Add(time.Minute)))
		if after := late(few, 2); after > 2*time.Second {
			t.Errorf("the last of a queue's two was %v late", after)
		}
		if after := late(many, 80); after > 10*time.Second {
			t.Errorf("the last of a queue's 80 was %v late", after)
		}
	})
}

// The schedules of many queues delay that of a queue whose tick comes while they are behind by
// about one of each.
func TestSchedulesOfManyQueuesDelayThatOfAnotherByOneOfEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := time.Now().Truncate(time.Minute).Add(2 * time.Minute)
		due := first.Add(time.Minute)
		qs := start(t, distant{newStore(t), 2 * time.Second, first})
		message := queue.NewMessage{Value: []byte("v")}
		for n := range 100 {
			many := create(t, qs, queue.Spec{Name: fmt.Sprint("many-", n)})
			for m := range 8 {
				setSchedule(t, many, queue.Schedule{Name: fmt.Sprint(m), Cron: first.Format("4 * * * *"), Message: message})
			}
		}
		few := create(t, qs, queue.Spec{Name: "few"})
		setSchedule(t, few, queue.Schedule{Name: "a", Cron: due.Format("4 * * * *"), Message: message})
		got, err := few.Claim(t.Context(), queue.Claim{Wait: queue.WaitMax})
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		if late := got[0].Time.Sub(due); late > 20*time.Second {
			t.Errorf("it was %v late", late)
		}
	})
}
