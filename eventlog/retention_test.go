package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// Who copies old records into a new topic gets as much time to read them as Kafka's
// log.retention.check.interval.ms gives.
func TestBackFilledRecordsStayForOneCheckInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := open(t, memory.New(), eventlog.Config{})
		time.Sleep(7 * time.Second) // the log has run for longer than one tick
		p := topic(t, log, "history", 1).Partitions[0]
		if _, err := log.Publish(t.Context(), p, batch.Record{Value: []byte("x"), Timestamp: 1234}); err != nil {
			t.Fatal(err)
		}
		held := func() eventlog.Offset {
			b, _ := log.Known(p)
			return b.Next - b.First
		}
		time.Sleep(5*time.Minute - time.Second)
		if held() != 1 {
			t.Error("a record of 1970 is gone before the first check is due")
		}
		time.Sleep(10 * time.Second)
		if held() != 0 {
			t.Error("a record of 1970 is there after the first check")
		}
	})
}

// A topic that keeps records for a short time is checked more often, so that they do not stay for
// several times as long.
func TestShortRetentionIsCheckedOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := open(t, memory.New(), eventlog.Config{})
		made, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "short", Partitions: 1, Config: map[string]string{"retention.ms": "60000"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.Publish(t.Context(), made.Partitions[0], batch.Record{Value: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(71 * time.Second)
		if b, _ := log.Known(made.Partitions[0]); b.First != 1 {
			t.Errorf("a record that is kept for a minute is there after 71 s: %+v", b)
		}
	})
}

// A process that was stopped for long knows topics as they were: it must not delete what the topic
// keeps by now.
func TestAProcessThatIsBehindDoesNotTrimByOldSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		log := open(t, store, eventlog.Config{})
		made, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "audit", Partitions: 1, Config: map[string]string{"retention.ms": "60000"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.Publish(t.Context(), made.Partitions[0], batch.Record{Value: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		open(t, store, eventlog.Config{Poll: 24 * time.Hour}) // it hears of nothing, as if it had been stopped
		if _, err := log.AlterTopic(t.Context(), "audit", func(c map[string]string) error { c["retention.ms"] = "-1"; return nil }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if b, err := log.Bounds(t.Context(), made.Partitions[0]); err != nil || b[0].Bounds.First != 0 {
			t.Errorf("%+v, %v: a record that is kept for ever is gone", b, err)
		}
	})
}

// Retention finds where to trim, and the store loses its end before it does: younger records have
// these offsets now.
func TestRetentionDoesNotTrimByOffsetsOfALostEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		seam := &asked{Store: store}
		log := open(t, seam, eventlog.Config{})
		made, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "short", Partitions: 1, Config: map[string]string{"retention.ms": "60000"}})
		if err != nil {
			t.Fatal(err)
		}
		p := made.Partitions[0]
		restore := store.Backup()
		for range 10 {
			if _, err := log.Publish(t.Context(), p, batch.Record{Value: []byte("old")}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(50 * time.Second)
		found := false
		seam.onceBefore("topic/short", func() { // it looks at the topic's settings, right before it trims
			found = true
			changed := log.IncarnationChanged()
			restore(false)
			<-changed
			for range 3 {
				if _, err := log.Publish(t.Context(), p, batch.Record{Value: []byte("young")}); err != nil {
					t.Error(err)
				}
			}
		})
		time.Sleep(25 * time.Second)
		if b, err := log.Bounds(t.Context(), p); err != nil || !found || b[0].Bounds.First != 0 || b[0].Bounds.Next != 3 {
			t.Errorf("%+v, %v (%v), want the three records that are younger than a minute", b, err, found)
		}
	})
}

// behind is a store whose clock is behind that of the process, which is wrong.
type behind struct {
	eventlog.Store
	by atomic.Int64
}

const month = 30 * 24 * time.Hour

func (s *behind) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	kvs, err := s.Store.List(ctx, prefix, after, limit)
	for i := range kvs {
		if kvs[i].Now != 0 {
			kvs[i].Now -= eventlog.Timestamp(time.Duration(s.by.Load()).Milliseconds())
		}
	}
	return kvs, err
}

// One process whose clock is ahead would delete what all others keep.
func TestRetentionDoesNotDeleteByAWrongClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &behind{Store: memory.New()}
		store.by.Store(int64(month))
		log := open(t, store, eventlog.Config{})
		p := topic(t, log, "orders", 1).Partitions[0]
		for _, age := range []time.Duration{8 * 24 * time.Hour, time.Minute} { // the topic keeps records for a week
			at := time.Now().Add(-month - age)
			if _, err := log.Publish(t.Context(), p, batch.Record{Value: []byte("x"), Timestamp: at.UnixMilli()}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(20 * time.Minute)
		if b, _ := log.Known(p); b.First != 1 || b.Next != 2 {
			t.Errorf("offsets %d to %d are kept, want the one that is not a week old by the store's clock", b.First, b.Next)
		}
	})
}

// A tombstone is there for delete.retention.ms, so that every reader learns of it: also if another
// process than the one that has found it looks at it later, with a wrong clock.
func TestATombstoneStaysWhateverTheClockOfAProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &behind{Store: memory.New()}
		log := open(t, store, eventlog.Config{})
		p := compacted(t, log, map[string]string{"delete.retention.ms": "86400000"})
		publish := func(recs ...batch.Record) {
			t.Helper()
			if _, err := log.Publish(t.Context(), p, recs...); err != nil {
				t.Fatal(err)
			}
		}
		publish(batch.Record{Key: []byte("deleted"), Value: []byte("1")})
		publish(batch.Record{Key: []byte("deleted")})
		publish(batch.Record{Key: []byte("other"), Value: []byte("2")})
		time.Sleep(time.Hour)
		store.by.Store(int64(month))
		time.Sleep(48 * time.Hour)
		if got := len(heldRecords(t, log, p)); got != 2 {
			t.Errorf("%d records are held, want the tombstone and the newest", got)
		}
		store.by.Store(0)
		time.Sleep(time.Hour)
		if got := len(heldRecords(t, log, p)); got != 1 {
			t.Errorf("%d records are held two days later, want the newest", got)
		}
	})
}

