package shard

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// told is a store whose Changes ends with after.
type told struct {
	eventlog.Store
	after func(err error) error
}

func (s *told) Changes(ctx context.Context, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
	bounds, mark, err := s.Store.Changes(ctx, since)
	if s.after != nil {
		err = s.after(err)
	}
	return bounds, mark, err
}

// backed is a set of two stores, of which one can be restored.
type backed struct {
	*Set
	stores  [2]*told
	p       [2]eventlog.Partition // one on each
	key     [2]string
	restore func(shard int) // to what it was before its last record
}

func openBacked(t *testing.T) *backed {
	stores := []*memory.Store{memory.New(), memory.New()}
	b := &backed{stores: [2]*told{{Store: stores[0]}, {Store: stores[1]}}, p: [2]eventlog.Partition{1, eventlog.Partition(2).On(1)}}
	b.Set = openSet(t, Shard{"a", b.stores[0]}, Shard{"b", b.stores[1]})
	for n := 0; b.key[0] == "" || b.key[1] == ""; n++ {
		k := fmt.Sprintf("t/%d", n)
		at, err := b.ShardOf(k)
		if err != nil {
			t.Fatal(err)
		}
		b.key[at] = k
	}
	back := [2]func(bool){}
	for i := range stores {
		do(t, b, eventlog.Entry{Batches: []eventlog.Batch{{Partition: b.p[i]}}}, eventlog.Entry{Puts: []eventlog.Put{{Key: b.key[i], Version: 1}}})
		back[i] = stores[i].Backup()
		do(t, b, eventlog.Entry{Batches: []eventlog.Batch{records(b.p[i], 1)}})
	}
	b.restore = func(shard int) { back[shard](false) }
	if _, _, err := b.Changes(t.Context(), eventlog.Mark{}); err != nil {
		t.Fatal(err)
	}
	return b
}

// reads are the ways to read what is on a shard.
func (b *backed) reads(ctx context.Context, shard int) map[string]func() error {
	return map[string]func() error{
		"read": func() error {
			got, err := b.Read(ctx, []eventlog.Span{{Partition: b.p[shard], MaxBytes: 1}}, 1<<20)
			if err == nil {
				err = got[0].Err
			}
			return err
		},
		"seek": func() error {
			got, err := b.Seek(ctx, []eventlog.Goal{{Partition: b.p[shard]}})
			if err == nil {
				err = got[0].Err
			}
			return err
		},
		"get":  func() error { _, err := eventlog.Get(ctx, b, b.key[shard]); return err },
		"list": func() error { _, err := b.List(ctx, b.key[shard], "", 10); return err },
	}
}

// A shard was restored, and says so, while the set cannot be entered because another shard fails.
// It is not read as if it were still what the log knows.
func TestARestoredShardIsNotReadUntilItsIncarnationIsEntered(t *testing.T) {
	for restored, fails := range map[int]error{0: eventlog.ErrUpgraded, 1: errCut} {
		b := openBacked(t)
		all := func(when string, want bool) {
			t.Helper()
			for name, read := range b.reads(t.Context(), restored) {
				if err := read(); (err == nil) != want {
					t.Errorf("shard %d, %s: %s: %v", restored, when, name, err)
				}
			}
		}
		all("before", true)
		b.restore(restored)
		b.stores[1-restored].after = func(error) error { return fails }
		if _, _, err := b.Changes(t.Context(), eventlog.Mark{}); !errors.Is(err, fails) {
			t.Fatalf("the set is entered: %v", err)
		}
		all("while another shard fails", false)
		b.stores[1-restored].after = nil
		if _, _, err := b.Changes(t.Context(), eventlog.Mark{}); err != nil {
			t.Fatal(err)
		}
		all("after", true)
	}
}

// The shard's store answers from the restored state before the set has the shard's answer.
func TestAReadWaitsWhileAShardIsAskedWhatItHolds(t *testing.T) {
	for _, name := range []string{"read", "seek", "get", "list"} {
		synctest.Test(t, func(t *testing.T) {
			b := openBacked(t)
			b.restore(1)
			met, goOn := make(chan struct{}), make(chan struct{})
			b.stores[1].after = func(err error) error { close(met); <-goOn; return err }
			b.stores[0].after = func(error) error { return errCut }
			entered := make(chan error, 1)
			go func() { _, _, err := b.Changes(t.Context(), eventlog.Mark{}); entered <- err }()
			<-met
			answered := make(chan error, 1)
			go func() { answered <- b.reads(t.Context(), 1)[name]() }()
			synctest.Wait()
			select {
			case err := <-answered:
				t.Errorf("%s: it is answered meanwhile: %v", name, err)
				answered <- err
			default:
			}
			close(goOn)
			if err := <-answered; err == nil {
				t.Errorf("%s: it answers from an incarnation that the log has not entered", name)
			}
			if err := <-entered; !errors.Is(err, errCut) {
				t.Errorf("the set is entered: %v", err)
			}
		})
	}
}

// An epoch begins. A shard has told it already while shard 0 is still asked: who reads waits, and
// is not refused.
func TestAReadWaitsWhileTheSetEntersAnEpoch(t *testing.T) {
	for _, name := range []string{"read", "seek", "get", "list"} {
		synctest.Test(t, func(t *testing.T) {
			b := openBacked(t)
			b.restore(1)
			goOn := make(chan struct{})
			b.stores[0].after = func(err error) error { <-goOn; return err }
			entered := make(chan error, 1)
			go func() { _, _, err := b.Changes(t.Context(), eventlog.Mark{}); entered <- err }()
			synctest.Wait() // shard 1 has answered
			answered := make(chan error, 1)
			go func() { answered <- b.reads(t.Context(), 1)[name]() }()
			synctest.Wait()
			close(goOn)
			if err := <-entered; err != nil {
				t.Fatal(err)
			}
			if err := <-answered; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
