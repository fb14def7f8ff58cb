package weir_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir"
)

// quick is a Retry for tests that do not care about pauses.
func quick(attempts int) weir.Retry {
	return weir.Retry{Attempts: attempts, First: time.Millisecond, Max: 2 * time.Millisecond}
}

// failing is a Handler that fails for events with a value that begins with "bad", and notes all its
// calls.
type failing struct{ seen }

func (f *failing) handle(ctx context.Context, e weir.Event) error {
	_ = f.note(ctx, e)
	if strings.HasPrefix(string(e.Value), "bad") {
		return fmt.Errorf("cannot bear %s", e.Value)
	}
	return nil
}

func TestAFailedEventIsTriedAgainBeforeItIsADeadLetter(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 2)
		sent := weir.Event{Topic: "orders", Key: []byte("k"), Value: []byte("bad"), Time: time.UnixMilli(1_700_000_000_000), Headers: []weir.Header{{Key: "mine", Value: []byte("kept")}}}
		placed, err := w.Publish(t.Context(), sent)
		if err != nil {
			t.Fatal(err)
		}
		var main failing
		var dead seen
		consume(t, w, weir.Subscription{Group: "billing", Name: "worker-7", Topics: []string{"orders"}, Handler: main.handle, Retry: quick(3)})
		consume(t, w, weir.Subscription{Group: "undertaker", Topics: []string{"orders.dlt"}, Handler: dead.note})
		publish(t, w, "orders", "k=good")

		letter := dead.wait(t, 1)[0]
		calls := main.wait(t, 4)
		if v := values(calls); !slices.Equal(v, []string{"bad", "bad", "bad", "good"}) {
			t.Errorf("calls: %q", v)
		}
		for i, e := range calls[:3] {
			if e.Attempt != i+1 {
				t.Errorf("call %d: Attempt is %d", i, e.Attempt)
			}
		}
		if string(letter.Key) != "k" || string(letter.Value) != "bad" || letter.Topic != weir.DeadLetterTopic("orders") {
			t.Errorf("the dead letter is %+v", letter)
		}
		for header, want := range map[string]string{
			"mine": "kept", weir.HeaderReason: "cannot bear bad", weir.HeaderAttempts: "3", weir.HeaderGroup: "billing", weir.HeaderConsumer: "worker-7",
			weir.HeaderTopic: "orders", weir.HeaderPartition: fmt.Sprint(placed[0].Partition), weir.HeaderOffset: fmt.Sprint(placed[0].Offset),
			weir.HeaderTime: "2023-11-14T22:13:20Z",
		} {
			if got, _ := letter.Header(header); string(got) != want {
				t.Errorf("header %s is %q, want %q", header, got, want)
			}
		}
		first, _ := letter.Header(weir.HeaderFirstFailed)
		if at, err := time.Parse(time.RFC3339Nano, string(first)); err != nil || time.Since(at) > time.Minute {
			t.Errorf("header %s is %q", weir.HeaderFirstFailed, first)
		}
	})
}

// EventSQL's test with a dead-letter topic: events 1, 2F, 3F, 4.
func TestFailuresAmongOthersBecomeDeadLetters(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		publish(t, w, "orders", "1", "bad2", "bad3", "4")
		var main failing
		var dead seen
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: main.handle, Retry: weir.Retry{Attempts: 1}})
		consume(t, w, weir.Subscription{Group: "dead", Topics: []string{"orders.dlt"}, Handler: dead.note})
		if v := values(main.wait(t, 4)); !slices.Equal(v, []string{"1", "bad2", "bad3", "4"}) {
			t.Errorf("main: %q", v)
		}
		if v := values(dead.wait(t, 2)); !slices.Equal(v, []string{"bad2", "bad3"}) {
			t.Errorf("dead letters: %q", v)
		}
	})
}

// EventSQL's test without one: event 3 is never seen while event 2 fails.
func TestWithoutEndAnEventIsTriedAndHoldsItsPartition(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", "1", "bad2", "3")
	var main failing
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: main.handle, Retry: quick(-1)})
	for i, v := range values(main.wait(t, 50)) {
		if want := "bad2"; i > 0 && v != want || i == 0 && v != "1" {
			t.Fatalf("call %d was for %s", i, v)
		}
	}
}

// lines is what was logged.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(line))
	return len(line), nil
}

