package weir_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/group"
)

// publishBroken appends a batch of two records, "a" and "b", whose compression is broken at its
// end.
func publishBroken(t *testing.T, w *weir.Log) (raw []byte) {
	t.Helper()
	raw, err := batch.Seal([]batch.Record{{Value: []byte("a")}, {Value: []byte("b")}}, batch.Gzip)
	if err != nil {
		t.Fatal(err)
	}
	clear(raw[len(raw)-10:])
	topic, err := w.Core().Topic(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Core().Append(t.Context(), eventlog.Entry{Batches: []eventlog.Batch{{Partition: topic.Partitions[0], Records: 2, MaxTime: 1, Bytes: raw}}}); err != nil {
		t.Fatal(err)
	}
	return raw
}

// A client may send bytes that no decoder takes: the log keeps what it gets. They end up with the
// dead letters, and the events around them arrive.
func TestABatchThatCannotBeReadIsADeadLetter(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", "before")
	raw := publishBroken(t, w)
	publish(t, w, "orders", "behind")
	var got, dead seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
	consume(t, w, weir.Subscription{Group: "dead", Topics: []string{"orders.dlt"}, Handler: dead.note})
	letter := dead.wait(t, 1)[0]
	if offset, _ := letter.Header(weir.HeaderOffset); !slices.Contains([]string{"1", "2"}, string(offset)) || len(letter.Value) != len(raw) {
		t.Errorf("the dead letter: %d bytes, from offset %s", len(letter.Value), offset)
	}
	eventually(t, "what is behind arrives", func() bool {
		v := values(got.all())
		return len(v) >= 2 && v[0] == "before" && v[len(v)-1] == "behind"
	})
	committed(t, w, "g")
}

// A byte that changed on the disk is never another amount, and a batch that is gone stops nobody:
// both become dead letters, and what is behind arrives.
func TestWhatIsDamagedOnTheDiskReachesNoHandler(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		writer := s.open(t)
		ensure(t, writer, "orders", 1)
		for _, v := range []string{"amount 10", "amount 20", "amount 30", "amount 40", "amount 50"} {
			publish(t, writer, "orders", v)
		}
		topic, err := writer.Core().Topic(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		closeLog(t, writer)
		s.change(t, topic.Partitions[0], 1)
		s.remove(t, topic.Partitions[0], 3)

		w := s.open(t) // which has nothing in memory
		var got, dead seen
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
		consume(t, w, weir.Subscription{Group: "dead", Topics: []string{"orders.dlt"}, Handler: dead.note})
		committed(t, w, "g")
		if v := values(got.wait(t, 3)); !slices.Equal(v, []string{"amount 10", "amount 30", "amount 50"}) {
			t.Errorf("the handler got %q", v)
		}
		var offsets []string
		for _, letter := range dead.wait(t, 2) {
			offset, _ := letter.Header(weir.HeaderOffset)
			offsets = append(offsets, string(offset))
		}
		if slices.Sort(offsets); !slices.Equal(offsets, []string{"1", "3"}) {
			t.Errorf("the dead letters are of offsets %q, want 1 and 3", offsets)
		}
	}, "sqlite", "postgres")
}

// change changes a byte of the batch at an offset, behind weir's back.
func (s site) change(t *testing.T, p eventlog.Partition, base int64) {
	t.Helper()
	if s.kind == "postgres" {
		pgtest.Exec(t, s.url, fmt.Sprintf(`UPDATE weir.batch SET bytes = set_byte(bytes, length(bytes) - 2, get_byte(bytes, length(bytes) - 2) # 1)
			WHERE partition_id = %d AND base_offset = %d`, p, base))
		return
	}
	file := s.file(t)
	var id int64
	var bytes []byte
	err := file.QueryRow(`SELECT body.id, bytes FROM batch JOIN body ON body.id = body_id WHERE partition_id = ? AND base_offset = ?`, int64(p), base).Scan(&id, &bytes)
	if err != nil {
		t.Fatal(err)
	}
	bytes[len(bytes)-2] ^= 1
	if _, err := file.Exec(`UPDATE body SET bytes = ? WHERE id = ?`, bytes, id); err != nil {
		t.Fatal(err)
	}
}

// remove removes the batch at an offset, behind weir's back.
func (s site) remove(t *testing.T, p eventlog.Partition, base int64) {
	t.Helper()
	if s.kind == "postgres" {
		pgtest.Exec(t, s.url, fmt.Sprintf(`DELETE FROM weir.batch WHERE partition_id = %d AND base_offset = %d`, p, base))
		return
	}
	if _, err := s.file(t).Exec(`DELETE FROM batch WHERE partition_id = ? AND base_offset = ?`, int64(p), base); err != nil {
		t.Fatal(err)
	}
}

