package queue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
)

// blocks is a store that counts the records it reads, and may refuse to save blocks of delayed
// messages.
type blocks struct {
	eventlog.Store
	records atomic.Int64
	refuse  atomic.Bool
}

func isBlock(key string) bool { return strings.HasPrefix(key, "queue/places/") }

func (s *blocks) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	slices, err := s.Store.Read(ctx, spans, maxBytes)
	for _, slice := range slices {
		for _, b := range slice.Batches {
			s.records.Add(int64(b.Records))
		}
	}
	return slices, err
}

func (s *blocks) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if !s.refuse.Load() {
		return s.Store.Commit(ctx, flush)
	}
	out := make([]eventlog.Outcome, len(flush))
	var rest []eventlog.Entry
	var of []int
	for i, e := range flush {
		if len(e.Puts) > 0 && isBlock(e.Puts[0].Key) && e.Puts[0].Value != nil {
			out[i].Err = eventlog.ErrStale
			continue
		}
		rest, of = append(rest, e), append(of, i)
	}
	if len(rest) == 0 {
		return out, nil
	}
	some, err := s.Store.Commit(ctx, rest)
	for i := range some {
		out[of[i]] = some[i]
	}
	return out, err
}

// asking returns the queues of a new process that is only asked: it moves no delayed messages, that
// is reads none for it, and saves no blocks.
func asking(t *testing.T, store eventlog.Store) *queue.Queues {
	t.Helper()
	log := writer(t, store)
	return queue.New(log, publish.New(log, publish.Config{}), queue.Config{})
}

// delayMany enqueues n messages that are due after delay.
func delayMany(t *testing.T, q *queue.Queue, n int, delay time.Duration) (last queue.MessageID) {
	t.Helper()
	for n > 0 {
		out, err := q.Enqueue(t.Context(), slicesOf(queue.NewMessage{Value: []byte("v"), Delay: delay}, min(n, 500))...)
		if err != nil {
			t.Fatal(err)
		}
		n, last = n-len(out), out[len(out)-1].ID
	}
	return last
}

func slicesOf(m queue.NewMessage, n int) (all []queue.NewMessage) {
	for range n {
		all = append(all, m)
	}
	return all
}

func wantDelayed(t *testing.T, when string, q *queue.Queue, want int64) {
	t.Helper()
	if s, err := q.Stats(t.Context()); err != nil || s.Delayed != want {
		t.Errorf("%s: %d messages of %q are delayed, want %d: %v", when, s.Delayed, q.Info().Name, want, err)
	}
}

const (
	blockSize = 1024
	farOff    = 30 * 24 * time.Hour
	saved     = 30 * time.Second // after which the leader has saved what it reads
)

// A process that starts does not read the delayed messages of others before it answers, whether it
// was asked before it stopped or not.
func TestTheFirstQuestionOfAProcessReadsFewDelayedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const others = 10 * blockSize
		store := &blocks{Store: newStore(t)}
		p := begin(t, store, time.Minute)
		synctest.Wait()
		theirs, mine := create(t, p.Queues, queue.Spec{Name: "theirs"}), create(t, p.Queues, queue.Spec{Name: "mine"})
		delayMany(t, theirs, others/2, 3*time.Hour)
		id := delayMany(t, mine, 3, 3*time.Hour)
		delayMany(t, theirs, others/2, 3*time.Hour)
		time.Sleep(saved)
		for _, when := range []string{"at first", "after the leader was another process"} {
			p.stop()
			asked := asking(t, store)
			before := store.records.Load()
			mine = open(t, asked, "mine")
			wantDelayed(t, when, mine, 3)
			if n := store.records.Load() - before; n > 2*blockSize {
				t.Errorf("%s: %d records are read, of %d", when, n, others)
			}
			if c, err := mine.Find(t.Context(), id); err != nil || c.State != queue.Delayed {
				t.Errorf("%s: %+v, %v", when, c, err)
			}
			wantDelayed(t, when, open(t, asked, "theirs"), others)
			p = begin(t, store, time.Minute)
			time.Sleep(saved)
		}
		size := 0
		for _, kv := range blocksOf(t, store) {
			size += len(kv.Value)
		}
		if size == 0 || size > 3*others {
			t.Errorf("the blocks of %d messages have %d bytes", others, size)
		}
		time.Sleep(4 * time.Hour)
		if left := blocksOf(t, store); len(left) > 0 {
			t.Errorf("after all was due, %d blocks are left, such as %s", len(left), left[0].Key)
		}
		wantDelayed(t, "after all was due", mine, 0)
	})
}