// with counts the lines with a text in them.
func (l *lines) with(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// The stack is logged once, and is not in the error's text, which is logged at each attempt and
// goes into dead letters.
func TestAPanicIsAnErrorWithItsStack(t *testing.T) {
	var log lines
	w := newSite(t, "memory").open(t, weir.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Poll: 10 * time.Millisecond})
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", "bad", "good")
	failures := make(chan weir.Failure, 1)
	var got seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Retry: quick(2),
		Handler: func(ctx context.Context, e weir.Event) error {
			if string(e.Value) == "bad" {
				panic("no such thing")
			}
			return got.note(ctx, e)
		},
		DeadLetter: func(_ context.Context, f weir.Failure) ([]weir.Event, error) {
			failures <- f
			return nil, nil
		},
	})
	f := next(t, failures)
	var p *weir.PanicError
	if !errors.As(f.Err, &p) || p.Value != "no such thing" || !strings.Contains(string(p.Stack), "retry_test.go") || f.Attempts != 2 {
		t.Errorf("failure: %+v", f)
	}
	if !strings.HasPrefix(f.Err.Error(), "panic: no such thing, at ") || strings.Contains(f.Err.Error(), "\n") {
		t.Errorf("its text is %q", f.Err)
	}
	if n := log.with("stack="); n != 1 {
		t.Errorf("the stack is logged %d times in two attempts, want once", n)
	}
	got.wait(t, 1)
}

func TestPermanentErrorsAreNotTriedAgain(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", "bad", "good")
	var main, dead seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Retry: weir.Retry{Attempts: 100, First: time.Hour},
		Handler: func(ctx context.Context, e weir.Event) error {
			_ = main.note(ctx, e)
			if string(e.Value) == "bad" {
				return fmt.Errorf("parse: %w", weir.Permanent(errors.New("no JSON")))
			}
			return nil
		}})
	consume(t, w, weir.Subscription{Group: "dead", Topics: []string{"orders.dlt"}, Handler: dead.note})
	if reason, _ := dead.wait(t, 1)[0].Header(weir.HeaderReason); string(reason) != "parse: no JSON" {
		t.Errorf("reason %q", reason)
	}
	if v := values(main.wait(t, 2)); !slices.Equal(v, []string{"bad", "good"}) {
		t.Errorf("calls: %q", v)
	}
}

func TestFailedAtCommitsWhatCameBefore(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", "0", "1", "bad2", "3", "4")
	calls := make(chan []string, 100)
	var dead seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Retry: quick(2), MinBatch: 2,
		BatchHandler: func(_ context.Context, events []weir.Event) error {
			calls <- values(events)
			for i, e := range events {
				if strings.HasPrefix(string(e.Value), "bad") {
					return weir.FailedAt(i, errors.New("bad"))
				}
			}
			return nil
		}})
	consume(t, w, weir.Subscription{Group: "dead", Topics: []string{"orders.dlt"}, Handler: dead.note})
	for _, want := range [][]string{{"0", "1", "bad2", "3", "4"}, {"bad2", "3", "4"}, {"3", "4"}} {
		if got := next(t, calls); !slices.Equal(got, want) {
			t.Fatalf("a call got %q, want %q", got, want)
		}
	}
	if v := values(dead.wait(t, 1)); !slices.Equal(v, []string{"bad2"}) {
		t.Errorf("dead letters: %q", v)
	}
}

// FailedAt with a permanent error gives its event up at once; those before it are done, and those
// behind it come again.
func TestFailedAtGivesAPermanentFailureUpAtOnce(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", "0", "bad1", "2")
	calls := make(chan []string, 100)
	var dead seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Retry: weir.Retry{Attempts: 100, First: time.Hour, Max: time.Hour},
		BatchHandler: func(_ context.Context, events []weir.Event) error {
			calls <- values(events)
			if len(events) == 3 {
				return weir.FailedAt(1, weir.Permanent(errors.New("no JSON")))
			}
			return nil
		}})
	consume(t, w, weir.Subscription{Group: "dead", Topics: []string{"orders.dlt"}, Handler: dead.note})
	for _, want := range [][]string{{"0", "bad1", "2"}, {"2"}} {
		if got := next(t, calls); !slices.Equal(got, want) {
			t.Fatalf("a call got %q, want %q", got, want)
		}
	}
	letter := dead.wait(t, 1)[0]
	if attempts, _ := letter.Header(weir.HeaderAttempts); string(letter.Value) != "bad1" || string(attempts) != "1" {
		t.Errorf("the dead letter is %s, after %s attempts", letter.Value, attempts)
	}
	if weir.FailedAt(1, nil) != nil || weir.Permanent(nil) != nil {
		t.Error("what is no error became one")
	}
}

