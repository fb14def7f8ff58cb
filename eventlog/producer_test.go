package eventlog_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// producedBy writes a producer's identity into a batch.
func producedBy(raw []byte, id int64, epoch int16, sequence int32) []byte {
	binary.BigEndian.PutUint64(raw[43:], uint64(id))
	binary.BigEndian.PutUint16(raw[51:], uint16(epoch))
	binary.BigEndian.PutUint32(raw[53:], uint32(sequence))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

func TestRetriedBatchIsAppendedOnce(t *testing.T) {
	log := open(t, memory.New(), eventlog.Config{})
	p := topic(t, log, "orders", 1).Partitions[0]
	for round := range 2 {
		for i := range int32(5) {
			out, err := log.Append(t.Context(), sealed(t, p, 10, 7, 0, i*10))
			if err != nil || out.Base[0] != eventlog.Offset(i*10) || out.Duplicate != (round == 1) {
				t.Errorf("round %d, batch %d: %+v, %v", round, i, out, err)
			}
		}
	}
	if n := len(values(t, log, p)); n != 50 {
		t.Errorf("%d records, want 50", n)
	}
}

func TestBatchesOfAProducerTravelTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: memory.New()}
		gate := &gate{Store: store, open: make(chan struct{})}
		gate.pass()
		log := open(t, gate, eventlog.Config{})
		p := topic(t, log, "orders", 1).Partitions[0]
		gate.shut()
		first := log.Submit(t.Context(), sealed(t, p, 1, -1, 0, 0))
		synctest.Wait() // it travels alone
		var tickets []*eventlog.Ticket
		for _, sequence := range []int32{0, 10, 10, 20, 0, 30, 40} { // two of them twice
			tickets = append(tickets, log.Submit(t.Context(), sealed(t, p, 10, 7, 0, sequence)))
		}
		before := store.commits.Load()
		gate.pass()
		if _, err := first.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, want := range []eventlog.Offset{1, 11, 11, 21, 1, 31, 41} {
			out, err := tickets[i].Wait(t.Context())
			if err != nil || out.Base[0] != want || out.Duplicate != (i == 2 || i == 4) {
				t.Errorf("ticket %d: %+v, %v, want %d", i, out, err, want)
			}
		}
		if n := store.commits.Load() - before; n != 2 {
			t.Errorf("%d commits, want 2", n)
		}
		kv, err := log.Get(t.Context(), fmt.Sprintf("producer/7/%d", p))
		if want := "0 0-9^40 10-19^30 20-29^20 30-39^10 40-49^0 41"; err != nil || string(kv.Value) != want {
			t.Errorf("the store knows of the producer: %q, %v, want %q", kv.Value, err, want)
		}
	})
}

func TestProducerStateIsSharedByBrokers(t *testing.T) {
	store := memory.New()
	here, there := open(t, store, eventlog.Config{}), open(t, store, eventlog.Config{})
	p := topic(t, here, "orders", 1).Partitions[0]
	sequence := int32(0)
	for range 3 { // the producer goes back and forth, and repeats its last batch each time
		for _, log := range []*eventlog.Log{here, there} {
			for range 2 {
				if _, err := log.Append(t.Context(), sealed(t, p, 1, 7, 0, sequence)); err != nil {
					t.Fatal(err)
				}
				sequence++
			}
			other := here
			if log == here {
				other = there
			}
			out, err := other.Append(t.Context(), sealed(t, p, 1, 7, 0, sequence-1))
			if err != nil || !out.Duplicate || out.Base[0] != eventlog.Offset(sequence-1) {
				t.Fatalf("sequence %d again: %+v, %v", sequence-1, out, err)
			}
		}
	}
	if n := len(values(t, here, p)); n != int(sequence) {
		t.Errorf("%d records, want %d", n, sequence)
	}
}

