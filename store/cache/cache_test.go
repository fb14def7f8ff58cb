package cache_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/recovered"
	"github.com/weir-log/weir/internal/smalldisk"
	"github.com/weir-log/weir/store/cache"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/storetest"
)

// counting counts the reads of batches, and may hold them.
type counting struct {
	eventlog.Store
	reads   atomic.Int64
	entered chan struct{} // receives for each read, if not nil
	release chan struct{} // each read waits for it, if not nil
	before  func()        // called before the next read, if not nil
}

func (c *counting) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	if slices.ContainsFunc(spans, func(s eventlog.Span) bool { return s.MaxBytes > 0 }) {
		c.reads.Add(1)
		if c.entered != nil {
			c.entered <- struct{}{}
		}
		if c.before != nil {
			c.before()
			c.before = nil
		}
		if c.release != nil {
			<-c.release
		}
	}
	return c.Store.Read(ctx, spans, maxBytes)
}

func (c *counting) Close() error { return nil }

// rig is a cache in front of memory, with a partition of 40 batches of 1000 bytes, one record each;
// it has read all of it.
type rig struct {
	*testing.T
	below *counting
	inner *memory.Store
	opts  cache.Options
	cache *cache.Store
}

const batches = 40

func newRig(t *testing.T, opts cache.Options) *rig {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.BlockBytes == 0 {
		opts.BlockBytes = 4000
	}
	inner := memory.New()
	r := &rig{T: t, inner: inner, below: &counting{Store: inner}, opts: opts}
	publish(t, inner, 1, 0)
	for i := range batches {
		publish(t, inner, 1, 1000, byte(i))
	}
	r.open()
	r.same()
	return r
}

func (r *rig) open() {
	r.Helper()
	var err error
	if r.cache, err = cache.Open(r.below, r.opts); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { r.cache.Close() })
	r.enter()
}

// enter learns the incarnation.
func (r *rig) enter() {
	r.Helper()
	if _, _, err := r.cache.Changes(r.Context(), eventlog.Mark{}); err != nil {
		r.Fatal(err)
	}
}

// publish appends a batch of one record; with no bytes it creates the partition.
func publish(t testing.TB, s eventlog.Store, p eventlog.Partition, size int, fill ...byte) {
	t.Helper()
	b := eventlog.Batch{Partition: p}
	if size > 0 {
		b.Records, b.Bytes = 1, bytes.Repeat(fill, size)
	}
	do(t, s, eventlog.Entry{Batches: []eventlog.Batch{b}})
}

func do(t testing.TB, s eventlog.Store, e eventlog.Entry) {
	t.Helper()
	out, err := s.Commit(t.Context(), []eventlog.Entry{e})
	if err == nil {
		err = out[0].Err
	}
	if err != nil {
		t.Fatal(err)
	}
}

// scan reads all of partition 1, a few batches at a time.
func scan(t testing.TB, s eventlog.Store) (all []eventlog.Placed) {
	t.Helper()
	for at := eventlog.Offset(0); ; {
		got, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1, From: at, MaxBytes: 2500}}, math.MaxInt)
		if err != nil || got[0].Err != nil {
			t.Fatal(err, got)
		}
		at = max(at, got[0].Bounds.First)
		if at >= got[0].Bounds.Next {
			return all
		}
		for _, b := range got[0].Batches {
			all = append(all, b)
			at = b.End()
		}
	}
}

// same compares what cache and store hold, and returns how often the store below was read.
func (r *rig) same() (reads int64) {
	r.Helper()
	before := r.below.reads.Load()
	got := scan(r, r.cache)
	reads = r.below.reads.Load() - before
	if diff := cmp.Diff(scan(r, r.inner), got); diff != "" {
		r.Fatalf("the cache returns other batches (-store +cache):\n%.2000s", diff)
	}
	return reads
}

func (r *rig) files() (paths []string) {
	r.Helper()
	paths, err := filepath.Glob(filepath.Join(r.opts.Dir, "*.weirblock"))
	if err != nil {
		r.Fatal(err)
	}
	return paths
}

