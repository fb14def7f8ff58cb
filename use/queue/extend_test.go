package queue_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/queue"
)

// The answer to an extension is lost. Its worker extends the lease for longer at another process,
// and then the first one finds out that its own extension was not made, and makes it.
func TestAnExtensionThatIsMadeLateDoesNotShortenALaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := newStore(t)
		store := &late{Store: under}
		p, other := begin(t, store, 20*time.Second), begin(t, under, 20*time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		theirs := open(t, other.Queues, "mail")
		enqueue(t, q, "a")
		m := claimN(t, q, 1)[0]
		store.mu.Lock()
		store.armed, store.during = true, func() { extend(t, theirs, 10*time.Minute, m) }
		store.mu.Unlock()
		asked := time.Now()
		extend(t, q, time.Minute, m)
		if until := find(t, theirs, m.ID).Until; until.Before(asked.Add(10 * time.Minute)) {
			t.Errorf("the lease of 10 minutes ends after %v", until.Sub(asked))
		}
	})
}

// An extension waits: the process is still starting.
func TestAnExtensionLastsFromWhenItIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		p := begin(t, store, 20*time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		enqueue(t, q, "a")
		m := claimN(t, q, 1)[0]
		starting := asking(t, store)
		theirs := open(t, starting, "mail")
		made := make(chan error)
		go func() {
			errs, err := theirs.Extend(t.Context(), time.Minute, m.Receipt)
			made <- errors.Join(append(errs, err)...)
		}()
		time.Sleep(10 * time.Minute) // of fake time
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		t.Cleanup(func() { cancel(); <-ended })
		began := time.Now()
		go func() { defer close(ended); _ = starting.Run(ctx) }()
		if err := <-made; err != nil {
			t.Fatal(err)
		}
		if until := find(t, q, m.ID).Until; until.Before(began.Add(time.Minute)) {
			t.Errorf("the lease of a minute ends %v after the extension was made", until.Sub(began))
		}
	})
}

// The store takes longer than the lease. A lease that was made shorter has ended as was asked.
func TestAnExtensionThatEndsBeforeItIsStoredIsNotReportedAsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &ahead{Store: newStore(t)}
		p := begin(t, store, 20*time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Lease: time.Hour}})
		enqueue(t, q, "a", "b")
		short, err := q.Claim(t.Context(), queue.Claim{Lease: 500 * time.Millisecond})
		if err != nil || len(short) != 1 {
			t.Fatal(short, err)
		}
		long := claimN(t, q, 1)[0]
		slow := func() { time.Sleep(2 * time.Second) }
		store.ofCommit.Store(&slow)
		errs, err := q.Extend(t.Context(), time.Second, short[0].Receipt, long.Receipt)
		if err != nil || !errors.Is(errs[0], queue.ErrLeaseEnded) || !errors.Is(errs[0], eventlog.ErrUnavailable) || errs[1] != nil {
			t.Errorf("an extension by 1 s that took 2 s: %v, %v; want ErrLeaseEnded of the lease that became longer", errs, err)
		}
		store.ofCommit.Store(nil)
		extend(t, q, time.Minute, short[0])
	})
}

// A lease that has ended gave its place to another message. Extending it would exceed the limit.
func TestAnEndedLeaseIsExtendedOnlyWithinTheConcurrencyLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, newStore(t), 20*time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 8, Settings: queue.Settings{Concurrency: 1, Lease: time.Second}})
		var messages []queue.NewMessage
		for i := range 64 {
			messages = append(messages, queue.NewMessage{Key: []byte{byte(i)}, Value: []byte{byte(i)}})
		}
		if _, err := q.Enqueue(t.Context(), messages...); err != nil {
			t.Fatal(err)
		}
		late := claimN(t, q, 1)[0]
		time.Sleep(time.Minute)
		errs, err := q.Extend(t.Context(), time.Second, late.Receipt)
		if err := one(t, errs, err); err != nil {
			t.Fatalf("nobody has its place: %v", err)
		}
		held := late
		for held.ID == late.ID {
			time.Sleep(time.Minute)
			if held = claimN(t, q, 1)[0]; held.ID == late.ID {
				late = held
			}
		}
		errs, err = q.Extend(t.Context(), time.Second, late.Receipt)
		if err := one(t, errs, err); !errors.Is(err, queue.ErrStaleReceipt) {
			t.Errorf("extended past the limit: %v", err)
		}
		errs, err = q.Extend(t.Context(), time.Second, held.Receipt)
		if err := one(t, errs, err); err != nil {
			t.Errorf("the one that has the place: %v", err)
		}
	})
}