// A handler that panics with an error can be told by it.
func TestAPanicWithAnErrorIsThatError(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", "v")
	failures := make(chan weir.Failure, 1)
	cause := errors.New("the cause")
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: func(context.Context, weir.Event) error { panic(weir.Permanent(cause)) },
		DeadLetter: func(_ context.Context, f weir.Failure) ([]weir.Event, error) {
			failures <- f
			return nil, nil
		}})
	if f := next(t, failures); !errors.Is(f.Err, cause) || f.Attempts != 1 {
		t.Errorf("after %d attempts: %v", f.Attempts, f.Err)
	}
	if err := (&weir.PanicError{Value: "text"}); err.Unwrap() != nil {
		t.Errorf("a panic with a text wraps %v", err.Unwrap())
	}
}

func TestABatchThatDoesNotTellIsTriedOneByOne(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", "0", "bad1", "2", "bad3")
	calls := make(chan []string, 100)
	var dead seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Retry: quick(2), MinBatch: 4,
		BatchHandler: func(_ context.Context, events []weir.Event) error {
			calls <- values(events)
			if slices.ContainsFunc(events, func(e weir.Event) bool { return strings.HasPrefix(string(e.Value), "bad") }) {
				return errors.New("one of them is bad")
			}
			return nil
		}})
	consume(t, w, weir.Subscription{Group: "dead", Topics: []string{"orders.dlt"}, Handler: dead.note})
	if v := values(dead.wait(t, 2)); !slices.Equal(v, []string{"bad1", "bad3"}) {
		t.Errorf("dead letters: %q", v)
	}
	all := []string{"0", "bad1", "2", "bad3"}
	for _, want := range [][]string{all, all, {"0"}, {"bad1"}, {"2"}, {"bad3"}} {
		if got := next(t, calls); !slices.Equal(got, want) {
			t.Fatalf("a call got %q, want %q", got, want)
		}
	}
}

// A handler may do what it likes with its slice: what is delivered again is as it was.
func TestAHandlerThatSortsItsBatchGetsItAgainInOrder(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", "0", "1", "2")
	calls := make(chan []string, 10)
	first := true
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Retry: quick(2), MinBatch: 3,
		BatchHandler: func(_ context.Context, events []weir.Event) error {
			calls <- values(events)
			slices.Reverse(events)
			if first {
				first = false
				return errors.New("not yet")
			}
			return nil
		}})
	for range 2 {
		if got := next(t, calls); !slices.Equal(got, []string{"0", "1", "2"}) {
			t.Errorf("a call got %q", got)
		}
	}
}

// EventSQL's test: a batch handler that fails three times sees all 50 events in the end.
func TestABatchHandlerThatFailsForAWhileGetsEverything(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		publish(t, w, "orders", numbered("e", 50)...)
		var mu sync.Mutex
		failures := 3
		var got seen
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Retry: quick(5), MaxBatch: 1,
			BatchHandler: func(ctx context.Context, events []weir.Event) error {
				mu.Lock()
				defer mu.Unlock()
				if failures > 0 {
					failures--
					return errors.New("not yet")
				}
				return got.note(ctx, events[0])
			}})
		if v := values(got.wait(t, 50)); !slices.Equal(v, numbered("e", 50)) {
			t.Errorf("got %q", v)
		}
	})
}