func TestSequenceRules(t *testing.T) {
	store := memory.New()
	log := open(t, store, eventlog.Config{})
	p := topic(t, log, "orders", 1).Partitions[0]
	steps := []struct {
		epoch    int16
		sequence int32
		n        int
		want     error
	}{
		{0, 5, 1, eventlog.ErrUnknownProducer},
		{0, 0, 3, nil},
		{0, 4, 1, eventlog.ErrOutOfOrder},
		{0, 2, 1, eventlog.ErrOutOfOrder},
		{0, 3, 1, nil},
		{1, 4, 1, eventlog.ErrOutOfOrder},
		{1, 0, 1, nil},
		{0, 4, 1, eventlog.ErrFenced},
		{1, 1, 1, nil},
	}
	for i, s := range steps {
		if _, err := log.Append(t.Context(), sealed(t, p, s.n, 7, s.epoch, s.sequence)); !errors.Is(err, s.want) {
			t.Errorf("step %d: %v, want %v", i, err, s.want)
		}
		log = open(t, store, eventlog.Config{}) // what it knows must not live in memory alone
	}
	if n := len(values(t, log, p)); n != 6 {
		t.Errorf("%d records, want 6", n)
	}
}

// What ends a transaction will raise a producer's epoch and clear its sequences. A batch of the
// epoch before it, which is on its way meanwhile, is refused, also if it is the producer's first in
// the partition, or if its flush was begun before: nothing of a transaction may come after its end.
func TestALateBatchOfAnOlderEpochIsFenced(t *testing.T) {
	for name, first := range map[string]int32{"the first batch": 0, "a later one": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New()
				slow := &gate{Store: store, open: make(chan struct{})}
				slow.pass()
				here, there := open(t, slow, eventlog.Config{}), open(t, store, eventlog.Config{})
				p := topic(t, here, "orders", 1).Partitions[0]
				for sequence := range first {
					if _, err := here.Append(t.Context(), sealed(t, p, 1, 7, 0, sequence)); err != nil {
						t.Fatal(err)
					}
				}
				slow.shut()
				late := here.Submit(t.Context(), sealed(t, p, 1, 7, 0, first))
				synctest.Wait() // its flush waits in the store

				key := fmt.Sprintf("producer/7/%d", p)
				kv, err := there.Get(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				marker := sealed(t, p, 1, -1, 0, 0)
				marker.Checks = []eventlog.Check{{Key: key, Version: kv.Version}}
				marker.Puts = []eventlog.Put{{Key: key, Version: kv.Version + 1, Value: []byte("1 "), AddBase: 1}}
				if _, err := there.Append(t.Context(), marker); err != nil {
					t.Fatal(err)
				}
				slow.pass()
				if _, err := late.Wait(t.Context()); !errors.Is(err, eventlog.ErrFenced) {
					t.Errorf("a late batch of epoch 0: %v, want ErrFenced", err)
				}
				for i, s := range []struct {
					epoch    int16
					sequence int32
					want     error
				}{{0, 0, eventlog.ErrFenced}, {0, 5, eventlog.ErrFenced}, {1, 3, eventlog.ErrOutOfOrder}, {1, 0, nil}, {0, 0, eventlog.ErrFenced}, {1, 1, nil}, {2, 0, nil}} {
					for _, log := range []*eventlog.Log{here, there} { // one of them appends, the other sees a repetition
						if _, err := log.Append(t.Context(), sealed(t, p, 1, 7, s.epoch, s.sequence)); !errors.Is(err, s.want) {
							t.Errorf("step %d: %v, want %v", i, err, s.want)
						}
					}
				}
				if n := len(values(t, here, p)); n != int(first)+4 {
					t.Errorf("%d records, want %d", n, first+4)
				}
			})
		})
	}
}

func TestAProducerWithoutSequencesIsDescribed(t *testing.T) {
	log := open(t, memory.New(), eventlog.Config{})
	p := topic(t, log, "orders", 1).Partitions[0]
	if _, err := log.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: fmt.Sprintf("producer/7/%d", p), Version: 1, Value: []byte("3 40")}}}); err != nil {
		t.Fatal(err)
	}
	seen := 0
	err := log.Producers(t.Context(), func(in eventlog.Partition, of eventlog.Producer) error {
		if seen++; in != p || of.ID != 7 || of.Epoch != 3 || of.LastSequence != -1 || len(of.Batches) != 0 {
			t.Errorf("partition %d: %+v", in, of)
		}
		return nil
	})
	if err != nil || seen != 1 {
		t.Errorf("%d producers, %v", seen, err)
	}
}

