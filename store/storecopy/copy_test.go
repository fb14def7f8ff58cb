package storecopy_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/shard"
	"github.com/weir-log/weir/store/storecopy"
	"github.com/weir-log/weir/store/storetest"
)

func opened(t *testing.T, url string) eventlog.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url, nil, eventlog.KeyRules()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// run opens a log, as another process does, and runs it until the test ends, or stop is called.
func run(t *testing.T, url string) (log *eventlog.Log, stop func()) {
	t.Helper()
	log, err := eventlog.Open(t.Context(), opened(t, url), eventlog.Config{Poll: 20 * time.Millisecond, DrainTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); log.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return log, stop
}

func makeTopic(t *testing.T, log *eventlog.Log, name string, partitions int) eventlog.Topic {
	t.Helper()
	topic, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: name, Partitions: partitions, Config: map[string]string{"retention.ms": "-1"}})
	if err != nil {
		t.Fatal(err)
	}
	return topic
}

func publish(t *testing.T, log *eventlog.Log, p eventlog.Partition, values ...string) eventlog.Offset {
	t.Helper()
	var records []batch.Record
	for _, v := range values {
		records = append(records, batch.Record{Key: []byte(v), Value: []byte(v), Timestamp: 1_700_000_000_000})
	}
	base, err := log.Publish(t.Context(), p, records...)
	if err != nil {
		t.Fatal(err)
	}
	return base
}

// records reads a partition from its first record: offset:value.
func records(t *testing.T, log *eventlog.Log, p eventlog.Partition) string {
	t.Helper()
	bounds, err := log.Bounds(t.Context(), p)
	for errors.Is(err, eventlog.ErrUnavailable) { // an epoch begins
		bounds, err = log.Bounds(t.Context(), p)
	}
	if err != nil || bounds[0].Err != nil {
		t.Fatal(err, bounds)
	}
	var all []string
	for from := bounds[0].Bounds.First; from < bounds[0].Bounds.Next; {
		got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: from, MaxBytes: 1 << 20}}})
		if errors.Is(err, eventlog.ErrUnavailable) {
			continue
		}
		if err != nil || got[0].Err != nil || len(got[0].Batches) == 0 {
			t.Fatal(err, got)
		}
		for _, b := range got[0].Batches {
			for r, err := range b.Decode() {
				if err != nil {
					t.Fatal(err)
				}
				if r.Offset >= int64(from) {
					all = append(all, fmt.Sprintf("%d:%s", r.Offset, r.Value))
				}
			}
			from = b.End()
		}
	}
	return strings.Join(all, " ")
}

