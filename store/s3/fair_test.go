package s3

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// aPut and aGet are how long requests take.
const aPut, aGet = 50 * time.Millisecond, 37 * time.Millisecond

func slowPut(_ string, do func() error) error {
	time.Sleep(aPut)
	return do()
}

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
// two: so a process that never pauses would keep all others out. It says when it goes on before a
// flush is gathered (NextCommit).
func TestAProcessThatCommitsWithoutPauseLeavesRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inRow := func(s *Store) int {
			t.Helper()
			for n := 1; n < 100; n++ {
				commitOne(t, s, eventlog.Version(n))
				if wait := time.Until(s.NextCommit()); wait > 0 {
					if wait != yieldRounds*aPut {
						t.Errorf("after %d commits of %v a process waits for %v, want %v", n, aPut, wait, yieldRounds*aPut)
					}
					time.Sleep(wait)
					return n
				}
			}
			return 100
		}
		f, alone := newFake(), quick
		f.answerPuts(slowPut)
		alone.alone = true
		only, err := f.open(t.Context(), alone)
		if err != nil {
			t.Fatal(err)
		}
		defer only.Close()
		if n := inRow(only); n != 100 {
			t.Errorf("a process that is alone waits after %d commits", n)
		}

		f = newFake()
		f.answerPuts(slowPut)
		s := opened(t, f)
		for range 2 {
			if n := inRow(s); n != streakMax {
				t.Errorf("a process waits after %d commits in a row, want %d", n, streakMax)
			}
		}
		commitOne(t, opened(t, f), 1000)
		commitOne(t, s, 1001) // it reads the other's first
		if n := 1 + inRow(s); n != streakRival {
			t.Errorf("a process waits after %d commits in a row, want %d, because there is another", n, streakRival)
		}
	})
}

// A process that commits without a pause does not keep another one from its turn.
func TestARivalGetsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		busy, rival := opened(t, f), opened(t, f)
		f.answerPuts(slowPut)
		f.answerGets(func(string) { time.Sleep(aGet) })
		told := make(chan error, 1)
		go func() {
			_, err := rival.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: "rival", Version: 1, Value: []byte("v")}}}})
			told <- err
		}()
		for n := 0; ; n++ {
			select {
			case err := <-told:
				if err != nil || n > 2*streakMax {
					t.Errorf("the rival was told %v after %d commits", err, n)
				}
				return
			default:
				commitOne(t, busy, eventlog.Version(n+1))
			}
		}
	})
}

// A commit may be slow because an answer was late, which says nothing about how long a rival needs.
func TestTheTimeForOthersIsShortAfterASlowCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := opened(t, f)
		for n := 1; n < streakMax; n++ {
			commitOne(t, s, eventlog.Version(n))
		}
		f.answerPuts(func(_ string, do func() error) error {
			time.Sleep(requestMax)
			return do()
		})
		commitOne(t, s, streakMax)
		if wait := time.Until(s.NextCommit()); wait != yieldMost {
			t.Errorf("after a commit that took %v the process waits for %v, want %v", requestMax, wait, yieldMost)
		}
	})
}

func commitOne(t *testing.T, s *Store, v eventlog.Version) {
	t.Helper()
	out, err := s.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: "k", Version: v, Value: []byte("v")}}}})
	if err != nil || out[0].Err != nil {
		t.Fatal(out, err)
	}
}