// tried is a store that counts its calls, but for the polls of the log, and that fails trims and
// searches of some partitions.
type tried struct {
	eventlog.Store
	calls   atomic.Int64
	damaged map[eventlog.Partition]bool
	broken  eventlog.Partition                // a search that has it fails
	fails   func(trims []eventlog.Trim) error // nil: no call fails
}

var errDamaged = errors.New("damaged")

func (s *tried) Trim(ctx context.Context, trims []eventlog.Trim) ([]error, error) {
	s.calls.Add(1)
	if s.fails != nil {
		if err := s.fails(trims); err != nil {
			return nil, err
		}
	}
	errs, err := s.Store.Trim(ctx, slices.DeleteFunc(slices.Clone(trims), func(t eventlog.Trim) bool { return s.damaged[t.Partition] }))
	for i, t := range trims {
		if s.damaged[t.Partition] {
			errs = slices.Insert(errs, i, errDamaged)
		}
	}
	return errs, err
}

func (s *tried) Seek(ctx context.Context, goals []eventlog.Goal) ([]eventlog.Found, error) {
	s.calls.Add(1)
	found, err := s.Store.Seek(ctx, goals)
	for i, g := range goals {
		if g.Partition == s.broken {
			return nil, errDamaged
		}
		if s.damaged[g.Partition] && g.Partition%2 == 0 {
			found[i].Err = errDamaged
		}
	}
	return found, err
}

func (s *tried) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	s.calls.Add(1)
	return s.Store.Get(ctx, keys, maxBytes)
}

func (s *tried) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	s.calls.Add(1)
	return s.Store.Read(ctx, spans, maxBytes)
}

// Partitions of all topics are checked and trimmed together: a few store calls for hundreds of
// them, by age and by size. One that fails does not keep the others from being trimmed.
func TestRetentionTrimsManyPartitionsInFewStoreCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const topics, partitions = 20, 40
		store := &tried{Store: memory.New(), damaged: make(map[eventlog.Partition]bool)}
		log := open(t, store, eventlog.Config{})
		var ps []eventlog.Partition
		var entry eventlog.Entry
		for n := range topics {
			config := map[string]string{"retention.ms": "60000"}
			if n%2 == 0 {
				config = map[string]string{"retention.ms": "-1", "retention.bytes": "5"}
			}
			made, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: fmt.Sprint("t-", n), Partitions: partitions, Config: config})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range made.Partitions {
				ps = append(ps, p)
				for range 2 {
					entry.Batches = append(entry.Batches, eventlog.Batch{Partition: p, Records: 1, MaxTime: 1, Bytes: []byte("bytes")})
				}
			}
		}
		store.damaged[ps[3]], store.damaged[ps[4]], store.damaged[ps[partitions]], store.damaged[ps[partitions+1]] = true, true, true, true
		store.broken = ps[7]
		if _, err := log.Append(t.Context(), entry); err != nil {
			t.Fatal(err)
		}
		before := store.calls.Load()
		time.Sleep(6 * time.Minute)
		checks := int64(6*60/5 + 1) // the topics with retention.ms are checked every 5 s, and their damaged partitions fail each time
		if n := store.calls.Load() - before; n > 8*checks {
			t.Errorf("%d store calls for %d checks of %d partitions", n, checks, len(ps))
		}
		for i, p := range ps {
			b, _ := log.Known(p)
			want := eventlog.Offset(2) // by age
			if i/partitions%2 == 0 {
				want = 1 // by size
			}
			if store.damaged[p] || p == store.broken {
				want = 0
			}
			if b.First != want || b.Next != 2 {
				t.Errorf("partition %d of topic %d: %+v, want its first offset at %d", i%partitions, i/partitions, b, want)
			}
		}
	})
}

// A call that fails ends the others that are due. If its outcome is unknown, theirs is not: they
// were not made.
func TestTrimsAfterOneThatFailedAreNotMade(t *testing.T) {
	for _, failure := range []error{eventlog.ErrUnsure, eventlog.ErrNoSpace} {
		store := &tried{Store: memory.New()}
		log := open(t, store, eventlog.Config{})
		ps := topic(t, log, "wide", 600).Partitions
		var trims []eventlog.Trim
		for _, p := range ps {
			trims = append(trims, eventlog.Trim{Partition: p, Before: 1})
		}
		store.fails = func(trims []eventlog.Trim) error {
			if trims[0].Partition == ps[0] {
				return nil
			}
			return failure
		}
		before := store.calls.Load()
		errs := log.TrimFound(t.Context(), nil, trims...)
		if n := store.calls.Load() - before; n != 2 || len(errs) != len(trims) {
			t.Errorf("%d store calls, and %d errors", n, len(errs))
		}
		unsure := 0
		for i, err := range errs {
			if errors.Is(err, eventlog.ErrUnsure) {
				unsure++
			}
			if i == 0 && err != nil || i == len(errs)-1 && (!errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrUnsure)) {
				t.Errorf("trim %d: %v", i, err)
			}
		}
		if errors.Is(failure, eventlog.ErrUnsure) != (unsure > 0 && unsure < 300) {
			t.Errorf("%v: %d trims have an unknown outcome", failure, unsure)
		}
	}
}
