package weir_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/shard"
	"github.com/weir-log/weir/store/sqlite"
	"github.com/weir-log/weir/store/storecopy"
	"github.com/weir-log/weir/use/keys"
)

var silent = slog.New(slog.DiscardHandler)

// gone is a store that may be gone for a while.
type gone struct {
	eventlog.Store
	down atomic.Bool
}

func (g *gone) fail() error {
	if g.down.Load() {
		return fmt.Errorf("%w: the cable was cut", eventlog.ErrUnavailable)
	}
	return nil
}

func (g *gone) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if err := g.fail(); err != nil {
		return nil, err
	}
	return g.Store.Commit(ctx, flush)
}

func (g *gone) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	if err := g.fail(); err != nil {
		return nil, err
	}
	return g.Store.Read(ctx, spans, maxBytes)
}

func (g *gone) Changes(ctx context.Context, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
	if err := g.fail(); err != nil {
		return nil, since, err
	}
	return g.Store.Changes(ctx, since)
}

func (g *gone) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if err := g.fail(); err != nil {
		return nil, err
	}
	return g.Store.List(ctx, prefix, after, limit)
}

func (g *gone) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	if err := g.fail(); err != nil {
		return nil, err
	}
	return g.Store.Get(ctx, keys, maxBytes)
}