// begin begins a copy that must begin.
func begin(t *testing.T, from, to string) *storecopy.Copy {
	t.Helper()
	c, err := storecopy.Begin(t.Context(), opened(t, from), opened(t, to), "SOURCE", "TARGET", nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func copyAll(t *testing.T, from, to string) {
	t.Helper()
	c := begin(t, from, to)
	for _, step := range []func() error{
		func() error { _, err := c.Pass(t.Context()); return err },
		func() error { return c.Compare(t.Context()) },
		func() error { return c.Switch(t.Context(), func() error { return nil }) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

// A copy has the topics, the offsets, also of a partition that was trimmed in the middle of a
// batch, the keys and the sequence numbers of its source; and its leader epoch is higher, so that
// clients who used the source look where its records end.
func TestACopyIsWhatItsSourceWas(t *testing.T) {
	for _, name := range everystore.Durable() {
		t.Run(name, func(t *testing.T) {
			everystore.RefusedOnShards(t, "a copy to a store made of shards")
			from, to := everystore.URL(t, "sqlite"), everystore.URL(t, name)
			log, stop := run(t, from)
			makeTopic(t, log, "gone", 3)
			orders := makeTopic(t, log, "orders", 3)
			bills := makeTopic(t, log, "bills", 1)
			if err := log.DeleteTopic(t.Context(), "gone"); err != nil {
				t.Fatal(err)
			}
			for n := range 50 {
				publish(t, log, orders.Partitions[n%2], fmt.Sprint("a", n), fmt.Sprint("b", n))
			}
			if err := log.Trim(t.Context(), orders.Partitions[0], 7); err != nil {
				t.Fatal(err)
			}
			publish(t, log, bills.Partitions[0], "x", "y")
			if err := log.Trim(t.Context(), bills.Partitions[0], 2); err != nil {
				t.Fatal(err)
			}
			var puts []eventlog.Put
			for n := range 2500 { // three pages
				puts = append(puts, eventlog.Put{Key: fmt.Sprintf("test/%05d", n*7%2500), Version: eventlog.Version(n + 1), Value: []byte(strings.Repeat("v", n%5))})
			}
			if _, err := log.Append(t.Context(), eventlog.Entry{Puts: puts}); err != nil {
				t.Fatal(err)
			}
			want := map[eventlog.Partition]string{}
			for _, p := range append(orders.Partitions, bills.Partitions...) {
				want[p] = records(t, log, p)
			}
			epoch := log.LeaderEpoch()
			stop()
			copyAll(t, from, to)

			log, _ = run(t, to)
			for p, all := range want {
				if got := records(t, log, p); got != all {
					t.Errorf("partition %d: %s, want %s", p, got, all)
				}
			}
			if topics := log.Topics(); len(topics) != 2 || topics[0].ID != bills.ID || topics[1].Config["retention.ms"] != "-1" {
				t.Errorf("topics: %+v", topics)
			}
			if got := log.LeaderEpoch(); got <= epoch {
				t.Errorf("the leader epoch is %d, and was %d in the source", got, epoch)
			}
			n := 0
			if err := log.ListAll(t.Context(), "test/", func(kv eventlog.KeyValue) error {
				put := puts[n*2143%2500] // 7 * 2143 = 1 modulo 2500
				if kv.Key != put.Key || kv.Version != put.Version || string(kv.Value) != string(put.Value) {
					t.Errorf("key %d: %+v, want %+v", n, kv, put)
				}
				n++
				return nil
			}); err != nil || n != len(puts) {
				t.Error(n, err)
			}
			if got := publish(t, log, bills.Partitions[0], "z"); got != 2 {
				t.Errorf("the next record has offset %d, want 2", got)
			}
			if fresh := makeTopic(t, log, "fresh", 1); fresh.Partitions[0] <= bills.Partitions[0] {
				t.Errorf("a new partition has the number %d; %d was used before", fresh.Partitions[0], bills.Partitions[0])
			}
			if _, err := eventlog.Open(t.Context(), opened(t, from), eventlog.Config{}); !errors.Is(err, eventlog.ErrStoreClosed) || !strings.Contains(err.Error(), "it was copied to TARGET: use that store") {
				t.Errorf("a log on the source: %v", err)
			}
			if _, err := storecopy.Begin(t.Context(), opened(t, from), opened(t, to), "SOURCE", "TARGET", nil); !errors.Is(err, storecopy.ErrComplete) {
				t.Errorf("the copy again: %v", err)
			}
		})
	}
}

// Writers go on while a store is copied, and until the switch: what was acknowledged is in the
// copy, at the offset that was told. After the switch nothing is acknowledged.
func TestNothingAcknowledgedIsLostByASwitchUnderLoad(t *testing.T) {
	for _, name := range everystore.Durable() {
		t.Run(name, func(t *testing.T) {
			from, to := everystore.URL(t, name), everystore.URL(t, "sqlite")
			log, _ := run(t, from)
			orders := makeTopic(t, log, "orders", 4)
			type written struct {
				partition eventlog.Partition
				offset    eventlog.Offset
				value     string
			}
			acked := make([][]written, 4)
			ctx, cancel := context.WithCancel(t.Context())
			var writers sync.WaitGroup
			warm := make(chan struct{}, 4)
			for w := range 4 {
				writers.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						value := fmt.Sprintf("%d-%d", w, n)
						base, err := log.Publish(ctx, orders.Partitions[w], batch.Record{Value: []byte(value), Timestamp: 1})
						if err == nil {
							acked[w] = append(acked[w], written{orders.Partitions[w], base, value})
						}
						if n == 20 {
							warm <- struct{}{}
						}
					}
				})
			}
			for range 4 {
				<-warm
			}
			copyAll(t, from, to)
			cancel()
			writers.Wait()

			copied, _ := run(t, to)
			total := 0
			for _, p := range orders.Partitions {
				have := " " + records(t, copied, p) + " "
				for _, of := range acked {
					for _, a := range of {
						if a.partition == p && !strings.Contains(have, fmt.Sprintf(" %d:%s ", a.offset, a.value)) {
							t.Errorf("partition %d: %s was acknowledged at offset %d, and the copy does not have it there", p, a.value, a.offset)
						}
					}
				}
				total += strings.Count(have, ":")
			}
			if total < 80 {
				t.Errorf("%d records in the copy", total)
			}
		})
	}
}

// lossy is a store whose answers to commits are lost, after they were done or instead.
type lossy struct {
	eventlog.Store
	random *rand.Rand
}

func (l *lossy) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	switch l.random.IntN(4) {
	case 0:
		return nil, fmt.Errorf("a test: %w", eventlog.ErrUnsure)
	case 1:
		if _, err := l.Store.Commit(ctx, flush); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("a test: %w", eventlog.ErrUnsure)
	}
	return l.Store.Commit(ctx, flush)
}

// A copy that loses answers, or ends at any commit, and is begun again, is the same in the end.
func TestACopyThatIsInterruptedContinues(t *testing.T) {
	seed := seed.New(t)
	random := rand.New(rand.NewPCG(seed, 1))
	for range 8 {
		from, to := everystore.URL(t, "sqlite"), everystore.URL(t, "sqlite")
		log, stop := run(t, from)
		orders := makeTopic(t, log, "orders", 5)
		big := strings.Repeat("x", 1<<20)
		for n := range 40 {
			publish(t, log, orders.Partitions[random.IntN(5)], fmt.Sprint(n), big[:random.IntN(1<<20)])
			if random.IntN(5) == 0 {
				p := orders.Partitions[random.IntN(5)]
				if err := log.Trim(t.Context(), p, eventlog.Offset(random.IntN(8))); err != nil {
					t.Fatal(err)
				}
			}
		}
		target := &lossy{opened(t, to), random}
		for complete := false; !complete; {
			c, err := storecopy.Begin(t.Context(), opened(t, from), target, "SOURCE", "TARGET", nil)
			if errors.Is(err, storecopy.ErrComplete) {
				break
			}
			if err == nil {
				_, err = c.Pass(t.Context())
			}
			if err == nil && random.IntN(3) > 0 {
				if err = c.Switch(t.Context(), func() error { return nil }); err == nil {
					complete = true
				}
			} else if random.IntN(2) == 0 && !closed(t, from) {
				publish(t, log, orders.Partitions[random.IntN(5)], "more")
			}
			if err != nil && !errors.Is(err, eventlog.ErrUnsure) {
				t.Fatal(err)
			}
		}
		stop()
		same(t, from, to)
	}
}

func closed(t *testing.T, url string) bool {
	t.Helper()
	err := eventlog.CheckOpen(t.Context(), opened(t, url))
	if err != nil && !errors.Is(err, eventlog.ErrStoreClosed) {
		t.Fatal(err)
	}
	return err != nil
}

// same compares all partitions and keys of two stores, by reading them once more.
func same(t *testing.T, from, to string) {
	t.Helper()
	describe := func(url string) string {
		s := opened(t, url)
		bounds, _, err := s.Changes(t.Context(), eventlog.Mark{})
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for _, b := range bounds {
			got, err := s.Read(t.Context(), []eventlog.Span{{Partition: b.Partition, From: b.First, MaxBytes: 1 << 30}}, 1<<30)
			if err != nil {
				t.Fatal(err)
			}
			what := sha256.New()
			for _, b := range got[0].Batches {
				fmt.Fprintf(what, "%d %d %d %s", b.Base, b.Records, b.MaxTime, b.Bytes)
			}
			all[fmt.Sprint(b.Partition)] = fmt.Sprintf("[%d, %d) %x", b.First, b.Next, what.Sum(nil))
		}
		kvs, err := s.List(t.Context(), "", "", 10_000)
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range kvs {
			if kv.Key != eventlog.EpochKey && kv.Key != eventlog.ClosedKey && !strings.HasPrefix(kv.Key, "copy/") {
				all[kv.Key] = fmt.Sprintf("%d %q", kv.Version, kv.Value)
			}
		}
		return fmt.Sprint(all)
	}
	if a, b := describe(from), describe(to); a != b {
		t.Errorf("the copy is not the same:\n%s\n%s", a, b)
	}
}

// Of two processes that copy to one store, the first is stopped.
func TestOneProcessCopiesToAStore(t *testing.T) {
	from, to := everystore.URL(t, "sqlite"), everystore.URL(t, "sqlite")
	log, _ := run(t, from)
	orders := makeTopic(t, log, "orders", 1)
	publish(t, log, orders.Partitions[0], "a")
	first := begin(t, from, to)
	second := begin(t, from, to)
	if _, err := first.Pass(t.Context()); !errors.Is(err, storecopy.ErrTaken) {
		t.Errorf("the first: %v", err)
	}
	if _, err := second.Pass(t.Context()); err != nil {
		t.Errorf("the second: %v", err)
	}
}

func TestATargetThatIsNotEmptyIsRefused(t *testing.T) {
	from, used, half := everystore.URL(t, "sqlite"), everystore.URL(t, "sqlite"), everystore.URL(t, "sqlite")
	log, _ := run(t, from)
	makeTopic(t, log, "orders", 1)
	other, _ := run(t, used)
	makeTopic(t, other, "bills", 1)
	begin(t, used, half)
	for name, c := range map[string]struct {
		to   string
		want error
	}{
		"a store in use":             {used, storecopy.ErrNotEmpty},
		"a copy of another store":    {half, storecopy.ErrNotEmpty},
		"the source":                 {from, storecopy.ErrNotEmpty},
		"the source, without topics": {everystore.URL(t, "sqlite"), storecopy.ErrSame},
	} {
		source := from
		if errors.Is(c.want, storecopy.ErrSame) {
			source = c.to
		}
		if _, err := storecopy.Begin(t.Context(), opened(t, source), opened(t, c.to), "SOURCE", "TARGET", nil); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	publish(t, other, other.Topics()[0].Partitions[0], "goes on")
	if _, err := eventlog.Open(t.Context(), opened(t, half), eventlog.Config{}); !errors.Is(err, eventlog.ErrStoreClosed) || !strings.Contains(err.Error(), "--switch` to complete it") {
		t.Errorf("a log on an incomplete copy: %v", err)
	}
}

// An abandoned copy leaves its source as it was, also after the source was closed.
func TestATargetMadeOfShardsIsRefused(t *testing.T) {
	from := opened(t, everystore.URL(t, "sqlite"))
	set, err := shard.Open(t.Context(), []shard.Shard{{Name: "a", Store: memory.New()}, {Name: "b", Store: memory.New()}}, shard.Options{Rules: eventlog.KeyRules()})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	if _, err := storecopy.Begin(t.Context(), from, set, "a", "b", nil); !errors.Is(err, storecopy.ErrSharded) {
		t.Errorf("a copy to shards: %v", err)
	}
	if err := eventlog.CheckOpen(t.Context(), from); err != nil {
		t.Errorf("the source: %v", err)
	}
}

// A shard that was away when the source was opened is not taken for one without partitions: the
// pass fails, and what was copied before stays.
func TestACopyOfASetNeedsEveryShard(t *testing.T) {
	stores := []*memory.Store{memory.New(), memory.New()}
	open := func(second eventlog.Store) *shard.Set {
		t.Helper()
		set, err := shard.Open(t.Context(), []shard.Shard{{Name: "a", Store: kept{stores[0]}}, {Name: "b", Store: second}}, shard.Options{Rules: eventlog.KeyRules()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { set.Close() })
		return set
	}
	set := open(kept{stores[1]})
	p := eventlog.Partition(1).On(1)
	if out, err := set.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{{Partition: p}}}}); err != nil || out[0].Err != nil {
		t.Fatal(out, err)
	}
	to := memory.New()
	c, err := storecopy.Begin(t.Context(), set, to, "SOURCE", "TARGET", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err = storecopy.Begin(t.Context(), open(away{kept{stores[1]}}), to, "SOURCE", "TARGET", nil)
	if err == nil {
		_, err = c.Pass(t.Context())
	}
	if !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("a pass while a shard of the source is away: %v", err)
	}
	if held, _, err := to.Changes(t.Context(), eventlog.Mark{}); err != nil || len(held) != 1 || held[0].Partition != p {
		t.Errorf("the target holds %+v, %v", held, err)
	}
}

