package sqlfn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/weir-log/weir/door/sqlfn"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
)

type claimedBySQL struct {
	Receipt, ID string
	Key, Value  *string
	ValueB64    string `json:"value_b64"`
	Headers     map[string]any
	Attempt     int
	Until       time.Time
}

// claimSQL calls weir.claim, with its arguments as SQL.
func claimSQL(ctx context.Context, conn *pgx.Conn, args string) (got []claimedBySQL, err error) {
	var text []byte
	if err := conn.QueryRow(ctx, `CALL weir.claim(`+args+`)`).Scan(&text); err != nil {
		return nil, err
	}
	return got, json.Unmarshal(text, &got)
}

func TestASessionClaimsAndAcknowledgesWithSQL(t *testing.T) {
	address := pgtest.URL(t)
	_, q := startQueuesWith(t, address, true, queue.Settings{Lease: time.Minute})
	conn := connect(t, login(t, address, "weir_consumer", "weir_producer"))
	if got, err := claimSQL(t.Context(), conn, `'mail'`); err != nil || len(got) != 0 {
		t.Fatalf("of an empty queue: %v, %v", got, err)
	}
	exec(t, conn, `SELECT weir.enqueue('mail', 'hello', key => 'k', headers => '{"a": "b"}'); SELECT weir.enqueue('mail', '\x00ff'::bytea)`)
	var got []claimedBySQL
	for len(got) < 2 {
		some, err := claimSQL(t.Context(), conn, `'mail', 10, '1 hour', '10 s', 'psql'`)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, some...)
	}
	if m := got[0]; *m.Key != "k" || *m.Value != "hello" || m.Attempt != 1 || m.Headers["a"] != "b" || time.Until(m.Until) < 50*time.Minute {
		t.Errorf("claimed %+v", m)
	}
	if m := got[1]; m.Value != nil || m.ValueB64 != "AP8=" {
		t.Errorf("claimed %+v", m)
	}
	id, err := queue.ParseID(got[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := q.Find(t.Context(), id); err != nil || c.State != "claimed" || c.Worker != "psql" {
		t.Errorf("the message is %+v, %v", c, err)
	}
	exec(t, conn, `BEGIN`)
	exec(t, conn, `SELECT weir.ack($1), weir.nack($2, reject => true)`, got[0].Receipt, got[1].Receipt)
	exec(t, conn, `COMMIT`)
	isDone(t, q, id)
	exec(t, conn, `SELECT weir.enqueue('mail', 'in a block')`)
	exec(t, conn, `DO $$ DECLARE m jsonb; BEGIN
		CALL weir.claim('mail', 10, wait => '10 s', messages => m);
		IF (SELECT string_agg(x.value, ' ') FROM jsonb_to_recordset(m) AS x(receipt text, id text, value text)) IS DISTINCT FROM 'in a block' THEN
			RAISE 'claimed %', m;
		END IF;
	END $$`)
	if n := pgtest.Value(t, address, `SELECT count(*) FROM weir.claim_request`); n != "0" {
		t.Errorf("%s requests are left", n)
	}
}

func TestAClaimWaitsForAMessage(t *testing.T) {
	address := pgtest.URL(t)
	startQueuesWith(t, address, true, queue.Settings{Lease: time.Minute})
	conn, other := connect(t, address), connect(t, address)
	began := time.Now()
	if got, err := claimSQL(t.Context(), conn, `'mail', wait => '1.5 s'`); err != nil || len(got) != 0 || time.Since(began) < 1500*time.Millisecond {
		t.Errorf("after %v: %v, %v", time.Since(began), got, err)
	}
	waits := make(chan error)
	go func() {
		got, err := claimSQL(context.Background(), conn, `'mail', wait => '1 minute'`)
		if err == nil && (len(got) != 1 || *got[0].Value != "late") {
			err = fmt.Errorf("%d messages were claimed", len(got))
		}
		waits <- err
	}()
	await(t, address, `SELECT count(*) = 1 FROM weir.claim_request WHERE taken_by IS NOT NULL`)
	exec(t, other, `SELECT weir.enqueue('mail', 'late')`)
	if err := <-waits; err != nil {
		t.Error(err)
	}
}

// await waits until a query says true.
func await(t *testing.T, address, sql string) {
	t.Helper()
	for late := time.Now().Add(20 * time.Second); pgtest.Value(t, address, sql) != "true"; {
		if time.Now().After(late) {
			t.Fatalf("20 seconds went by, and not yet: %s", sql)
		}
	}
}

func TestAClaimIsRefusedWithAReason(t *testing.T) {
	address := pgtest.URL(t)
	_, q := startQueuesWith(t, address, true, queue.Settings{Lease: time.Minute})
	if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, address)
	for args, want := range map[string]string{
		`NULL`:                               "22004",
		`'none'`:                             "WE007",
		`'a/b'`:                              "22023",
		`'mail', 0`:                          "22023",
		`'mail', NULL`:                       "22023",
		`'mail', 1001`:                       "22023",
		`'mail', lease => '0'`:               "22023",
		`'mail', lease => '1 year'`:          "22023",
		`'mail', wait => '-1 s'`:             "22023",
		`'mail', wait => NULL`:               "22023",
		`'mail', wait => '6 min'`:            "22023",
		`'mail', worker => repeat('w', 257)`: "22023",
	} {
		if _, err := claimSQL(t.Context(), conn, args); stateOf(err) != want {
			t.Errorf("weir.claim(%s): %v, want %s", args, err, want)
		}
	}
	for _, language := range []string{"C", "de_DE.UTF-8"} {
		_, _ = conn.Exec(t.Context(), `SET lc_messages = '`+language+`'`) // where the server has it
		exec(t, conn, `BEGIN`)
		if _, err := claimSQL(t.Context(), conn, `'mail'`); stateOf(err) != "25001" {
			t.Errorf("in a transaction: %v, want 25001", err)
		}
		exec(t, conn, `ROLLBACK`)
	}
	if _, err := conn.PgConn().Exec(t.Context(), `CALL weir.claim('mail'); SELECT 1`).ReadAll(); stateOf(err) != "25001" {
		t.Errorf("in one message with another statement: %v, want 25001", err)
	}
	if _, err := connect(t, login(t, address, "weir_producer", "weir_reader")).Exec(t.Context(), `CALL weir.claim('mail')`); stateOf(err) != denied {
		t.Errorf("as somebody who is no consumer: %v, want %s", err, denied)
	}
	if got, err := claimSQL(t.Context(), conn, `'mail'`); err != nil || len(got) != 1 || got[0].Attempt != 1 {
		t.Errorf("then %v, %v: a call that was refused has claimed", got, err)
	}
}