func TestSequenceWrapsToZero(t *testing.T) {
	store := memory.New()
	log := open(t, store, eventlog.Config{})
	p := topic(t, log, "orders", 1).Partitions[0]
	// A producer near the end of its numbers, as the store would know it.
	key := fmt.Sprintf("producer/7/%d", p)
	state := fmt.Sprintf("0 0-%d@0 0", math.MaxInt32-2)
	if _, err := log.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: key, Version: 1, Value: []byte(state)}}}); err != nil {
		t.Fatal(err)
	}
	for _, sequence := range []int32{math.MaxInt32 - 1, 3} { // 2^31-2, 2^31-1, 0, 1, 2; then 3
		if _, err := log.Append(t.Context(), sealed(t, p, 5, 7, 0, sequence)); err != nil {
			t.Errorf("sequence %d: %v", sequence, err)
		}
	}
}

func TestUnsureFlushIsSettledByTheRetry(t *testing.T) {
	for name, c := range map[string]struct {
		before, after []error
		duplicate     bool
	}{
		"it had happened":     {after: []error{fmt.Errorf("cut: %w", eventlog.ErrUnsure)}, duplicate: true},
		"it had not happened": {before: []error{fmt.Errorf("cut: %w", eventlog.ErrUnsure)}},
	} {
		t.Run(name, func(t *testing.T) {
			store := &failing{Store: memory.New()}
			log := open(t, store, eventlog.Config{})
			p := topic(t, log, "orders", 1).Partitions[0]
			if _, err := log.Append(t.Context(), sealed(t, p, 3, 7, 0, 0)); err != nil {
				t.Fatal(err)
			}
			store.fail(c.before, c.after)
			if _, err := log.Append(t.Context(), sealed(t, p, 3, 7, 0, 3)); !errors.Is(err, eventlog.ErrUnsure) {
				t.Fatalf("%v, want ErrUnsure", err)
			}
			out, err := log.Append(t.Context(), sealed(t, p, 3, 7, 0, 3))
			if err != nil || out.Base[0] != 3 || out.Duplicate != c.duplicate {
				t.Errorf("the retry: %+v, %v", out, err)
			}
			if n := len(values(t, log, p)); n != 6 {
				t.Errorf("%d records, want 6", n)
			}
		})
	}
}

func TestSilentProducerIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := open(t, memory.New(), eventlog.Config{})
		p := topic(t, log, "orders", 1).Partitions[0]
		if _, err := log.Append(t.Context(), sealed(t, p, 1, 7, 0, 0)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Hour) // fake time
		err := log.ListAll(t.Context(), "producer/", func(kv eventlog.KeyValue) error {
			return fmt.Errorf("still there: %s", kv.Key)
		})
		if err != nil {
			t.Error(err)
		}
		if _, err := log.Append(t.Context(), sealed(t, p, 1, 7, 0, 1)); !errors.Is(err, eventlog.ErrUnknownProducer) {
			t.Errorf("its next batch: %v, want ErrUnknownProducer", err)
		}
	})
}

func TestProducerIDsAreUniqueOverBrokers(t *testing.T) {
	store := memory.New()
	seen := make(map[int64]bool)
	logs := []*eventlog.Log{open(t, store, eventlog.Config{}), open(t, store, eventlog.Config{})}
	for i := range 2500 {
		id, err := logs[i%2].NewProducerID(t.Context())
		if err != nil || seen[id] {
			t.Fatalf("id %d, seen before: %v, %v", id, seen[id], err)
		}
		seen[id] = true
	}
}

func TestOutageEndsInTimeForEachCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &failing{Store: memory.New()}
		log := open(t, store, eventlog.Config{})
		p := topic(t, log, "orders", 1).Partitions[0]
		away := make([]error, 10)
		for i := range away {
			away[i] = fmt.Errorf("refused: %w", eventlog.ErrUnavailable)
		}
		store.fail(away, nil) // for some seconds
		start := time.Now()
		hasty, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		quick := log.Submit(hasty, sealed(t, p, 1, -1, 0, 0))
		slow := log.Submit(t.Context(), sealed(t, p, 1, -1, 0, 0))
		if _, err := quick.Wait(hasty); !errors.Is(err, eventlog.ErrUnavailable) && !errors.Is(err, eventlog.ErrUnsure) || time.Since(start) > 200*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if _, err := slow.Wait(t.Context()); err != nil {
			t.Errorf("the patient caller: %v", err)
		}
		if got := values(t, log, p); len(got) != 1 {
			t.Errorf("%d records, want 1: who gave up before the entry was sent finds it nowhere", len(got))
		}
	})
}

func TestRunFlushesWhatWasSubmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := &gate{Store: memory.New(), open: make(chan struct{})}
		gate.pass()
		log, err := eventlog.Open(t.Context(), gate, eventlog.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- log.Run(ctx) }()
		p := topic(t, log, "orders", 1).Partitions[0]
		gate.shut()
		a := log.Submit(t.Context(), sealed(t, p, 1, -1, 0, 0))
		synctest.Wait()
		b := log.Submit(t.Context(), sealed(t, p, 1, -1, 0, 0))
		cancel()
		synctest.Wait()
		gate.pass()
		for _, ticket := range []*eventlog.Ticket{a, b} {
			if _, err := ticket.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := log.Append(t.Context(), sealed(t, p, 1, -1, 0, 0)); !errors.Is(err, eventlog.ErrClosed) {
			t.Errorf("after Run: %v, want ErrClosed", err)
		}
	})
}

func TestUnreadableProducerStateIsNamed(t *testing.T) {
	log := open(t, memory.New(), eventlog.Config{})
	p := topic(t, log, "orders", 1).Partitions[0]
	key := fmt.Sprintf("producer/7/%d", p)
	if _, err := log.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: key, Version: 1, Value: []byte("rubbish")}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := log.Append(t.Context(), sealed(t, p, 1, 7, 0, 0)); err == nil || !strings.Contains(err.Error(), key) {
		t.Errorf("%v, want an error that names %s", err, key)
	}
}

// A producer may speak in the very moment in which it is forgotten for its silence.
func TestProducerSpeaksWhileItIsForgotten(t *testing.T) {
	for _, forgottenFirst := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			gate := &gate{Store: &strict{Store: memory.New(), t: t}, open: make(chan struct{})}
			gate.pass()
			log := open(t, gate, eventlog.Config{})
			p := topic(t, log, "orders", 1).Partitions[0]
			if _, err := log.Append(t.Context(), sealed(t, p, 1, 7, 0, 0)); err != nil {
				t.Fatal(err)
			}
			kv, err := log.Get(t.Context(), fmt.Sprintf("producer/7/%d", p))
			if err != nil {
				t.Fatal(err)
			}
			forget := eventlog.Entry{Checks: []eventlog.Check{{Key: kv.Key, Version: kv.Version}}, Puts: []eventlog.Put{{Key: kv.Key}}}
			gate.shut()
			log.Submit(t.Context(), sealed(t, p, 1, -1, 0, 0))
			synctest.Wait() // it travels alone; the next two wait together
			var forgotten, spoken *eventlog.Ticket
			if forgottenFirst {
				forgotten = log.Submit(t.Context(), forget)
			}
			spoken = log.Submit(t.Context(), sealed(t, p, 1, 7, 0, 1))
			if !forgottenFirst {
				forgotten = log.Submit(t.Context(), forget)
			}
			gate.pass()
			_, errSpoken := spoken.Wait(t.Context())
			_, errForgotten := forgotten.Wait(t.Context())
			if forgottenFirst && (errForgotten != nil || !errors.Is(errSpoken, eventlog.ErrUnknownProducer)) {
				t.Errorf("forgotten (%v), and then it speaks: %v, want ErrUnknownProducer", errForgotten, errSpoken)
			}
			if !forgottenFirst && (errSpoken != nil || !errors.Is(errForgotten, eventlog.ErrStale)) {
				t.Errorf("it speaks (%v), and is then forgotten: %v, want ErrStale", errSpoken, errForgotten)
			}
		})
	}
}

// Two brokers remember a producer from before it was forgotten. It begins anew at one of them, and
// its retry goes to the other.
func TestForgottenProducerIsNotMistakenForItsOldSelf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		cfg := eventlog.Config{Poll: time.Minute}
		here, there := open(t, store, cfg), open(t, store, cfg)
		p := topic(t, here, "orders", 1).Partitions[0]
		if _, err := there.Append(t.Context(), sealed(t, p, 1, 7, 0, 0)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Hour) // fake time
		if _, err := here.Append(t.Context(), sealed(t, p, 1, 7, 1, 0)); err != nil {
			t.Fatal(err)
		}
		out, err := there.Append(t.Context(), sealed(t, p, 1, 7, 1, 0))
		if err != nil || !out.Duplicate || out.Base[0] != 1 {
			t.Errorf("the retry: %+v, %v, want the batch at 1", out, err)
		}
	})
}

