package eventlog_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/budget"
	"github.com/weir-log/weir/store/memory"
)

// farAndNear is a log with a partition of ten batches that only the store has, and one of ten that
// are in memory. All batches have so many bytes.
func farAndNear(t *testing.T, store eventlog.Store) (log *eventlog.Log, far, near eventlog.Partition, each int) {
	t.Helper()
	log, far = history(t, store, 10)
	near = topic(t, log, "news", 1).Partitions[0]
	for range 10 {
		if _, err := log.Publish(t.Context(), near, batch.Record{Value: make([]byte, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	return log, far, near, len(one(t, log, near, 0).Batches[0].Bytes)
}

// A reader that asks for partitions in turn is served in turn, wherever they are: else one that
// lags would wait for as long as others have enough.
func TestFetchServesInTheOrderOfTheRequest(t *testing.T) {
	type ask struct {
		far        bool
		from, most int // batches
	}
	for name, c := range map[string]struct {
		asks []ask
		most int   // batches
		want []int // of each
	}{
		"far first":             {[]ask{{true, 0, 4}, {false, 0, 4}}, 4, []int{4, 0}},
		"near first":            {[]ask{{false, 0, 4}, {true, 0, 4}}, 4, []int{4, 0}},
		"each has more":         {[]ask{{true, 0, 10}, {false, 0, 10}}, 4, []int{4, 0}},
		"near has more":         {[]ask{{false, 0, 10}, {true, 0, 10}}, 4, []int{4, 0}},
		"room for both":         {[]ask{{true, 0, 2}, {false, 0, 2}}, 4, []int{2, 2}},
		"no bound":              {[]ask{{true, 0, 20}, {false, 0, 20}}, 0, []int{10, 10}},
		"what the first leaves": {[]ask{{true, 8, 4}, {false, 0, 4}}, 4, []int{2, 2}},
		"in between":            {[]ask{{false, 8, 4}, {true, 9, 4}, {false, 0, 4}}, 4, []int{2, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			log, far, near, each := farAndNear(t, memory.New())
			w := eventlog.Want{MaxBytes: c.most * each}
			for _, a := range c.asks {
				p := near
				if a.far {
					p = far
				}
				w.Spans = append(w.Spans, eventlog.Span{Partition: p, From: eventlog.Offset(a.from), MaxBytes: a.most * each})
			}
			got, err := log.Fetch(t.Context(), w)
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range c.want {
				if n := len(got[i].Batches); n != want || got[i].Err != nil {
					t.Errorf("%d batches of span %d, want %d; error %v", n, i, want, got[i].Err)
				}
			}
		})
	}
}

// What waits for the store holds nothing back when the store is away.
func TestFetchServesWhatIsInMemoryWhileTheStoreIsAway(t *testing.T) {
	store := &flaky{Store: memory.New()}
	log, far, near, each := farAndNear(t, store)
	store.passed.Store(true)
	store.broken.Store(2)
	want := eventlog.Want{Spans: []eventlog.Span{{Partition: far, MaxBytes: 4 * each}, {Partition: near, MaxBytes: 4 * each}}, MaxBytes: 4 * each}
	got, err := log.Fetch(t.Context(), want)
	if err != nil || len(got[0].Batches) > 0 || len(got[1].Batches) != 4 {
		t.Errorf("%d and %d batches, %v", len(got[0].Batches), len(got[1].Batches), err)
	}
	want.Spans = want.Spans[:1]
	if _, err := log.Fetch(t.Context(), want); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("with nothing to serve: %v", err)
	}
}

// unheard is a log that does not follow others for an hour, with a reader of history that is
// prefetched for at offset 2 of one partition, and a partition that has ten batches more than the
// log has heard of.
func unheard(t *testing.T, store eventlog.Store) (log *eventlog.Log, far, news eventlog.Partition, each int) {
	t.Helper()
	writer, far := history(t, store, 10)
	news = topic(t, writer, "news", 1).Partitions[0]
	log = open(t, store, eventlog.Config{Poll: time.Hour})
	for range 10 {
		if _, err := writer.Publish(t.Context(), news, batch.Record{Value: make([]byte, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	each = len(one(t, log, far, 0).Batches[0].Bytes)
	one(t, log, far, 1)
	synctest.Wait() // 2 is prefetched
	return log, far, news, each
}

// A high watermark never goes back (L6): what one span takes of the budget must not make another
// partition look empty.
func TestFetchTellsTheBoundsOfASpanThatGetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, far, news, each := unheard(t, &counting{Store: memory.New()})
		got, err := log.Fetch(t.Context(), eventlog.Want{MaxBytes: each, Spans: []eventlog.Span{
			{Partition: far, From: 2, MaxBytes: each},
			{Partition: news, From: 5, MaxBytes: each},
		}})
		if err != nil || len(got[0].Batches) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		if s := got[1]; s.Err != nil || s.Bounds.Next != 10 || len(s.Batches) > 0 {
			t.Errorf("asked from 5, a partition that ends at 10 is told as %+v, error %v, %d batches", s.Bounds, s.Err, len(s.Batches))
		}
	})
}

func TestFetchDoesNotCallAPartitionEmptyThatItCouldNotAskFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &flaky{Store: memory.New()}
		log, far, news, each := unheard(t, store)
		store.passed.Store(true)
		store.broken.Store(1)
		got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{
			{Partition: far, From: 2, MaxBytes: each},
			{Partition: news, From: 5, MaxBytes: each},
		}})
		if err != nil || len(got[0].Batches) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		if s := got[1]; !errors.Is(s.Err, eventlog.ErrUnavailable) {
			t.Errorf("while the store is away a partition is told as %+v, error %v", s.Bounds, s.Err)
		}
	})
}