func blocksOf(t *testing.T, store eventlog.Store) []eventlog.KeyValue {
	t.Helper()
	kvs, err := store.List(t.Context(), "queue/places/", "", 10_000)
	if err != nil {
		t.Fatal(err)
	}
	return kvs
}

// The process that read the messages stops before it has saved their blocks: the next one counts
// them all, and saves the blocks.
func TestABlockThatWasNotSavedIsReadAndSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &blocks{Store: newStore(t)}
		p := begin(t, store, time.Minute)
		synctest.Wait()
		mine := create(t, p.Queues, queue.Spec{Name: "mine"})
		delayMany(t, mine, 2*blockSize, farOff)
		time.Sleep(saved)
		store.refuse.Store(true)
		delayMany(t, mine, 2*blockSize, farOff)
		time.Sleep(saved)
		wantDelayed(t, "before", mine, 4*blockSize)
		had := len(blocksOf(t, store))
		p.stop()
		store.refuse.Store(false)
		p = begin(t, store, time.Minute)
		mine = open(t, p.Queues, "mine")
		wantDelayed(t, "after", mine, 4*blockSize)
		time.Sleep(saved)
		if n := len(blocksOf(t, store)); had != 2 || n != 4 {
			t.Errorf("%d blocks were saved first, and %d in the end; want 2 and 4", had, n)
		}
		p.stop()
		for lost := range 3 { // blocks that are not there, although later ones are
			before := store.records.Load()
			wantDelayed(t, fmt.Sprintf("without %d blocks", lost), open(t, asking(t, store), "mine"), 4*blockSize)
			if n := store.records.Load() - before; lost == 0 && n > 0 {
				t.Errorf("with all blocks, a new process reads %d records", n)
			}
			for _, kv := range blocksOf(t, store)[:1] {
				out, err := store.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: kv.Key}}}})
				if err != nil || out[0].Err != nil {
					t.Fatal(err, out)
				}
			}
		}
	})
}

// A store that is put back loses messages with their blocks. Those that have their offsets then are
// told from them, by the process that runs on and by a new one.
func TestBlocksAreOfTheMessagesThatAStoreHasAfterARewind(t *testing.T) {
	once(t)
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		p := begin(t, store, time.Second)
		synctest.Wait()
		theirs, mine := create(t, p.Queues, queue.Spec{Name: "theirs"}), create(t, p.Queues, queue.Spec{Name: "mine"})
		delayMany(t, theirs, blockSize+10, farOff)
		time.Sleep(saved)
		restore := store.Backup()
		delayMany(t, theirs, 2*blockSize, farOff)
		wantDelayed(t, "before", theirs, 3*blockSize+10) // and the blocks that are lost are about to be saved
		restore(false)
		time.Sleep(saved)
		if n := len(blocksOf(t, store)); n != 1 {
			t.Errorf("%d blocks are there after the rewind", n)
		}
		delayMany(t, mine, 3*blockSize, farOff)
		time.Sleep(saved)
		for range 2 {
			wantDelayed(t, "after the rewind", open(t, p.Queues, "theirs"), blockSize+10)
			wantDelayed(t, "after the rewind", open(t, p.Queues, "mine"), 3*blockSize)
			time.Sleep(saved)
			if n := len(blocksOf(t, store)); n != 4 {
				t.Errorf("%d blocks are there in the end", n)
			}
			p.stop()
			p = begin(t, store, time.Second)
			synctest.Wait()
		}
	})
}