// The queue is full of what nobody waits for any more when the log stops.
func TestStoppingLetsGoOfWhoWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &failing{Store: memory.New()}
		log, err := eventlog.Open(t.Context(), store, eventlog.Config{}.With(eventlog.Limits{FlushBytes: 1, QueueBytes: 12_000}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- log.Run(ctx) }()
		p := topic(t, log, "orders", 1).Partitions[0]
		away := make([]error, 1000)
		for i := range away {
			away[i] = eventlog.ErrUnavailable
		}
		store.fail(away, nil)
		log.Submit(t.Context(), sealed(t, p, 1, -1, 0, 0)) // stays at the head, and fills a flush
		large := eventlog.Entry{Puts: []eventlog.Put{{Key: "k", Version: 1, Value: make([]byte, 9000)}}}
		hasty, leave := context.WithCancel(t.Context())
		behind := log.Submit(hasty, large)
		leave()
		if _, err := behind.Wait(hasty); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Fatal(err)
		}
		waiting := make(chan error)
		go func() {
			_, err := log.Append(t.Context(), large)
			waiting <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		select {
		case err := <-waiting:
			if !errors.Is(err, eventlog.ErrClosed) {
				t.Errorf("%v, want ErrClosed", err)
			}
		default:
			t.Error("still waiting for room in the queue of a log that has stopped")
		}
	})
}

// A batch of an idempotent producer that shares an entry would be appended without a look at its
// sequence numbers.
func TestAProducersBatchIsAloneInItsEntry(t *testing.T) {
	log := open(t, memory.New(), eventlog.Config{})
	p := topic(t, log, "orders", 1).Partitions[0]
	e := sealed(t, p, 1, 7, 0, 0)
	e.Puts = []eventlog.Put{{Key: "k", Version: 1, Value: []byte("v")}}
	two := sealed(t, p, 1, 7, 0, 0)
	two.Batches = append(two.Batches, two.Batches[0])
	for _, e := range []eventlog.Entry{e, two} {
		if _, err := log.Append(t.Context(), e); err == nil || errors.Is(err, eventlog.ErrUnsure) || len(values(t, log, p)) > 0 {
			t.Errorf("%v, %q", err, values(t, log, p))
		}
	}
}

// costly says how large flushes may be and when one may begin, and holds the first until gate is
// closed.
type costly struct {
	eventlog.Store
	most  atomic.Int64
	next  time.Time
	gate  chan struct{}
	mu    sync.Mutex
	sizes []int // of the flushes with batches
}

func (s *costly) HeartbeatEvery() time.Duration { return 0 }
func (s *costly) CommitEvery() time.Duration    { return 0 }
func (s *costly) FlushBytes() int               { return int(s.most.Load()) }
func (s *costly) NextCommit() time.Time         { return s.next }

func (s *costly) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if len(flush[0].Batches) > 0 && flush[0].Batches[0].Records > 0 {
		s.mu.Lock()
		s.sizes = append(s.sizes, len(flush))
		s.mu.Unlock()
		<-s.gate
	}
	return s.Store.Commit(ctx, flush)
}

// What is submitted while the store lets no commit begin goes with the commit that was due.
func TestAFlushHasWhatCameBeforeTheStoreLetItBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &costly{Store: memory.New(), gate: make(chan struct{})}
		close(store.gate)
		log := open(t, store, eventlog.Config{})
		p := topic(t, log, "orders", 1).Partitions[0]
		store.sizes, store.next = nil, time.Now().Add(time.Second)
		first := log.Submit(t.Context(), sealed(t, p, 1, -1, 0, 0))
		time.Sleep(900 * time.Millisecond)
		second := log.Submit(t.Context(), sealed(t, p, 1, -1, 0, 0))
		for _, ticket := range []*eventlog.Ticket{first, second} {
			if _, err := ticket.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(store.sizes, []int{2}) || time.Now().Before(store.next) {
			t.Errorf("flushes of %v entries, %v before the store lets one begin", store.sizes, time.Until(store.next))
		}
	})
}

