package s3

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storetest"
)

// quick asks the server whenever it may.
var quick = place{bucketName: "fake", grace: time.Hour}

func (f *fake) open(ctx context.Context, at place) (*Store, error) {
	clock := &clock{}
	return open(ctx, at, given{f, clock}, clock, Options{})
}

// tending gathers and snapshots after each commit, and starts from the snapshot.
type tending struct{ *Store }

func (s tending) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	out, err := s.Store.Commit(ctx, flush)
	if err == nil {
		for _, do := range []func() error{
			func() error { _, err := s.compact(ctx, 1); return err },
			func() error { return s.snapshot(ctx) },
			func() error { return s.turned(ctx, s.reload) },
		} {
			if err := do(); err != nil && !errors.Is(err, eventlog.ErrUnavailable) {
				return nil, err
			}
		}
	}
	return out, err
}

func (s *Store) turned(ctx context.Context, do func(context.Context) error) error {
	if err := s.turn.take(ctx); err != nil {
		return err
	}
	defer s.turn.give()
	return do(ctx)
}

// TestStoreOnAFakeBucket is the contract without a server.
func TestStoreOnAFakeBucket(t *testing.T) {
	seldom := quick
	seldom.verify = time.Hour
	for name, run := range map[string]func(*testing.T){
		"verified":        func(t *testing.T) { contract(t, quick, func(s *Store) eventlog.Store { return s }) },
		"seldom verified": func(t *testing.T) { contract(t, seldom, func(s *Store) eventlog.Store { return s }) },
		"tended":          func(t *testing.T) { contract(t, quick, func(s *Store) eventlog.Store { return tending{s} }) },
	} {
		t.Run(name, run)
	}
}

func contract(t *testing.T, at place, as func(*Store) eventlog.Store) {
	var fakes sync.Map
	find := func(place string) *fake { f, _ := fakes.Load(place); return f.(*fake) }
	harness := storetest.Harness{
		Place: func(t *testing.T) string {
			name := random()
			fakes.Store(name, newFake())
			t.Cleanup(func() { fakes.Delete(name) })
			return name
		},
		Open: func(ctx context.Context, place string) (eventlog.Store, error) {
			s, err := find(place).open(ctx, at)
			if err != nil {
				return nil, err
			}
			return as(s), nil
		},
		Backup: func(t *testing.T, place string) func() {
			f := find(place)
			f.Mu.Lock()
			defer f.Mu.Unlock()
			copied := maps.Clone(f.Objects)
			return func() {
				f.Mu.Lock()
				defer f.Mu.Unlock()
				f.Objects = maps.Clone(copied)
			}
		},
		OneProcess: true,
	}
	if at.verify > 0 {
		harness.Backup = nil
	}
	storetest.Run(t, harness)
}
