package s3

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/doctor"
)

// putKey commits a key.
func putKey(t *testing.T, s *Store, key string) error {
	t.Helper()
	out, err := s.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: key, Version: 1, Value: []byte(key)}}}})
	if err != nil {
		return err
	}
	return out[0].Err
}

func has(t *testing.T, s *Store) (keys []string) {
	t.Helper()
	if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil {
		t.Fatal(err)
	}
	found, err := s.List(t.Context(), "", "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range found {
		keys = append(keys, kv.Key)
	}
	return keys
}

func examined(t *testing.T, f *fake) (findings []doctor.Finding, level doctor.Level) {
	t.Helper()
	clock := &clock{}
	findings, err := examine(t.Context(), quick, given{f, clock}, clock)
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range findings {
		level = max(level, found.Level)
	}
	return findings, level
}

// killedWithAVoidCommit returns a bucket with commits 1 and 2, and a void commit 4 of a process
// that was
// killed before it could mark it.
func killedWithAVoidCommit(t *testing.T) *fake {
	t.Helper()
	f := newFake()
	s, err := f.open(t.Context(), quick)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b"} {
		if err := putKey(t, s, key); err != nil {
			t.Fatal(err)
		}
	}
	copied := f.Copy()
	if err := putKey(t, s, "lost"); err != nil {
		t.Fatal(err)
	}
	ctx, kill := context.WithCancel(t.Context())
	f.answerPuts(func(key string, do func() error) error {
		if key != commitKey(4) {
			return errRefused
		}
		f.Mu.Lock()
		f.Objects = maps.Clone(copied)
		f.Mu.Unlock()
		err := do()
		kill()
		return err
	})
	_, _ = s.Commit(ctx, []eventlog.Entry{{Puts: []eventlog.Put{{Key: "void", Version: 1, Value: []byte("void")}}}})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f.answerPuts(nil)
	if keys := f.Keys("void/"); len(keys) > 0 {
		t.Fatalf("the process that was killed wrote %v", keys)
	}
	return f
}

// Nothing tells such a commit from one whose predecessors were lost. So the store is not opened,
// and who
// put the copy back can say that it is void.
func TestACommitBeyondAGapIsVoidIfItIsMarked(t *testing.T) {
	f := killedWithAVoidCommit(t)
	_, err := f.open(t.Context(), quick)
	if !errors.Is(err, errGap) {
		t.Fatalf("opened with a commit beyond a gap: %v", err)
	}
	mark := voidName.FindString(err.Error())
	if findings, level := examined(t, f); level != doctor.Bad || !strings.Contains(fmt.Sprint(findings), mark) {
		t.Errorf("doctor says %v, want %s", findings, mark)
	}
	f.Objects[mark] = stored{Body: nil, Modified: time.Now()}
	if findings, level := examined(t, f); level == doctor.Bad || !strings.Contains(fmt.Sprint(findings), "void commits") {
		t.Errorf("doctor says %v", findings)
	}
	s := opened(t, f)
	for _, key := range []string{"c", "d", "e"} {
		if err := putKey(t, s, key); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []*Store{s, opened(t, f)} {
		if got, want := has(t, s), []string{"a", "b", "c", "d", "e"}; !slices.Equal(got, want) {
			t.Errorf("the store has %v, want %v", got, want)
		}
	}
}

// A mark is of one commit: another one of its number is still a sign of a loss.
func TestAMarkIsOfOneCommit(t *testing.T) {
	f := killedWithAVoidCommit(t)
	f.Objects[voidKey(4, hash{1})] = stored{Body: nil, Modified: time.Now()}
	if _, err := f.open(t.Context(), quick); !errors.Is(err, errGap) {
		t.Errorf("opened with a commit beyond a gap: %v", err)
	}
}

// What another process commits after a copy was put back shows that an earlier commit beyond it is
// void.
func TestALaterCommitShowsThatOneBeyondAGapIsVoid(t *testing.T) {
	f := newFake()
	writer, other := opened(t, f), opened(t, f)
	if err := putKey(t, writer, "a"); err != nil {
		t.Fatal(err)
	}
	if got := has(t, other); len(got) != 1 {
		t.Fatal(got)
	}
	copied := f.Copy()
	for _, key := range []string{"lost 1", "lost 2", "lost 3", "lost 4"} {
		if err := putKey(t, writer, key); err != nil {
			t.Fatal(err)
		}
	}
	void := f.Copy()[commitKey(5)]
	f.PutBack(copied)
	f.Objects[commitKey(5)] = void
	f.Ahead += 5 * time.Second
	if _, err := f.open(t.Context(), quick); !errors.Is(err, errGap) {
		t.Fatalf("opened with a commit beyond a gap: %v", err)
	}
	if err := putKey(t, other, "b"); err != nil {
		t.Fatal(err)
	}
	if got, want := has(t, opened(t, f)), []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("the store has %v, want %v", got, want)
	}
}

