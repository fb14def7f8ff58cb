package s3

import (
	"context"
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
	return open(ctx, at, seen{f, clock}, clock, Options{})
}

// TestStoreOnAFakeBucket is the contract without a server.
func TestStoreOnAFakeBucket(t *testing.T) {
	var fakes sync.Map
	find := func(place string) *fake { f, _ := fakes.Load(place); return f.(*fake) }
	storetest.Run(t, storetest.Harness{
		Place: func(t *testing.T) string {
			name := random()
			fakes.Store(name, newFake())
			t.Cleanup(func() { fakes.Delete(name) })
			return name
		},
		Open: func(ctx context.Context, place string) (eventlog.Store, error) { return find(place).open(ctx, quick) },
		Backup: func(t *testing.T, place string) func() {
			f := find(place)
			f.mu.Lock()
			defer f.mu.Unlock()
			copied := maps.Clone(f.objects)
			return func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.objects = maps.Clone(copied)
			}
		},
		OneProcess: true,
	})
}
