package eventlog_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/store/memory"
)

func compacted(t *testing.T, log *eventlog.Log, config map[string]string) eventlog.Partition {
	t.Helper()
	all := map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
	for k, v := range config {
		all[k] = v
	}
	made, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "c", Partitions: 1, Config: all})
	if err != nil {
		t.Fatal(err)
	}
	return made.Partitions[0]
}

// held reads a partition from its first offset, as a reader of history does.
func heldRecords(t *testing.T, log *eventlog.Log, p eventlog.Partition) (all []batch.Record) {
	t.Helper()
	bounds, _ := log.Known(p)
	for from := bounds.First; from < bounds.Next; {
		got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: from, MaxBytes: 5000}}})
		if err != nil || got[0].Err != nil || len(got[0].Batches) == 0 {
			t.Fatalf("fetch from %d of %+v: %+v, %v", from, bounds, got, err)
		}
		for _, b := range got[0].Batches {
			for rec, err := range b.Decode() {
				if err != nil {
					t.Fatal(err)
				}
				if rec.Offset >= int64(from) {
					all = append(all, rec)
				}
			}
			from = b.End()
		}
	}
	return all
}

// A random history of keys, tombstones, trims and pauses, on two logs of one store: what is held
// always has every key's newest record, at its offset, and nothing that was not appended there;
// after a pause it has nothing else.
func TestCompactionKeepsTheNewestRecordOfEachKey(t *testing.T) {
	random := seed.Random(t)
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		logs := []*eventlog.Log{open(t, store, eventlog.Config{}), open(t, store, eventlog.Config{})}
		p := compacted(t, logs[0], map[string]string{"delete.retention.ms": "100000"})
		time.Sleep(time.Second)
		appended := map[int64]string{} // key=value of each offset
		newest := map[string]int64{}
		var next, first int64
		trims := random.IntN(2) == 0
		for range 60 {
			for range random.IntN(40) {
				key := fmt.Sprint("k", random.IntN(30))
				rec := batch.Record{Key: []byte(key)}
				if random.IntN(5) > 0 {
					rec.Value = []byte(fmt.Sprint("v", random.IntN(1000)))
				}
				at, err := logs[random.IntN(2)].Publish(t.Context(), p, rec)
				if err != nil {
					t.Fatal(err)
				}
				appended[int64(at)] = fmt.Sprintf("%s=%s", key, rec.Value)
				newest[key], next = int64(at), int64(at)+1
			}
			if trims && next > first && random.IntN(4) == 0 {
				first += random.Int64N(next - first)
				if err := logs[random.IntN(2)].Trim(t.Context(), p, eventlog.Offset(first)); err != nil {
					t.Fatal(err)
				}
			}
			settled := random.IntN(3) == 0
			if settled {
				time.Sleep(100 * time.Second)
			} else {
				time.Sleep(time.Duration(random.IntN(20)) * time.Second)
			}
			time.Sleep(time.Second) // both logs have polled
			seen := map[string]int64{}
			log := logs[random.IntN(2)]
			for _, rec := range heldRecords(t, log, p) {
				if got := fmt.Sprintf("%s=%s", rec.Key, rec.Value); appended[rec.Offset] != got {
					t.Fatalf("offset %d holds %q, and %q was appended there", rec.Offset, got, appended[rec.Offset])
				}
				if settled && !trims && newest[string(rec.Key)] != rec.Offset {
					t.Errorf("after a pause, offset %d of key %s is held, and %d is its newest", rec.Offset, rec.Key, newest[string(rec.Key)])
				}
				seen[string(rec.Key)] = rec.Offset
			}
			for key, at := range newest {
				last, held := seen[key]
				if gone := at < first || appended[at] == key+"="; held && last != at || !held && !gone {
					t.Fatalf("key %s: the newest record is at %d, and held is %d (%v); the partition begins at %d", key, at, last, held, first)
				}
			}
			if b, _ := log.Known(p); int64(b.Next) != next {
				t.Fatalf("the partition ends at %d, want %d", b.Next, next)
			}
		}
		time.Sleep(300 * time.Second) // two passes: one finds the last tombstones, one deletes them
		for _, rec := range heldRecords(t, logs[0], p) {
			if rec.Value == nil && !trims { // else older records of a batch that is trimmed in part may need it
				t.Errorf("the tombstone at %d is there after delete.retention.ms", rec.Offset)
			}
		}
	})
}

// slowReplaces takes a second for each entry of a pass that replaces batches, and notes when it
// began.
type slowReplaces struct {
	eventlog.Store
	began []time.Time
}

func (s *slowReplaces) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if len(flush[0].Replaces) > 0 {
		s.began = append(s.began, time.Now())
		time.Sleep(time.Second)
	}
	return s.Store.Commit(ctx, flush)
}