func TestFetchClaimsWhatItReturns(t *testing.T) {
	store := memory.New()
	log, far, near, each := farAndNear(t, store)
	answers := budget.New(1 << 20)
	ask := func(p eventlog.Partition, wait time.Duration) (*budget.Claim, int) {
		t.Helper()
		c := answers.Begin()
		got, err := log.Fetch(t.Context(), eventlog.Want{Claim: c, MaxWait: wait, Spans: []eventlog.Span{{Partition: p, From: 3, MaxBytes: 4 * each}}})
		if err != nil {
			t.Fatal(err)
		}
		return c, len(got[0].Batches)
	}
	for name, p := range map[string]eventlog.Partition{"from memory": near, "from the store": far} {
		c, n := ask(p, 0)
		if n != 4 || c.Held() != int64(4*each) {
			t.Errorf("%s: %d batches of %d bytes, and %d bytes are claimed", name, n, each, c.Held())
		}
		c.Release()
	}
	empty := topic(t, log, "empty", 1).Partitions[0]
	c := answers.Begin()
	if _, err := log.Fetch(t.Context(), eventlog.Want{Claim: c, MaxWait: time.Millisecond, Spans: []eventlog.Span{{Partition: empty, MaxBytes: each}}}); err != nil || c.Held() != 0 {
		t.Errorf("nothing came, and %d bytes are claimed; %v", c.Held(), err)
	}
	if !answers.Idle() {
		t.Error("something is held that nobody has")
	}
}

// Where answers take all the memory, those from the store and those from the tail get small, then
// they wait, and hold nothing meanwhile.
func TestFetchWaitsForMemoryInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, far, near, each := farAndNear(t, &counting{Store: memory.New()})
		for _, p := range []eventlog.Partition{near, far} {
			answers := budget.New(int64(4 * each))
			first := answers.Begin()
			if _, err := first.Grow(t.Context(), int64(4*each)); err != nil {
				t.Fatal(err)
			}
			spans := []eventlog.Span{{Partition: p, MaxBytes: 4 * each}}
			over := answers.Begin() // which overdraws, so that the next one waits
			if _, err := over.Grow(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			c := answers.Begin()
			if _, err := log.Fetch(ctx, eventlog.Want{Claim: c, Spans: spans}); !errors.Is(err, eventlog.ErrCrowded) || c.Held() != 0 {
				t.Errorf("with no memory: %v, and %d bytes are claimed", err, c.Held())
			}
			go func() {
				time.Sleep(time.Second)
				over.Release()
				first.Release()
			}()
			got, err := log.Fetch(t.Context(), eventlog.Want{Claim: c, Spans: spans})
			if err != nil || len(got[0].Batches) == 0 || c.Held() != int64(len(got[0].Batches)*each) {
				t.Errorf("%d batches, %v; %d bytes are claimed", len(got[0].Batches), err, c.Held())
			}
			c.Release()
			synctest.Wait() // first is released as well: with the memory of over alone the fetch may overdraw
			if !answers.Idle() {
				t.Error("something is held that nobody has")
			}
		}
	})
}

// A reader that waits for more bytes than come is woken by each append: what it does then must not
// grow with what it has to read already.
func TestAReaderThatHasNotEnoughCopiesNothingAtEachAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const behind, appends = 20_000, 200
		log := open(t, memory.New(), eventlog.Config{Poll: never})
		p := topic(t, log, "hot", 1).Partitions[0]
		raw := sealed(t, p, 1, -1, -1, -1).Batches[0]
		e := eventlog.Entry{}
		for range behind {
			e.Batches = append(e.Batches, raw)
		}
		if _, err := log.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		each := len(raw.Bytes)
		got := make(chan int, 1)
		go func() {
			slices, err := log.Fetch(t.Context(), eventlog.Want{
				Spans:    []eventlog.Span{{Partition: p, MaxBytes: 1 << 30}},
				MinBytes: (behind+appends)*each - 1, // and the last of them is enough
				MaxWait:  time.Hour,
			})
			if err != nil {
				t.Error(err)
			}
			got <- len(slices[0].Batches)
		}()
		synctest.Wait()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range appends - 1 {
			if _, err := log.Append(t.Context(), eventlog.Entry{Batches: []eventlog.Batch{raw}}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		runtime.ReadMemStats(&after)
		if n := int(after.TotalAlloc-before.TotalAlloc) / appends; n > 64<<10 {
			t.Errorf("each append allocates %d bytes, while a reader of %d batches waits", n, behind)
		}
		if len(got) > 0 {
			t.Fatal("the reader did not wait")
		}
		if _, err := log.Append(t.Context(), eventlog.Entry{Batches: []eventlog.Batch{raw}}); err != nil {
			t.Fatal(err)
		}
		if n := <-got; n != behind+appends {
			t.Errorf("the answer has %d batches, want %d", n, behind+appends)
		}
	})
}

// As in Kafka (DelayedFetch), each partition counts with as many bytes as it may bring, whether
// batches add up to them or not.
func TestAReaderDoesNotWaitForMoreThanItMayHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := open(t, memory.New(), eventlog.Config{Poll: never})
		p := topic(t, log, "t", 1).Partitions[0]
		for range 10 {
			publish(t, log, p, "value")
		}
		each := len(one(t, log, p, 0).Batches[0].Bytes)
		start := time.Now()
		got, err := log.Fetch(t.Context(), eventlog.Want{
			Spans: []eventlog.Span{{Partition: p, MaxBytes: 5*each + 1}}, MinBytes: 5*each + 1, MaxWait: time.Minute,
		})
		if err != nil || len(got[0].Batches) != 5 || time.Since(start) > 0 {
			t.Errorf("after %v there are %d batches; %v", time.Since(start), len(got[0].Batches), err)
		}
	})
}
