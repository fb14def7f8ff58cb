package s3

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/s3test"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/store/storetest"
)

// triesMax bounds how often a call is repeated that was answered with ErrUnavailable.
const triesMax = 50

// several are processes on one bucket, each behind a proxy with faults: two that write, and a
// replica. Each call goes to one of them, and is repeated while it is answered that certainly
// nothing happened. So all calls succeed, and together they are one store.
type several struct {
	random  *rand.Rand
	writers []*Store
	replica *Store
	gather  sync.WaitGroup // compactions, which go on beside the calls
}

// tried repeats a call. An outcome may be unknown only after 30 s without the server, which no
// fault here takes.
func (s *several) tried(call func() error) (err error) {
	for range triesMax {
		if err = call(); !errors.Is(err, eventlog.ErrUnavailable) {
			break
		}
	}
	return err
}

func (s *several) writer() *Store { return s.writers[s.random.IntN(len(s.writers))] }

func (s *several) reader() *Store {
	return append(s.writers, s.replica)[s.random.IntN(len(s.writers)+1)]
}

func (s *several) Commit(ctx context.Context, flush []eventlog.Entry) (out []eventlog.Outcome, err error) {
	w := s.writer()
	err = s.tried(func() error { out, err = w.Commit(ctx, flush); return err })
	switch s.random.IntN(10) { // what upkeep does when there is more to do; it may fail
	case 0:
		w := s.writer()
		s.gather.Go(func() { _, _ = w.compact(ctx, 1) })
	case 1:
		_ = s.writer().snapshot(ctx)
	}
	return out, err
}

func (s *several) Trim(ctx context.Context, trims []eventlog.Trim) (errs []error, err error) {
	w := s.writer()
	err = s.tried(func() error { errs, err = w.Trim(ctx, trims); return err })
	return errs, err
}

func (s *several) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) (got []eventlog.Slice, err error) {
	r := s.reader()
	err = s.tried(func() error { got, err = r.Read(ctx, spans, maxBytes); return err })
	return got, err
}

func (s *several) Seek(ctx context.Context, goals []eventlog.Goal) (found []eventlog.Found, err error) {
	r := s.reader()
	err = s.tried(func() error { found, err = r.Seek(ctx, goals); return err })
	return found, err
}

func (s *several) List(ctx context.Context, prefix, after string, limit int) (list []eventlog.KeyValue, err error) {
	r := s.reader()
	err = s.tried(func() error { list, err = r.List(ctx, prefix, after, limit); return err })
	return list, err
}

func (s *several) Get(ctx context.Context, keys []string, maxBytes int) (found []eventlog.KeyValue, err error) {
	r := s.reader()
	err = s.tried(func() error { found, err = r.Get(ctx, keys, maxBytes); return err })
	return found, err
}

// Changes asks the replica: a mark is of one Store value.
func (s *several) Changes(ctx context.Context, since eventlog.Mark) (moved []eventlog.Bounds, mark eventlog.Mark, err error) {
	err = s.tried(func() error { moved, mark, err = s.replica.Changes(ctx, since); return err })
	return moved, mark, err
}

func (s *several) Close() error {
	s.gather.Wait()
	err := s.replica.Close()
	for _, w := range s.writers {
		err = errors.Join(err, w.Close())
	}
	return err
}

// A random history goes as in memory, though one request in eight is lost, late, refused, repeated
// or cut, and processes come and go.
func TestARandomHistoryThroughFaultsGoesAsInMemory(t *testing.T) {
	const rarity = 8
	for _, n := range seed.Histories(t, 3) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Setenv(seed.Variable, fmt.Sprint(n))
			random := rand.New(rand.NewPCG(n, 1))
			var proxies []*s3test.Proxy
			storetest.History(t, storetest.Harness{
				Place: func(t *testing.T) string {
					address := s3test.URL(t)
					openAt(t, address) // a replica begins no log
					for i := range 3 {
						p := s3test.NewProxy(t, strings.Replace(address, "linger=0", "linger=2ms", 1)) // commits take compactions along
						p.Faults(s3test.Random(rand.New(rand.NewPCG(n, uint64(2+i))), rarity))
						proxies = append(proxies, p)
					}
					return address
				},
				Open: func(ctx context.Context, _ string) (eventlog.Store, error) {
					s := &several{random: random}
					open := func(address string) (opened *Store, err error) {
						err = s.tried(func() error { opened, err = Open(ctx, address, Options{}); return err })
						return opened, err
					}
					for _, p := range proxies[:2] {
						w, err := open(p.URL())
						if err != nil {
							return nil, err
						}
						s.writers = append(s.writers, w)
					}
					var err error
					s.replica, err = open(readOnly(proxies[2].URL()))
					return s, err
				},
			})
			faults, requests := 0, 0
			for _, p := range proxies {
				p.Wait()
				for _, r := range p.Requests() {
					requests++
					if r.Fault != (s3test.Fault{}) {
						faults++
					}
				}
			}
			if faults < 50 {
				t.Errorf("%d faults: the test tests little", faults)
			}
			for _, key := range s3test.CreatedTwice(proxies...) {
				if !strings.Contains(key, "probe/") { // those are deleted at once
					t.Errorf("%s was created twice", key)
				}
			}
			t.Logf("%d requests, %d with faults", requests, faults)
		})
	}
}