func TestHistoryIsReadOnceFromTheStore(t *testing.T) {
	r := newRig(t, cache.Options{})
	if n := r.same(); n != 0 {
		t.Errorf("the second time the store was read %d times", n)
	}
	if stats := r.cache.Stats(); stats.HitBytes < batches*1000 || stats.Blocks != 10 {
		t.Errorf("%+v, want 10 blocks that answered", stats)
	}
}

func TestTheFilesStayBelowTheLimit(t *testing.T) {
	const most = 20_000
	r := newRig(t, cache.Options{Bytes: most})
	r.same()
	var size int64
	for _, path := range r.files() {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	stats := r.cache.Stats()
	if size == 0 || size > most || stats.Bytes > most || stats.Evictions == 0 {
		t.Errorf("%d bytes in files, %+v; the limit is %d", size, stats, most)
	}
}

func TestBlocksSurviveARestart(t *testing.T) {
	r := newRig(t, cache.Options{Store: "one"})
	alien := filepath.Join(r.opts.Dir, "notes.txt")
	half := r.files()[0] + ".weirpart"
	for _, path := range []string{alien, half} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.cache.Close()
	r.open()
	if n := r.same(); n != 0 {
		t.Errorf("after a restart the store was read %d times", n)
	}
	if _, err := os.Stat(alien); err != nil {
		t.Errorf("a file of somebody else: %v", err)
	}
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an incomplete block: %v, want it removed", err)
	}
	r.cache.Close()
	r.opts.Store = "another"
	r.open()
	if n := r.same(); n == 0 {
		t.Error("another store was answered with the blocks of the first")
	}
}

func TestADirectoryHasOneProcess(t *testing.T) {
	r := newRig(t, cache.Options{})
	if _, err := cache.Open(memory.New(), r.opts); !errors.Is(err, cache.ErrInUse) {
		t.Errorf("a second cache in the directory: %v, want ErrInUse", err)
	}
}

func TestDamagedBlocksAreMisses(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"deleted":                        os.Remove,
		"cut":                            func(path string) error { return os.Truncate(path, 2000) },
		"empty":                          func(path string) error { return os.Truncate(path, 0) },
		"a flipped byte of a batch":      func(path string) error { return flip(path, -500) },
		"a flipped byte of the head":     func(path string) error { return flip(path, 67) }, // of the first batch's number of records
		"a flipped byte of the identity": func(path string) error { return flip(path, 20) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, cache.Options{})
			n := len(r.files())
			for _, path := range r.files() {
				if err := damage(path); err != nil {
					t.Fatal(err)
				}
			}
			if r.same() == 0 {
				t.Error("damaged blocks answered")
			}
			r.same() // the beginning of a block whose end was damaged
			if stats := r.cache.Stats(); stats.ReadErrors != int64(n) {
				t.Errorf("%d read errors for %d damaged blocks", stats.ReadErrors, n)
			}
			if n := r.same(); n != 0 {
				t.Errorf("after they were read anew, the store was read %d times", n)
			}
		})
	}
}

// A block under the name of another one: the identity is in the checked bytes, too.
func TestABlockIsNotTakenForAnother(t *testing.T) {
	r := newRig(t, cache.Options{})
	files := r.files()
	content, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files[1:] {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.same()
}

func flip(path string, at int) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if at < 0 {
		at += len(content)
	}
	content[at] ^= 1
	return os.WriteFile(path, content, 0o600)
}

