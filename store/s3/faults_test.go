package s3

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storetest"
)

var errLost = errors.New("the answer was lost")

func opened(t *testing.T, f *fake) *Store {
	t.Helper()
	s, err := f.open(t.Context(), quick)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func publish(t *testing.T, s *Store, text string) (eventlog.Offset, error) {
	t.Helper()
	out, err := s.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{{Partition: 1}, {Partition: 1, Records: 1, Bytes: []byte(text)}}}})
	if err != nil {
		return 0, err
	}
	return out[0].Base[1], out[0].Err
}

func mustPublish(t *testing.T, s *Store, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if _, err := publish(t, s, text); err != nil {
			t.Fatalf("publish %s: %v", text, err)
		}
	}
}

// expect expects these records.
func expect(t *testing.T, s *Store, want ...string) {
	t.Helper()
	got, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1, MaxBytes: 1 << 20}}, 1<<20)
	if err != nil || got[0].Err != nil {
		t.Fatalf("read: %v, %v", err, got)
	}
	var texts []string
	for _, b := range got[0].Batches {
		texts = append(texts, string(b.Bytes))
	}
	if fmt.Sprint(texts) != fmt.Sprint(want) {
		t.Errorf("the log holds %v, want %v", texts, want)
	}
}

func (f *fake) answerPuts(on func(key string, do func() error) error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.onPut = on
}

func (f *fake) answerGets(on func(key string)) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.onGet = on
}

// O3: whatever happens to the answer of a put, the writer knows whose commit it is.
func TestALostAnswerIsResolved(t *testing.T) {
	for name, on := range map[string]func(n int, do func() error) error{
		"the answer was lost": func(_ int, do func() error) error { _ = do(); return errLost },
		"the request was lost, and repeated": func(n int, do func() error) error {
			if n == 0 {
				return errLost
			}
			return do()
		},
		"done twice, and the second answer came": func(_ int, do func() error) error { _ = do(); return do() },
		"busy at first": func(n int, do func() error) error {
			if n < 3 {
				return errBusy
			}
			return do()
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			s := opened(t, f)
			mustPublish(t, s, "a")
			n := 0
			f.answerPuts(func(_ string, do func() error) error { n++; return on(n-1, do) })
			if base, err := publish(t, s, "b"); err != nil || base != 1 {
				t.Errorf("at %d, %v", base, err)
			}
			f.answerPuts(nil)
			mustPublish(t, s, "c")
			expect(t, s, "a", "b", "c")
			expect(t, opened(t, f), "a", "b", "c")
		})
	}
}

// O2: of two writers that lose their answers at the same number, one has it.
func TestALostAnswerOfALostRace(t *testing.T) {
	f := newFake()
	s, other := opened(t, f), opened(t, f)
	mustPublish(t, s, "a")
	first := true
	f.answerPuts(func(_ string, do func() error) error {
		if first {
			first = false
			f.answerPuts(nil)
			mustPublish(t, other, "other")
			return errLost // our request was lost, and the other's arrived
		}
		return do()
	})
	if base, err := publish(t, s, "b"); err != nil || base != 2 {
		t.Errorf("at %d, %v", base, err)
	}
	expect(t, s, "a", "other", "b")
}

// A caller who gives up, such as a process that stops, waits for what was sent, and for nothing
// else.
func TestACallerWhoGivesUpWaitsOnlyForWhatWasSent(t *testing.T) {
	for name, answer := range map[string]func(other *Store, do func() error) error{
		"another process is faster": func(other *Store, do func() error) error { mustPublish(t, other, "other"); return do() },
		"the server is busy":        func(*Store, func() error) error { return errBusy },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			s, other := opened(t, f), opened(t, f)
			mustPublish(t, s, "a")
			ctx, giveUp := context.WithCancel(t.Context())
			puts := 0
			var on func(string, func() error) error
			on = func(_ string, do func() error) error {
				puts++
				giveUp()
				f.answerPuts(nil)
				defer f.answerPuts(on)
				return answer(other, do)
			}
			f.answerPuts(on)
			_, err := s.Commit(ctx, []eventlog.Entry{{Batches: []eventlog.Batch{{Partition: 1, Records: 1, Bytes: []byte("b")}}}})
			if !errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrUnsure) || puts != 1 {
				t.Errorf("after %d puts: %v, want ErrUnavailable after 1", puts, err)
			}
		})
	}
}