func TestAClaimFailsSoonWhereNoWeirRuns(t *testing.T) {
	address := pgtest.URL(t)
	startQueues(t, address, false)
	began := time.Now()
	_, err := claimSQL(t.Context(), connect(t, address), `'mail', wait => '1 minute'`)
	if took := time.Since(began); stateOf(err) != "WE010" || took > 20*time.Second {
		t.Errorf("after %v: %v, want WE010", took, err)
	}
	if want := "no running weir took the claim within 5 s: none runs, or each is busy with 1000 others"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// SQL, Go, and two processes that serve one queue: each message is claimed by one of them, and done
// once.
func TestWorkersInSQLAndGoShareAQueue(t *testing.T) {
	const messages, sessions = 300, 4
	address := pgtest.URL(t)
	_, q := startQueuesWith(t, address, true, queue.Settings{Lease: time.Minute})
	_, second := startQueuesWith(t, address, true, queue.Settings{Lease: time.Minute})
	pgtest.Exec(t, address, `CREATE TABLE done (id text PRIMARY KEY, by text)`)
	for n := range messages {
		if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: fmt.Append(nil, n)}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex // guards handled
	handled := make(map[string]int)
	enough := func(value string) {
		mu.Lock()
		defer mu.Unlock()
		if handled[value]++; len(handled) == messages {
			cancel()
		}
	}
	var workers sync.WaitGroup
	for range sessions {
		workers.Go(func() {
			conn := connect(t, address)
			for ctx.Err() == nil {
				got, err := claimSQL(t.Context(), conn, `'mail', 3, wait => '1 s', worker => 'sql'`)
				if err != nil {
					t.Error(err)
					return
				}
				for _, m := range got {
					err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
						_, err := tx.Exec(t.Context(), `INSERT INTO done SELECT $1, 'sql' FROM weir.ack($2)`, m.ID, m.Receipt)
						return err
					})
					if err != nil {
						t.Errorf("message %s: %v", m.ID, err)
					}
					enough(*m.Value)
				}
			}
		})
	}
	for _, q := range []*queue.Queue{q, second} {
		workers.Go(func() {
			for ctx.Err() == nil {
				got, err := q.Claim(ctx, queue.Claim{Max: 3, Wait: time.Second})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				for _, m := range got {
					if errs, err := q.Ack(context.WithoutCancel(ctx), m.Receipt); err != nil || errs[0] != nil {
						t.Error(err, errs)
					}
					enough(string(m.Value))
				}
			}
		})
	}
	workers.Wait()
	if len(handled) != messages {
		t.Fatalf("%d of %d messages were handled", len(handled), messages)
	}
	for value, n := range handled {
		if n != 1 {
			t.Errorf("message %s was handled %d times", value, n)
		}
	}
	bySQL := pgtest.Value(t, address, `SELECT count(*) FROM done`)
	t.Logf("%s of %d by SQL", bySQL, messages)
	if bySQL == "0" || bySQL == fmt.Sprint(messages) {
		t.Error("the workers did not share")
	}
	empties(t, address)
}

