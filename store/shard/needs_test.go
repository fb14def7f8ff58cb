package shard

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/storetest"
)

// What a set needs is on shard 0. A weir that does not know it is refused before it adds shards or
// marks any, and one that runs already stops.
func TestASetThatNeedsWhatThisWeirDoesNotKnowIsRefused(t *testing.T) {
	a, b, c := memory.New(), memory.New(), memory.New()
	shard := func(s *memory.Store) Shard { return Shard{"x", kept{s.Again()}} }
	running, err := eventlog.Open(t.Context(), openSet(t, shard(a), shard(b)), eventlog.Config{Poll: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- running.Run(ctx) }()
	defer func() { cancel(); <-done }()
	storetest.Need(t, openSet(t, shard(a), shard(b)), "x")
	if keys := keysOf(t, b.Again(), eventlog.NeedsKey); len(keys) > 0 {
		t.Errorf("shard 1 has the key")
	}
	_, appended := running.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: "k", Version: 1, Value: []byte("v")}}})
	_, read := running.Bounds(t.Context(), 1)
	_, begun := Open(t.Context(), []Shard{shard(a), shard(b)}, Options{Rules: testRules, Logger: slog.New(slog.DiscardHandler)})
	_, raised := Open(t.Context(), []Shard{shard(a), shard(b), shard(c)}, Options{Rules: testRules, Logger: slog.New(slog.DiscardHandler)})
	for what, err := range map[string]error{"an append": appended, "a read": read, "a start": begun, "a start with one more shard": raised} {
		if !errors.Is(err, eventlog.ErrUpgraded) || !strings.Contains(err.Error(), `use a weir that knows "x"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if keys := keysOf(t, c, ""); len(keys) > 0 {
		t.Errorf("the store that would have been added got the keys %v", keys)
	}
}

// A need that one shard does not hear of would let an older weir go on there: it is put only while
// every shard answers.
func TestANeedIsPutOnlyWhileEveryShardAnswers(t *testing.T) {
	lost := &frail{Store: memory.New()}
	s := openSet(t, Shard{"a", memory.New()}, Shard{"b", lost})
	if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil {
		t.Fatal(err)
	}
	lost.down.Store(true)
	_, _ = s.List(t.Context(), "", "", 1) // the set notices
	out := do(t, s, eventlog.Entry{Puts: []eventlog.Put{
		{Key: eventlog.EpochKey, Version: 1, Value: []byte(`{"store":"x","epochs":[{"epoch":0}]}`)}, {Key: eventlog.NeedsKey, Version: 1, Value: []byte(`["x"]`)},
	}})
	if !errors.Is(out[0].Err, eventlog.ErrUnavailable) {
		t.Errorf("the outcome is %v", out[0].Err)
	}
	if keys := keysOf(t, s.members[0].store, eventlog.EpochKey); len(keys) > 0 && slices.Contains(keys, eventlog.NeedsKey) {
		t.Errorf("shard 0 has %v", keys)
	}
}
