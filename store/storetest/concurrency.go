package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog"
)

var concurrencyTests = map[string]func(*testing.T, Harness){
	"ReadersNeverSeeOffsetsBelowWhatTheyPassed": testReadersDuringCommits,
	"ACounterUnderChecksLosesNothing":           testCounter,
	"TrimAndReadsRunBesideCommits":              testTrimDuringCommits,
}

// Committers commit to a store that is opened twice. Meanwhile two readers, one through each of the
// two, follow all partitions.
func testReadersDuringCommits(t *testing.T, h Harness) {
	r := newRig(t, h)
	random := chance(t)
	ids := []eventlog.Partition{1, 2, 3, 4, 5}
	r.openPartitions(ids...)
	stores := []eventlog.Store{r.store, r.another()}
	book := newLedger()

	var committers, readers errgroup.Group
	for n := range 8 {
		c := committer{store: stores[n%2], name: fmt.Sprint("c", n), random: rand.New(rand.NewPCG(random.Uint64(), 0)), acked: book.acked, known: book.known}
		committers.Go(func() error { return c.commit(r.ctx, ids, 25) })
	}
	ctx, stop := context.WithCancel(r.ctx)
	defer stop()
	for _, store := range stores {
		readers.Go(func() error { return follow(ctx, store, ids, book) })
	}
	if err := committers.Wait(); err != nil {
		t.Error(err)
	}
	stop()
	if err := readers.Wait(); err != nil {
		t.Error(err)
	}
	book.settle(r, ids...)
}

// committer sends random entries and notes their outcomes.
type committer struct {
	store  eventlog.Store
	name   string
	random *rand.Rand
	sent   int
	known  func(eventlog.Partition) eventlog.Offset
	acked  func(b eventlog.Batch, base, after eventlog.Offset)
}