// An entry that is withdrawn before the store lets a commit begin is in none, and the others are.
func TestAnEntryIsWithdrawnWhileTheStoreLetsNoCommitBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &costly{Store: memory.New(), gate: make(chan struct{})}
		close(store.gate)
		log := open(t, store, eventlog.Config{})
		p := topic(t, log, "orders", 1).Partitions[0]
		store.sizes, store.next = nil, time.Now().Add(time.Second)
		hasty, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer leave()
		gone := log.Submit(t.Context(), sealed(t, p, 1, -1, 0, 0))
		stays := log.Submit(t.Context(), sealed(t, p, 1, -1, 0, 0))
		if _, err := gone.Wait(hasty); !errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrUnsure) {
			t.Errorf("who gave up was told %v, want ErrUnavailable", err)
		}
		if out, err := stays.Wait(t.Context()); err != nil || out.Base[0] != 0 {
			t.Errorf("who waited was told %+v, %v", out, err)
		}
		if !slices.Equal(store.sizes, []int{1}) {
			t.Errorf("flushes of %v entries, want one of 1", store.sizes)
		}
	})
}

// An entry that is submitted for its effect happens, though its caller does not wait for that.
func TestAnEntryThatStaysIsNotWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &costly{Store: memory.New(), gate: make(chan struct{})}
		close(store.gate)
		log := open(t, store, eventlog.Config{})
		p := topic(t, log, "orders", 1).Partitions[0]
		store.next = time.Now().Add(time.Second)
		hasty, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer leave()
		entry := sealed(t, p, 1, -1, 0, 0)
		entry.Stays = true
		if _, err := log.Append(hasty, entry); !errors.Is(err, eventlog.ErrUnsure) || errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("who gave up was told %v, want ErrUnsure", err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := values(t, log, p); len(got) != 1 {
			t.Errorf("the log has %v, want the record", got)
		}
	})
}

// A log that is stopped while the store lets no commit begin waits as long as it drains, and no
// longer: what it could not commit until then is certainly not done.
func TestALogThatStopsWaitsForTheStoreAsLongAsItDrains(t *testing.T) {
	const drains = 5 * time.Second
	for _, c := range []struct {
		begins, ends time.Duration
		want         error
	}{
		{3 * time.Second, 3 * time.Second, nil},
		{time.Hour, drains, eventlog.ErrClosed},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &costly{Store: memory.New(), gate: make(chan struct{})}
			close(store.gate)
			log, err := eventlog.Open(t.Context(), store, eventlog.Config{DrainTimeout: drains})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			done := make(chan error, 1)
			go func() { done <- log.Run(ctx) }()
			p := topic(t, log, "orders", 1).Partitions[0]
			began := time.Now()
			store.next = began.Add(c.begins)
			ticket := log.Submit(t.Context(), sealed(t, p, 1, -1, 0, 0))
			synctest.Wait() // it waits for the store
			stop()
			if _, err := ticket.Wait(t.Context()); !errors.Is(err, c.want) || errors.Is(err, eventlog.ErrUnsure) {
				t.Errorf("the store lets a commit begin after %v: %v, want %v", c.begins, err, c.want)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took != c.ends {
				t.Errorf("the store lets a commit begin after %v, and the log ended after %v, want %v", c.begins, took, c.ends)
			}
		})
	}
}

func TestAFlushIsAsLargeAsACostlyStoreAsksFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &costly{Store: memory.New()}
		log := open(t, store, eventlog.Config{})
		p := topic(t, log, "orders", 1).Partitions[0]
		for _, c := range []struct {
			most  int64
			alone bool
		}{{0, false}, {1, true}} { // a shard that was lost answers, and takes less at once
			store.most.Store(c.most)
			store.gate, store.sizes = make(chan struct{}), nil
			var tickets []*eventlog.Ticket
			for range 5 {
				tickets = append(tickets, log.Submit(t.Context(), sealed(t, p, 1, -1, 0, 0)))
			}
			synctest.Wait() // the first is being committed, the others wait
			close(store.gate)
			for _, ticket := range tickets {
				if _, err := ticket.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if alone := slices.Equal(store.sizes, []int{1, 1, 1, 1, 1}); alone != c.alone {
				t.Errorf("the store asks for %d bytes at once: flushes of %v entries", c.most, store.sizes)
			}
		}
	})
}