// A put whose outcome is unknown may arrive after its writer knows that a copy was put back.
func TestACommitThatArrivesAfterItsWriterStartedAnewIsMarked(t *testing.T) {
	f := newFake()
	s := opened(t, f)
	for _, key := range []string{"a", "b"} {
		if err := putKey(t, s, key); err != nil {
			t.Fatal(err)
		}
	}
	copied := f.Copy()
	for _, key := range []string{"lost 1", "lost 2", "lost 3"} {
		if err := putKey(t, s, key); err != nil {
			t.Fatal(err)
		}
	}
	var late []func() error
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	f.answerPuts(func(key string, do func() error) error {
		late = append(late, do)
		return errLost
	})
	s.maybe() // nothing yet
	sent, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	_, _, err := s.create(sent, sent, s.compose(effects{life: "x"}), nil)
	if !errors.Is(err, eventlog.ErrUnsure) || len(late) == 0 {
		t.Fatalf("%d puts were lost: %v", len(late), err)
	}
	f.answerPuts(nil)
	f.PutBack(copied)
	if err := putKey(t, s, "c"); !errors.Is(err, eventlog.ErrRewound) && !errors.Is(err, eventlog.ErrUnavailable) && err != nil {
		t.Fatal(err)
	}
	_ = late[0]() // as commit 6; the next one is 4
	if got := has(t, opened(t, f)); !slices.Contains(got, "b") {
		t.Errorf("the store has %v", got)
	}
}

// A snapshot whose put arrives after the bucket was rewound is of commits that are lost.
func TestASnapshotOfALostTimelineIsNotLoaded(t *testing.T) {
	f := newFake()
	s := opened(t, f)
	if err := putKey(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	copied := f.Copy()
	for _, key := range []string{"lost 1", "lost 2"} {
		if err := putKey(t, s, key); err != nil {
			t.Fatal(err)
		}
	}
	f.answerPuts(func(key string, do func() error) error {
		if strings.HasPrefix(key, "snapshot/") {
			f.PutBack(copied)
		}
		return do()
	})
	if err := s.snapshot(t.Context()); err == nil {
		t.Error("a snapshot of commits that are lost was written, and nobody noticed")
	}
	f.answerPuts(nil)
	anew := opened(t, f)
	if got, want := has(t, anew), []string{"a"}; !slices.Equal(got, want) {
		t.Errorf("the store has %v, want %v", got, want)
	}
	for _, key := range []string{"b", "c", "d"} { // past the snapshot's number
		if err := putKey(t, anew, key); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := has(t, opened(t, f)), []string{"a", "b", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("the store has %v, want %v", got, want)
	}
}

// A process that finds out that its commit is void marks it before it goes on: it may be killed
// then.
func TestAProcessMarksItsVoidCommits(t *testing.T) {
	f := newFake()
	s := opened(t, f)
	for _, key := range []string{"a", "b"} {
		if err := putKey(t, s, key); err != nil {
			t.Fatal(err)
		}
	}
	copied := f.Copy()
	if err := putKey(t, s, "lost"); err != nil {
		t.Fatal(err)
	}
	f.answerPuts(func(key string, do func() error) error {
		switch {
		case key == commitKey(4):
			f.PutBack(copied)
		case strings.HasPrefix(key, "commit/"):
			return errRefused // it gets no further
		}
		return do()
	})
	if err := putKey(t, s, "void"); err == nil {
		t.Fatal("a void commit was acknowledged")
	}
	f.answerPuts(nil)
	if got, want := has(t, opened(t, f)), []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("the store has %v, want %v", got, want)
	}
}