// A session dies, or is cancelled, while its claim waits: what comes then is for others, and at
// once.
func TestAMessageIsNotGivenToASessionThatIsGone(t *testing.T) {
	for name, end := range map[string]string{"killed": `pg_terminate_backend`, "cancelled": `pg_cancel_backend`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := pgtest.URL(t)
			_, q := startQueuesWith(t, address, true, queue.Settings{Lease: time.Hour})
			gone := connect(t, address)
			ended := make(chan error)
			go func() {
				_, err := claimSQL(context.Background(), gone, `'mail', wait => '5 minutes'`)
				ended <- err
			}()
			await(t, address, `SELECT count(*) = 1 FROM weir.claim_request WHERE taken_by IS NOT NULL`)
			pgtest.Exec(t, address, `SELECT `+end+`(pid) FROM weir.claim_request`)
			if err := <-ended; err == nil {
				t.Fatal("the session goes on")
			}
			if name == "cancelled" { // weir hears nothing more of it for 3 s
				await(t, address, `SELECT count(*) = 0 FROM weir.claim_request WHERE taken_until > clock_timestamp()`)
			}
			if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("hello")}); err != nil {
				t.Fatal(err)
			}
			got, err := claimSQL(t.Context(), connect(t, address), `'mail', wait => '20 s'`)
			if err != nil || len(got) != 1 || got[0].Attempt != 1 {
				t.Fatalf("then %+v, %v", got, err)
			}
		})
	}
}

// The process that has a request stops; another takes it over.
func TestAClaimThatWaitsOutlivesTheProcessThatServesIt(t *testing.T) {
	address := pgtest.URL(t)
	_, q := startQueuesWith(t, address, false, queue.Settings{Lease: time.Minute})
	stop := startServing(t, address)
	waits := make(chan error)
	go func() {
		got, err := claimSQL(context.Background(), connect(t, address), `'mail', wait => '1 minute'`)
		if err == nil && len(got) != 1 {
			err = fmt.Errorf("%d messages were claimed", len(got))
		}
		waits <- err
	}()
	await(t, address, `SELECT count(*) = 1 FROM weir.claim_request WHERE taken_by IS NOT NULL`)
	startServing(t, address)
	stop()
	await(t, address, `SELECT count(*) = 1 FROM weir.claim_request WHERE taken_by IS NOT NULL`)
	if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	if err := <-waits; err != nil {
		t.Error(err)
	}
}

// startServing starts a process, and returns what stops it.
func startServing(t *testing.T, address string) (stop func()) {
	t.Helper()
	p := open(t, address)
	qs := queue.New(p.log, publish.New(p.log, publish.Config{}), queue.Config{Beside: p.door})
	ctx, cancel := context.WithCancel(context.Background())
	serves, stopServing := context.WithCancel(ctx)
	var all, serving sync.WaitGroup
	all.Go(func() { p.log.Run(ctx) })
	all.Go(func() { qs.Run(ctx) })
	serving.Go(func() { sqlfn.New(p.log, p.door, sqlfn.Config{Queues: qs}).Run(serves) })
	stop = sync.OnceFunc(func() {
		stopServing()
		serving.Wait()
		cancel()
		all.Wait()
		p.store.Close()
	})
	t.Cleanup(stop)
	return stop
}