// Producers get half of the store's time while a pass is made.
func TestAPassRestsAsLongAsItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowReplaces{Store: memory.New()}
		log := open(t, store, eventlog.Config{})
		p := compacted(t, log, nil)
		for range 16 { // 4 MiB
			if _, err := log.Publish(t.Context(), p, batch.Record{Key: []byte("k"), Value: make([]byte, 256<<10)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(store.began) < 3 {
			t.Fatalf("a pass over 4 MiB replaced batches %d times", len(store.began))
		}
		for i, at := range store.began[1:] {
			if apart := at.Sub(store.began[i]); apart < 2*time.Second {
				t.Errorf("entry %d of a pass began %v after the one before it, which took a second", i+1, apart)
			}
		}
	})
}

func TestYoungRecordsAreNotCompacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := open(t, memory.New(), eventlog.Config{})
		p := compacted(t, log, map[string]string{"min.compaction.lag.ms": "600000"})
		for range 3 {
			if _, err := log.Publish(t.Context(), p, batch.Record{Key: []byte("k"), Value: []byte("v")}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(9 * time.Minute)
		if n := len(heldRecords(t, log, p)); n != 3 {
			t.Errorf("after 9 of 10 minutes, %d of 3 records are held", n)
		}
		time.Sleep(2 * time.Minute)
		if n := len(heldRecords(t, log, p)); n != 1 {
			t.Errorf("after 11 minutes, %d records are held, want 1", n)
		}
	})
}

// min.cleanable.dirty.ratio is about the bytes that a partition holds: those that were trimmed
// since the last pass do not count as clean.
func TestACompactedTopicIsCompactedAfterATrim(t *testing.T) {
	for name, c := range map[string]struct {
		trim eventlog.Offset
		more int  // records that are appended after it
		pass bool // whether a pass begins then
	}{
		"most is trimmed, two thirds are dirty":   {trim: 90, more: 20, pass: true},
		"all is trimmed":                          {trim: 100, more: 20, pass: true},
		"little is trimmed, a quarter is dirty":   {trim: 40, more: 20, pass: false},
		"nothing is trimmed, a sixth is dirty":    {trim: 0, more: 20, pass: false},
		"nothing is trimmed, two thirds is dirty": {trim: 0, more: 200, pass: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := open(t, memory.New(), eventlog.Config{})
				p := compacted(t, log, map[string]string{"min.cleanable.dirty.ratio": "0.5", "cleanup.policy": "compact,delete"})
				publish := func(key string) {
					if _, err := log.Publish(t.Context(), p, batch.Record{Key: []byte(key), Value: make([]byte, 100)}); err != nil {
						t.Fatal(err)
					}
				}
				for i := range 100 {
					publish(fmt.Sprintf("k%03d", i))
				}
				time.Sleep(time.Minute)
				if err := log.Trim(t.Context(), p, c.trim); err != nil {
					t.Fatal(err)
				}
				for range c.more {
					publish("again")
				}
				time.Sleep(time.Minute)
				want := 100 - int(c.trim) + c.more
				if c.pass {
					want = 100 - int(c.trim) + 1
				}
				if got := len(heldRecords(t, log, p)); got != want {
					t.Errorf("%d records are held, want %d", got, want)
				}
			})
		})
	}
}

// A batch whose first records are trimmed is not rewritten. It counts as clean nevertheless:
// otherwise it would make every check begin a pass.
func TestABatchThatIsTrimmedInPartCountsAsClean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := open(t, memory.New(), eventlog.Config{})
		p := compacted(t, log, map[string]string{"min.cleanable.dirty.ratio": "0.5"})
		publish := func(recs ...batch.Record) {
			if _, err := log.Publish(t.Context(), p, recs...); err != nil {
				t.Fatal(err)
			}
		}
		var large []batch.Record
		for i := range 50 {
			large = append(large, batch.Record{Key: fmt.Append(nil, "k", i), Value: make([]byte, 100)})
		}
		small := batch.Record{Key: []byte("small"), Value: []byte("v")}
		publish(large...)
		publish(small)
		if err := log.Trim(t.Context(), p, 25); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		publish(small)
		time.Sleep(time.Minute)
		if got := len(heldRecords(t, log, p)); got != 25+2 {
			t.Errorf("%d records are held, want 27: a small share of the bytes is dirty", got)
		}
	})
}

