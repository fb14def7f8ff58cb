package publish_test

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
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/publish"
)

// spread is events over topics and partitions, some without a key, whose partition is not the same
// each time.
func spread() []publish.Event {
	var events []publish.Event
	for i := range 200 {
		e := publish.Event{Topic: "orders", Value: fmt.Appendf(nil, "%d", i)}
		if i%3 == 0 {
			e.Topic = "bills"
		}
		if i%5 == 0 {
			e.Key = fmt.Appendf(nil, "key %d", i)
		}
		events = append(events, e)
	}
	return events
}

// large is events of which the first partition's need several batches.
func large() []publish.Event {
	value := make([]byte, 400<<10)
	return []publish.Event{{Topic: "orders", Partition: number(1), Value: value}, {Topic: "orders", Partition: number(1), Value: value},
		{Topic: "bills", Partition: number(2)}, {Topic: "orders", Partition: number(1)}}
}

func TestARepetitionGetsTheFirstAnswerFromAnyProcess(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		everystore.RefusedOnShards(t, "an idempotency key for a topic on two shards")
		log := run(t, reopen(t), eventlog.Config{})
		topics := map[string]eventlog.Topic{"orders": topic(t, log, "orders", 5), "bills": topic(t, log, "bills", 5)}
		p := publish.New(log, publish.Config{})
		for i, key := range []string{"k", "a/b", "a/1", "a", "\x00\xff ü%", strings.Repeat("/", 255)} {
			for _, events := range [][]publish.Event{{{Topic: "orders"}}, spread(), large()} {
				key := fmt.Sprintf("%.252s%d", key, len(events))
				first, repeated, err := p.PublishOnce(t.Context(), key, events...)
				if err != nil || repeated {
					t.Fatalf("first: repeated %v, %v", repeated, err)
				}
				arrived(t, log, topics, events, first)
				held := total(t, log, topics["orders"]) + total(t, log, topics["bills"])
				publishers := []*publish.Publisher{p}
				if i == 0 {
					publishers = append(publishers, publish.New(run(t, reopen(t), eventlog.Config{}), publish.Config{}))
				}
				for _, p := range publishers {
					again, repeated, err := p.PublishOnce(t.Context(), key, events...)
					if err != nil || !repeated || !slices.Equal(again, first) {
						t.Fatalf("key %q again: repeated %v, %v, the same answer: %v", key, repeated, err, slices.Equal(again, first))
					}
				}
				if now := total(t, log, topics["orders"]) + total(t, log, topics["bills"]); now != held {
					t.Errorf("the repetition published %d events", now-held)
				}
			}
		}
	})
}

func TestAKeyOfOtherEventsIsRefused(t *testing.T) {
	log := run(t, memory.New(), eventlog.Config{})
	orders := topic(t, log, "orders", 2)
	topic(t, log, "bills", 2)
	p := publish.New(log, publish.Config{})
	first := publish.Event{Topic: "orders", Partition: number(1), Key: []byte("k"), Value: []byte("v"),
		Headers: []batch.RecordHeader{{Key: "a", Value: []byte("b")}}, Time: time.UnixMilli(5)}
	_, _, err := p.PublishOnce(t.Context(), "key", first)
	check(t, err)
	with := func(change func(e *publish.Event)) []publish.Event {
		e := first
		change(&e)
		return []publish.Event{e}
	}
	for name, events := range map[string][]publish.Event{
		"more":             {first, first},
		"topic":            with(func(e *publish.Event) { e.Topic = "bills" }),
		"partition":        with(func(e *publish.Event) { e.Partition = number(0) }),
		"no partition":     with(func(e *publish.Event) { e.Partition = nil }),
		"key":              with(func(e *publish.Event) { e.Key = []byte("kk") }),
		"no key":           with(func(e *publish.Event) { e.Key = nil }),
		"value":            with(func(e *publish.Event) { e.Value = nil }),
		"key for value":    with(func(e *publish.Event) { e.Key, e.Value = e.Value, e.Key }),
		"border":           with(func(e *publish.Event) { e.Key, e.Value = []byte("kv"), []byte{} }),
		"time":             with(func(e *publish.Event) { e.Time = time.UnixMilli(6) }),
		"no time":          with(func(e *publish.Event) { e.Time = time.Time{} }),
		"header":           with(func(e *publish.Event) { e.Headers = []batch.RecordHeader{{Key: "a", Value: []byte("c")}} }),
		"no header":        with(func(e *publish.Event) { e.Headers = nil }),
		"an unknown topic": with(func(e *publish.Event) { e.Topic = "nobody" }),
	} {
		if placed, repeated, err := p.PublishOnce(t.Context(), "key", events...); !errors.Is(err, publish.ErrKeyReused) || repeated || placed != nil {
			t.Errorf("other %s: %v, repeated %v, %v", name, placed, repeated, err)
		}
	}
	if n := total(t, log, orders); n != 1 {
		t.Errorf("%d events", n)
	}
	if _, _, err := p.PublishOnce(t.Context(), "another key", first, first); err != nil {
		t.Errorf("another key: %v", err)
	}
}

