package weir_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/keys"
)

// site is a store that any number of Logs open.
type site struct {
	kind   string // one of everystore.Kinds
	url    string
	memory eventlog.Store
}

// eachStore runs a test on an empty store of each kind, or of those named.
func eachStore(t *testing.T, test func(t *testing.T, s site), kinds ...string) {
	t.Helper()
	if len(kinds) == 0 {
		kinds = everystore.Kinds()
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) { test(t, newSite(t, kind)) })
	}
}

// onEachStore runs a test on an empty store of each kind, for it to put a store of its own before.
// Whoever opens a Log on that closes the store.
func onEachStore(t *testing.T, test func(t *testing.T, under eventlog.Store)) {
	t.Helper()
	eachStore(t, func(t *testing.T, s site) {
		under := s.memory
		if under == nil {
			opened, err := store.Open(t.Context(), s.url, nil, keys.Rules()...)
			if err != nil {
				t.Fatal(err)
			}
			under = opened
		}
		test(t, under)
	})
}

func newSite(t testing.TB, kind string) site {
	t.Helper()
	if kind == "memory" {
		return site{kind: kind, memory: shared{memory.New()}}
	}
	return site{kind: kind, url: everystore.URL(t, kind)}
}

// shared is a store that stays open when one of its Logs is closed.
type shared struct{ eventlog.Store }

func (shared) Close() error { return nil }

// try opens a Log.
func (s site) try(ctx context.Context, opts weir.Options) (*weir.Log, error) {
	if s.memory != nil {
		return weir.OpenStore(ctx, s.memory, opts)
	}
	return weir.Open(ctx, s.url, opts)
}

// open opens a Log that is closed with the test. It looks for what others wrote every 10 ms.
func (s site) open(t *testing.T, opts ...weir.Options) *weir.Log {
	t.Helper()
	o := weir.Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Poll: 10 * time.Millisecond}
	if len(opts) > 0 {
		o = opts[0]
	}
	w, err := s.try(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLog(t, w) })
	return w
}

func closeLog(t *testing.T, w *weir.Log) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := w.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// limit is when a test gives up waiting for what must come.
const limit = time.Minute

// ensure makes a topic.
func ensure(t *testing.T, w *weir.Log, name string, partitions int) {
	t.Helper()
	if err := w.EnsureTopic(t.Context(), weir.Topic{Name: name, Partitions: partitions}); err != nil {
		t.Fatal(err)
	}
}

// publish publishes an event for each value, in one call.
func publish(t *testing.T, w *weir.Log, topic string, values ...string) []weir.Placed {
	t.Helper()
	placed, err := w.Publish(t.Context(), events(topic, values...)...)
	if err != nil {
		t.Fatal(err)
	}
	return placed
}

// events makes an event without a key for each value; key=value has a key.
func events(topic string, values ...string) (list []weir.Event) {
	for _, v := range values {
		e := weir.Event{Topic: topic, Value: []byte(v)}
		if key, value, keyed := strings.Cut(v, "="); keyed {
			e.Key, e.Value = []byte(key), []byte(value)
		}
		list = append(list, e)
	}
	return list
}

func numbered(prefix string, n int) (values []string) {
	for i := range n {
		values = append(values, fmt.Sprint(prefix, i))
	}
	return values
}

// consume starts a consumer that is closed with the test, before its Log.
func consume(t *testing.T, w *weir.Log, sub weir.Subscription) *weir.Consumer {
	t.Helper()
	c, err := w.Consume(t.Context(), sub)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeConsumer(t, c) })
	return c
}

func closeConsumer(t *testing.T, c *weir.Consumer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		t.Errorf("close the consumer: %v", err)
	}
}

// seen keeps what handlers got.
type seen struct {
	mu      sync.Mutex // guards events and changed
	events  []weir.Event
	changed chan struct{}
}

// note is a Handler that is always content.
func (s *seen) note(_ context.Context, e weir.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
	return nil
}

// wait waits until there are n events, and returns all.
func (s *seen) wait(t *testing.T, n int) []weir.Event {
	t.Helper()
	timeout := time.After(limit)
	for {
		s.mu.Lock()
		got := slices.Clone(s.events)
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("%d events came in %v, want %d: %q", len(got), limit, n, values(got))
		}
	}
}

func (s *seen) all() []weir.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

func values(events []weir.Event) (list []string) {
	for _, e := range events {
		list = append(list, string(e.Value))
	}
	return list
}

// next waits for the next value of a channel.
func next[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(limit):
		t.Fatalf("nothing came in %v", limit)
		panic("unreachable")
	}
}

// eventually asks until the answer is yes. It is for what other processes and other goroutines do
// in their own time.
func eventually(t *testing.T, what string, yes func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	timeout := time.After(limit)
	for !yes() {
		select {
		case <-ticker.C:
		case <-timeout:
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// assigned waits until consumers have so many partitions between them, and each at least one.
func assigned(t *testing.T, partitions int, consumers ...*weir.Consumer) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d consumers share %d partitions", len(consumers), partitions), func() bool {
		n := 0
		for _, c := range consumers {
			own := len(c.Assigned())
			if own == 0 {
				return false
			}
			n += own
		}
		return n == partitions
	})
}

// committed waits until a group has no lag in any of its topics.
func committed(t *testing.T, w *weir.Log, group string) {
	t.Helper()
	eventually(t, "group "+group+" committed everything", func() bool {
		g, err := w.Group(t.Context(), group)
		return err == nil && len(g.Offsets) > 0 && g.Lag == 0
	})
}

// logged is a logger to be asked what it was told.
type logged struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.buf.String(), text)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