// A server that refuses changes nothing, and one that stays busy is unavailable; neither is
// unknown.
func TestARefusalIsCertain(t *testing.T) {
	f := newFake()
	s := opened(t, f)
	f.answerPuts(func(string, func() error) error { return errRefused })
	if _, err := publish(t, s, "b"); !errors.Is(err, errRefused) || errors.Is(err, eventlog.ErrUnsure) {
		t.Errorf("%v", err)
	}
	f.answerPuts(nil)
	mustPublish(t, s, "c")
	expect(t, s, "c")
}

// O4: a process that was suspended while commits were deleted is not told that its commit is done.
func TestASuspendedWriterIsPowerless(t *testing.T) {
	f := newFake()
	zombie, s := opened(t, f), opened(t, f)
	mustPublish(t, s, "a")
	expect(t, zombie, "a")
	suspended := false
	f.answerPuts(func(key string, do func() error) error {
		if suspended {
			return do()
		}
		suspended = true
		f.answerPuts(nil)
		tended(t, s, f, "b", "c")
		if _, there := f.Objects[key]; there {
			t.Fatalf("%s was not deleted: the test tests nothing", key)
		}
		return do()
	})
	if _, err := publish(t, zombie, "lost"); !errors.Is(err, eventlog.ErrUnsure) {
		t.Errorf("the suspended writer was told %v, want ErrUnsure", err)
	}
	expect(t, zombie, "a", "b", "c")
	expect(t, s, "a", "b", "c")
	mustPublish(t, zombie, "d")
	expect(t, opened(t, f), "a", "b", "c", "d")
}

// tended publishes, and lets everything be deleted that may be.
func tended(t *testing.T, s *Store, f *fake, texts ...string) {
	t.Helper()
	for _, text := range texts {
		mustPublish(t, s, text)
		if _, err := s.compact(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if err := s.snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.pass(2 * time.Hour)
	if err := s.collect(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (f *fake) pass(d time.Duration) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Ahead += d
}

// A process that only reads, and was suspended while commits and objects with batches were deleted,
// starts anew.
func TestASuspendedReaderStartsAnew(t *testing.T) {
	f := newFake()
	s := opened(t, f)
	mustPublish(t, s, "a")
	sleeper := opened(t, f)
	expect(t, sleeper, "a")
	tended(t, s, f, "b", "c")
	expect(t, sleeper, "a", "b", "c")
}

// O5: what is needed stays, and what is not goes.
func TestWhatIsDeleted(t *testing.T) {
	f := newFake()
	s := opened(t, f)
	texts := []string{"a", "b", "c", "d", "e", "f"}
	mustPublish(t, s, texts...)
	orphan := s.newSegment()
	s.endSegment(orphan)
	f.Objects[orphan] = stored{Body: []byte("what a compaction that died left"), Modified: time.Now()}
	tended(t, s, f, "g", "h", "i")
	texts = append(texts, "g", "h", "i")
	if n := len(f.Keys("commit/")); n > 6 {
		t.Errorf("%d commits are left: %v", n, f.Keys("commit/"))
	}
	if n := len(f.Keys("snapshot/")); n != 2 {
		t.Errorf("%d snapshots are left, want 2", n)
	}
	if _, there := f.Objects[orphan]; there {
		t.Errorf("the orphan is left")
	}
	expect(t, s, texts...)
	expect(t, opened(t, f), texts...)
	if err := storetest.Trim(t.Context(), s, 1, 9); err != nil {
		t.Fatal(err)
	}
	tended(t, s, f, "j", "k", "l")
	tended(t, s, f, "m")
	if n := len(f.Keys("segment/")); n > 5 {
		t.Errorf("after a trim %d segments are left", n)
	}
	expect2(t, s, 9, "j", "k", "l", "m")
}

func expect2(t *testing.T, s *Store, from eventlog.Offset, want ...string) {
	t.Helper()
	got, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1, From: from, MaxBytes: 1 << 20}}, 1<<20)
	if err != nil || got[0].Err != nil {
		t.Fatalf("read: %v, %v", err, got)
	}
	var texts []string
	for _, b := range got[0].Batches {
		texts = append(texts, string(b.Bytes))
	}
	if !slices.Equal(texts, want) {
		t.Fatalf("from %d on the log holds %v, want %v", from, texts, want)
	}
}