// commit sends as many flushes as the parameter flushes says. A flush is one to five entries in one
// call of Commit.
func (c *committer) commit(ctx context.Context, ids []eventlog.Partition, flushes int) error {
	for range flushes {
		if err := c.flush(ctx, ids); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

func (c *committer) flush(ctx context.Context, ids []eventlog.Partition) error {
	flush := make([]eventlog.Entry, 1+c.random.IntN(5))
	var after [][]eventlog.Offset
	for i := range flush {
		name := fmt.Sprint(c.name, "/", c.sent)
		c.sent++
		count := 1 + c.random.IntN(3)
		floor := make([]eventlog.Offset, count)
		for j := range count {
			size := c.random.IntN(200)
			if c.random.IntN(20) == 0 {
				size = c.random.IntN(300_000)
			}
			id := ids[c.random.IntN(len(ids))]
			flush[i].Batches = append(flush[i].Batches, labeled(id, fmt.Sprint(name, " ", j+1, " of ", count), size))
			floor[j] = c.known(id)
		}
		flush[i].Puts = []eventlog.Put{{Key: "sent/" + name, Version: 1, Value: []byte{}, AddBase: count}}
		after = append(after, floor)
	}
	outcomes, err := persist(ctx, c.store, flush)
	if err != nil {
		return err
	}
	for i, o := range outcomes {
		if o.Err != nil {
			return fmt.Errorf("entry refused: %w", o.Err)
		}
		for j, b := range flush[i].Batches {
			c.acked(b, o.Base[j], after[i][j])
		}
	}
	return nil
}

// persist commits, and repeats that while the store answers ErrUnavailable: certainly nothing
// happened, and trying again may work.
func persist(ctx context.Context, store eventlog.Store, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	for {
		outcomes, err := store.Commit(ctx, flush)
		if !errors.Is(err, eventlog.ErrUnavailable) || ctx.Err() != nil {
			return outcomes, err
		}
	}
}

// follow reads all partitions from the beginning on, until ctx ends, and notes what it sees. It
// never reads again what is below the offset that it has reached. If a batch appears there later,
// settle finds it: it reads all partitions at the end, and compares them with what was noted.
func follow(ctx context.Context, store eventlog.Store, ids []eventlog.Partition, book *ledger) error {
	at := map[eventlog.Partition]eventlog.Offset{}
	for ctx.Err() == nil {
		var spans []eventlog.Span
		known := map[eventlog.Partition]eventlog.Offset{}
		for _, id := range ids {
			spans = append(spans, eventlog.Span{Partition: id, From: at[id], MaxBytes: 1 << 30})
			known[id] = book.known(id)
		}
		slices, err := store.Read(ctx, spans, math.MaxInt)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("follow: %w", err)
		}
		for i, slice := range slices {
			id := ids[i]
			if slice.Bounds.Next < known[id] {
				return fmt.Errorf("partition %d ends at %d for a reader, and %d was known before it asked", id, slice.Bounds.Next, known[id])
			}
			if len(slice.Batches) == 0 && at[id] < slice.Bounds.Next {
				return fmt.Errorf("partition %d: nothing at %d, below next %d", id, at[id], slice.Bounds.Next)
			}
			for _, b := range slice.Batches {
				if b.Base != at[id] {
					return fmt.Errorf("partition %d: a batch at %d where %d should come", id, b.Base, at[id])
				}
				at[id] = b.End()
				book.saw(b)
			}
			if at[id] > slice.Bounds.Next {
				return fmt.Errorf("partition %d: batches up to %d, beyond next %d", id, at[id], slice.Bounds.Next)
			}
		}
	}
	return nil
}

func testCounter(t *testing.T, h Harness) {
	r := newRig(t, h)
	stores := []eventlog.Store{r.store, r.another()}
	const writers, each = 6, 15
	var group errgroup.Group
	for n := range writers {
		group.Go(func() error { return count(r.ctx, stores[n%2], each) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	got := r.list("counter", "", 1)[0]
	if got.Version != writers*each || string(got.Value) != strconv.Itoa(writers*each) {
		t.Errorf("%d increments left version %d, value %s", writers*each, got.Version, got.Value)
	}
}

// count increments the counter as often as times says; other writers increment it, too.
func count(ctx context.Context, store eventlog.Store, times int) error {
	for done := 0; done < times; {
		list, err := store.List(ctx, "counter", "", 1)
		if err != nil {
			return err
		}
		var at eventlog.Version
		if len(list) > 0 {
			at = list[0].Version
			if string(list[0].Value) != fmt.Sprint(at) {
				return fmt.Errorf("version %d with value %s: a change was seen in part", at, list[0].Value)
			}
		}
		outcomes, err := persist(ctx, store, []eventlog.Entry{{
			Checks: []eventlog.Check{{Key: "counter", Version: at}},
			Puts:   []eventlog.Put{{Key: "counter", Version: at + 1, Value: fmt.Append(nil, at+1)}},
		}})
		if err != nil {
			return err
		}
		switch err := outcomes[0].Err; {
		case err == nil:
			done++
		case !errors.Is(err, eventlog.ErrStale):
			return err
		}
	}
	return nil
}

// One goroutine trims all but the newest 50 records, another reads at random, and committers go on.
func testTrimDuringCommits(t *testing.T, h Harness) {
	r := newRig(t, h)
	random := chance(t)
	ids := []eventlog.Partition{1, 2}
	r.openPartitions(ids...)
	ctx, stop := context.WithCancel(r.ctx)
	var beside sync.WaitGroup
	beside.Go(func() {
		for ctx.Err() == nil {
			for _, id := range ids {
				if bounds := r.bounds(id); bounds.Next-bounds.First > 50 {
					r.trim(id, bounds.Next-50)
				}
			}
		}
	})
	pick := rand.New(rand.NewPCG(random.Uint64(), 0))
	beside.Go(func() {
		first := map[eventlog.Partition]eventlog.Offset{}
		for ctx.Err() == nil {
			id := ids[pick.IntN(len(ids))]
			bounds := r.bounds(id)
			if bounds.First < first[id] {
				t.Errorf("partition %d: first went from %d down to %d", id, first[id], bounds.First)
			}
			first[id] = bounds.First
			from := bounds.First + eventlog.Offset(pick.Int64N(int64(bounds.Next-bounds.First)+1))
			slice := r.read(eventlog.Span{Partition: id, From: from, MaxBytes: 1 << 30})[0]
			if inside := from >= slice.Bounds.First && from < slice.Bounds.Next; inside != (len(slice.Batches) > 0) {
				t.Errorf("partition %d from %d: %d batches, with bounds %+v", id, from, len(slice.Batches), slice.Bounds)
			}
			for i, b := range slice.Batches {
				if _, err := labelOf(b.Batch); err != nil {
					t.Error(err)
				}
				if end := b.End(); i == 0 && (b.Base > from || end <= from) {
					t.Errorf("partition %d from %d: starts with the batch [%d, %d)", id, from, b.Base, end)
				}
			}
		}
	})
	book := newLedger() // only for known, which answers from what acked notes: settle would miss the records that were trimmed
	var committers errgroup.Group
	for n := range 4 {
		c := committer{store: r.store, name: fmt.Sprint("c", n), random: rand.New(rand.NewPCG(random.Uint64(), 0)), acked: book.acked, known: book.known}
		committers.Go(func() error { return c.commit(r.ctx, ids, 25) })
	}
	if err := committers.Wait(); err != nil {
		t.Error(err)
	}
	stop()
	beside.Wait()
	for _, id := range ids {
		if got := r.bounds(id).Next; got != book.known(id) {
			t.Errorf("partition %d ends at %d, and the last acknowledged record at %d", id, got, book.known(id))
		}
	}
}