// file opens a SQLite store's file as any program could.
func (s site) file(t *testing.T) *sql.DB {
	t.Helper()
	file, err := sql.Open("sqlite", strings.TrimPrefix(s.url, "sqlite:"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

// Where one read brings both, what comes before such a batch is handed over as always: one by one,
// or in batches of the size that was asked for.
func TestWhatComesBeforeABatchThatCannotBeReadIsHandedOverAsAlways(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	for _, v := range numbered("", 10) {
		publish(t, w, "orders", v)
	}
	publishBroken(t, w)
	publish(t, w, "orders", "behind")
	want := append(numbered("", 10), "behind")
	var alone, together seen
	consume(t, w, weir.Subscription{Group: "alone", Topics: []string{"orders"}, Handler: alone.note})
	consume(t, w, weir.Subscription{Group: "together", Topics: []string{"orders"}, MaxBatch: 3, BatchHandler: func(ctx context.Context, batch []weir.Event) error {
		if len(batch) > 3 {
			t.Errorf("a batch of %d events, and MaxBatch is 3", len(batch))
		}
		for _, e := range batch {
			_ = together.note(ctx, e)
		}
		return nil
	}})
	committed(t, w, "alone")
	committed(t, w, "together")
	for name, s := range map[string]*seen{"alone": &alone, "together": &together} {
		got := slices.DeleteFunc(values(s.all()), func(v string) bool { return v == "a" || v == "b" }) // which a decoder may have got out
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// A store that was restored from an older copy of itself knows of fewer events than its groups have
// committed. What is published from then on is not passed over, whoever reads it.
func TestAGroupThatIsAheadOfTheLogComesBackToIt(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", "old")
	topic, err := w.Core().Topic(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	ahead := group.Committed{TopicPartition: group.TopicPartition{Topic: topic.ID}, Name: "orders", Offset: 100, LeaderEpoch: -1}
	if _, err := w.Core().Append(t.Context(), group.OffsetEntry(eventlog.KeyValue{}, "g", []group.Committed{ahead})); err != nil {
		t.Fatal(err)
	}
	var got seen
	c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
	eventually(t, "the group is where the log ends", func() bool {
		a := c.Assigned()
		return len(a) == 1 && a[0].Next == 1 && a[0].Committed == 1
	})
	publish(t, w, "orders", "1")
	got.wait(t, 1)
	closeConsumer(t, c)
	publish(t, w, "orders", "2", "3")
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
	if v := values(got.wait(t, 3)); !slices.Equal(v, []string{"1", "2", "3"}) {
		t.Errorf("got %q", v)
	}
}

// What the other doors take is read here as well, however large it becomes.
func TestWhatFitsThroughTheOtherDoorsIsDelivered(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	raw, err := batch.Seal([]batch.Record{{Value: make([]byte, 80<<20)}}, batch.Zstd)
	if err != nil {
		t.Fatal(err)
	}
	topic, err := w.Core().Topic(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Core().Append(t.Context(), eventlog.Entry{Batches: []eventlog.Batch{{Partition: topic.Partitions[0], Records: 1, MaxTime: 1, Bytes: raw}}}); err != nil {
		t.Fatal(err)
	}
	sizes := make(chan int, 1)
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: func(_ context.Context, e weir.Event) error {
		sizes <- len(e.Value)
		return nil
	}})
	if size := next(t, sizes); size != 80<<20 {
		t.Errorf("%d bytes arrived, want %d", size, 80<<20)
	}
}

// What a broker marks for itself, such as the end of a transaction, is no event: handlers do not
// get it, and Read does not yield it.
func TestABrokersOwnMarksAreNotDelivered(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", "before")
	mark := func() {
		raw, err := batch.Seal([]batch.Record{{Key: []byte{0, 0, 0, 1}, Value: []byte("a mark")}}, batch.None)
		if err != nil {
			t.Fatal(err)
		}
		const attributes, control = 22, 1 << 5
		raw[attributes] |= control
		batch.StampAppendTime(raw, 1) // which makes the checksum anew
		topic, err := w.Core().Topic(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Core().Append(t.Context(), eventlog.Entry{Batches: []eventlog.Batch{{Partition: topic.Partitions[0], Records: 1, MaxTime: 1, Bytes: raw}}}); err != nil {
			t.Fatal(err)
		}
	}
	mark()
	publish(t, w, "orders", "behind")
	mark()
	publish(t, w, "orders", "end")
	want := []string{"before", "behind", "end"}
	var got seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
	committed(t, w, "g")
	if v := values(got.all()); !slices.Equal(v, want) {
		t.Errorf("handlers got %q", v)
	}
	var read []string
	for e, err := range w.Read(t.Context(), weir.TopicPartition{Topic: "orders"}, weir.Earliest) {
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, string(e.Value))
	}
	if !slices.Equal(read, want) {
		t.Errorf("Read yields %q", read)
	}
}

func TestHealthySaysWhenTheStoreIsAway(t *testing.T) {
	onEachStore(t, func(t *testing.T, under eventlog.Store) {
		store := &cutOff{Store: under}
		w := site{memory: store}.open(t)
		ensure(t, w, "orders", 1)
		healthy := func() bool { return w.Healthy() == nil }
		eventually(t, "it is healthy", healthy)
		store.away.Store(true)
		eventually(t, "it is not", func() bool { return !healthy() })
		if err := w.Healthy(); !errors.Is(err, weir.ErrUnavailable) {
			t.Errorf("without its store: %v, want ErrUnavailable", err)
		}
		store.away.Store(false)
		eventually(t, "it is healthy again", healthy)
	})
}

// cutOff is a store that one process cannot reach while the others can.
type cutOff struct {
	eventlog.Store
	away   atomic.Bool
	failed atomic.Int64 // the calls that failed
}

func (c *cutOff) err() error {
	if c.away.Load() {
		c.failed.Add(1)
		return fmt.Errorf("%w: cut off for the test", eventlog.ErrUnavailable)
	}
	return nil
}

func (c *cutOff) Commit(ctx context.Context, f []eventlog.Entry) ([]eventlog.Outcome, error) {
	if err := c.err(); err != nil {
		return nil, err
	}
	return c.Store.Commit(ctx, f)
}

func (c *cutOff) Read(ctx context.Context, s []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	if err := c.err(); err != nil {
		return nil, err
	}
	return c.Store.Read(ctx, s, maxBytes)
}

func (c *cutOff) Changes(ctx context.Context, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
	if err := c.err(); err != nil {
		return nil, since, err
	}
	return c.Store.Changes(ctx, since)
}

func (c *cutOff) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if err := c.err(); err != nil {
		return nil, err
	}
	return c.Store.List(ctx, prefix, after, limit)
}

// While a consumer cannot reach the store for a little longer than its session, another joins and
// asks for one of its partitions. The first was not evicted: it gives the partition back, although
// it let all go meanwhile.
func TestAPartitionThatIsAskedBackFromAConsumerThatWasCutOffGoesToTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, "memory")
		store := &cutOff{Store: s.memory}
		lame, sound := site{memory: store}.open(t), s.open(t)
		ensure(t, sound, "orders", 2)
		var mine, its seen
		sub := weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: mine.note}
		c := consume(t, lame, sub)
		assigned(t, 2, c)
		time.Sleep(time.Second)
		store.away.Store(true)
		time.Sleep(6 * time.Second)
		sub.Handler = its.note
		other := consume(t, sound, sub)
		for len(c.Assigned()) > 0 {
			time.Sleep(10 * time.Millisecond)
		}
		store.away.Store(false)
		time.Sleep(30 * time.Second)
		if len(c.Assigned()) != 1 || len(other.Assigned()) != 1 {
			t.Errorf("the consumers work on %v and %v, want one partition each", c.Assigned(), other.Assigned())
		}
	})
}