func TestDeadLetterPolicies(t *testing.T) {
	t.Run("Discard drops the event and says so", func(t *testing.T) {
		log := &logged{}
		w := newSite(t, "memory").open(t, weir.Options{Logger: log.logger()})
		ensure(t, w, "orders", 1)
		publish(t, w, "orders", "bad", "good")
		var main failing
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: main.handle, Retry: weir.Retry{Attempts: 1}, DeadLetter: weir.Discard})
		main.wait(t, 2)
		if !log.has("event given up; no dead letter was published") {
			t.Error("nothing was logged")
		}
		if topics, err := w.Topics(t.Context()); err != nil || len(topics) != 1 {
			t.Errorf("topics: %v, %v", topics, err)
		}
	})
	t.Run("Halt holds the partition until Resume, and no other", func(t *testing.T) {
		w := newSite(t, "memory").open(t, weir.Options{Partitioner: weir.ByPartitionField})
		ensure(t, w, "orders", 2)
		var mu sync.Mutex
		healed, bad := false, errors.New("bad")
		var got seen
		c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Retry: weir.Retry{Attempts: 1}, DeadLetter: weir.Halt,
			Handler: func(ctx context.Context, e weir.Event) error {
				mu.Lock()
				defer mu.Unlock()
				if string(e.Value) == "bad" && !healed {
					return bad
				}
				return got.note(ctx, e)
			}})
		for _, e := range []weir.Event{{Value: []byte("bad")}, {Value: []byte("behind")}, {Value: []byte("other"), Partition: 1}} {
			e.Topic = "orders"
			if _, err := w.Publish(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		if v := values(got.wait(t, 1)); !slices.Equal(v, []string{"other"}) {
			t.Errorf("first came %q", v)
		}
		eventually(t, "partition 0 halts", func() bool {
			a := c.Assigned()
			return len(a) == 2 && errors.Is(a[0].Halted, bad) && a[0].Next == 0 && a[1].Halted == nil
		})
		mu.Lock()
		healed = true
		mu.Unlock()
		c.Resume(weir.TopicPartition{Topic: "orders", Partition: 0})
		if v := values(got.wait(t, 3)); !slices.Equal(v, []string{"other", "bad", "behind"}) {
			t.Errorf("after Resume: %q", v)
		}
	})
	t.Run("a factory of the caller's publishes what it likes", func(t *testing.T) {
		w := newSite(t, "memory").open(t)
		ensure(t, w, "orders", 1)
		ensure(t, w, "graveyard", 1)
		publish(t, w, "orders", "bad", "good")
		var main failing
		var dead seen
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: main.handle, Retry: weir.Retry{Attempts: 1},
			DeadLetter: func(_ context.Context, f weir.Failure) ([]weir.Event, error) {
				e := f.DeadLetterEvent()
				e.Topic = "graveyard"
				return []weir.Event{e, {Topic: "graveyard", Value: []byte("a note")}}, nil
			}})
		consume(t, w, weir.Subscription{Group: "dead", Topics: []string{"graveyard"}, Handler: dead.note})
		if v := values(dead.wait(t, 2)); !slices.Equal(v, []string{"bad", "a note"}) {
			t.Errorf("the graveyard: %q", v)
		}
		main.wait(t, 2)
	})
	t.Run("dead letters that are refused for good halt the partition", func(t *testing.T) {
		w := newSite(t, "memory").open(t)
		ensure(t, w, "orders", 1)
		publish(t, w, "orders", strings.Repeat("bad", 1000))
		ensure(t, w, "orders.dlt", 1)
		if err := w.AlterTopic(t.Context(), "orders.dlt", map[string]string{"max.message.bytes": "1000"}); err != nil {
			t.Fatal(err)
		}
		c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Retry: weir.Retry{Attempts: 1},
			Handler: func(context.Context, weir.Event) error { return errors.New("no") }})
		eventually(t, "the partition halts", func() bool {
			a := c.Assigned()
			return len(a) == 1 && errors.Is(a[0].Halted, weir.ErrTooLarge) && a[0].Next == 0
		})
	})
	t.Run("a factory that panics halts the partition", func(t *testing.T) {
		w := newSite(t, "memory").open(t)
		ensure(t, w, "orders", 1)
		publish(t, w, "orders", "bad")
		var main failing
		c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: main.handle, Retry: weir.Retry{Attempts: 1},
			DeadLetter: func(context.Context, weir.Failure) ([]weir.Event, error) { panic("oh no") }})
		eventually(t, "the partition halts", func() bool {
			a := c.Assigned()
			var panicked *weir.PanicError
			return len(a) == 1 && errors.As(a[0].Halted, &panicked) && panicked.Value == "oh no" && strings.Contains(a[0].Halted.Error(), "cannot bear bad")
		})
	})
}

// The largest event that its topic takes fits into the dead-letter topic, with all its headers.
func TestTheLargestEventCanBeADeadLetter(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	large := weir.Event{Topic: "orders", Value: make([]byte, 1048588-200)}
	if _, err := w.Publish(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	var dead seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: func(context.Context, weir.Event) error {
		return weir.Permanent(errors.New(strings.Repeat("très ", 10_000)))
	}})
	consume(t, w, weir.Subscription{Group: "dead", Topics: []string{"orders.dlt"}, Handler: dead.note})
	letter := dead.wait(t, 1)[0]
	if reason, _ := letter.Header(weir.HeaderReason); len(letter.Value) != len(large.Value) || len(reason) > 4<<10 || !strings.HasPrefix(string(reason), "très ") {
		t.Errorf("%d bytes, and a reason of %d", len(letter.Value), len(reason))
	}
}
