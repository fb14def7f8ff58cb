package sqlfn_test

import (
	"slices"
	"testing"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/queue"
)

// Who passes on the headers of a message gives the new one none that a queue wrote. What a schedule
// wrote goes on.
func TestEnqueueDropsTheHeadersThatAQueueWrote(t *testing.T) {
	address := pgtest.URL(t)
	_, q := startQueues(t, address, true)
	conn := connect(t, address)
	came := func(value string) queue.Message { // others come again when their leases have ended
		for {
			if m := claim(t, q); string(m.Value) == value {
				return m
			}
		}
	}
	const headers = `'{"a": "b", "weir.queue.id": "1-0", "weir.queue.priority": "1", "weir.queue.unique": "x y", "weir.queue.tried": "7", "weir.queue.tick": "now", "weir_queue.x": "y"}'`
	exec(t, conn, `SELECT weir.enqueue('mail', 'at once', headers => `+headers+`), weir.enqueue('mail', 'delayed', headers => `+headers+`, delay => '10 ms')`)
	for _, value := range []string{"at once", "delayed"} {
		var names []string
		for _, h := range came(value).Headers {
			if !slices.Contains([]string{"weir.queue.to", "weir.queue.id", "weir.queue.enqueued", "weir.queue.available"}, h.Key) || string(h.Value) == "1-0" { // these the wheel writes
				names = append(names, h.Key)
			}
		}
		slices.Sort(names)
		if want := []string{"a", "weir.queue.tick", "weir_queue.x"}; !slices.Equal(names, want) {
			t.Errorf("the message %q has the headers %v, want %v", value, names, want)
		}
	}
	exec(t, conn, `SELECT weir.enqueue('mail', 'no others', headers => '{"weir.queue.id": "1-0"}')`)
	if m := came("no others"); len(m.Headers) > 0 {
		t.Errorf("the message has the headers %v", m.Headers)
	}
}

// Each unique key costs the mover a trip, so a chunk has few messages with one: everybody's events
// wait for a chunk.
func TestAChunkHasFewMessagesWithAUniqueKey(t *testing.T) {
	address := pgtest.URL(t)
	startQueues(t, address, false)
	conn := connect(t, address)
	chunk := func() (rows int) {
		t.Helper()
		err := conn.QueryRow(t.Context(), `SELECT count(id) FROM weir.look('1:1:', 0, NULL, 0, 5000, 4 << 20, 200000, NULL, NULL, true)`).Scan(&rows)
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	exec(t, conn, `SELECT weir.enqueue('mail', 'v', unique_key => 'k' || i) FROM generate_series(1, 1000) i`)
	if n := chunk(); n < 400 || n > 600 {
		t.Errorf("a chunk has %d messages with a unique key", n)
	}
	exec(t, conn, `DELETE FROM weir.inbox`)
	exec(t, conn, `SELECT weir.enqueue('mail', 'v', delay => '1 h') FROM generate_series(1, 1000) i`)
	if n := chunk(); n != 1000 {
		t.Errorf("a chunk has %d of 1000 delayed messages", n)
	}
}

// enqueue_all enqueues what so many calls of enqueue do.
func TestEnqueueAllEnqueuesWhatManyCallsDo(t *testing.T) {
	address := pgtest.URL(t)
	_, q := startQueues(t, address, true)
	conn := connect(t, address)
	var n int64
	exec(t, conn, `BEGIN; SELECT weir.enqueue_all('mail', NULL, ARRAY['never', 'never']); ROLLBACK`)
	err := conn.QueryRow(t.Context(), `SELECT weir.enqueue_all('mail', ARRAY['k', NULL, NULL], ARRAY['a', '', 'c'], '{"of": "all", "weir.queue.id": "1-0"}')
		+ weir.enqueue_all('mail', NULL, ARRAY['{"d": 1}'::jsonb]) + weir.enqueue_all('mail', NULL, ARRAY['\xff'::bytea]) + weir.enqueue_all('mail', NULL, '{}'::text[])`).Scan(&n)
	if err != nil || n != 5 {
		t.Fatal(n, err)
	}
	want := []queue.Message{{Key: []byte("k"), Value: []byte("a")}, {Value: []byte{}}, {Value: []byte("c")}, {Value: []byte(`{"d": 1}`)}, {Value: []byte{0xff}}}
	for i, w := range want {
		m := claim(t, q)
		headers := 0
		if i < 3 {
			headers = 1
		}
		if string(m.Key) != string(w.Key) || string(m.Value) != string(w.Value) || len(m.Headers) != headers || headers > 0 && m.Headers[0].Key != "of" {
			t.Errorf("message %d is %+v", i, m)
		}
	}
	empties(t, address)
}