// A process that cannot reach the store is taken for dead: its handler's context ends, another goes
// on, and what it did then is not committed. When it can again it joins again by itself.
func TestAConsumerThatWasCutOffIsFencedAndComesBack(t *testing.T) {
	s := newSite(t, "memory")
	store := &cutOff{Store: s.memory}
	lame, sound := site{memory: store}.open(t), s.open(t)
	ensure(t, sound, "orders", 1)
	publish(t, sound, "orders", "first", "second")
	b := newBlocking()
	sub := weir.Subscription{Group: "g", Topics: []string{"orders"}, Session: time.Second, Handler: b.handle}
	c := consume(t, lame, sub)
	next(t, b.begun)

	store.away.Store(true)
	var got seen
	sub.Handler = got.note
	other := consume(t, sound, sub)
	if v := values(got.wait(t, 2)); !slices.Equal(v, []string{"first", "second"}) {
		t.Errorf("who took over got %q", v)
	}
	if cause := next(t, b.ended); !errors.Is(cause, weir.ErrNotAssigned) {
		t.Errorf("the handler that was cut off ended with %v", cause)
	}
	committed(t, sound, "g")
	store.away.Store(false)
	closeConsumer(t, other)
	assigned(t, 1, c)
	publish(t, sound, "orders", "third")
	if e := next(t, b.begun); string(e.Value) != "third" {
		t.Errorf("who came back got %s", e.Value)
	}
	close(b.go_on)
}

// A partition that the group took is not assigned any more, although its handler is still running.
func TestASeekOfALostPartitionIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, "memory")
		store := &cutOff{Store: s.memory}
		lame, sound := site{memory: store}.open(t), s.open(t)
		ensure(t, sound, "orders", 1)
		publish(t, sound, "orders", "first", "second")
		release := make(chan struct{})
		sub := weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: func(context.Context, weir.Event) error { <-release; return nil }}
		c := consume(t, lame, sub)
		assigned(t, 1, c)
		synctest.Wait()
		store.away.Store(true)
		for len(c.Assigned()) > 0 {
			time.Sleep(10 * time.Millisecond)
		}
		store.away.Store(false)
		if err := c.Seek(t.Context(), weir.AtOffset(1), weir.TopicPartition{Topic: "orders"}); !errors.Is(err, weir.ErrNotAssigned) {
			t.Errorf("to seek a lost partition: %v, want ErrNotAssigned", err)
		}
		close(release)
	})
}