// A process took the request and was killed: it answers no more, nor says that it is at it.
func TestARequestThatADeadProcessTookIsServed(t *testing.T) {
	address := pgtest.URL(t)
	_, q := startQueuesWith(t, address, false, queue.Settings{Lease: time.Minute})
	if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	waits := make(chan error)
	go func() {
		got, err := claimSQL(context.Background(), connect(t, address), `'mail', wait => '1 minute'`)
		if err == nil && len(got) != 1 {
			err = fmt.Errorf("%d messages were claimed", len(got))
		}
		waits <- err
	}()
	await(t, address, `SELECT count(*) = 1 FROM weir.claim_request`)
	pgtest.Exec(t, address, `SELECT * FROM weir.take_requests('dead', 0, 0, 10)`)
	startServing(t, address)
	if err := <-waits; err != nil {
		t.Error(err)
	}
}

// The session dies between claim and ack, with the ack in its open transaction.
func TestAMessageOfASessionThatDiesComesBack(t *testing.T) {
	address := pgtest.URL(t)
	_, q := startQueuesWith(t, address, true, queue.Settings{Lease: time.Hour})
	if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	dies, lives := connect(t, address), connect(t, address)
	got, err := claimSQL(t.Context(), dies, `'mail', wait => '10 s'`)
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	exec(t, dies, `BEGIN`)
	exec(t, dies, `SELECT weir.ack($1)`, got[0].Receipt)
	if none, err := claimSQL(t.Context(), lives, `'mail', lease => '1 hour'`); err != nil || len(none) > 0 {
		t.Fatalf("while the lease goes on %v is claimed, %v", none, err)
	}
	pgtest.Exec(t, address, fmt.Sprintf(`SELECT pg_terminate_backend(%d)`, dies.PgConn().PID()))
	endLease(t, q, got[0].Receipt)
	again, err := claimSQL(t.Context(), lives, `'mail', lease => '1 hour', wait => '20 s'`)
	if err != nil || len(again) != 1 || again[0].ID != got[0].ID || again[0].Attempt != 2 {
		t.Fatalf("then %+v, %v", again, err)
	}
	if _, err := lives.Exec(t.Context(), `SELECT weir.ack($1)`, got[0].Receipt); stateOf(err) != "WE008" {
		t.Errorf("with the receipt of the dead: %v, want WE008", err)
	}
	exec(t, lives, `SELECT weir.ack($1)`, again[0].Receipt)
	id, _ := queue.ParseID(got[0].ID)
	isDone(t, q, id)
}

// Who locks a request, with a function that sessions may call, holds up nobody else's claims.
func TestASessionThatLocksItsRequestHoldsUpNobody(t *testing.T) {
	address := pgtest.URL(t)
	_, q := startQueuesWith(t, address, true, queue.Settings{Lease: time.Minute})
	mallory, other := connect(t, login(t, address, "weir_consumer")), connect(t, address)
	var request int64
	if err := mallory.QueryRow(t.Context(), `SELECT weir.request_claim('mail', 1, NULL, '5 minutes', '')`).Scan(&request); err != nil {
		t.Fatal(err)
	}
	await(t, address, `SELECT count(*) = 1 FROM weir.claim_request WHERE taken_by IS NOT NULL`)
	exec(t, mallory, `BEGIN`)
	await(t, address, `SELECT count(*) = 1 FROM weir.claim_request WHERE seen_at < clock_timestamp() - interval '1100 ms'`)
	exec(t, mallory, `SELECT weir.read_claim($1)`, request) // it updates the row
	for n := range 3 {
		if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: fmt.Append(nil, n)}); err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; n < 3; {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		got, err := claimSQL(ctx, other, `'mail', 3, wait => '10 s'`)
		cancel()
		if err != nil || len(got) == 0 {
			t.Fatalf("after %d messages: %v, %v", n, got, err)
		}
		n += len(got)
	}
}

// Else one session with many requests takes all that a process serves at once, and claims by SQL
// fail.
func TestASessionWaitsForOneClaimAtATime(t *testing.T) {
	address := pgtest.URL(t)
	_, q := startQueuesWith(t, address, true, queue.Settings{Lease: time.Minute})
	conn, other := connect(t, login(t, address, "weir_consumer")), connect(t, login(t, address, "weir_consumer"))
	exec(t, other, `SELECT weir.request_claim('mail', 1, NULL, '5 minutes', '')`)
	exec(t, conn, `SELECT weir.request_claim('mail', 1, NULL, '5 minutes', '') FROM generate_series(1, 3)`)
	var last int64
	if err := conn.QueryRow(t.Context(), `SELECT weir.request_claim('mail', 1, NULL, '5 minutes', '')`).Scan(&last); err != nil {
		t.Fatal(err)
	}
	if n := pgtest.Value(t, address, `SELECT count(*) FROM weir.claim_request`); n != "2" {
		t.Errorf("two sessions have %s requests", n)
	}
	for range 2 { // for each session one
		if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("hello")}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for got := ""; got == ""; {
		if err := conn.QueryRow(ctx, `SELECT coalesce(messages::text, message, '') FROM weir.read_claim($1)`, last).Scan(&got); err != nil || got != "" && !strings.Contains(got, "hello") {
			t.Fatal(got, err)
		}
	}
}

