package s3

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// With a long linger a process cannot say more often than that that it lives.
func TestHeartbeatsAreNoMoreOftenThanCommits(t *testing.T) {
	for linger, want := range map[time.Duration]time.Duration{0: 5 * time.Second, 250 * time.Millisecond: 5 * time.Second, 7 * time.Second: 7 * time.Second} {
		s := &Store{place: place{linger: linger}}
		if got := s.HeartbeatEvery(); got != want || s.CommitEvery() != linger {
			t.Errorf("linger %v: a heartbeat every %v, want %v; a commit every %v", linger, got, want, s.CommitEvery())
		}
	}
}

// A process that lost the race for a commit needs five requests to try again, one that won needs
// two: so a process that never pauses would keep all others out.
func TestAProcessThatCommitsWithoutPauseLeavesRoomForOthers(t *testing.T) {
	f := newFake()
	s, err := f.open(t.Context(), quick)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	waits := func() bool {
		t.Helper()
		s.mu.Lock()
		s.round = time.Hour // so that a wait does not end before the test looks
		s.mu.Unlock()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		err := s.pace(gone)
		s.mu.Lock()
		s.nextPut = time.Time{}
		s.mu.Unlock()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		return err != nil
	}
	inRow := func(alone bool) int {
		t.Helper()
		s.alone = alone
		defer func() { s.alone = false }()
		for n := range 100 {
			if waits() {
				return n
			}
			commitOne(t, s, eventlog.Version(n+1))
		}
		return 100
	}
	if n := inRow(true); n != 100 {
		t.Errorf("a process that is alone waited after %d commits", n)
	}
	waits()
	if n := inRow(false); n != streakMax {
		t.Errorf("a process waited after %d commits in a row, want %d", n, streakMax)
	}
	other, err := f.open(t.Context(), quick)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	commitOne(t, other, 1000)
	commitOne(t, s, 1001) // it reads the other's first
	if n := inRow(false) + 1; n != streakRival {
		t.Errorf("a process waited after %d commits in a row, want %d, because there is another", n, streakRival)
	}
}

func commitOne(t *testing.T, s *Store, v eventlog.Version) {
	t.Helper()
	out, err := s.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: "k", Version: v, Value: []byte("v")}}}})
	if err != nil || out[0].Err != nil {
		t.Fatal(out, err)
	}
}