func TestWhatAnotherProcessChangesIsSeen(t *testing.T) {
	replace := func(t *testing.T, r *rig) {
		in := eventlog.Replace{Partition: 1, From: 4, To: 8}
		for range 4 { // of the same sizes
			in.Batches = append(in.Batches, eventlog.Batch{Partition: 1, Records: 1, Bytes: bytes.Repeat([]byte{200}, 1000)})
		}
		do(t, r.inner, eventlog.Entry{Replaces: []eventlog.Replace{in}, Puts: []eventlog.Put{{Key: eventlog.ReplacedKey(1), Version: eventlog.Version(0).Next(), Value: []byte("x")}}})
	}
	for name, change := range map[string]func(t *testing.T, r *rig){
		"trimmed": func(t *testing.T, r *rig) {
			if err := storetest.Trim(t.Context(), r.inner, 1, 13); err != nil {
				t.Fatal(err)
			}
		},
		"compacted": replace,
		"appended": func(t *testing.T, r *rig) {
			for i := range 20 {
				publish(t, r.inner, 1, 1000, byte(100+i))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, cache.Options{})
			change(t, r)
			r.same()
			r.same()
		})
	}
	t.Run("deleted", func(t *testing.T) {
		r := newRig(t, cache.Options{})
		do(t, r.inner, eventlog.Entry{Forgets: []eventlog.Partition{1}})
		got, err := r.cache.Read(t.Context(), []eventlog.Span{{Partition: 1, MaxBytes: 5000}}, 5000)
		if err != nil || !errors.Is(got[0].Err, eventlog.ErrNoPartition) || len(r.files()) != 0 {
			t.Errorf("%+v, %v, and %d blocks; want ErrNoPartition and none", got, err, len(r.files()))
		}
	})
}

// Compaction replaces all batches when a read has some from files, and is about to read the others
// from the store.
func TestAnAnswerIsOfOneCompaction(t *testing.T) {
	r := newRig(t, cache.Options{})
	for _, path := range r.files()[1:] {
		os.Remove(path)
	}
	r.below.before = func() {
		in := eventlog.Replace{Partition: 1, To: batches}
		for range batches {
			in.Batches = append(in.Batches, eventlog.Batch{Partition: 1, Records: 1, Bytes: bytes.Repeat([]byte{200}, 1000)})
		}
		do(t, r.inner, eventlog.Entry{Replaces: []eventlog.Replace{in}, Puts: []eventlog.Put{{Key: eventlog.ReplacedKey(1), Version: eventlog.Version(0).Next(), Value: []byte("x")}}})
	}
	got, err := r.cache.Read(t.Context(), []eventlog.Span{{Partition: 1, MaxBytes: 1 << 20}}, 1<<20)
	if err != nil || len(got[0].Batches) != batches {
		t.Fatalf("%d batches, %v", len(got[0].Batches), err)
	}
	for _, b := range got[0].Batches {
		if b.Bytes[0] != 200 {
			t.Fatalf("the batch at %d is of before, and others are not", b.Base)
		}
	}
}

func TestARewoundStoreIsReadAnew(t *testing.T) {
	for _, silently := range []bool{false, true} {
		inner := memory.New()
		publish(t, inner, 1, 0)
		for i := range 10 {
			publish(t, inner, 1, 1000, byte(i))
		}
		restore := inner.Backup()
		r := &rig{T: t, inner: inner, below: &counting{Store: inner}, opts: cache.Options{Dir: t.TempDir(), BlockBytes: 4000, Store: "one"}}
		for i := range 10 {
			publish(t, inner, 1, 1000, byte(50+i))
		}
		r.open()
		r.same()
		restore(silently)
		if silently { // the log notices, and begins an epoch, before anybody appends
			do(t, inner, eventlog.Entry{Puts: []eventlog.Put{{Key: eventlog.EpochKey, Version: eventlog.Version(0).Next(), Value: []byte("x")}}})
		}
		if _, err := r.cache.Read(t.Context(), []eventlog.Span{{Partition: 1, MaxBytes: 5000}}, 5000); !errors.Is(err, eventlog.ErrRewound) {
			t.Errorf("a read of the cache after the rewind: %v, want ErrRewound", err)
		}
		r.enter()
		for i := range 10 {
			publish(t, inner, 1, 1000, byte(100+i))
		}
		r.same()
	}
}

