package queue_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/queue"
)

// largest remembers the most bytes of batches that one commit had.
type largest struct {
	eventlog.Store
	bytes int
}

func (s *largest) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	n := 0
	for _, e := range flush {
		for _, b := range e.Batches {
			n += len(b.Bytes)
		}
	}
	s.bytes = max(s.bytes, n)
	return s.Store.Commit(ctx, flush)
}

// Messages that are due at one moment move in changes of bounded size, wherever their bytes are:
// all others wait for such a change.
func TestWhatIsDueAtOnceMovesInSmallChanges(t *testing.T) {
	const messages, each = 40, 200 << 10
	for name, m := range map[string]queue.NewMessage{
		"values":  {Value: bytes.Repeat([]byte("v"), each)},
		"headers": {Headers: []batch.RecordHeader{{Key: "h", Value: bytes.Repeat([]byte("v"), each)}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &largest{Store: newStore(t)}
				q := create(t, start(t, store), queue.Spec{Name: "mail", Partitions: 1})
				m.At = time.Now().Add(20 * time.Second)
				for range messages {
					if _, err := q.Enqueue(t.Context(), m); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(25 * time.Second)
				if got := claimN(t, q, messages); len(got) != messages {
					t.Fatalf("%d of %d messages came", len(got), messages)
				}
				if most := 3 << 19; store.bytes > most {
					t.Errorf("one commit had %d bytes, more than %d", store.bytes, most)
				}
			})
		})
	}
}
