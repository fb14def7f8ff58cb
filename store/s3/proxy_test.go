package s3

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/s3test"
	"github.com/weir-log/weir/internal/seed"
)

// These tests run on a real server, behind proxies that lose, delay, repeat and damage requests.

func openAt(t *testing.T, address string) *Store {
	t.Helper()
	s, err := Open(t.Context(), address, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// answers are what publishers were told about their records. Each record's text is used once.
type answers struct {
	mu     sync.Mutex // guards all below
	done   map[string]eventlog.Offset
	unsure map[string]bool
	failed map[string]bool
}

func newAnswers() *answers {
	return &answers{done: map[string]eventlog.Offset{}, unsure: map[string]bool{}, failed: map[string]bool{}}
}

func (a *answers) publish(t *testing.T, s *Store, text string) {
	base, err := publish(t, s, text)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.done[text] = base
	case errors.Is(err, eventlog.ErrUnsure):
		a.unsure[text] = true
	default:
		a.failed[text] = true
	}
}

// whole returns all records, in order. Offsets must be dense.
func whole(t *testing.T, s *Store) (texts []string) {
	t.Helper()
	for {
		from := eventlog.Offset(len(texts))
		got, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1, From: from, MaxBytes: 1 << 20}}, 1<<20)
		if err != nil || got[0].Err != nil {
			t.Fatalf("read from %d on: %v, %+v", from, err, got)
		}
		for _, b := range got[0].Batches {
			if b.Base != eventlog.Offset(len(texts)) {
				t.Fatalf("a batch at %d, want %d", b.Base, len(texts))
			}
			texts = append(texts, string(b.Bytes))
		}
		if len(got[0].Batches) == 0 || eventlog.Offset(len(texts)) == got[0].Bounds.Next {
			if next := got[0].Bounds.Next; next != eventlog.Offset(len(texts)) {
				t.Fatalf("%d records are there, and the log ends at %d", len(texts), next)
			}
			return texts
		}
	}
}

// check compares what publishers were told with what the log holds.
func (a *answers) check(t *testing.T, s *Store) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	texts := whole(t, s)
	at := map[string]eventlog.Offset{}
	for i, text := range texts {
		if other, twice := at[text]; twice {
			t.Errorf("%s is there twice, at %d and %d", text, other, i)
		}
		at[text] = eventlog.Offset(i)
		if _, done := a.done[text]; !done && !a.unsure[text] {
			t.Errorf("%s is at %d; its publisher was told that it is not (%v)", text, i, a.failed[text])
		}
	}
	for text, base := range a.done {
		if got, there := at[text]; !there || got != base {
			t.Errorf("%s was acknowledged at %d; it is there: %v, at %d", text, base, there, got)
		}
	}
}

// O1, O2: two processes write one log, each through a proxy with random faults.
func TestRandomFaults(t *testing.T) {
	const writers, publishers, records = 2, 3, 8
	for _, n := range seed.Histories(t, 5) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			address := s3test.URL(t)
			openAt(t, address)
			told := newAnswers()
			var proxies []*s3test.Proxy
			var all sync.WaitGroup
			for w := range writers {
				p := s3test.NewProxy(t, address)
				s := openAt(t, p.URL())
				p.Faults(s3test.Random(rand.New(rand.NewPCG(n, uint64(w))), 5))
				proxies = append(proxies, p)
				for i := range publishers {
					all.Go(func() {
						for r := range records {
							told.publish(t, s, fmt.Sprintf("%d/%d/%d", w, i, r))
						}
					})
				}
				all.Go(func() { // what upkeep does when there is more to do; it may fail
					for range 3 {
						_, _ = s.compact(t.Context(), 1)
						_ = s.snapshot(t.Context())
					}
				})
			}
			all.Wait()
			faults := 0
			for _, p := range proxies {
				p.Wait()
				for _, r := range p.Requests() {
					if r.Fault != (s3test.Fault{}) {
						faults++
					}
				}
			}
			if faults == 0 || len(told.done) < writers*publishers*records/2 {
				t.Errorf("%d faults, %d records acknowledged: the test tests little", faults, len(told.done))
			}
			if twice := s3test.CreatedTwice(proxies...); len(twice) > 0 {
				t.Errorf("created twice: %v", twice)
			}
			told.check(t, openAt(t, address))
			t.Logf("%d faults; %d records done, %d unsure, %d failed", faults, len(told.done), len(told.unsure), len(told.failed))
		})
	}
}

// O3: after each unclear answer the commit is read back before the caller is answered.
func TestAnUnclearPutIsReadBack(t *testing.T) {
	for name, fault := range map[string]s3test.Fault{"lost": {Lose: true}, "dropped": {Drop: true}, "late": {Late: true, Before: 5 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			address := s3test.URL(t)
			p := s3test.NewProxy(t, address)
			s := openAt(t, p.URL())
			first, key := true, ""
			p.Faults(func(r s3test.Request) s3test.Fault {
				if r.Method != http.MethodPut || !first {
					return s3test.Fault{}
				}
				first, key = false, r.Key
				return fault
			})
			mustPublish(t, s, "a")
			p.Wait()
			put, read := false, false
			for _, r := range p.Requests() {
				put = put || r.Method == http.MethodPut && r.Key == key
				read = read || put && r.Method == http.MethodGet && r.Key == key
			}
			if !put || !read {
				t.Errorf("%s: put %v, read back %v: %+v", key, put, read, p.Requests())
			}
			expect(t, openAt(t, address), "a")
		})
	}
}