func TestAClaimBehindAPooler(t *testing.T) {
	pooled, direct := pgtest.PooledURL(t)
	_, q := startQueuesWith(t, pooled+"&weir_pooled=true", true, queue.Settings{Lease: time.Minute})
	conn := connect(t, pooled+"&default_query_exec_mode=exec")
	exec(t, conn, `SELECT weir.enqueue('mail', 'hello')`)
	got, err := claimSQL(t.Context(), conn, `'mail', wait => '20 s'`)
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	exec(t, conn, `SELECT weir.nack($1::text, delay => '0')`, got[0].Receipt)
	if got, err = claimSQL(t.Context(), conn, `'mail', wait => '20 s'`); err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	exec(t, conn, `SELECT weir.ack($1::text)`, got[0].Receipt)
	id, _ := queue.ParseID(got[0].ID)
	isDone(t, q, id)
	empties(t, direct)
}

// Of a role or a database, the isolation level of new transactions may be any. Those of the
// procedure have their own: otherwise a claim would fail when a mover writes to the request of a
// session that writes to it, too.
func TestAClaimNeedsNoIsolationLevel(t *testing.T) {
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			address := pgtest.URL(t)
			startQueues(t, address, true)
			conn, other := connect(t, address), connect(t, address)
			exec(t, conn, `SET default_transaction_isolation = '`+level+`'`)
			claimed := make(chan error, 1)
			go func() {
				got, err := claimSQL(t.Context(), conn, `'mail', wait => '1 min'`)
				if err == nil && len(got) != 1 {
					err = fmt.Errorf("%d messages", len(got))
				}
				claimed <- err
			}()
			await(t, address, `SELECT count(*) = 1 FROM weir.claim_request`)
			exec(t, other, `BEGIN; UPDATE weir.claim_request SET seen_at = seen_at`)
			await(t, address, fmt.Sprintf(`SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = %d AND wait_event_type = 'Lock'`, conn.PgConn().PID()))
			exec(t, other, `COMMIT`)
			exec(t, other, `SELECT weir.enqueue('mail', 'hello')`)
			if err := <-claimed; err != nil {
				t.Errorf("%v, want a message", err)
			}
			if now := texts(t, conn, `SHOW transaction_isolation`); now[0] != level {
				t.Errorf("after the claim the level is %s, want %s", now[0], level)
			}
		})
	}
}

// A client that dies while it waits holds its connection no longer, and gets no message. The first
// call in a session that waits is only to set what the second one needs.
func TestAWaitEndsWithItsClient(t *testing.T) {
	address := pgtest.URL(t)
	_, q := startQueuesWith(t, address, true, queue.Settings{Lease: time.Hour})
	dead := connect(t, address)
	if got, err := claimSQL(t.Context(), dead, `'mail', wait => '1 ms'`); err != nil || len(got) > 0 {
		t.Fatal(got, err)
	}
	pid := dead.PgConn().PID()
	raw, err := dead.PgConn().Hijack() // pgx would ask the server to cancel the call
	if err != nil {
		t.Fatal(err)
	}
	raw.Frontend.SendQuery(&pgproto3.Query{String: `CALL weir.claim('mail', wait => '5 minutes')`})
	if err := raw.Frontend.Flush(); err != nil {
		t.Fatal(err)
	}
	await(t, address, fmt.Sprintf(`SELECT count(*) = 1 FROM weir.claim_request WHERE pid = %d AND taken_by IS NOT NULL`, pid))
	if err := raw.Conn.Close(); err != nil { // as the system does when it kills a process
		t.Fatal(err)
	}
	await(t, address, fmt.Sprintf(`SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %d`, pid))
	if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	got, err := claimSQL(t.Context(), connect(t, address), `'mail', wait => '30 s'`)
	if err != nil || len(got) != 1 || got[0].Attempt != 1 {
		t.Errorf("then %+v is claimed, %v, want it as the first attempt", got, err)
	}
}
