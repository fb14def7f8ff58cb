package weir_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store"
)

// mumbling is a store that loses its answers to dead letters: it keeps the first, and not the second, and says of neither what became of it. It
// answers the third, and begins anew.
type mumbling struct {
	eventlog.Store
	mu      sync.Mutex // guards letters
	letters int
}

func (s *mumbling) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if !slices.ContainsFunc(flush, hasLetter) {
		return s.Store.Commit(ctx, flush)
	}
	s.mu.Lock()
	s.letters++
	turn := s.letters % 3
	s.mu.Unlock()
	if turn != 2 {
		out, err := s.Store.Commit(ctx, flush)
		if turn == 0 || err != nil {
			return out, err
		}
	}
	return nil, eventlog.ErrUnsure
}

func hasLetter(e eventlog.Entry) bool {
	return slices.ContainsFunc(e.Batches, func(b eventlog.Batch) bool { return bytes.Contains(b.Bytes, []byte(weir.HeaderReason)) })
}

var errBad = weir.Permanent(errors.New("bad"))

func fails(context.Context, weir.Event) error { return errBad }

// wantOneLetterEach sees that each of the first n events of orders/0 is a dead letter, and once.
func wantOneLetterEach(t *testing.T, w *weir.Log, n int) {
	t.Helper()
	times := make(map[string]int)
	for e, err := range w.Read(t.Context(), weir.TopicPartition{Topic: "orders.dlt"}, weir.Earliest) {
		if err != nil {
			t.Fatal(err)
		}
		offset, _ := e.Header(weir.HeaderOffset)
		times[string(offset)]++
	}
	for offset := range n {
		if got := times[strconv.Itoa(offset)]; got != 1 {
			t.Errorf("there are %d dead letters of event %d", got, offset)
		}
	}
}

func TestADeadLetterWhoseAnswerGotLostIsThereOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		under := s.memory
		if under == nil {
			opened, err := store.Open(t.Context(), s.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			under = opened
		}
		w := site{memory: &mumbling{Store: under}}.open(t)
		ensure(t, w, "orders", 1)
		const n = 9
		publish(t, w, "orders", numbered("event", n)...)
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: fails})
		committed(t, w, "g")
		wantOneLetterEach(t, w, n)
	})
}

// A process is killed while it writes dead letters, and another goes on.
func TestAKilledProcessLeavesNoDeadLetterTwice(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		const n = 400
		publish(t, w, "orders", numbered("event", n)...)
		p := startWorker(t, job{Do: "fail", URL: s.url, Topic: "orders"})
		for range n / 8 {
			next(t, p.lines)
		}
		p.kill()
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Session: 2 * time.Second, Handler: fails})
		committed(t, w, "g")
		wantOneLetterEach(t, w, n)
	}, "sqlite", "postgres")
}