func openShards(t *testing.T, stores ...eventlog.Store) *shard.Set {
	t.Helper()
	var shards []shard.Shard
	for i, s := range stores {
		shards = append(shards, shard.Shard{Name: fmt.Sprint("store ", i), Store: s})
	}
	set, err := shard.Open(t.Context(), shards, shard.Options{Rules: keys.Rules(), Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// orderly notes what consumers were given, and what is wrong with that.
type orderly struct {
	mu    sync.Mutex // guards what follows
	last  map[string]int
	wrong []string
	more  chan struct{} // has a value after something was handled
}

func (h *orderly) handle(_ context.Context, e weir.Event) error {
	n, err := strconv.Atoi(string(e.Value))
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := h.last[string(e.Key)]; err != nil || n > last+1 {
		h.wrong = append(h.wrong, fmt.Sprintf("%s: %s after %d", e.Key, e.Value, last))
	} else {
		h.last[string(e.Key)] = max(last, n)
	}
	select {
	case h.more <- struct{}{}:
	default:
	}
	return nil
}

// Random histories: shards go and come back under two processes that publish and consume. Nothing
// acknowledged is lost, and each key is handled in order.
func TestConsumersGoOnWhileShardsComeAndGo(t *testing.T) {
	for _, number := range seed.Histories(t, 3) {
		r := rand.New(rand.NewPCG(number, 1))
		shards := []*gone{&gone{Store: memory.New()}, &gone{Store: memory.New()}, &gone{Store: memory.New()}}
		var logs []*weir.Log
		h := &orderly{last: map[string]int{}, more: make(chan struct{}, 1)}
		for range 2 {
			w, err := weir.OpenStore(t.Context(), openShards(t, shards[0], shards[1], shards[2]), weir.Options{Logger: silent, Poll: 10 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			logs = append(logs, w)
			if err := w.EnsureTopic(t.Context(), weir.Topic{Name: "orders", Partitions: 6}); err != nil {
				t.Fatal(err)
			}
		}
		for _, w := range logs {
			if _, err := w.Consume(t.Context(), weir.Subscription{Group: "billing", Topics: []string{"orders"}, Handler: h.handle}); err != nil {
				t.Fatal(err)
			}
		}
		sent := map[string]int{}
		for step := range 600 {
			if step%60 == 20 {
				shards[r.IntN(3)].down.Store(true)
			}
			if step%60 == 50 {
				for _, s := range shards {
					s.down.Store(false)
				}
			}
			key := fmt.Sprint("key ", r.IntN(20))
			_, err := logs[r.IntN(2)].Publish(t.Context(), weir.Event{Topic: "orders", Key: []byte(key), Value: strconv.AppendInt(nil, int64(sent[key]+1), 10)})
			switch {
			case err == nil:
				sent[key]++
			case !errors.Is(err, eventlog.ErrUnavailable):
				t.Fatal(err)
			}
			if r.IntN(10) == 0 { // let consumers get some way
				select {
				case <-h.more:
				case <-time.After(50 * time.Millisecond):
				}
			}
		}
		limit := time.After(time.Minute)
		for done := false; !done; {
			h.mu.Lock()
			done = fmt.Sprint(h.last) == fmt.Sprint(sent)
			if len(h.wrong) > 0 {
				t.Fatal(h.wrong)
			}
			h.mu.Unlock()
			if done {
				break
			}
			select {
			case <-h.more:
			case <-limit:
				t.Fatalf("handled %v\nsent    %v", h.last, sent)
			}
		}
		for _, w := range logs {
			if err := w.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}
	}
}

// Random histories: partitions move between shards under two processes that publish and consume.
// Nothing acknowledged is lost, and each key is handled in order.
func TestConsumersGoOnWhilePartitionsMove(t *testing.T) {
	for _, number := range seed.Histories(t, 2) {
		r := rand.New(rand.NewPCG(number, 2))
		dir := t.TempDir()
		open := func() *shard.Set {
			var stores []eventlog.Store
			for i := range 3 {
				s, err := sqlite.Open(t.Context(), filepath.Join(dir, fmt.Sprint(i)), sqlite.Options{})
				if err != nil {
					t.Fatal(err)
				}
				stores = append(stores, s)
			}
			return openShards(t, stores...)
		}
		var logs []*weir.Log
		h := &orderly{last: map[string]int{}, more: make(chan struct{}, 1)}
		for range 2 {
			w, err := weir.OpenStore(t.Context(), open(), weir.Options{Logger: silent, Poll: 10 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			logs = append(logs, w)
			if err := w.EnsureTopic(t.Context(), weir.Topic{Name: "orders", Partitions: 6}); err != nil {
				t.Fatal(err)
			}
		}
		for _, w := range logs {
			if _, err := w.Consume(t.Context(), weir.Subscription{Group: "billing", Topics: []string{"orders"}, Handler: h.handle}); err != nil {
				t.Fatal(err)
			}
		}
		mover := open()
		log, err := eventlog.Open(t.Context(), mover, eventlog.Config{Logger: silent})
		if err != nil {
			t.Fatal(err)
		}
		topic, err := log.Topic(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		sent, moves := map[string]int{}, 0
		for step := range 400 {
			if step%40 == 20 {
				p, to := topic.Partitions[r.IntN(6)], r.IntN(3)
				m, err := storecopy.BeginMoves(t.Context(), mover, []eventlog.Partition{p}, to, storecopy.MoveOptions{})
				if err == nil {
					err = m.Run(t.Context())[0].Err
					moves++
				}
				if err != nil && !errors.Is(err, storecopy.ErrThere) {
					t.Fatal(err)
				}
			}
			key := fmt.Sprint("key ", r.IntN(20))
			_, err := logs[r.IntN(2)].Publish(t.Context(), weir.Event{Topic: "orders", Key: []byte(key), Value: strconv.AppendInt(nil, int64(sent[key]+1), 10)})
			switch {
			case err == nil:
				sent[key]++
			case !errors.Is(err, eventlog.ErrUnavailable):
				t.Fatal(err)
			}
		}
		if moves == 0 {
			t.Error("nothing was moved")
		}
		limit := time.After(time.Minute)
		for done := false; !done; {
			h.mu.Lock()
			done = fmt.Sprint(h.last) == fmt.Sprint(sent)
			if len(h.wrong) > 0 {
				t.Fatal(h.wrong)
			}
			h.mu.Unlock()
			if done {
				break
			}
			select {
			case <-h.more:
			case <-limit:
				t.Fatalf("handled %v\nsent    %v", h.last, sent)
			}
		}
		for _, w := range logs {
			if err := w.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}
		if err := mover.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Dead letters on another shard than the group's are there, too: published first, and then
// committed.
func TestDeadLettersOfSeveralShards(t *testing.T) {
	w, err := weir.OpenStore(t.Context(), openShards(t, memory.New(), memory.New(), memory.New()), weir.Options{Logger: silent, Poll: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close(context.WithoutCancel(t.Context()))
	if err := w.EnsureTopic(t.Context(), weir.Topic{Name: "orders", Partitions: 6}); err != nil {
		t.Fatal(err)
	}
	const events = 30
	for n := range events {
		if _, err := w.Publish(t.Context(), weir.Event{Topic: "orders", Key: fmt.Append(nil, "key ", n), Value: []byte("bad")}); err != nil {
			t.Fatal(err)
		}
	}
	consume := func(group, topic string, handler func(context.Context, weir.Event) error) {
		t.Helper()
		if _, err := w.Consume(t.Context(), weir.Subscription{Group: group, Topics: []string{topic}, Handler: handler, Retry: weir.Retry{Attempts: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	consume("billing", "orders", func(context.Context, weir.Event) error { return errors.New("it fails") })
	letters := make(chan string, 10*events)
	consume("letters", weir.DeadLetterTopic("orders"), func(_ context.Context, e weir.Event) error {
		letters <- string(e.Key)
		return nil
	})
	seen := map[string]int{}
	for limit := time.After(time.Minute); len(seen) < events; {
		select {
		case key := <-letters:
			seen[key]++
		case <-limit:
			t.Fatalf("%d dead letters of %d", len(seen), events)
		}
	}
	for key, n := range seen {
		if n != 1 {
			t.Errorf("%s is there %d times although nothing failed", key, n)
		}
	}
}

// A program opens the log while a shard is away, and works as far as it can. The consumer that it
// starts then gets what is on that shard when it comes back, in order.
func TestALogOpensWhileAShardIsAway(t *testing.T) {
	stores := []*gone{{Store: memory.New()}, {Store: memory.New()}, {Store: memory.New()}}
	var set *shard.Set
	open := func() *weir.Log {
		t.Helper()
		set = openShards(t, remains{stores[0]}, remains{stores[1]}, remains{stores[2]})
		w, err := weir.OpenStore(t.Context(), set, weir.Options{Logger: silent, Poll: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	sent := map[string]int{}
	publish := func(w *weir.Log) (failed int) {
		t.Helper()
		for n := range 60 {
			key := fmt.Sprint("key ", n%20)
			_, err := w.Publish(t.Context(), weir.Event{Topic: "orders", Key: []byte(key), Value: strconv.AppendInt(nil, int64(sent[key]+1), 10)})
			switch {
			case err == nil:
				sent[key]++
			case errors.Is(err, weir.ErrUnavailable):
				failed++
			default:
				t.Fatal(err)
			}
		}
		return failed
	}
	first := open()
	if err := first.EnsureTopic(t.Context(), weir.Topic{Name: "orders", Partitions: 6}); err != nil {
		t.Fatal(err)
	}
	if err := first.EnsureQueue(t.Context(), weir.Queue{Name: "mails"}); err != nil {
		t.Fatal(err)
	}
	group := ""
	for at := 2; at == 2; { // a group on a shard that answers
		group += "g"
		var err error
		if at, err = set.ShardOf("group/state/" + group); err != nil {
			t.Fatal(err)
		}
	}
	h := &orderly{last: map[string]int{}, more: make(chan struct{}, 1)}
	consume := func(w *weir.Log) {
		t.Helper()
		if _, err := w.Consume(t.Context(), weir.Subscription{Group: group, Topics: []string{"orders"}, Handler: h.handle}); err != nil {
			t.Fatal(err)
		}
	}
	handled := func() (n int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.wrong) > 0 {
			t.Fatal(h.wrong)
		}
		for _, last := range h.last {
			n += last
		}
		return n
	}
	await := func(enough func() bool) {
		t.Helper()
		for limit := time.After(time.Minute); !enough(); {
			select {
			case <-h.more:
			case <-limit:
				t.Fatalf("handled %v, sent %v", h.last, sent)
			}
		}
	}
	consume(first) // a group begins only while all shards of its topics answer
	publish(first)
	await(func() bool { return handled() == 60 }) // so it has begun
	if err := first.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	stores[2].down.Store(true)
	w := open()
	defer w.Close(context.WithoutCancel(t.Context()))
	if err := w.Healthy(); err != nil {
		t.Errorf("the log is not healthy: %v", err)
	}
	if failed := publish(w); failed == 0 || failed == 60 {
		t.Errorf("%d of 60 events could not be published while a shard of three was away", failed)
	}
	if err := w.EnsureTopic(t.Context(), weir.Topic{Name: "orders", Partitions: 6}); err != nil {
		t.Errorf("a topic that exists: %v", err)
	}
	if _, err := w.Enqueue(t.Context(), "mails", weir.NewMessage{Value: []byte("v")}); err != nil {
		t.Errorf("a queue: %v", err)
	}
	consume(w)
	await(func() bool { return handled() > 60 }) // 60 from before, and about 40
	stores[2].down.Store(false)
	await(func() bool { h.mu.Lock(); defer h.mu.Unlock(); return fmt.Sprint(h.last) == fmt.Sprint(sent) })
	for until := time.Now().Add(time.Minute); ; {
		failed := publish(w)
		if failed == 0 {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%d events could not be published although the shard is back", failed)
		}
	}
	await(func() bool { h.mu.Lock(); defer h.mu.Unlock(); return fmt.Sprint(h.last) == fmt.Sprint(sent) })
	handled()
}

// remains is a store that stays open after it was closed: what memory holds ends with it otherwise.
type remains struct{ eventlog.Store }

func (remains) Close() error { return nil }