// O2, O4: a put that arrives after another process took its number changes nothing.
func TestAPutThatArrivesLate(t *testing.T) {
	address := s3test.URL(t)
	p := s3test.NewProxy(t, address)
	slow, other := openAt(t, p.URL()), openAt(t, address)
	mustPublish(t, slow, "a")
	hold, arrived := make(chan struct{}), make(chan struct{})
	first := true
	p.Faults(func(r s3test.Request) s3test.Fault {
		if r.Method != http.MethodPut || !first {
			return s3test.Fault{}
		}
		first = false
		close(arrived)
		return s3test.Fault{Hold: hold}
	})
	var publishing sync.WaitGroup
	publishing.Go(func() {
		if base, err := publish(t, slow, "slow"); err != nil || base != 2 {
			t.Errorf("at %d, %v; want 2", base, err)
		}
	})
	<-arrived
	mustPublish(t, other, "other")
	close(hold)
	publishing.Wait()
	expect(t, openAt(t, address), "a", "other", "slow")
}

// O1: the server is killed and comes back while two processes write.
func TestTheServerIsKilled(t *testing.T) {
	server := s3test.Start(t)
	address := server.URL()
	told := newAnswers()
	stop, stopped := context.WithCancel(t.Context())
	var all sync.WaitGroup
	progress := make(chan struct{})
	for w := range 2 {
		s := openAt(t, address)
		all.Go(func() {
			for i := 0; stop.Err() == nil; i++ {
				told.publish(t, s, fmt.Sprintf("%d/%d", w, i))
				select {
				case progress <- struct{}{}:
				case <-stop.Done():
				}
			}
		})
	}
	for range 3 {
		for range 10 {
			<-progress
		}
		server.Kill()
		server.Resume()
	}
	for range 10 {
		<-progress
	}
	stopped()
	all.Wait()
	if len(told.done) < 20 {
		t.Errorf("%d records were acknowledged: the test tests little", len(told.done))
	}
	told.check(t, openAt(t, address))
}

// O5: after all was deleted that may be, everything is still there.
func TestWhatIsDeletedOnAServer(t *testing.T) {
	server := s3test.Start(t)
	address := server.URL()
	s := openAt(t, address)
	texts := []string{"a", "b", "c", "d", "e", "f"}
	for _, text := range texts {
		mustPublish(t, s, text)
		if _, err := s.compact(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if err := s.snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	objects := func() (n int) {
		err := filepath.WalkDir(server.Directory(address), func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				n++
				old := time.Now().Add(-2 * s.grace)
				err = os.Chtimes(path, old, old) // as if grace had passed
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := objects()
	if err := s.collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := objects(); after >= before {
		t.Errorf("of %d objects %d are left: nothing was deleted", before, after)
	}
	expect(t, s, texts...)
	expect(t, openAt(t, address), texts...)
}

// O7: a reader never gets wrong bytes or a shorter log, wherever a byte is wrong or missing on the
// way.
func TestDamageOnTheWayIsLoud(t *testing.T) {
	random := seed.Random(t)
	address := s3test.URL(t)
	s := openAt(t, address)
	texts := []string{"first", "second", "third", "fourth"}
	mustPublish(t, s, texts[:2]...)
	if err := s.snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustPublish(t, s, texts[2:]...)
	p := s3test.NewProxy(t, address)
	loud := 0
	for range 60 {
		victim := []string{"format", "commit/", "snapshot/"}[random.IntN(3)]
		at := random.IntN(400)
		cut := random.IntN(10) == 0 // the SDK repeats those reads, which takes time
		p.Faults(func(r s3test.Request) s3test.Fault {
			if r.Method != http.MethodGet || !strings.Contains(r.Key, victim) {
				return s3test.Fault{}
			}
			return s3test.Fault{Flip: !cut, Cut: cut, At: at}
		})
		what := fmt.Sprintf("%s, byte %d, cut %v", victim, at, cut)
		fresh, err := Open(t.Context(), p.URL(), Options{})
		if err != nil {
			loud++
			continue
		}
		got, err := fresh.Read(t.Context(), []eventlog.Span{{Partition: 1, MaxBytes: 1 << 20}}, 1<<20)
		if err == nil && got[0].Err == nil {
			for i, b := range got[0].Batches {
				if string(b.Bytes) != texts[i] || b.Base != eventlog.Offset(i) {
					t.Errorf("%s: %q at %d, want %q at %d", what, b.Bytes, b.Base, texts[i], i)
				}
			}
		} else {
			loud++
		}
		if err == nil && got[0].Bounds.Next != 4 {
			t.Errorf("%s: the log ends at %d, want 4", what, got[0].Bounds.Next)
		}
		_ = fresh.Close()
	}
	if loud < 10 {
		t.Errorf("%d of 60 damages were noticed: the test tests little", loud)
	}
	p.Faults(nil)
	expect(t, openAt(t, p.URL()), texts...)
}
