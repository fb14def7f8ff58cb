package s3

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/simbucket"
	"github.com/weir-log/weir/store/storetest"
)

// compacting calls during while a compaction waits for a commit that tells what it moved, and
// returns how many commits were written from then on.
func compacting(t *testing.T, s *Store, f *fake, during func()) (commits int) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		moved, err := s.compact(t.Context(), 1)
		if err == nil && !moved {
			err = errors.New("nothing was moved")
		}
		done <- err
	}()
	synctest.Wait()
	before := len(f.Keys("commit/"))
	during()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return len(f.Keys("commit/")) - before
}

// inSegments returns how many batches of partition 1 lie in segments.
func inSegments(s *Store) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.st.partitions[1].held {
		if strings.HasPrefix(h.object.key, "segment/") {
			n++
		}
	}
	return n
}

func TestACommitTakesAlongWhatACompactionMoved(t *testing.T) {
	for name, c := range map[string]struct {
		during              func(t *testing.T, s *Store)
		commits, inSegments int
		from                eventlog.Offset
		want                []string
	}{
		"nobody commits": {func(*testing.T, *Store) {}, 1, 2, 0, []string{"a", "b"}},
		"a commit takes it along": {func(t *testing.T, s *Store) {
			mustPublish(t, s, "c")
		}, 1, 2, 0, []string{"a", "b", "c"}},
		"only the first of two commits takes it along": {func(t *testing.T, s *Store) {
			mustPublish(t, s, "c", "d")
		}, 2, 2, 0, []string{"a", "b", "c", "d"}},
		"a trim does not, and what it removed is not moved": {func(t *testing.T, s *Store) {
			if err := storetest.Trim(t.Context(), s, 1, 1); err != nil {
				t.Fatal(err)
			}
		}, 2, 1, 1, []string{"b"}},
		"a commit that replaces does not": {func(t *testing.T, s *Store) {
			out, err := s.Commit(t.Context(), []eventlog.Entry{{Replaces: []eventlog.Replace{{Partition: 1, From: 0, To: 1, Batches: []eventlog.Batch{{Partition: 1, Records: 1, Bytes: []byte("A")}}}},
				Batches: []eventlog.Batch{{Partition: 1, Records: 1, Bytes: []byte("c")}}}})
			if err != nil || out[0].Err != nil {
				t.Fatal(err, out)
			}
		}, 2, 1, 0, []string{"A", "b", "c"}},
		"a commit that is refused does not, and the next does": {func(t *testing.T, s *Store) {
			f := s.bucket.(given).Bucket.(*fake)
			f.answerPuts(func(string, func() error) error { return errRefused })
			if _, err := publish(t, s, "refused"); !errors.Is(err, errRefused) {
				t.Fatal(err)
			}
			f.answerPuts(nil)
			mustPublish(t, s, "c")
		}, 1, 2, 0, []string{"a", "b", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				lingers := quick
				lingers.linger = time.Second
				s, err := f.open(t.Context(), lingers)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				mustPublish(t, s, "a", "b")
				if got := compacting(t, s, f, func() { c.during(t, s) }); got != c.commits {
					t.Errorf("%d commits, want %d", got, c.commits)
				}
				for _, s := range []*Store{s, opened(t, f)} {
					if got := inSegments(s); got != c.inSegments {
						t.Errorf("%d batches lie in segments, want %d", got, c.inSegments)
					}
				}
				expect2(t, s, c.from, c.want...)
			})
		})
	}
}

// Copying a large object costs more than the gets that it saves.
func TestLargeObjectsAreNotGathered(t *testing.T) {
	f := newFake()
	s := opened(t, f)
	large := strings.Repeat("x", gatherMax+1)
	mustPublish(t, s, "a", large, "b", large)
	if moved, err := s.compact(t.Context(), 3); moved || err != nil {
		t.Errorf("two small objects were gathered where three are the least: %v, %v", moved, err)
	}
	if moved, err := s.compact(t.Context(), 2); !moved || err != nil {
		t.Fatal(moved, err)
	}
	if got := inSegments(s); got != 2 {
		t.Errorf("%d batches lie in segments, want the 2 of small objects", got)
	}
}

// A bucket is put back while a compaction waits for a commit: the copy lacks the segment, so
// nothing may be moved there.
func TestARewindEndsACompaction(t *testing.T) {
	for name, c := range map[string]struct {
		lost bool // this process knows a commit that the copy lacks
		by   bool // another process notices, and begins an incarnation
	}{
		"that this process notices":    {lost: true},
		"that another process notices": {by: true},
		"that nobody can notice":       {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				lingers := quick
				lingers.linger = time.Second
				s, err := f.open(t.Context(), lingers)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				other, err := f.open(t.Context(), quick)
				if err != nil {
					t.Fatal(err)
				}
				defer other.Close()
				mustPublish(t, s, "a", "b")
				f.Mu.Lock()
				copied := maps.Clone(f.Objects)
				f.Mu.Unlock()
				if c.lost {
					mustPublish(t, s, "lost")
				}
				done := make(chan struct{})
				go func() { defer close(done); _, _ = s.compact(t.Context(), 1) }()
				synctest.Wait() // the segment is written
				if len(f.Keys("segment/")) != 1 {
					t.Fatal("no segment")
				}
				if c.by {
					mustPublish(t, other, "lost")
				}
				f.Mu.Lock()
				f.Objects = copied
				f.Mu.Unlock()
				w := s
				if c.by {
					w = other
				}
				for range 3 {
					_, err := publish(t, w, "c")
					if err == nil {
						break
					}
					if !errors.Is(err, eventlog.ErrRewound) {
						t.Fatal(err)
					}
					if _, _, err := w.Changes(t.Context(), eventlog.Mark{}); err != nil {
						t.Fatal(err)
					}
				}
				if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil {
					t.Fatal(err)
				}
				mustPublish(t, s, "d")
				<-done
				expect(t, opened(t, f), "a", "b", "c", "d")
			})
		})
	}
}

