package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/weir-log/weir/eventlog"
)

var incarnationTests = map[string]func(*testing.T, Harness){
	"ARestoredBackupIsAnotherIncarnation": testRestored,
	"TheEpochIsPartOfTheIncarnation":      testEpoch,
	"ReopeningBeginsNoIncarnation":        testSameIncarnation,
	"AnEpochEndsTheCommitsBeforeIt":       testEpochEndsCommits,
}

func testRestored(t *testing.T, h Harness) {
	if h.Backup == nil {
		t.Skip("the harness has no backups")
	}
	r := newRig(t, h)
	r.openPartitions(1)
	r.publish(batch(1, 3, 10))
	r.put(eventlog.Put{Key: "k", Version: 1, Value: []byte("kept")})
	_, mark := r.moved(r.store, eventlog.Mark{})
	restore := h.Backup(t, r.place)
	if err := again(func() error { // a backup may break connections
		_, err := r.store.Commit(r.ctx, []eventlog.Entry{{Puts: []eventlog.Put{{Key: "ping", Version: 1, Value: []byte("x")}}}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := again(func() error { _, _, err := r.store.Changes(r.ctx, mark); return err }); err != nil {
		t.Fatal(err)
	}
	r.publish(batch(1, 3, 10))
	r.put(eventlog.Put{Key: "k", Version: 2, Value: []byte("lost")})
	_, mark = r.moved(r.store, mark)
	restore()

	for name, call := range map[string]func() error{
		"a commit": func() error {
			_, err := r.store.Commit(r.ctx, []eventlog.Entry{{Batches: []eventlog.Batch{batch(1, 1, 10)}}})
			return err
		},
		"a trim":                        func() error { return Trim(r.ctx, r.store, 1, 2) },
		"a read":                        func() error { return r.readError(eventlog.Span{Partition: 1, From: 2, MaxBytes: 100}) },
		"a seek":                        func() error { _, err := seekOne(r.ctx, r.store, 1, eventlog.Goal{At: 1}); return err },
		"a list":                        func() error { _, err := r.store.List(r.ctx, "k", "", 1); return err },
		"a get":                         func() error { _, err := r.store.Get(r.ctx, []string{"k"}, 1); return err },
		"a read of bounds":              func() error { return r.readError(eventlog.Span{Partition: 1}) },
		"a read of no partition":        func() error { return r.readError(eventlog.Span{Partition: 2, MaxBytes: 100}) },
		"moved, with a mark of before,": func() error { _, _, err := r.store.Changes(r.ctx, mark); return err },
	} {
		if err := again(call); !errors.Is(err, eventlog.ErrRewound) {
			t.Errorf("%s after the backup was restored: %v; want ErrRewound", name, err)
		}
	}
	all, now, err := r.store.Changes(r.ctx, eventlog.Mark{})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 || all[0].First != 0 || all[0].Next != 3 || now.Incarnation == mark.Incarnation {
		t.Errorf("moved from the beginning lists %+v in %+v, and before it was %+v", all, now.Incarnation, mark.Incarnation)
	}
	if base := r.publish(batch(1, 1, 10)); base[0] != 3 {
		t.Errorf("a commit after that begins at %d, want 3", base[0])
	}
	if got := r.list("k", "", 1); len(got) != 1 || string(got[0].Value) != "kept" {
		t.Errorf("the key holds %+v", got)
	}
	if placed := r.all(1); len(placed) != 2 {
		t.Errorf("%d batches, want the kept one and the new one", len(placed))
	}
	if _, other := r.moved(r.another(), eventlog.Mark{}); other.Incarnation != now.Incarnation {
		t.Errorf("another process is in incarnation %+v, and this in %+v", other.Incarnation, now.Incarnation)
	}
}

// readError reads, and returns the error of the whole call.
func (r *rig) readError(spans ...eventlog.Span) error {
	_, err := r.store.Read(r.ctx, spans, 100)
	return err
}

// again repeats a call until it succeeds or returns ErrRewound, at most ten times: a backup may
// have broken connections.
func again(call func() error) (err error) {
	for range 10 {
		if err = call(); err == nil || errors.Is(err, eventlog.ErrRewound) {
			break
		}
	}
	return err
}

func testEpoch(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	other := r.another()
	_, mark := r.moved(r.store, eventlog.Mark{})
	_, _ = r.moved(other, eventlog.Mark{})
	if mark.Incarnation.Epoch != 0 || mark.Incarnation.Store == "" {
		t.Errorf("a new store is in incarnation %+v", mark.Incarnation)
	}
	out, err := other.Commit(r.ctx, []eventlog.Entry{{Puts: []eventlog.Put{{Key: eventlog.EpochKey, Version: 7, Value: []byte("x")}}}})
	if err != nil || out[0].Err != nil {
		t.Fatal(out, err)
	}
	if _, err := r.store.Commit(r.ctx, []eventlog.Entry{{Batches: []eventlog.Batch{batch(1, 1, 10)}}}); !errors.Is(err, eventlog.ErrRewound) {
		t.Errorf("a commit in an epoch that is over: %v", err)
	}
	for _, p := range []eventlog.Partition{1, 2} { // the second does not exist
		if err := r.readError(eventlog.Span{Partition: p, MaxBytes: 100}); !errors.Is(err, eventlog.ErrRewound) {
			t.Errorf("a read of partition %d in an epoch that is over: %v", p, err)
		}
	}
	if _, err := r.store.List(r.ctx, "k", "", 1); !errors.Is(err, eventlog.ErrRewound) {
		t.Errorf("a list in an epoch that is over: %v", err)
	}
	if _, err := r.store.Get(r.ctx, []string{"k"}, 1); !errors.Is(err, eventlog.ErrRewound) {
		t.Errorf("a get in an epoch that is over: %v", err)
	}
	if _, err := seekOne(r.ctx, r.store, 1, eventlog.Goal{At: 1}); !errors.Is(err, eventlog.ErrRewound) {
		t.Errorf("a seek in an epoch that is over: %v", err)
	}
	if third := r.another(); third != r.store { // the harness of the store in memory always returns the same value
		if _, err := third.Read(r.ctx, []eventlog.Span{{Partition: 1}}, 100); err != nil {
			t.Errorf("a read by a process that was told no incarnation: %v", err)
		}
	}
	if _, _, err := r.store.Changes(r.ctx, mark); !errors.Is(err, eventlog.ErrRewound) {
		t.Errorf("moved, with a mark of an epoch that is over: %v", err)
	}
	_, now := r.moved(r.store, eventlog.Mark{})
	if now.Incarnation.Epoch != 7 || now.Incarnation.Store != mark.Incarnation.Store {
		t.Errorf("with another epoch, incarnation %+v became %+v", mark.Incarnation, now.Incarnation)
	}
	r.publish(batch(1, 1, 10))
	if b := r.bounds(1); b.Next != 1 {
		t.Errorf("%+v, want what was refused to be absent", b)
	}
}

func testSameIncarnation(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	_, before := r.moved(r.store, eventlog.Mark{})
	r.publish(batch(1, 1, 10))
	r.reopen()
	if _, after := r.moved(r.store, eventlog.Mark{}); after.Incarnation != before.Incarnation {
		t.Errorf("incarnation %+v became %+v", before.Incarnation, after.Incarnation)
	}
}

// Once a commit of EpochKey was answered, no commit of an earlier incarnation happens any more, not
// even one that was in progress.
func testEpochEndsCommits(t *testing.T, h Harness) {
	if h.OneProcess {
		t.Skip("the incarnation that a store was told is that of its one value")
	}
	r := newRig(t, h)
	const writers = 4
	ids := []eventlog.Partition{1, 2, 3, 4}
	r.openPartitions(ids...)
	stores := []eventlog.Store{r.store}
	for range writers - 1 {
		stores = append(stores, r.another())
	}
	judge := r.another()
	for round := range 10 {
		for _, s := range append(stores, judge) {
			if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil {
				t.Fatal(err)
			}
		}
		var running sync.WaitGroup
		warm := make(chan struct{}, len(stores))
		for w, s := range stores {
			running.Go(func() {
				for n := 0; ; n++ {
					_, err := s.Commit(t.Context(), []eventlog.Entry{
						{Batches: []eventlog.Batch{batch(ids[w], 1, 1)}},
						{Puts: []eventlog.Put{{Key: fmt.Sprintf("w/%d/%d", w, n%7), Version: eventlog.Version(1 + n), Value: []byte("v")}}},
					})
					if err != nil {
						if !errors.Is(err, eventlog.ErrRewound) {
							t.Errorf("writer %d: %v", w, err)
						}
						break
					}
					if n == 3 {
						warm <- struct{}{}
					}
				}
			})
		}
		for range stores {
			<-warm
		}
		if out, err := judge.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: eventlog.EpochKey, Version: eventlog.Version(100 + round), Value: []byte("x")}}}}); err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
		hold := func() string {
			list, _, err := judge.Changes(t.Context(), eventlog.Mark{})
			if err != nil {
				t.Fatal(err)
			}
			bounds := map[eventlog.Partition]eventlog.Bounds{}
			for _, b := range list {
				bounds[b.Partition] = b
			}
			kvs, err := judge.List(t.Context(), "w/", "", 1000)
			if err != nil {
				t.Fatal(err)
			}
			all := ""
			for _, id := range ids {
				all += fmt.Sprintf("%d:%d ", id, bounds[id].Next)
			}
			for _, kv := range kvs {
				all += fmt.Sprintf("%s@%d ", kv.Key, kv.Version)
			}
			return all
		}
		now := hold()
		running.Wait()
		if later := hold(); later != now {
			t.Fatalf("round %d: after the epoch %s\nand later %s", round, now, later)
		}
	}
}