func TestIdempotencyKeysAreBounded(t *testing.T) {
	log := run(t, memory.New(), eventlog.Config{})
	topic(t, log, "orders", 1)
	p := publish.New(log, publish.Config{})
	for size, ok := range map[int]bool{0: false, 1: true, 512: true, 513: false} {
		_, _, err := p.PublishOnce(t.Context(), strings.Repeat("k", size), publish.Event{Topic: "orders"})
		var invalid *eventlog.InvalidError
		if ok != (err == nil) || !ok && (!errors.As(err, &invalid) || !strings.Contains(err.Error(), "512")) {
			t.Errorf("a key of %d bytes: %v", size, err)
		}
	}
}

func TestEventsOfOneIdempotencyKeyAreBounded(t *testing.T) {
	log := run(t, memory.New(), eventlog.Config{})
	topic(t, log, "orders", 7)
	p := publish.New(log, publish.Config{})
	events := make([]publish.Event, 10_001)
	for i := range events {
		events[i] = publish.Event{Topic: "orders", Partition: number(int32(i % 7))}
	}
	_, _, err := p.PublishOnce(t.Context(), "key", events...)
	if !errors.Is(err, eventlog.ErrTooLarge) || !strings.Contains(err.Error(), "10001") || !strings.Contains(err.Error(), "10000") {
		t.Errorf("10,001 events: %v", err)
	}
	_, _, err = p.PublishOnce(t.Context(), "key", events[1:]...)
	check(t, err)
	kv, err := log.Get(t.Context(), "publish/once/key")
	check(t, err)
	if len(kv.Value) > 150_000 {
		t.Errorf("the key holds %d bytes", len(kv.Value))
	}
}

func TestOfCallsAtOnceOnePublishes(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		everystore.RefusedOnShards(t, "an idempotency key for a topic on two shards")
		here, there := run(t, reopen(t), eventlog.Config{}), run(t, reopen(t), eventlog.Config{})
		orders := topic(t, here, "orders", 3)
		check(t, there.RefreshTopics(t.Context()))
		type answer struct {
			placed   []publish.Placed
			repeated bool
			err      error
		}
		const keys, callers = 10, 6
		answers := make(chan answer, callers)
		for key := range keys {
			for caller := range callers {
				log := here
				if caller%2 == 0 {
					log = there
				}
				go func() {
					placed, repeated, err := publish.New(log, publish.Config{}).PublishOnce(t.Context(), fmt.Sprint(key), publish.Event{Topic: "orders"}, publish.Event{Topic: "orders", Partition: number(2)})
					answers <- answer{placed, repeated, err}
				}()
			}
			first := 0
			var places [][]publish.Placed
			for range callers {
				a := <-answers
				check(t, a.err)
				if !a.repeated {
					first++
				}
				places = append(places, a.placed)
			}
			for _, p := range places {
				if !slices.Equal(p, places[0]) {
					t.Errorf("key %d: answers %v", key, places)
				}
			}
			if first != 1 {
				t.Errorf("key %d: %d calls say that they were the first", key, first)
			}
		}
		if n := total(t, here, orders); n != 2*keys {
			t.Errorf("%d events of %d calls", n, keys)
		}
	})
}