// A pass that ended early has made batches smaller than its state says.
func TestAPassThatEndedEarlyIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		log := open(t, store, eventlog.Config{})
		p := compacted(t, log, map[string]string{"min.cleanable.dirty.ratio": "0.5"})
		for i := range 100 {
			if _, err := log.Publish(t.Context(), p, batch.Record{Key: fmt.Append(nil, i/50), Value: make([]byte, 100)}); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				time.Sleep(time.Minute) // a state
			}
		}
		// As a process leaves it that rewrote most batches and was killed: below clean are fewer
		// bytes than the state says.
		kv, err := log.Get(t.Context(), eventlog.ReplacedKey(p))
		if err != nil {
			t.Fatal(err)
		}
		put := eventlog.Put{Key: kv.Key, Version: kv.Version.Next(), Value: []byte(`{"clean":1,"bytes":1000000,"by":"killed"}`)}
		if out, err := store.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{put}}}); err != nil || out[0].Err != nil {
			t.Fatal(out, err)
		}
		time.Sleep(3 * time.Minute)
		if got := len(heldRecords(t, log, p)); got != 2 {
			t.Errorf("%d records are held, want the newest of two keys", got)
		}
	})
}

// A producer's numbers are keyed state: compaction of its batches does not touch them.
func TestAnIdempotentProducerContinuesAfterCompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		log := open(t, store, eventlog.Config{})
		p := compacted(t, log, nil)
		for i := range int32(4) {
			if _, err := log.Append(t.Context(), sealed(t, p, 2, 7, 0, 2*i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		again, err := log.Append(t.Context(), sealed(t, p, 2, 7, 0, 6))
		if err != nil || !again.Duplicate || again.Base[0] != 6 {
			t.Errorf("the last batch, sent again: %+v, %v", again, err)
		}
		next, err := open(t, store, eventlog.Config{}).Append(t.Context(), sealed(t, p, 2, 7, 0, 8))
		if err != nil || next.Base[0] != 8 {
			t.Errorf("the next batch, in another process: %+v, %v", next, err)
		}
	})
}

// The state of a partition's compaction goes after its topic. That of a topic that is there stays.
func TestTheStateOfCompactionGoesWithItsTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		log := open(t, store, eventlog.Config{})
		states := func() (keys []string) {
			kvs, err := store.List(t.Context(), eventlog.CompactPrefix, "", 10)
			if err != nil {
				t.Fatal(err)
			}
			for _, kv := range kvs {
				keys = append(keys, kv.Key)
			}
			return keys
		}
		fill := func(p eventlog.Partition) {
			for range 2 {
				_, err := log.Publish(t.Context(), p, batch.Record{Key: []byte("k"), Value: []byte("v")})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		gone := compacted(t, log, nil)
		fill(gone)
		time.Sleep(time.Minute)
		if err := log.DeleteTopic(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		stays := compacted(t, log, nil)
		fill(stays)
		time.Sleep(time.Minute)
		both := []string{eventlog.ReplacedKey(gone), eventlog.ReplacedKey(stays)}
		if got := states(); !slices.Equal(got, both) {
			t.Fatalf("before the sweep there are %q, want %q", got, both)
		}
		time.Sleep(20 * time.Minute)
		if got, want := states(), []string{eventlog.ReplacedKey(stays)}; !slices.Equal(got, want) {
			t.Errorf("after the sweep there are %q, want %q", got, want)
		}
	})
}

// A batch that is trimmed in part is not rewritten, and keeps the older record of a key. The key's
// tombstone stays as long.
func TestADeletedKeyDoesNotComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := open(t, memory.New(), eventlog.Config{})
		p := compacted(t, log, map[string]string{"delete.retention.ms": "60000"})
		publish := func(recs ...batch.Record) {
			t.Helper()
			if _, err := log.Publish(t.Context(), p, recs...); err != nil {
				t.Fatal(err)
			}
		}
		trim := func(before eventlog.Offset) {
			t.Helper()
			if err := log.Trim(t.Context(), p, before); err != nil {
				t.Fatal(err)
			}
		}
		held := func() (all string) {
			for _, rec := range heldRecords(t, log, p) {
				all += fmt.Sprintf(" %s=%s", rec.Key, rec.Value)
			}
			return all
		}
		publish(batch.Record{Key: []byte("a"), Value: []byte("1")}, batch.Record{Key: []byte("deleted"), Value: []byte("old")})
		publish(batch.Record{Key: []byte("b"), Value: []byte("1")})
		trim(1)
		publish(batch.Record{Key: []byte("deleted")})
		publish(batch.Record{Key: []byte("other")})
		time.Sleep(10 * time.Minute)
		if got := held(); got != " deleted=old b=1 deleted=" {
			t.Errorf("held is%s", got)
		}
		kv, err := log.Get(t.Context(), eventlog.ReplacedKey(p))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if now, err := log.Get(t.Context(), kv.Key); err != nil || now.Version != kv.Version {
			t.Errorf("passes go on for the tombstone that stays: %s, then %s (%v)", kv.Value, now.Value, err)
		}
		trim(2)
		time.Sleep(10 * time.Minute)
		if got := held(); got != " b=1" {
			t.Errorf("after the older record was trimmed, held is%s", got)
		}
	})
}
