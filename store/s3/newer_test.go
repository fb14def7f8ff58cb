package s3

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storetest"
)

// A newer weir writes a commit in a format that this one does not know.
func TestAnObjectOfANewerWeirIsToldAsThat(t *testing.T) {
	f := newFake()
	s := opened(t, f)
	if err := putKey(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	_, mark, err := s.Changes(t.Context(), eventlog.Mark{})
	if err != nil {
		t.Fatal(err)
	}
	object, _ := seal("weirS3C2", []byte("what this weir cannot read"))
	f.Mu.Lock()
	f.Objects[commitKey(s.st.number+1)] = stored{Body: object, Modified: time.Now()}
	f.Mu.Unlock()
	_, _, moved := s.Changes(t.Context(), mark)
	_, begun := f.open(t.Context(), quick)
	for what, err := range map[string]error{"a poll": moved, "a commit": putKey(t, s, "b"), "a start": begun} {
		if !errors.Is(err, eventlog.ErrUpgraded) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := len(f.Keys("void/")); n > 0 {
		t.Errorf("%d commits were taken for void", n)
	}
}

// What a newer weir needs is in the state: processes that run see it with the next commit, and
// those that begin read it, also from a snapshot.
func TestABucketThatNeedsWhatThisWeirDoesNotKnowIsRefused(t *testing.T) {
	f := newFake()
	running, err := eventlog.Open(t.Context(), opened(t, f), eventlog.Config{Poll: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- running.Run(ctx) }()
	defer func() { cancel(); <-done }()
	if _, err := running.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	newer := opened(t, f)
	storetest.Need(t, newer, "x")
	_, err = running.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: "k", Version: 1, Value: []byte("v")}}})
	begin := func() error {
		_, err := eventlog.Open(t.Context(), opened(t, f), eventlog.Config{})
		return err
	}
	begun := begin()
	if err := newer.snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"a commit": err, "a start": begun, "a start from a snapshot": begin()} {
		if !errors.Is(err, eventlog.ErrUpgraded) || !strings.Contains(err.Error(), `use a weir that knows "x"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
