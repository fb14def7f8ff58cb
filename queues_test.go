package weir_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir"
)

// browsed are the values of the messages that a queue lists in a state, in pages of three.
func browsed(t *testing.T, w *weir.Log, state string) (values []string) {
	t.Helper()
	for b := (weir.Browse{State: state, Limit: 3}); ; {
		page, err := w.BrowseQueue(t.Context(), "mail", b)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Messages {
			values = append(values, string(m.Value))
		}
		if b.From = page.Next; b.From == (weir.MessageID{}) {
			slices.Sort(values)
			return values
		}
	}
}

// A program lists the messages in each state, redrives one dead message, some, and all at a rate,
// drops one, and purges the queue.
func TestAQueueIsInspectedAndRepairedInGo(t *testing.T) {
	onWorkedStore(t, weir.QueueSettings{KeepDone: true, Attempts: 1, Lease: time.Hour}, func(t *testing.T, w *weir.Log, _ *cutOff) {
		ctx := t.Context()
		began := time.Now()
		ids := enqueueAll(t, w, append(numbered("bad", 10), "good", "slow")...)
		if _, err := w.Enqueue(ctx, "mail", weir.NewMessage{Value: []byte("later"), Delay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		slow, again := make(chan struct{}), make(chan string, 100)
		if _, err := w.Work(ctx, weir.WorkOptions{Queue: "mail", Concurrency: 2, Handler: func(_ context.Context, j weir.Job) error {
			switch value := string(j.Value); {
			case value == "slow":
				<-slow
			case value == "new":
				again <- value
			case value != "good":
				return errors.New("no such address")
			}
			return nil
		}}); err != nil {
			t.Fatal(err)
		}
		counts := func(what string, want weir.QueueStats) {
			t.Helper()
			eventually(t, fmt.Sprintf("%s there are %+v", what, want), func() bool {
				got, err := w.QueueStats(ctx, "mail")
				got.Oldest = 0
				return err == nil && got == want
			})
		}
		counts("after the work", weir.QueueStats{Claimed: 1, Delayed: 1, Dead: 10})
		for state, want := range map[string]string{"ready": "[]", "claimed": "[slow]", "waiting": "[]", "delayed": "[later]", "done": "[good]", "": "[slow]"} {
			if got := fmt.Sprint(browsed(t, w, state)); got != want {
				t.Errorf("messages that are %q: %s, want %s", state, got, want)
			}
		}
		if c, err := w.FindMessage(ctx, "mail", ids[10]); err != nil || c.State != "done" || c.Done.Before(began.Add(-time.Second)) || c.Done.After(time.Now().Add(time.Second)) {
			t.Errorf("a finished message is %+v, %v; want done since a moment after %v", c, err, began)
		}

		if err := w.PauseQueue(ctx, "mail"); err != nil {
			t.Fatal(err)
		}
		dead, err := w.DeadMessages(ctx, "mail", weir.MessageID{}, 100)
		if err != nil || len(dead) != 10 || dead[0].Reason != "attempts" || dead[0].Error != "no such address" || !slices.Contains(ids, dead[0].ID) {
			t.Fatalf("dead messages: %+v, %v", dead, err)
		}
		took := func(what string, want int) func(int, error) {
			return func(n int, err error) {
				t.Helper()
				if err != nil || n != want {
					t.Errorf("%s: %d, %v; want %d", what, n, err, want)
				}
			}
		}
		took("redrive of one", 1)(w.Redrive(ctx, "mail", dead[0]))
		took("redrive of it again", 0)(w.Redrive(ctx, "mail", dead[0]))
		took("redrive of it and two more", 2)(w.Redrive(ctx, "mail", dead[0], dead[1], dead[2]))
		took("discard of one", 1)(w.DiscardDead(ctx, "mail", dead[3]))
		took("discard of one that was redriven", 0)(w.DiscardDead(ctx, "mail", dead[1]))
		const rate, left = 20, 6
		redriving := time.Now()
		took("redrive of all", left)(w.RedriveAll(ctx, "mail", rate))
		if took := time.Since(redriving); took < (left-1)*time.Second/rate {
			t.Errorf("%d messages were redriven in %v, at %d a second", left, took, rate)
		}
		counts("after the redrives", weir.QueueStats{Claimed: 1, Ready: 9, Delayed: 1})
		if n := len(browsed(t, w, "ready")); n != 9 {
			t.Errorf("%d messages are ready, want 9", n)
		}

		if err := w.PurgeQueue(ctx, "mail"); err != nil {
			t.Fatal(err)
		}
		counts("after the purge", weir.QueueStats{})
		if got := browsed(t, w, "delayed"); len(got) > 0 {
			t.Errorf("after the purge these are delayed: %v", got)
		}
		close(slow)
		if err := w.ResumeQueue(ctx, "mail"); err != nil {
			t.Fatal(err)
		}
		enqueueAll(t, w, "new")
		next(t, again)
		counts("at last", weir.QueueStats{})
	})
}

// Messages of one key are in one partition of the queue, whatever partitioner the program has that
// enqueues them: otherwise they had no order.
func TestMessagesOfAKeyAreInOnePartitionWhateverThePartitioner(t *testing.T) {
	s := newSite(t, "memory")
	plain, choosy := s.open(t), s.open(t, weir.Options{Partitioner: func(*weir.Event, int) int32 { return 3 }})
	if err := plain.CreateQueue(t.Context(), weir.Queue{Name: "mail", Partitions: 4, Settings: weir.QueueSettings{KeyOrder: true}}); err != nil {
		t.Fatal(err)
	}
	for i := range 16 {
		m := weir.NewMessage{Key: fmt.Append(nil, i), Value: []byte("v")}
		one, err := plain.Enqueue(t.Context(), "mail", m)
		if err != nil {
			t.Fatal(err)
		}
		other, err := choosy.Enqueue(t.Context(), "mail", m)
		if err != nil {
			t.Fatal(err)
		}
		if one[0].ID.Partition != other[0].ID.Partition {
			t.Errorf("messages of key %d are in partitions %d and %d", i, one[0].ID.Partition, other[0].ID.Partition)
		}
	}
}

// What cannot be is refused with the name or the bound that matters, and leaves nothing behind. A
// queue beside it is worked on.
func TestWhatQueuesRefuseInGoHarmsNobody(t *testing.T) {
	onWorkedStore(t, weir.QueueSettings{Unique: true}, func(t *testing.T, w *weir.Log, _ *cutOff) {
		ctx := t.Context()
		handler := func(context.Context, weir.Job) error { return nil }
		for name, call := range map[string]func() error{
			"Queue":        func() error { _, err := w.Queue(ctx, "none"); return err },
			"AlterQueue":   func() error { return w.AlterQueue(ctx, "none", func(*weir.QueueSettings) error { return nil }) },
			"PauseQueue":   func() error { return w.PauseQueue(ctx, "none") },
			"ResumeQueue":  func() error { return w.ResumeQueue(ctx, "none") },
			"PurgeQueue":   func() error { return w.PurgeQueue(ctx, "none") },
			"DeleteQueue":  func() error { return w.DeleteQueue(ctx, "none") },
			"Enqueue":      func() error { _, err := w.Enqueue(ctx, "none", weir.NewMessage{}); return err },
			"QueueStats":   func() error { _, err := w.QueueStats(ctx, "none"); return err },
			"BrowseQueue":  func() error { _, err := w.BrowseQueue(ctx, "none", weir.Browse{}); return err },
			"FindMessage":  func() error { _, err := w.FindMessage(ctx, "none", weir.MessageID{}); return err },
			"DeadMessages": func() error { _, err := w.DeadMessages(ctx, "none", weir.MessageID{}, 10); return err },
			"RedriveAll":   func() error { _, err := w.RedriveAll(ctx, "none", 0); return err },
			"SetSchedule": func() error {
				_, err := w.SetSchedule(ctx, "none", weir.Schedule{Name: "s", Cron: "@daily"})
				return err
			},
			"Schedules":      func() error { _, err := w.Schedules(ctx, "none"); return err },
			"DeleteSchedule": func() error { return w.DeleteSchedule(ctx, "none", "s") },
			"Work":           func() error { _, err := w.Work(ctx, weir.WorkOptions{Queue: "none", Handler: handler}); return err },
		} {
			if err := call(); !errors.Is(err, weir.ErrUnknownQueue) || !strings.Contains(err.Error(), `"none"`) {
				t.Errorf("%s of a queue that does not exist: %v", name, err)
			}
		}
		const year = 365 * 24 * time.Hour
		work := func(lease time.Duration) error {
			_, err := w.Work(ctx, weir.WorkOptions{Queue: "mail", Handler: handler, Lease: lease})
			return err
		}
		create := func(settings weir.QueueSettings) error {
			return w.CreateQueue(ctx, weir.Queue{Name: "bills", Settings: settings})
		}
		enqueue := func(m weir.NewMessage) error {
			_, err := w.Enqueue(ctx, "mail", weir.NewMessage{Value: []byte("with it")}, m)
			return err
		}
		schedule := func(cron string) error {
			_, err := w.SetSchedule(ctx, "mail", weir.Schedule{Name: "s", Cron: cron})
			return err
		}
		for _, c := range []struct {
			what, says string
			err        error
		}{
			{"a worker's negative lease", "100ms to 12h0m0s", work(-1)},
			{"a worker's lease of a year", "100ms to 12h0m0s", work(year)},
			{"a queue's negative lease", "100ms to 12h0m0s", create(weir.QueueSettings{Lease: -1})},
			{"a queue's lease of a year", "100ms to 12h0m0s", create(weir.QueueSettings{Lease: year})},
			{"a negative delay", "-1s", enqueue(weir.NewMessage{Delay: -time.Second})},
			{"the year 9999", "9999", enqueue(weir.NewMessage{At: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)})},
			{"a unique key of 1 MiB", "512", enqueue(weir.NewMessage{Unique: strings.Repeat("u", 1<<20)})},
			{"a cron expression that never comes true", "it never matches", schedule("0 0 30 2 *")},
		} {
			var invalid *weir.InvalidError
			if !errors.As(c.err, &invalid) || !strings.Contains(c.err.Error(), c.says) || len(c.err.Error()) > 500 {
				t.Errorf("%s: %v; want an error that says %q", c.what, c.err, c.says)
			}
		}
		if err := enqueue(weir.NewMessage{Value: make([]byte, 20<<20)}); !errors.Is(err, weir.ErrTooLarge) {
			t.Errorf("a message of 20 MiB: %v", err)
		}
		if all, err := w.Queues(ctx); err != nil || len(all) != 1 {
			t.Errorf("there are the queues %+v, %v; want mail alone", all, err)
		}
		if list, err := w.Schedules(ctx, "mail"); err != nil || len(list) > 0 {
			t.Errorf("there are the schedules %+v, %v", list, err)
		}

		for name, m := range map[string]weir.NewMessage{"empty": {}, "a time in the past": {At: time.Now().Add(-year)}} {
			if _, err := w.Enqueue(ctx, "mail", m); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		handled := make(chan string, 100)
		if _, err := w.Work(ctx, weir.WorkOptions{Queue: "mail", Handler: func(_ context.Context, j weir.Job) error {
			handled <- string(j.Value)
			return nil
		}}); err != nil {
			t.Fatal(err)
		}
		enqueueAll(t, w, "last")
		if got := next(t, handled) + next(t, handled) + next(t, handled); got != "last" {
			t.Errorf("%q was handled, want two messages without a value and then the last", got)
		}
	})
}