// The bucket was rewound before a commit named the segment, and nobody noticed. For a while nothing
// can be written; then the batches are found where they were all the same.
func TestWhatASegmentLostIsMovedBackHoweverLongThatTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		lingers := quick
		lingers.linger = time.Second
		s, err := f.open(t.Context(), lingers)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		mustPublish(t, s, "a", "b")
		copied := f.Copy()
		done := make(chan struct{})
		go func() { defer close(done); _, _ = s.compact(t.Context(), 1) }()
		synctest.Wait() // the segment is written
		f.PutBack(copied)
		var commits atomic.Int64
		until := time.Now().Add(3 * answerMax)
		f.Mu.Lock()
		f.onPut = func(key string, do func() error) error {
			if strings.HasPrefix(key, "commit/") && commits.Add(1) > 1 && time.Now().Before(until) {
				return simbucket.ErrLost
			}
			return do()
		}
		f.Mu.Unlock()
		mustPublish(t, s, "c") // and takes the moves along
		<-done
		if time.Now().Before(until) {
			t.Error("the batches were not moved back")
		}
		expect(t, opened(t, f), "a", "b", "c")
	})
}

// The answer to the commit that names the segment was lost, too. A process that is alone
// does not look for what others wrote, but here it must not judge by what it knows: it does not
// know of its own commit.
func TestAProcessThatIsAloneMovesBackWhatItsLostCommitMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		at := quick
		at.alone, at.linger = true, time.Second
		var lost atomic.Pointer[string] // the commit whose answers are lost
		s, err := f.openDeafTo(t.Context(), at, &lost)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		mustPublish(t, s, "a", "b")
		copied := f.Copy()
		done := make(chan struct{})
		go func() { defer close(done); _, _ = s.compact(t.Context(), 1) }()
		synctest.Wait() // the segment is written
		f.PutBack(copied)
		f.answerPuts(func(key string, do func() error) error {
			err := do()
			if strings.HasPrefix(key, "commit/") && lost.CompareAndSwap(nil, &key) {
				time.AfterFunc(2*answerMax, func() { lost.Store(new(string)) })
				return errLost
			}
			return err
		})
		<-done
		if lost.Load() == nil {
			t.Fatal("no commit named the segment")
		}
		expect(t, opened(t, f), "a", "b")
	})
}

// deafTo is a bucket that does not answer gets of one key.
type deafTo struct {
	bucket
	key *atomic.Pointer[string]
}

func (d deafTo) get(ctx context.Context, key string, from, size int64) ([]byte, answer, error) {
	if deaf := d.key.Load(); deaf != nil && key == *deaf {
		return nil, answer{}, errLost
	}
	return d.bucket.get(ctx, key, from, size)
}

// openDeafTo is open, with a bucket that is deafTo what key says.
func (f *fake) openDeafTo(ctx context.Context, at place, key *atomic.Pointer[string]) (*Store, error) {
	clock := &clock{}
	return open(ctx, at, deafTo{given{f, clock}, key}, clock, Options{})
}

// While a process is suspended, another deletes its segment, and writes a snapshot since.
func TestACompactionOfASuspendedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		lingers := quick
		lingers.linger = time.Second
		s, err := f.open(t.Context(), lingers)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		mustPublish(t, s, "a", "b")
		done := make(chan struct{})
		go func() { defer close(done); _, _ = s.compact(t.Context(), 1) }()
		synctest.Wait() // the segment is written

		other, err := f.open(t.Context(), quick)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		for _, text := range []string{"c", "d"} {
			mustPublish(t, other, text)
			if err := other.snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		f.pass(2 * time.Hour)
		if err := other.collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(f.Keys("segment/")); n != 0 {
			t.Fatal("the segment was not deleted")
		}
		mustPublish(t, other, "e")
		if err := other.snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.pass(2 * time.Hour)
		mustPublish(t, s, "f")
		<-done
		expect(t, opened(t, f), "a", "b", "c", "d", "e", "f")
	})
}

// Where a put may be made only once a minute, and nobody publishes, a compaction still comes to its
// end within a round of upkeep, and so does the snapshot after it.
func TestACompactionDoesNotWaitTooLongForACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		lingers := quick
		lingers.linger = time.Minute
		s, err := f.open(t.Context(), lingers)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for i := range compactMin {
			mustPublish(t, s, fmt.Sprint(i))
		}
		s.mu.Lock()
		s.newest = -snapshotEvery // a snapshot is due
		s.mu.Unlock()
		if err := s.tend(t.Context(), false); err != nil {
			t.Error(err)
		}
		if len(f.Keys("snapshot/")) == 0 || inSegments(s) == 0 {
			t.Error("there is no snapshot, or no segment")
		}
	})
}

// Large objects stay for as long as their records. What upkeep allocates does not grow with their
// batches.
func TestLargeObjectsCostUpkeepNoMemory(t *testing.T) {
	p, s := &partition{}, &Store{st: newState("store")}
	s.st.partitions[1] = p
	for number := range int64(100) {
		o := &object{key: commitKey(number)}
		for range 1000 {
			p.held = append(p.held, held{base: p.next, records: 1, object: o, size: 16 << 10})
			o.names++
			p.next++
		}
	}
	if n := testing.AllocsPerRun(3, func() { s.pick(1) }); n > 100 {
		t.Errorf("%v allocations for 100 objects with 1000 batches each", n)
	}
}
