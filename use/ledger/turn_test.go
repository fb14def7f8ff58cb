package ledger_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/ledger"
)

// Of processes that find a turn free, one has it, until the key is old again.
func TestATurnBelongsToOneProcess(t *testing.T) {
	in(t, func(t *testing.T, s *store) {
		a, b := begin(t, s, "a", nil), begin(t, s, "b", nil)
		take := func(of *adder) bool {
			mine, err := ledger.Turn(t.Context(), of.log, key, []byte("1"), func(now eventlog.KeyValue) bool {
				return now.Age >= time.Minute
			})
			if err != nil {
				t.Error(err)
			}
			return mine
		}
		for turn := range 3 { // the first one finds no key
			var others bool
			s.then(after(func() { others = take(b) }, committed))
			if mine := take(a); mine || !others {
				t.Errorf("turn %d: the first to put has it: %v, and the one that is late: %v", turn, others, mine)
			}
			if take(a) || take(b) {
				t.Errorf("turn %d is taken twice", turn)
			}
			time.Sleep(time.Minute - time.Second)
			if take(a) || take(b) {
				t.Errorf("the turn after %d is taken early", turn)
			}
			time.Sleep(time.Second)
		}
		if !take(a) {
			t.Error("nobody has the turn, and it is not free")
		}
	})
}

// A turn is not taken if nobody can tell.
func TestATurnOfUnknownOutcomeIsNobodys(t *testing.T) {
	in(t, func(t *testing.T, s *store) {
		a := begin(t, s, "a", nil)
		s.then(dropped, lost)
		mine, err := ledger.Turn(t.Context(), a.log, key, []byte("1"), func(eventlog.KeyValue) bool { return true })
		if mine || !errors.Is(err, eventlog.ErrUnsure) {
			t.Errorf("it has the turn: %v, %v", mine, err)
		}
	})
}

// Who keeps a lease is not kept waiting by clients.
func TestUpkeepGoesBeforeOtherEntries(t *testing.T) {
	in(t, func(t *testing.T, s *store) {
		a, open := begin(t, s, "a", nil), make(chan struct{})
		s.then(after(func() { <-open }, committed)) // a commit that takes long: entries gather behind it
		first := a.log.Submit(t.Context(), eventlog.Entry{Checks: []eventlog.Check{{Key: key}}})
		synctest.Wait()
		client := a.log.Submit(t.Context(), eventlog.Entry{Checks: []eventlog.Check{{Key: "lease"}}})
		done := make(chan error)
		go func() {
			_, err := ledger.Turn(t.Context(), ledger.Upkeep{Log: a.log}, "lease", []byte("a"), nil)
			done <- err
		}()
		synctest.Wait()
		close(open)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := first.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := client.Wait(t.Context()); !errors.Is(err, eventlog.ErrStale) {
			t.Errorf("the client's entry, which checks that there is no lease, went first: %v", err)
		}
	})
}