func TestARetryResolvesAnUnknownOutcome(t *testing.T) {
	store := newGate(memory.New())
	log := run(t, store, eventlog.Config{})
	orders := topic(t, log, "orders", 2)
	p := publish.New(log, publish.Config{})
	events := []publish.Event{{Topic: "orders", Partition: number(0)}, {Topic: "orders", Partition: number(1)}}
	store.lose(1)
	if _, _, err := p.PublishOnce(t.Context(), "key", events...); !errors.Is(err, eventlog.ErrUnsure) {
		t.Fatalf("the answer was lost: %v", err)
	}
	placed, repeated, err := p.PublishOnce(t.Context(), "key", events...)
	if err != nil || !repeated || !slices.Equal(placed, []publish.Placed{{Partition: 0}, {Partition: 1}}) {
		t.Errorf("retry: %v, repeated %v, %v", placed, repeated, err)
	}
	if n := total(t, log, orders); n != 2 {
		t.Errorf("%d events", n)
	}
}

// The first answer is the answer, whatever became of the topic.
func TestARepetitionIsRecognisedAfterTheTopicChanged(t *testing.T) {
	log := run(t, memory.New(), eventlog.Config{})
	topic(t, log, "orders", 1)
	p := publish.New(log, publish.Config{})
	e := publish.Event{Topic: "orders", Value: make([]byte, 1000)}
	first, _, err := p.PublishOnce(t.Context(), "key", e)
	check(t, err)
	for _, name := range []string{"smaller limit", "deleted"} {
		if name == "deleted" {
			check(t, log.DeleteTopic(t.Context(), "orders"))
		} else {
			_, err := log.AlterTopic(t.Context(), "orders", func(c map[string]string) error { c["max.message.bytes"] = "100"; return nil })
			check(t, err)
		}
		again, repeated, err := p.PublishOnce(t.Context(), "key", e)
		if err != nil || !repeated || !slices.Equal(again, first) {
			t.Errorf("%s: %v, repeated %v, %v", name, again, repeated, err)
		}
		if _, _, err := p.PublishOnce(t.Context(), "other", e); err == nil {
			t.Errorf("%s: published", name)
		}
	}
}

// A key that belongs to a topic goes with it, also for a process that has not heard of that.
func TestAKeyGoesWithItsTopic(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		everystore.RefusedOnShards(t, "an idempotency key for a topic on two shards")
		here := run(t, reopen(t), eventlog.Config{})
		topic(t, here, "orders", 2)
		var publishers []*publish.Publisher
		for range 3 {
			deaf := run(t, reopen(t), eventlog.Config{Poll: time.Hour})
			publishers = append(publishers, publish.New(deaf, publish.Config{}))
		}
		e := publish.Event{Topic: "orders", Partition: number(1)}
		once := func(p *publish.Publisher) (placed []publish.Placed, repeated bool, err error) {
			return p.PublishOnceIn(t.Context(), "orders", "key", e)
		}
		_, err := publishers[0].Publish(t.Context(), e)
		check(t, err)
		for i, p := range publishers {
			if placed, repeated, err := once(p); err != nil || repeated != (i > 0) || placed[0].Offset != 1 {
				t.Errorf("publisher %d: %v, repeated %v, %v", i, placed, repeated, err)
			}
		}
		check(t, here.DeleteTopic(t.Context(), "orders"))
		if placed, repeated, err := once(publishers[0]); !errors.Is(err, eventlog.ErrUnknownTopic) {
			t.Errorf("with the topic gone: %v, repeated %v, %v", placed, repeated, err)
		}
		again := topic(t, here, "orders", 2)
		for i, p := range publishers {
			if placed, repeated, err := once(p); err != nil || repeated != (i > 0) || placed[0].Offset != 0 {
				t.Errorf("publisher %d, in the new topic: %v, repeated %v, %v", i, placed, repeated, err)
			}
		}
		if n := total(t, here, again); n != 1 {
			t.Errorf("the new topic has %d events", n)
		}
	})
}

func TestOldKeysAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := run(t, memory.New(), eventlog.Config{})
		topic(t, log, "orders", 5)
		topic(t, log, "bills", 5)
		p := publish.New(log, publish.Config{IdempotencyAge: 24 * time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()

		const keys = 1500
		for i := range keys {
			_, _, err := p.PublishOnce(t.Context(), fmt.Sprint(i), publish.Event{Topic: "orders"})
			check(t, err)
		}
		_, _, err := p.PublishOnce(t.Context(), "spread", spread()...)
		check(t, err)
		time.Sleep(23 * time.Hour)
		_, _, err = p.PublishOnce(t.Context(), "young", spread()...)
		check(t, err)
		if _, repeated, err := p.PublishOnce(t.Context(), "spread", spread()...); err != nil || !repeated {
			t.Errorf("after 23 h: repeated %v, %v", repeated, err)
		}
		time.Sleep(2*time.Hour + time.Minute)
		check(t, log.ListAll(t.Context(), "publish/once/", func(kv eventlog.KeyValue) error {
			if !strings.HasPrefix(kv.Key, "publish/once/young") {
				t.Errorf("%s is %v old and still there", kv.Key, kv.Age)
			}
			return nil
		}))
		if _, repeated, err := p.PublishOnce(t.Context(), "young", spread()...); err != nil || !repeated {
			t.Errorf("the young one: repeated %v, %v", repeated, err)
		}
		if _, repeated, err := p.PublishOnce(t.Context(), "spread", spread()...); err != nil || repeated {
			t.Errorf("after its time: repeated %v, %v", repeated, err)
		}
		cancel()
		check(t, <-done)
	})
}

// sweeps counts the trips that read idempotency keys, and the most keys that one asked for.
type sweeps struct {
	eventlog.Store
	trips, most atomic.Int64
}

func (s *sweeps) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if prefix == "publish/once/" {
		s.trips.Add(1)
		s.most.Store(max(s.most.Load(), int64(limit)))
	}
	return s.Store.List(ctx, prefix, after, limit)
}

func TestOneProcessAtATimeLooksForOldKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &sweeps{Store: memory.New()}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		const processes = 5
		for range processes {
			p := publish.New(run(t, store, eventlog.Config{}), publish.Config{})
			go func() { done <- p.Run(ctx) }()
			time.Sleep(7 * time.Minute)
		}
		time.Sleep(24 * time.Hour)
		if n := store.trips.Load(); n < 12 || n > 32 {
			t.Errorf("in about 24 h keys were looked for %d times, want about once an hour", n)
		}
		if n := store.most.Load(); n > 100 {
			t.Errorf("%d keys were asked for at a time", n)
		}
		cancel()
		for range processes {
			check(t, <-done)
		}
	})
}

// hiding is a store that does not show idempotency keys.
type hiding struct{ eventlog.Store }

func (h hiding) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if strings.HasPrefix(prefix, "publish/") {
		return nil, nil
	}
	return h.Store.List(ctx, prefix, after, limit)
}

func TestAKeyThatComesAndGoesIsToldAsInProgress(t *testing.T) {
	log := run(t, hiding{memory.New()}, eventlog.Config{})
	orders := topic(t, log, "orders", 1)
	p := publish.New(log, publish.Config{})
	_, _, err := p.PublishOnce(t.Context(), "key", publish.Event{Topic: "orders"})
	check(t, err)
	if _, _, err := p.PublishOnce(t.Context(), "key", publish.Event{Topic: "orders"}); !errors.Is(err, publish.ErrInProgress) {
		t.Errorf("the key is there and is not: %v", err)
	}
	if n := total(t, log, orders); n != 1 {
		t.Errorf("%d events", n)
	}
}