// O6: a server that ignores If-None-Match is refused.
func TestAServerWithoutConditionalWritesIsRefused(t *testing.T) {
	f := newFake()
	f.answerPuts(func(string, func() error) error { return nil })
	if _, err := f.open(t.Context(), quick); err == nil {
		t.Fatal("it was accepted")
	}
	for _, c := range []struct {
		succeed int32 // puts of the probe
		says    string
	}{
		{5, "ignores If-None-Match (4 of 4 puts of one new key succeeded, then one more succeeded): "},
		{4, "ignores If-None-Match (4 of 4 puts of one new key succeeded, then one more failed: " + errExists.Error() + "): "},
	} {
		f := newFake()
		opened(t, f)
		var puts atomic.Int32
		f.answerPuts(func(key string, do func() error) error {
			switch {
			case !strings.HasPrefix(key, "probe/"):
				return do()
			case puts.Add(1) > c.succeed:
				return errExists
			}
			return nil
		})
		if _, err := f.open(t.Context(), quick); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %s", err, c.says)
		}
	}
}

// O7: a flipped byte, a cut object and a missing object are errors, never a shorter log.
func TestDamageIsLoud(t *testing.T) {
	ruin := map[string]func(body []byte) []byte{
		"flipped": func(body []byte) []byte { body[len(body)-1] ^= 1; return body },
		"cut":     func(body []byte) []byte { return body[:len(body)-1] },
		"missing": func([]byte) []byte { return nil },
	}
	for name, ruin := range ruin {
		for _, key := range []string{commitKey(1), commitKey(2), commitKey(3)} {
			f := newFake()
			s := opened(t, f)
			mustPublish(t, s, "a", "b")
			if err := storetest.Trim(t.Context(), s, 1, 1); err != nil { // commit 3 is nothing but a head
				t.Fatal(err)
			}
			mustPublish(t, s, "c", "d")
			f.change(key, ruin)
			fresh, err := f.open(t.Context(), quick)
			if name == "missing" || key == commitKey(3) {
				if err == nil {
					t.Errorf("%s is %s, and the log was opened", key, name)
				} else if !errors.Is(err, errDamaged) {
					t.Errorf("%s is %s: %v", key, name, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := fresh.Read(t.Context(), []eventlog.Span{{Partition: 1, From: 1, MaxBytes: 1000}}, 1000)
			if err != nil {
				t.Fatal(err)
			}
			_, damaged := errors.AsType[*eventlog.DamagedError](got[0].Err)
			if want := key == commitKey(2); damaged != want || got[0].Bounds.Next != 4 {
				t.Errorf("%s is %s: %+v", key, name, got[0])
			}
			_ = fresh.Close()
		}
	}
}

func (f *fake) change(key string, how func([]byte) []byte) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	body := how(append([]byte{}, f.Objects[key].Body...))
	if delete(f.Objects, key); body != nil {
		f.Objects[key] = stored{Body: body, Modified: time.Now()}
	}
}

// A damaged snapshot is passed over while the commits since an older one are there.
func TestADamagedSnapshotIsPassedOver(t *testing.T) {
	f := newFake()
	s := opened(t, f)
	tended(t, s, f, "a", "b", "c")
	newest := slices.Max(f.Keys("snapshot/"))
	f.change(newest, func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
	expect(t, opened(t, f), "a", "b", "c")
	for _, n := range []int64{s.newest, s.newest - 1} { // what follows the older snapshot
		was := f.Objects[commitKey(n)]
		f.change(commitKey(n), func([]byte) []byte { return nil })
		defer func() { f.Objects[commitKey(n)] = was }()
	}
	if _, err := f.open(context.Background(), quick); !errors.Is(err, errDamaged) {
		t.Errorf("the newest snapshot is damaged, and commits before it are missing: %v", err)
	}
	for _, key := range f.Keys("snapshot/") {
		if key == newest {
			continue
		}
		f.change(key, func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
	}
	if _, err := f.open(context.Background(), quick); !errors.Is(err, errDamaged) {
		t.Errorf("no snapshot can be read: %v", err)
	}
}
