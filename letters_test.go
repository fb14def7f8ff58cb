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
	"github.com/weir-log/weir/store/memory"
)

// mumbling is a store that loses its answers to dead letters: it keeps the first, and not the
// second, and says of neither what became of it. It answers the third, and begins anew.
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
	onEachStore(t, func(t *testing.T, under eventlog.Store) {
		w := site{memory: &mumbling{Store: under}}.open(t)
		ensure(t, w, "orders", 1)
		const n = 9
		publish(t, w, "orders", numbered("event", n)...)
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: fails})
		committed(t, w, "g")
		wantOneLetterEach(t, w, n)
	})
}

// leaving is a store that keeps a dead letter, loses the answer, and is away from then on.
type leaving struct {
	cutOff
	once sync.Once
	left chan struct{} // closed then
}

func (s *leaving) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	out, err := s.cutOff.Commit(ctx, flush)
	if err == nil && slices.ContainsFunc(flush, hasLetter) {
		s.once.Do(func() {
			s.away.Store(true)
			close(s.left)
			out, err = nil, eventlog.ErrUnsure
		})
	}
	return out, err
}

// Who cannot reach the store for so long that it may have been taken for dead lets go of its
// partitions, and of the handlers that run. When it finds that nobody has taken them, it does not
// go on with what it knew of them, as that is not all.
func TestADeadLetterIsThereOnceWhenTheStoreGoesAwayWithTheAnswer(t *testing.T) {
	store := &leaving{cutOff: cutOff{Store: shared{memory.New()}}, left: make(chan struct{})}
	w := site{memory: store}.open(t)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", "event")
	c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Session: time.Second, Handler: fails})
	next(t, store.left)
	eventually(t, "the consumer lets go of the partition", func() bool { return len(c.Assigned()) == 0 })
	store.away.Store(false)
	publish(t, w, "orders", "another")
	committed(t, w, "g")
	wantOneLetterEach(t, w, 2)
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
			next(t, p.Lines)
		}
		p.Kill()
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Session: 2 * time.Second, Handler: fails})
		committed(t, w, "g")
		wantOneLetterEach(t, w, n)
	}, "sqlite", "postgres")
}

// The dead-letter topic that is made where there is none has as many partitions as the event's, and
// keeps its events until they are deleted.
func TestTheDeadLetterTopicIsAsItIsDocumented(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		for _, topic := range []weir.Topic{{Name: "orders", Partitions: 3, Config: map[string]string{"retention.ms": "3600000", "retention.bytes": "1000000"}}, {Name: "payments", Partitions: 1}} {
			if err := w.EnsureTopic(t.Context(), topic); err != nil {
				t.Fatal(err)
			}
			publish(t, w, topic.Name, "v")
		}
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders", "payments"}, Handler: fails})
		eventually(t, "both dead letters are there", func() bool {
			g, err := w.Group(t.Context(), "g")
			handled := int64(0)
			for _, o := range g.Offsets {
				handled += o.Committed
			}
			return err == nil && handled == 2
		})
		for name, partitions := range map[string]int{"orders.dlt": 3, "payments.dlt": 1} {
			if err := w.EnsureTopic(t.Context(), weir.Topic{Name: name, Partitions: partitions, Config: map[string]string{"retention.ms": "-1", "retention.bytes": "-1"}}); err != nil {
				t.Error(err)
			}
		}
	})
}