// looked is a store that calls the function before it reads idempotency keys, and fails where that
// does.
type looked struct {
	eventlog.Store
	before func(what string) error // the note of a key, or its other parts
}

func (l *looked) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if strings.HasPrefix(prefix, "publish/") {
		if err := l.before(map[bool]string{true: "parts", false: "note"}[strings.HasSuffix(prefix, "/")]); err != nil {
			return nil, err
		}
	}
	return l.Store.List(ctx, prefix, after, limit)
}

// Events that are refused now may have been published before. While that cannot be read, nobody is
// told that they never were.
func TestWhatCannotBeLookedUpIsNotRefusedForGood(t *testing.T) {
	store := &looked{Store: memory.New(), before: func(string) error { return nil }}
	log := run(t, store, eventlog.Config{})
	topic(t, log, "orders", 2)
	p := publish.New(log, publish.Config{})
	first, _, err := p.PublishOnce(t.Context(), "key", pair...)
	check(t, err)
	check(t, log.DeleteTopic(t.Context(), "orders"))
	for _, gone := range []string{"note", "parts"} {
		store.before = func(what string) error {
			if what == gone {
				return fmt.Errorf("test: %w", eventlog.ErrUnavailable)
			}
			return nil
		}
		_, _, err = p.PublishOnce(t.Context(), "key", pair...)
		if !errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrUnknownTopic) {
			t.Errorf("%s fails: %v, want ErrUnavailable alone", gone, err)
		}
	}
	store.before = func(string) error { return nil }
	if again, repeated, err := p.PublishOnce(t.Context(), "key", pair...); err != nil || !repeated || !slices.Equal(again, first) {
		t.Errorf("the store is back: %v, repeated %v, %v", again, repeated, err)
	}
}

// pair is two events for two partitions.
var pair = []publish.Event{{Topic: "orders", Partition: number(0)}, {Topic: "orders", Partition: number(1)}}

// An answer is that of one call, also when the key is forgotten and used again while it is read.
func TestAnAnswerIsNotMixedFromTwoUsesOfAKey(t *testing.T) {
	store := &looked{Store: memory.New(), before: func(string) error { return nil }}
	log := run(t, store, eventlog.Config{})
	topic(t, log, "orders", 2)
	p := publish.New(log, publish.Config{})
	_, _, err := p.PublishOnce(t.Context(), "key", pair...)
	check(t, err)
	var second []publish.Placed
	store.before = func(what string) error {
		if what == "parts" && second == nil {
			_, err := log.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: "publish/once/key"}, {Key: "publish/once/key/1"}}})
			check(t, err)
			second, _, err = p.PublishOnce(t.Context(), "key", pair...)
			check(t, err)
		}
		return nil
	}
	got, repeated, err := p.PublishOnce(t.Context(), "key", pair...)
	if err != nil || !repeated || !slices.Equal(got, second) || len(second) != 2 {
		t.Errorf("%v, repeated %v, %v; want %v", got, repeated, err, second)
	}
}

func TestADamagedKeyIsAnError(t *testing.T) {
	log := run(t, memory.New(), eventlog.Config{})
	topic(t, log, "orders", 2)
	p := publish.New(log, publish.Config{})
	_, _, err := p.PublishOnce(t.Context(), "key", pair...)
	check(t, err)
	kv, err := log.Get(t.Context(), "publish/once/key")
	check(t, err)
	for _, places := range []string{"0", "0*3", "0,1,0"} {
		fields := strings.Fields(string(kv.Value))
		fields[2] = places
		_, err = log.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: kv.Key, Version: kv.Version, Value: []byte(strings.Join(fields, " "))}}})
		check(t, err)
		if placed, repeated, err := p.PublishOnce(t.Context(), "key", pair...); err == nil || repeated || !strings.Contains(err.Error(), "the digest of 2") {
			t.Errorf("places %s: %v, repeated %v, %v", places, placed, repeated, err)
		}
	}
}