// kept is a store that stays open after it was closed.
type kept struct{ eventlog.Store }

func (kept) Close() error { return nil }

// away is a store that does not answer.
type away struct{ kept }

func (away) List(context.Context, string, string, int) ([]eventlog.KeyValue, error) {
	return nil, eventlog.ErrUnavailable
}

func TestAnAbandonedCopyOpensItsSource(t *testing.T) {
	for _, late := range []bool{false, true} {
		from, to := everystore.URL(t, "sqlite"), everystore.URL(t, "sqlite")
		log, _ := run(t, from)
		orders := makeTopic(t, log, "orders", 1)
		publish(t, log, orders.Partitions[0], "a")
		c := begin(t, from, to)
		if late {
			refusal := errors.New("not yet")
			if err := c.Switch(t.Context(), func() error { return refusal }); !errors.Is(err, refusal) || closed(t, from) {
				t.Errorf("a refused switch: %v", err)
			}
			if err := eventlog.CloseStore(t.Context(), opened(t, from), &eventlog.Closed{By: idOf(t, to), Why: "a test"}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			if _, err := log.Publish(ctx, orders.Partitions[0], batch.Record{Value: []byte("lost")}); err == nil {
				t.Error("a closed store took a record")
			}
			cancel()
		}
		if err := c.Abandon(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := publish(t, log, orders.Partitions[0], "b"); got != 1 {
			t.Errorf("the next record has offset %d, want 1", got)
		}
		if _, err := eventlog.Open(t.Context(), opened(t, to), eventlog.Config{}); !errors.Is(err, eventlog.ErrStoreClosed) {
			t.Errorf("a log on an abandoned copy: %v", err)
		}
		if _, err := storecopy.Begin(t.Context(), opened(t, from), opened(t, to), "SOURCE", "TARGET", nil); !errors.Is(err, storecopy.ErrNotEmpty) {
			t.Errorf("the abandoned copy is continued: %v", err)
		}
	}
}

func idOf(t *testing.T, url string) string {
	t.Helper()
	c, _, err := eventlog.FindClosed(t.Context(), opened(t, url))
	if err != nil {
		t.Fatal(err)
	}
	return c.By
}

// flipped is a store that returns one batch with a changed byte.
type flipped struct{ eventlog.Store }

func (f flipped) Read(ctx context.Context, spans []eventlog.Span, most int) ([]eventlog.Slice, error) {
	got, err := f.Store.Read(ctx, spans, most)
	for i := range got {
		for j := range got[i].Batches {
			if b := &got[i].Batches[j]; b.Base == 1 {
				b.Bytes[len(b.Bytes)-1] ^= 1
			}
		}
	}
	return got, err
}

// What is damaged in the source is not copied, and what is damaged in the copy is found: the error
// names partition and offset.
func TestDamageIsNamed(t *testing.T) {
	from, to := everystore.URL(t, "sqlite"), everystore.URL(t, "sqlite")
	log, _ := run(t, from)
	orders := makeTopic(t, log, "orders", 1)
	for _, v := range []string{"a", "b", "c"} {
		publish(t, log, orders.Partitions[0], v)
	}
	c, err := storecopy.Begin(t.Context(), flipped{opened(t, from)}, opened(t, to), "SOURCE", "TARGET", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Pass(t.Context()); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("the batch at offset 1 of partition %d is damaged in the source", orders.Partitions[0])) {
		t.Errorf("a damaged source: %v", err)
	}
	if _, err := begin(t, from, to).Pass(t.Context()); err != nil {
		t.Error(err)
	}
	var different *storecopy.DifferentError
	if c, err = storecopy.Begin(t.Context(), opened(t, from), flipped{opened(t, to)}, "SOURCE", "TARGET", nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Compare(t.Context()); !errors.As(err, &different) || !strings.Contains(err.Error(), fmt.Sprintf("the batch at offset 1 of partition %d", orders.Partitions[0])) {
		t.Errorf("a damaged copy: %v", err)
	}
	if err := begin(t, from, to).Compare(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAStoreThatNeedsWhatThisWeirDoesNotKnowIsNotCopied(t *testing.T) {
	from, to := everystore.URL(t, "sqlite"), everystore.URL(t, "sqlite")
	_, stop := run(t, from)
	stop()
	storetest.Need(t, opened(t, from), "x")
	for _, c := range [][2]string{{from, to}, {to, from}} {
		if _, err := storecopy.Begin(t.Context(), opened(t, c[0]), opened(t, c[1]), "SOURCE", "TARGET", nil); !errors.Is(err, eventlog.ErrUpgraded) {
			t.Errorf("%v, want ErrUpgraded", err)
		}
	}
}

func TestControlBatchesAreCopied(t *testing.T) {
	from, to := everystore.URL(t, "sqlite"), everystore.URL(t, "sqlite")
	log, stop := run(t, from)
	p := makeTopic(t, log, "orders", 1).Partitions[0]
	for _, v := range []string{"a", "b"} {
		publish(t, log, p, v)
		raw, err := batch.Seal([]batch.Record{{Key: []byte{0, 0, 0, 1}, Value: make([]byte, 6)}}, batch.None)
		if err != nil {
			t.Fatal(err)
		}
		raw[22] |= 1<<5 | 1<<4        // control, transactional
		batch.StampAppendTime(raw, 1) // which makes the checksum anew
		if _, err := log.Append(t.Context(), eventlog.Entry{Batches: []eventlog.Batch{{Partition: p, Records: 1, MaxTime: 1, Bytes: raw}}}); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	copyAll(t, from, to)
	same(t, from, to)
	copied, _ := run(t, to)
	if got := records(t, copied, p); got != "0:a 2:b" {
		t.Errorf("the copy has %s", got)
	}
}

// While a compacted topic is copied, the source compacts what was copied: batches become fewer, and
// cover the target's end. The copy has every key's newest record at its offset.
func TestACopyFollowsCompaction(t *testing.T) {
	for _, name := range everystore.Durable() {
		t.Run(name, func(t *testing.T) {
			from, to := everystore.URL(t, name), everystore.URL(t, "sqlite")
			source := opened(t, from)
			log, err := eventlog.Open(t.Context(), source, eventlog.Config{Poll: 20 * time.Millisecond, DrainTimeout: 50 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() { defer close(done); log.Run(ctx) }()
			t.Cleanup(func() { cancel(); <-done })
			topic, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "state", Partitions: 1, Config: map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "max.compaction.lag.ms": "1"}})
			if err != nil {
				t.Fatal(err)
			}
			p := topic.Partitions[0]
			newest := map[string]string{}
			c := begin(t, from, to)
			next := 0
			for round := range 5 {
				for n := range 20 {
					key, value := fmt.Sprint("k", (n*7+round)%15), fmt.Sprint(round, "-", n)
					at, err := log.Publish(t.Context(), p, batch.Record{Key: []byte(key), Value: []byte(value), Timestamp: 1_700_000_000_000})
					if err != nil {
						t.Fatal(err)
					}
					newest[key], next = fmt.Sprintf("%d:%s", at, value), int(at)+1
				}
				if _, err := c.Pass(t.Context()); err != nil {
					t.Fatal(err)
				}
				if round%2 == 1 {
					if err := c.Compare(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				for have := next; have > 15; { // the source is compacted
					have = len(strings.Fields(records(t, log, p)))
				}
			}
			if err := c.Switch(t.Context(), func() error { return nil }); err != nil {
				t.Fatal(err)
			}
			copied, _ := run(t, to)
			all := " " + records(t, copied, p) + " "
			for key, want := range newest {
				if !strings.Contains(all, " "+want+" ") {
					t.Errorf("key %s: %s is not in the copy: %s", key, want, all)
				}
			}
			if bounds, err := copied.Bounds(t.Context(), p); err != nil || int(bounds[0].Bounds.Next) != next {
				t.Errorf("the copy ends at %d, the source at %d (%v)", bounds[0].Bounds.Next, next, err)
			}
		})
	}
}

// A shard opened by itself is not a whole store. Nothing is written, to it or to the target.
func TestOneShardIsNotCopied(t *testing.T) {
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			url := shards(t, kind, kind)
			log, stop := run(t, url)
			makeTopic(t, log, "orders", 2)
			stop()
			for _, one := range strings.Split(strings.TrimPrefix(url, "shard:"), ",") {
				from, to := opened(t, one), opened(t, everystore.URL(t, "sqlite"))
				before, err := from.List(t.Context(), "", "", 1000)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := storecopy.Begin(t.Context(), from, to, "from", "to", nil); !errors.Is(err, storecopy.ErrOneShard) {
					t.Errorf("%s: %v", one, err)
				}
				after, err := from.List(t.Context(), "", "", 1000)
				if err != nil || len(after) != len(before) {
					t.Errorf("%s had %d keys, and has %d (%v)", one, len(before), len(after), err)
				}
				if kvs, err := to.List(t.Context(), "", "", 10); err != nil || len(kvs) > 0 {
					t.Errorf("the target has %v (%v)", kvs, err)
				}
			}
			if _, err := storecopy.Begin(t.Context(), opened(t, url), opened(t, everystore.URL(t, "sqlite")), "from", "to", nil); err != nil {
				t.Errorf("the whole set: %v", err)
			}
		})
	}
}
