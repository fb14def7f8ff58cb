package sqlfn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
)

// What SQL takes the queue takes too: a message that the mover could not enqueue would stay in
// weir.inbox, and later ones of its key behind it.
func TestAQueueTakesTheLargestMessageThatSQLTakes(t *testing.T) {
	address := pgtest.URL(t)
	p := open(t, address)
	qs := queue.New(p.log, publish.New(p.log, publish.Config{}), queue.Config{Beside: p.door})
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { p.log.Run(ctx) })
	all.Go(func() { qs.Run(ctx) })
	t.Cleanup(func() { cancel(); all.Wait(); p.store.Close() })
	conn := connect(t, address)
	const limit = 1200
	enqueued := 9
	for _, name := range []string{"m", strings.Repeat("mail-", 12)} {
		p.create(name, 1, map[string]string{"max.message.bytes": fmt.Sprint(limit)})
		if _, err := qs.Create(t.Context(), queue.Spec{Name: name, Settings: queue.Settings{Unique: true, Priorities: 2}}); err != nil {
			t.Fatal(err)
		}
		q, err := qs.Open(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []queue.NewMessage{
			{}, {Priority: 1}, {Delay: time.Hour}, {Delay: time.Hour, Priority: 1},
			{Unique: "u"}, {Unique: "u", Priority: 1}, {Unique: "u", Delay: time.Hour, Priority: 1}, {Unique: strings.Repeat("u", 300)}, {Unique: "\"\\\nu"},
		} {
			for _, headers := range []map[string]string{{}, {"a": "b"}} {
				said, _ := json.Marshal(headers)
				m.Headers = nil
				for name, value := range headers {
					m.Headers = append(m.Headers, batch.RecordHeader{Key: name, Value: []byte(value)})
				}
				var delay, unique *string
				if m.Delay > 0 {
					text := m.Delay.String()
					delay = &text
				}
				if m.Unique != "" {
					unique = &m.Unique
				}
				size := limit
				for ; ; size-- {
					_, err := conn.Exec(t.Context(), `SELECT weir.enqueue($1, $2::text, headers => $3::text::jsonb, priority => $4, unique_key => $5, delay => $6::text::interval)`,
						name, strings.Repeat("x", size), string(said), m.Priority, unique, delay)
					if err == nil {
						break
					}
					if stateOf(err) != "WE003" {
						t.Fatal(err)
					}
				}
				takes := func(size int) error {
					enqueued++
					n := m
					n.Value, n.Unique = slices.Repeat([]byte("x"), size), strings.Replace(m.Unique, "u", strconv.Itoa(enqueued), 1) // nobody has it
					_, err := q.Enqueue(t.Context(), n)
					return err
				}
				what := fmt.Sprintf("queue %.8s, unique key of %d bytes, delay %v, priority %d, headers %s", name, len(m.Unique), m.Delay, m.Priority, said)
				if err := takes(size); err != nil {
					t.Errorf("%s: SQL takes %d bytes, and the queue does not: %v", what, size, err)
				}
				if takes(size+48) == nil {
					t.Errorf("%s: SQL takes %d bytes at most, and the queue takes 48 more", what, size)
				}
			}
		}
	}
}
