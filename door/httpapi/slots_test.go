package httpapi

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestOneKeyTakesAQuarterOfTheSlotsAndDelaysNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(4)
		const many, few = "many", "few"
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 100)
		for range 100 {
			go func() { got <- s.acquire(ctx, many) }()
		}
		synctest.Wait()
		if len(got) != 1 {
			t.Fatalf("one key has %d of 4 slots", len(got))
		}
		if err := s.acquire(t.Context(), few); err != nil {
			t.Fatal(err)
		}
		s.release(few)
		s.release(many)
		synctest.Wait()
		if len(got) != 2 {
			t.Fatalf("after one of a key's requests ended %d of them had a slot; want 2", len(got))
		}
		cancel()
		synctest.Wait()
		s.release(many)
		failed := 0
		for range 100 {
			if err := <-got; errors.Is(err, context.Canceled) {
				failed++
			}
		}
		if failed != 98 || s.taken != 0 || len(s.waiting) != 0 || len(s.ofKey) != 0 {
			t.Fatalf("%d requests gave up; then %d slots are taken, %d wait, and %d keys are known", failed, s.taken, len(s.waiting), len(s.ofKey))
		}
	})
}

// With one slot no key can be kept from all, but the next slot is the other key's.
func TestKeysTakeTurnsWhereThereIsOneSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1)
		order := make(chan string, 20)
		for range 9 {
			go func() { _ = s.acquire(t.Context(), "many"); order <- "many" }()
		}
		synctest.Wait()
		go func() { _ = s.acquire(t.Context(), "few"); order <- "few" }()
		synctest.Wait()
		if first := <-order; first != "many" {
			t.Fatalf("%s has the only slot", first)
		}
		s.release("many")
		if second := <-order; second != "few" {
			t.Fatalf("%s is next", second)
		}
	})
}

func TestWithoutKeysAllSlotsAreTaken(t *testing.T) {
	s := newSlots(4)
	for range 4 {
		if err := s.acquire(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
	}
}

// Keys that ask for one slot at a time, and come back at once, do not keep the second request of
// another key waiting for ever.
func TestKeysThatComeBackWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(2)
		ctx, cancel := context.WithCancel(t.Context())
		for _, key := range []string{"a", "b", "c"} {
			go func() {
				for s.acquire(ctx, key) == nil {
					time.Sleep(time.Second)
					s.release(key)
				}
			}()
		}
		synctest.Wait()
		got := make(chan time.Duration, 3)
		began := time.Now()
		for range 3 {
			go func() {
				if s.acquire(ctx, "many") == nil {
					time.Sleep(time.Second)
					s.release("many")
					got <- time.Since(began)
				}
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(got) != 3 {
			t.Errorf("after a minute %d of 3 requests had a slot", len(got))
		}
		cancel()
		time.Sleep(time.Minute)
	})
}
