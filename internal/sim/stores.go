package sim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/simbucket"
	"github.com/weir-log/weir/store/cache"
	"github.com/weir-log/weir/store/memory"
	_ "github.com/weir-log/weir/store/s3" // sets simbucket.OpenStore
	"github.com/weir-log/weir/store/shard"
	"github.com/weir-log/weir/use/keys"
)

// Stores are the kinds of stores that a history can have.
var Stores = []string{"memory", "s3", "shards", "cache"}

// storage is what the processes of a history share.
type storage interface {
	// members is how many stores it is made of.
	members() int
	// open opens it in a process that starts.
	open(ctx context.Context, h *host, process string) (eventlog.Store, error)
	// copied copies one member, and returns what puts the copy back.
	copied(member int) (putBack func())
	// failover puts a member in another incarnation in which nothing is lost; a bucket has no
	// incarnations.
	failover(member int)
	// close frees what is outside of the memory.
	close()
}

func newStorage(w *world, kind string) (storage, error) {
	switch kind {
	case "memory":
		return oneMemory{memory.New()}, nil
	case "cache":
		dir := filepath.Join(os.TempDir(), fmt.Sprintf("weir-sim-%d", os.Getpid())) // the same in each history
		return &cached{oneMemory{memory.New()}, dir}, os.RemoveAll(dir)
	case "shards":
		return &set{[]*memory.Store{memory.New(), memory.New(), memory.New()}}, nil
	case "s3":
		return &bucket{world: w}, nil
	}
	return nil, fmt.Errorf("there is no kind of store %q; there are %q", kind, Stores)
}

// oneMemory is a store in memory.
type oneMemory struct{ store *memory.Store }

func (oneMemory) members() int { return 1 }

func (o oneMemory) open(_ context.Context, h *host, _ string) (eventlog.Store, error) {
	return &link{host: h, store: o.store.Again()}, nil
}

func (o oneMemory) copied(int) (putBack func()) {
	restore := o.store.Backup()
	return func() { restore(false) }
}

func (o oneMemory) failover(int) { o.store.Backup()(false) }

func (oneMemory) close() {}

// cached is a store in memory, and in front of it a cache of each process, which stays when the
// process is killed.
type cached struct {
	oneMemory
	dir string
}

const (
	cacheBytes = 64 << 10 // little, so that blocks are evicted
	cacheBlock = 2 << 10
)

func (c *cached) open(ctx context.Context, h *host, process string) (eventlog.Store, error) {
	below, err := c.oneMemory.open(ctx, h, process)
	if err != nil {
		return nil, err
	}
	return cache.Open(below, cache.Options{
		Dir: filepath.Join(c.dir, process), Bytes: cacheBytes, BlockBytes: cacheBlock, Store: "sim", Logger: h.logger,
		Check: func(b eventlog.Placed) error { _, err := batch.CheckStored(b.Bytes); return err },
	})
}

func (c *cached) close() { _ = os.RemoveAll(c.dir) }

// set is a store made of shards.
type set struct{ shards []*memory.Store }

func (s *set) members() int { return len(s.shards) }

func (s *set) open(ctx context.Context, h *host, _ string) (eventlog.Store, error) {
	var list []shard.Shard
	for i := range s.shards {
		list = append(list, shard.Shard{Name: fmt.Sprintf("memory %d", i)})
	}
	return shard.Open(ctx, list, shard.Options{
		Rules: keys.Rules(), Logger: h.logger,
		Open: func(ctx context.Context, n int, _ bool) (eventlog.Store, error) {
			l := &link{host: h, member: n, store: s.shards[n].Again()}
			return call(ctx, l, func() (eventlog.Store, error) { return l, nil })
		},
	})
}

func (s *set) copied(member int) (putBack func()) {
	restore := s.shards[member].Backup()
	return func() { restore(false) }
}

func (s *set) failover(member int) { s.shards[member].Backup()(false) }

func (s *set) close() {}

// bucket is a bucket of S3.
type bucket struct {
	world  *world
	memory simbucket.Memory
}

// With these, a history of minutes on S3 has snapshots, segments and collections.
const (
	bucketURL       = "s3://bucket/weir?linger=20ms&verify=2s"
	bucketGrace     = 40 * time.Second
	bucketSnapshots = 100
)

// snapshots is after how many commits there is a snapshot: where copies are put back, sooner in
// some histories.
func (b *bucket) snapshots() int64 {
	if b.world.ledger == nil {
		return bucketSnapshots
	}
	return []int64{20, 50, bucketSnapshots}[b.world.random("snapshots").IntN(3)]
}

// bulk are the objects that are more than a commit.
var bulk = []string{"snapshot/", "part/", "segment/"}

func (b *bucket) members() int { return 1 }

func (b *bucket) open(ctx context.Context, h *host, _ string) (eventlog.Store, error) {
	l := &simbucket.Line{Of: &b.memory, Awake: h.awake, Dead: h.dead, Later: b.world.late.Go, Fate: func(r simbucket.Request) simbucket.Fate { return b.fate(h, r) }}
	return simbucket.OpenStore(ctx, bucketURL, l, simbucket.Tuning{Grace: bucketGrace, Snapshots: b.snapshots()}, h.logger)
}

// fate is what the weather makes of a request.
func (b *bucket) fate(h *host, r simbucket.Request) simbucket.Fate {
	t := h.draw(0)
	f := simbucket.Fate{There: t.there, Back: t.back}
	changes := r.Verb == "PUT" || r.Verb == "DELETE"
	if r.Verb == "PUT" && slices.ContainsFunc(bulk, func(kind string) bool { return strings.HasPrefix(r.Key, kind) }) {
		f.There += h.upload()
	}
	switch {
	case t.away:
		f.Stops = simbucket.ErrLost
	case t.luck < t.fails/2:
		f.Stops = simbucket.ErrBusy
	case t.luck < t.fails:
		f.Stops = errConflict
	case t.luck < t.fails+t.unsure/3:
		f.Stops = simbucket.ErrLost
	case changes && t.luck < t.fails+2*t.unsure/3: // it arrives when nobody waits any more
		f.GivesUp, f.There = t.there, t.later
		if r.Verb == "DELETE" {
			f.There = time.Duration(h.number(int64(3 * time.Hour)))
		}
	case t.luck < t.fails+t.unsure:
		f.Silent = true
	case changes:
		f.Again = t.again
	}
	return f
}

// errConflict is an answer that S3 gives to one of two PUTs at the same time. It leaves open what
// happened.
var errConflict = fmt.Errorf("ConditionalRequestConflict (409)")

func (b *bucket) copied(int) (putBack func()) {
	objects := b.memory.Copy()
	return func() { b.memory.PutBack(objects) }
}

func (b *bucket) failover(int) {}

func (b *bucket) close() {}
