package sqlfn_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/queue"
)

// One transaction answers for several messages, each another way, and writes its own rows. All of
// it happens, or nothing.
func TestAnAckANackAndAnExtendCommitTogetherOrNotAtAll(t *testing.T) {
	address := pgtest.URL(t)
	_, q := startQueuesWith(t, address, true, queue.Settings{Lease: time.Hour, Attempts: 5})
	conn := connect(t, address)
	exec(t, conn, `CREATE TABLE result (value text)`)
	exec(t, conn, `SELECT weir.enqueue('mail', v) FROM unnest(ARRAY['acked', 'nacked', 'extended']) AS v`)
	ms := map[string]queue.Message{}
	for len(ms) < 3 {
		m := claim(t, q)
		ms[string(m.Value)] = m
	}
	answer := func() {
		t.Helper()
		exec(t, conn, `BEGIN`)
		exec(t, conn, `INSERT INTO result VALUES ('acked')`)
		exec(t, conn, `SELECT weir.ack($1), weir.nack($2, 'refused', '1 minute'), weir.extend($3, '10 hours')`, ms["acked"].Receipt, ms["nacked"].Receipt, ms["extended"].Receipt)
	}
	answer()
	exec(t, conn, `ROLLBACK`)
	exec(t, conn, `SELECT weir.enqueue('mail', 'marker')`) // moved after whatever the rollback might have left
	claim(t, q)
	empties(t, address)
	for value, m := range ms {
		if c, err := q.Find(t.Context(), m.ID); err != nil || c.State != "claimed" || c.Attempt != 1 || time.Until(c.Until) > 2*time.Hour {
			t.Errorf("after the rollback the message %s is %+v, %v", value, c, err)
		}
	}
	answer()
	exec(t, conn, `COMMIT`)
	isDone(t, q, ms["acked"].ID)
	if c := becomes(t, q, ms["nacked"].ID, "waiting"); c.Error != "refused" {
		t.Errorf("the message that was given back is %+v", c)
	}
	empties(t, address)
	if c, err := q.Find(t.Context(), ms["extended"].ID); err != nil || c.State != "claimed" || time.Until(c.Until) < 9*time.Hour {
		t.Errorf("the message whose lease was extended is %+v, %v", c, err)
	}
	if got := pgtest.Value(t, address, `SELECT count(*) FROM result`); got != "1" {
		t.Errorf("%s rows were written", got)
	}
}

// A session that is killed in the middle of its transaction has acknowledged nothing, and enqueued
// nothing.
func TestASessionKilledBeforeItsCommitAcksAndEnqueuesNothing(t *testing.T) {
	address := pgtest.URL(t)
	_, q := startQueues(t, address, true)
	conn, victim := connect(t, address), connect(t, address)
	exec(t, conn, `SELECT weir.enqueue('mail', 'hello')`)
	m := claim(t, q)
	exec(t, victim, `BEGIN`)
	exec(t, victim, `SELECT weir.enqueue('mail', 'never'), weir.enqueue('mail', 'never, later', delay => '10 ms', unique_key => 'u')`)
	exec(t, victim, `SELECT weir.ack($1)`, m.Receipt)
	exec(t, conn, `SELECT pg_terminate_backend($1, 20000)`, victim.PgConn().PID())
	endLease(t, q, m.Receipt)
	if again := claim(t, q); again.ID != m.ID || again.Attempt != 2 {
		t.Errorf("claimed %+v", again)
	}
	exec(t, conn, `SELECT weir.enqueue('mail', 'free', unique_key => 'u')`) // the key that was never taken
	if got := claim(t, q); string(got.Value) != "free" {
		t.Errorf("claimed %q", got.Value)
	}
	if got, err := q.Claim(t.Context(), queue.Claim{Max: 10}); err != nil || len(got) > 0 {
		t.Errorf("then %d messages are claimed, %v", len(got), err)
	}
	empties(t, address)
}

func TestAnEnqueueWithSQLRefusesWhatItCannotMean(t *testing.T) {
	address := pgtest.URL(t)
	_, q := startQueues(t, address, true)
	conn := connect(t, address)
	for _, c := range []struct{ call, want string }{
		{`weir.enqueue(NULL, 'v')`, "22004"},
		{`weir.enqueue('none', 'v')`, "WE007"},
		{`weir.enqueue('a/b', 'v')`, "22023"},
		{`weir.enqueue('mail', NULL::text)`, "22004"},
		{`weir.enqueue('mail', 'v', headers => '[]')`, "22023"},
		{`weir.enqueue('mail', 'v', delay => '-1 s')`, "22023"},
		{`weir.enqueue('mail', 'v', delay => '101 years')`, "22023"},
		{`weir.enqueue('mail', 'v', at => '9999-12-31')`, "22023"},
		{`weir.enqueue('mail', 'v', at => 'infinity')`, "22023"},
		{`weir.enqueue('mail', 'v', delay => '1 s', at => now())`, "22023"},
		{`weir.enqueue('mail', 'v', priority => 1)`, "22023"},
		{`weir.enqueue('mail', 'v', priority => -1)`, "22023"},
		{`weir.enqueue('mail', 'v', priority => NULL)`, "22023"},
		{`weir.enqueue('mail', 'v', unique_key => '')`, "22023"},
		{`weir.enqueue('mail', 'v', unique_key => repeat('u', 1 << 20))`, "22023"},
		{`weir.enqueue('mail', repeat('v', 2 << 20))`, "WE003"},
		{`weir.enqueue('mail', repeat('v', 20 << 20))`, "WE003"},
		{`weir.enqueue('mail', repeat('v', 20 << 20), delay => '1 s')`, "WE003"},
		{`weir.enqueue_all(NULL, NULL, ARRAY['v'])`, "22004"},
		{`weir.enqueue_all('none', NULL, ARRAY['v'])`, "WE007"},
		{`weir.enqueue_all('mail', NULL, NULL::text[])`, "22004"},
		{`weir.enqueue_all('mail', NULL, ARRAY['v', NULL])`, "22004"},
		{`weir.enqueue_all('mail', ARRAY['k'], ARRAY['v', 'w'])`, "22023"},
		{`weir.enqueue_all('mail', NULL, ARRAY[['v'], ['w']])`, "22023"},
		{`weir.enqueue_all('mail', NULL, ARRAY[1])`, "22023"},
		{`weir.enqueue_all('mail', NULL, ARRAY['v'], '[]')`, "22023"},
		{`weir.enqueue_all('mail', NULL, ARRAY['v', repeat('v', 2 << 20)])`, "WE003"},
	} {
		if _, err := conn.Exec(t.Context(), `SELECT `+c.call); stateOf(err) != c.want {
			t.Errorf("%s: %v, want %s", c.call, err, c.want)
		}
	}
	exec(t, conn, `SELECT weir.enqueue('mail', ''), weir.enqueue('mail', 'past', at => '1000-01-01'), weir.enqueue('mail', 'ever', at => '-infinity'), weir.enqueue('mail', 'now', delay => '0')`)
	var got []string
	for range 4 {
		got = append(got, string(claim(t, q).Value))
	}
	if all := strings.Join(got, " "); all != " past ever now" {
		t.Errorf("these came: %q", all)
	}
	if s, err := q.Stats(t.Context()); err != nil || s.Ready+s.Waiting != 0 || s.Claimed != 4 {
		t.Errorf("the queue has %+v, %v: what was refused is there", s, err)
	}
	empties(t, address)
}