func TestManyReadersOfOneSpanReadTheStoreOnce(t *testing.T) {
	r := newRig(t, cache.Options{})
	for _, path := range r.files() {
		os.Remove(path)
	}
	r.below.entered, r.below.release = make(chan struct{}, 100), make(chan struct{})
	before := r.below.reads.Load()
	want := []eventlog.Span{{Partition: 1, From: 8, MaxBytes: 4000}}
	ctx, cancel := context.WithCancel(t.Context())
	canceled := make(chan error)
	go func() {
		_, err := r.cache.Read(ctx, want, 4000)
		canceled <- err
	}()
	<-r.below.entered // the first reader's read is in progress
	cancel()
	if err := <-canceled; !errors.Is(err, context.Canceled) || !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("a canceled reader: %v", err)
	}
	var readers sync.WaitGroup
	for range 20 {
		readers.Go(func() {
			got, err := r.cache.Read(t.Context(), want, 4000)
			if err != nil || len(got[0].Batches) != 4 || got[0].Batches[0].Bytes[0] != 8 {
				t.Errorf("a reader got %d batches, %v", len(got[0].Batches), err)
				return
			}
			for _, b := range got[0].Batches {
				clear(b.Bytes) // they are the reader's
			}
		})
	}
	close(r.below.release)
	readers.Wait()
	if n := r.below.reads.Load() - before; n != 1 {
		t.Errorf("21 readers of one span read the store %d times", n)
	}
	r.below.entered = nil
	r.same()
}

// The first span of a read gets a batch whatever its size. The read that another reader began has
// none, because there the span was the second.
func TestAReaderThatJoinsGetsItsFirstBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, cache.Options{})
		publish(t, r.inner, 2, 0)
		publish(t, r.inner, 2, 20_000, 7)
		for _, path := range r.files() {
			os.Remove(path)
		}
		r.below.release = make(chan struct{})
		var readers sync.WaitGroup
		read := func(spans ...eventlog.Span) {
			readers.Go(func() {
				got, err := r.cache.Read(t.Context(), spans, 8000)
				if err != nil || got[0].Err != nil || len(got[0].Batches) == 0 {
					t.Errorf("%+v, %v", got, err)
				}
			})
			synctest.Wait()
		}
		one, two := eventlog.Span{Partition: 1, MaxBytes: 4000}, eventlog.Span{Partition: 2, MaxBytes: 4000}
		read(one, two)
		read(two, one)
		close(r.below.release)
		readers.Wait()
	})
}

func TestAFullDiskStopsOnlyTheWrites(t *testing.T) {
	smalldisk.Run(t, 1<<20, func(t *testing.T, dir string) {
		var log bytes.Buffer
		free := smalldisk.Fill(t, dir)
		defer free()
		os.Remove(filepath.Join(dir, "weir.lock"))
		r := newRig(t, cache.Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		r.same()
		stats := r.cache.Stats()
		if stats.Blocks != 0 || stats.WriteErrors != 1 || strings.Count(log.String(), "cannot write") != 1 {
			t.Errorf("%+v, and the log says:\n%s\nwant one failed write, said once", stats, log.String())
		}
	})
}

func TestDamagedBatchesAreNotKept(t *testing.T) {
	r := newRig(t, cache.Options{Check: func(b eventlog.Placed) error {
		if b.Base == 10 {
			return errors.New("damaged")
		}
		return nil
	}})
	if n := r.same(); n == 0 || n >= batches {
		t.Errorf("the store was read %d times, want for the damaged batch alone", n)
	}
}

// A panic while batches are kept is the error of those who read them, and does not end the process:
// nobody waits for ever.
func TestAPanicWhileBatchesAreKeptIsAnError(t *testing.T) {
	panics := false
	r := newRig(t, cache.Options{Check: func(eventlog.Placed) error {
		if panics {
			panic("a bug")
		}
		return nil
	}})
	for _, path := range r.files() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	panics = true
	var panicked *recovered.Error
	if _, err := r.cache.Read(t.Context(), []eventlog.Span{{Partition: 1, MaxBytes: 4000}}, 4000); !errors.As(err, &panicked) {
		t.Errorf("a read ends with %v", err)
	}
	panics = false
	if got, err := r.cache.Read(t.Context(), []eventlog.Span{{Partition: 1, MaxBytes: 4000}}, 4000); err != nil || len(got[0].Batches) == 0 {
		t.Errorf("the next read: %+v, %v", got, err)
	}
}

func TestInterfacesAreFoundBehindTheCache(t *testing.T) {
	r := newRig(t, cache.Options{})
	if found, is := eventlog.As[*counting](r.cache); !is || found != r.below {
		t.Error("the store below is not found")
	}
	if _, is := eventlog.As[eventlog.Waker](r.cache); is {
		t.Error("a store without wake-ups has some")
	}
}