// The messages of a queue that is gone leave the blocks, too.
func TestMessagesOfAGoneQueueLeaveTheBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &blocks{Store: newStore(t)}
		p := begin(t, store, time.Minute)
		synctest.Wait()
		theirs, mine := create(t, p.Queues, queue.Spec{Name: "theirs"}), create(t, p.Queues, queue.Spec{Name: "mine"})
		id := theirs.Info().ID
		for range 3 {
			delayMany(t, theirs, blockSize/2, farOff)
			delayMany(t, mine, blockSize/2, farOff)
		}
		time.Sleep(saved)
		if err := p.Delete(t.Context(), "theirs"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		left := blocksOf(t, store)
		if len(left) != 3 {
			t.Errorf("%d blocks are left", len(left))
		}
		for _, kv := range left {
			if strings.Contains(string(kv.Value), id) || !strings.Contains(string(kv.Value), mine.Info().ID) {
				t.Errorf("%s is %.200s", kv.Key, kv.Value)
			}
		}
		p.stop()
		p = begin(t, store, time.Minute)
		mine = open(t, p.Queues, "mine")
		wantDelayed(t, "after the other queue was deleted", mine, 3*blockSize/2)
		if err := p.Delete(t.Context(), "mine"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if left := blocksOf(t, store); len(left) > 0 {
			t.Errorf("%d blocks are left of an empty wheel", len(left))
		}
	})
}

// A process of an earlier version trims a slot, and leaves the block. The next leader deletes it.
func TestABlockBelowItsSlotIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		p := begin(t, store, time.Minute)
		synctest.Wait()
		mine := create(t, p.Queues, queue.Spec{Name: "mine"})
		delayMany(t, mine, blockSize, farOff)
		time.Sleep(saved)
		all := blocksOf(t, store)
		if len(all) != 1 {
			t.Fatalf("%d blocks are saved", len(all))
		}
		slot, err := strconv.Atoi(strings.Split(all[0].Key, "/")[2])
		if err != nil {
			t.Fatal(err)
		}
		if err := p.log.Trim(t.Context(), eventlog.Partition(slot), blockSize); err != nil {
			t.Fatal(err)
		}
		p.stop()
		p = begin(t, store, time.Minute)
		mine = open(t, p.Queues, "mine")
		delayMany(t, mine, blockSize, farOff)
		time.Sleep(saved)
		if left := blocksOf(t, store); len(left) != 1 || left[0].Key == all[0].Key {
			t.Errorf("%d blocks are left: %v", len(left), left)
		}
		wantDelayed(t, "in the end", mine, blockSize)
	})
}

// Whatever is saved when: each process counts the messages that wait, and finds each of them.
func TestEachProcessCountsTheMessagesThatWait(t *testing.T) {
	random := seed.Random(t)
	synctest.Test(t, func(t *testing.T) { countsInTurns(t, random) })
}

func countsInTurns(t *testing.T, random *rand.Rand) {
	store := &blocks{Store: newStore(t)}
	procs := []process{begin(t, store, time.Second), begin(t, store, time.Second)}
	synctest.Wait()
	names := []string{"a", "b", "c"}
	want := make(map[string]int64)
	last := make(map[string]queue.MessageID)
	for _, name := range names {
		create(t, procs[0].Queues, queue.Spec{Name: name, Partitions: 1})
	}
	for turn := range 40 {
		p := procs[random.IntN(2)]
		name := names[random.IntN(3)]
		switch random.IntN(8) {
		default:
			n := 1 + random.IntN(1500)
			last[name] = delayMany(t, open(t, p.Queues, name), n, farOff+time.Duration(random.IntN(2))*100*time.Hour)
			want[name] += int64(n)
		case 0:
			store.refuse.Store(random.IntN(2) == 0)
		case 1:
			if err := p.Purge(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			want[name] = 0
			delete(last, name)
		case 2:
			i := random.IntN(2)
			procs[i].stop()
			procs[i] = begin(t, store, time.Second)
			synctest.Wait()
		case 3: // some are due soon
			if _, err := open(t, p.Queues, name).Enqueue(t.Context(), slicesOf(queue.NewMessage{Delay: 5 * time.Minute}, 1100)...); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(random.IntN(60)) * time.Second)
			time.Sleep(6 * time.Minute)
		}
		if random.IntN(2) == 0 {
			time.Sleep(time.Duration(random.IntN(40)) * time.Second)
		}
		time.Sleep(2 * time.Second) // each has heard of what the other one did
		for i, p := range procs {
			for _, name := range names {
				q := open(t, p.Queues, name)
				wantDelayed(t, fmt.Sprintf("turn %d, process %d", turn, i), q, want[name])
				if id, there := last[name]; there {
					if c, err := q.Find(t.Context(), id); err != nil || c.State != queue.Delayed {
						t.Errorf("turn %d, process %d: %v of %q is %q: %v", turn, i, id, name, c.State, err)
					}
				}
			}
		}
		if t.Failed() {
			return
		}
	}
}
