package sqlfn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
)

// told is the inbox of a store with a topic "orders", whose one partition is number 1, and a mover
// that does as it is told.
type told struct {
	t testing.TB
	*inbox
	store *postgres.Store
	chunk *chunk
}

func openInbox(t *testing.T, address string) *told {
	t.Helper()
	s, err := postgres.Open(t.Context(), address, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	door, err := Attach(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := s.List(t.Context(), "topic/orders", "", 1); err != nil {
		t.Fatal(err)
	} else if len(list) == 0 {
		outcomes, err := s.Commit(t.Context(), []eventlog.Entry{{
			Batches: []eventlog.Batch{{Partition: 1}},
			Puts:    []eventlog.Put{{Key: "topic/orders", Version: 1, Value: []byte(`{"id":"00112233445566778899aabbccddeeff","partitions":[1]}`)}},
		}})
		if err != nil || outcomes[0].Err != nil {
			t.Fatal(err, outcomes)
		}
	}
	return &told{t: t, inbox: door.inbox(), store: s}
}

// look returns the values of the rows that the next poll finds that finds any.
func (i *told) look() []string {
	i.t.Helper()
	var err error
	for {
		if i.chunk, err = i.inbox.poll(i.t.Context()); err != nil {
			i.t.Fatal(err)
		}
		if len(i.chunk.rows) > 0 {
			break
		}
		if i.pass(i.chunk); !i.chunk.more && !i.behind() {
			break
		}
	}
	var values []string
	for _, row := range i.chunk.rows {
		values = append(values, string(row.value))
	}
	return values
}

// expect looks, and holds what is found against what should be.
func (i *told) expect(want ...string) {
	i.t.Helper()
	if got := i.look(); !slices.Equal(got, want) {
		i.t.Fatalf("the look found %.300q, want %.300q", got, want)
	}
}

// tryMove moves what the last look found, as one batch.
func (i *told) tryMove() error {
	i.t.Helper()
	var ids []int64
	var e eventlog.Entry
	for _, row := range i.chunk.rows {
		ids = append(ids, row.id)
	}
	if len(ids) > 0 {
		e.Batches = []eventlog.Batch{{Partition: 1, Records: int32(len(ids)), Bytes: []byte("batch")}}
	}
	_, err := i.inbox.move(i.t.Context(), ids, e)
	if err == nil {
		i.pass(i.chunk)
	}
	return err
}

func (i *told) move() {
	i.t.Helper()
	if err := i.tryMove(); err != nil {
		i.t.Fatal(err)
	}
}

// drain moves all there is.
func (i *told) drain() {
	i.t.Helper()
	for len(i.look()) > 0 {
		i.move()
	}
}

func session(t testing.TB, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func run(t testing.TB, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func tell(value string) string { return `SELECT weir.publish('orders', 'k', '` + value + `')` }

func TestALookFindsWhatIsCommittedAndNothingTwice(t *testing.T) {
	address := pgtest.URL(t)
	in := openInbox(t, address)
	a, b, c := session(t, address), session(t, address), session(t, address)
	in.expect()
	run(t, a, `BEGIN; `+tell("a1"))
	run(t, b, tell("b1"))
	in.expect("b1")
	in.expect("b1") // until it is moved
	in.move()
	run(t, b, tell("b2"))
	run(t, c, `BEGIN; `+tell("c1"))
	run(t, a, tell("a2"))
	in.expect("b2")
	in.move()
	for range 3 { // time goes by, in moves
		run(t, b, tell("b3"))
		in.expect("b3")
		in.move()
	}
	run(t, a, tell("a3")+`; COMMIT`)
	in.expect("a1", "a2", "a3")
	in.move()
	run(t, c, `ROLLBACK`)
	run(t, b, tell("b4"))
	in.expect("b4")
	in.move()
	in.expect()
}

// What is committed while a round of many looks is under way waits for the next, though its rows be
// older: it may be before something that only comes in the next, and after nothing of this one.
func TestARoundEndsWithWhatItBeganWith(t *testing.T) {
	address := pgtest.URL(t)
	in := openInbox(t, address)
	early, late := session(t, address), session(t, address)
	run(t, early, `BEGIN; `+tell("first"))
	run(t, late, `SELECT weir.publish_all('orders', NULL, ARRAY(SELECT 'filler' FROM generate_series(1, 12000)))`)
	if n := len(in.look()); n >= 12000 || !in.chunk.full {
		t.Fatalf("one look found %d rows: this test needs several", n)
	}
	in.move()
	run(t, early, `COMMIT`)
	run(t, late, tell("second"))
	moved := len(in.chunk.rows)
	for len(in.look()) > 0 && in.chunk.rows[0].key == nil {
		in.move()
		moved += len(in.chunk.rows)
	}
	if moved != 12000 {
		t.Fatalf("%d rows were in the round, want 12000", moved)
	}
	for in.chunk.rows == nil {
		in.look()
	}
	in.expect("first", "second")
}

// Of two movers that saw the same rows, one moves them.
func TestOfTwoMoversOneMoves(t *testing.T) {
	address := pgtest.URL(t)
	one, two := openInbox(t, address), openInbox(t, address)
	conn := session(t, address)
	run(t, conn, tell("a"))
	run(t, conn, tell("b"))
	one.expect("a", "b")
	two.expect("a", "b")
	one.move()
	run(t, conn, tell("c"))
	if err := two.tryMove(); !errors.Is(err, errTaken) {
		t.Fatalf("the rows were moved by another: %v, want ErrTaken", err)
	}
	two.expect("c")
	two.move()
	one.expect()
	run(t, conn, tell("d"))
	run(t, conn, tell("e"))
	one.expect("d", "e")
	run(t, conn, `DELETE FROM weir.inbox WHERE convert_from(value, 'UTF8') = 'e'`) // as if the other had taken a part
	if err := one.tryMove(); !errors.Is(err, errTaken) {
		t.Fatalf("a part was moved by another: %v, want ErrTaken", err)
	}
	one.expect("d")
	if got := pgtest.Value(t, address, `SELECT next_offset FROM weir.partition ORDER BY turn DESC LIMIT 1`); got != "3" {
		t.Errorf("the partition ends at %s, want 3", got)
	}
	// While the other is at work, nothing is waited for.
	run(t, conn, `BEGIN; SELECT * FROM weir.mover FOR UPDATE`)
	if err := one.tryMove(); !errors.Is(err, errTaken) {
		t.Fatalf("while another moves: %v, want ErrTaken", err)
	}
	run(t, conn, `ROLLBACK`)
	one.move()
}

// touched counts the pages that one look of the inbox reads, as it would be made now. The first
// look on a connection makes the plan.
func touched(t testing.TB, conn *pgx.Conn, in *told) int {
	t.Helper()
	explain(t, conn, in)
	return explain(t, conn, in)
}

func explain(t testing.TB, conn *pgx.Conn, in *told) int {
	t.Helper()
	done, low := in.mark.done, in.mark.low
	var text string
	if err := conn.QueryRow(t.Context(), fmt.Sprintf(
		`EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM weir.look('%s', %d, NULL, 0, 5000, 4000000, 200000, NULL, NULL, true)`, done, low)).Scan(&text); err != nil {
		t.Fatal(err)
	}
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatal(err)
	}
	return plans[0].Plan.Hit + plans[0].Plan.Read
}

// A snapshot that somebody keeps, anywhere in the database, keeps all rows that were moved since. A
// look must not walk them.
func TestDeadRowsDoNotMakeLooksDearer(t *testing.T) {
	address := pgtest.URL(t)
	in := openInbox(t, address)
	foreign, conn, looker := session(t, address), session(t, address), session(t, address)
	run(t, conn, tell("warm up"))
	in.drain()
	before := touched(t, looker, in)
	run(t, foreign, `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM weir.inbox`)
	straggler := session(t, address)
	run(t, straggler, `BEGIN; `+tell("straggler"))
	for range 20 {
		run(t, conn, `SELECT weir.publish_all('orders', NULL, ARRAY(SELECT repeat('x', 200) FROM generate_series(1, 2000)))`)
		in.drain()
	}
	run(t, conn, tell("one more"))
	in.drain()
	after := touched(t, looker, in)
	if got := pgtest.Value(t, address, `SELECT pg_relation_size('weir.inbox') > 40000 * 200`); got != "true" {
		t.Fatal("the dead rows are gone: this test shows nothing")
	}
	t.Logf("a look reads %d pages, and %d with 40000 dead rows", before, after)
	if after > before+20 {
		t.Errorf("a look reads %d pages, and %d with 40000 dead rows", before, after)
	}
	run(t, straggler, `COMMIT`)
	if n := touched(t, looker, in); n > before+20 {
		t.Errorf("a look that finds a straggler reads %d pages", n)
	}
	in.expect("straggler")
	in.move()
	in.expect()

	late := openInbox(t, address) // it walks them, once
	late.expect()
	if n := touched(t, looker, late); n > before+20 {
		t.Errorf("a mover that began among the dead rows reads %d pages with its second look", n)
	}
}

// A mover whose walk found what another one then took goes on from there. Walks take long, and
// while events come there is always something that the other one takes meanwhile.
func TestAWalkGoesOnWhereAnotherMoverWasFaster(t *testing.T) {
	address := pgtest.URL(t)
	busy, late := openInbox(t, address), openInbox(t, address)
	conn := session(t, address)
	run(t, conn, tell("long ago"))
	busy.drain()
	run(t, conn, tell("first"))
	late.expect("first")
	busy.expect("first")
	busy.move()
	run(t, conn, tell("second"))
	if err := late.tryMove(); !errors.Is(err, errTaken) {
		t.Fatalf("the late one: %v, want ErrTaken", err)
	}
	if got, want := late.mark.after, late.chunk.rows[0].id-1; got != want {
		t.Errorf("the walk goes on behind row %d, want %d", got, want)
	}
	late.expect("second")
	late.move()
	busy.expect()
}

// Rows of a transaction that stays open, and of one that was rolled back, are walked until the next
// move; a move of nothing will do.
func TestOpenTransactionsDoNotMakeLooksDearer(t *testing.T) {
	address := pgtest.URL(t)
	in := openInbox(t, address)
	conn, looker := session(t, address), session(t, address)
	in.drain()
	before := touched(t, looker, in)
	run(t, conn, `BEGIN; SELECT weir.publish_all('orders', NULL, ARRAY(SELECT repeat('x', 200) FROM generate_series(1, 30000)))`)
	in.expect()
	if !in.wide() {
		t.Fatal("30000 ids lie ahead, and nobody minds")
	}
	in.move()
	in.expect()
	if in.wide() {
		t.Error("30000 ids lie behind, and somebody minds")
	}
	if after := touched(t, looker, in); after > before+20 {
		t.Errorf("a look reads %d pages, and %d while a transaction with 30000 events is open", before, after)
	}
	run(t, conn, `COMMIT`)
	total := 0
	for n := len(in.look()); n > 0; n = len(in.look()) {
		total += n
		in.move()
	}
	if total != 30000 {
		t.Errorf("%d rows came, want 30000", total)
	}
}

func TestLargeRowsComeInSmallChunks(t *testing.T) {
	address := pgtest.URL(t)
	in := openInbox(t, address)
	conn := session(t, address)
	run(t, conn, `SELECT weir.publish_all('orders', NULL, ARRAY(SELECT repeat('x', 1000000) FROM generate_series(1, 12)))`)
	var sizes []int
	for n := len(in.look()); n > 0; n = len(in.look()) {
		sizes = append(sizes, n)
		in.move()
	}
	if len(sizes) < 3 || slices.Max(sizes) > 5 {
		t.Errorf("12 rows of a million bytes came in chunks of %v", sizes)
	}
}

// After a crash the server may give out numbers again that it gave before. Nothing of what a mover
// remembers may hide rows then.
func TestAMoverThatSurvivesTheServerMissesNothing(t *testing.T) {
	srv := pgtest.Start(t)
	address := srv.URL()
	in, other := openInbox(t, address), openInbox(t, address)
	end := []func(){
		func() { srv.KillImmediate(); srv.Resume() },
		srv.Restart,
		func() { killSession(t, address) },
	}
	for round := range 2 * len(end) {
		conn := session(t, address)
		open := session(t, address)
		run(t, open, `BEGIN; SET LOCAL synchronous_commit = off; SELECT weir.publish_all('orders', NULL, ARRAY(SELECT 'lost' FROM generate_series(1, 15000)))`)
		run(t, conn, tell("a"))
		in.expect("a")
		in.move()
		if in.look(); in.wide() {
			in.move()
		}
		for range 5 { // numbers of transactions of which the disk knows nothing
			run(t, conn, `BEGIN; `+tell("undone")+`; ROLLBACK`)
		}
		in.look()
		other.look()
		end[round%len(end)]()
		conn = session(t, address)
		run(t, conn, tell("b"))
		run(t, conn, tell("c"))
		in.expect("b", "c")
		other.expect("b", "c")
		in.move()
		in.expect()
	}
}

// killSession kills the process of one session: then the server ends all of them, and recovers as
// after a crash, without being started anew.
func killSession(t testing.TB, address string) {
	t.Helper()
	started := pgtest.Value(t, address, `SELECT pg_postmaster_start_time()::text`)
	victim, witness := session(t, address), session(t, address)
	if err := syscall.Kill(int(victim.PgConn().PID()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for witness.Ping(t.Context()) == nil {
	}
	again := started
	for {
		conn, err := pgx.Connect(t.Context(), address)
		if err != nil {
			continue // it recovers
		}
		err = conn.QueryRow(t.Context(), `SELECT pg_postmaster_start_time()::text`).Scan(&again)
		conn.Close(t.Context())
		if err == nil {
			break
		}
	}
	if again != started {
		t.Fatalf("the server started at %s, and again at %s: this is not what the test is about", started, again)
	}
}

// A dump keeps the numbers of transactions, and the server that it is restored in has not come that
// far.
func TestRowsFromAnotherServerAreFound(t *testing.T) {
	address := pgtest.URL(t)
	in := openInbox(t, address)
	conn := session(t, address)
	run(t, conn, tell("a"))
	run(t, conn, tell("b"))
	run(t, conn, `UPDATE weir.inbox SET xact = (xact::text::bigint + 20)::text::xid8`)
	run(t, conn, tell("c"))
	in.expect("a", "b", "c")
	in.move()
	for range 40 { // and now it has
		run(t, conn, tell("d"))
	}
	in.look()
	in.move()
	in.expect()
}

// The server comes to the number of such a row while a mover goes through the inbox for the first
// time.
func TestRowsFromAnotherServerAreFoundThoughTheirNumbersArePassed(t *testing.T) {
	for name, between := range map[string]func(in *told, conn *pgx.Conn){
		"after a move that failed": func(in *told, conn *pgx.Conn) {
			run(t, conn, `BEGIN; SELECT * FROM weir.mover FOR UPDATE`)
			if err := in.tryMove(); !errors.Is(err, errTaken) {
				t.Fatalf("while another moves: %v, want ErrTaken", err)
			}
			run(t, conn, `ROLLBACK`)
		},
		"after a first part was moved": func(in *told, _ *pgx.Conn) { in.move() },
	} {
		t.Run(name, func(t *testing.T) {
			address := pgtest.URL(t)
			in := openInbox(t, address)
			conn := session(t, address)
			run(t, conn, `SELECT weir.publish_all('orders', NULL, ARRAY(SELECT 'v' FROM generate_series(1, 6000)))`)
			run(t, conn, `UPDATE weir.inbox SET xact = (xact::text::bigint + 20)::text::xid8`)
			if in.look(); len(in.chunk.rows) == 0 || len(in.chunk.rows) == 6000 {
				t.Fatalf("a look found %d rows; this test needs a part", len(in.chunk.rows))
			}
			between(in, conn)
			for range 40 {
				run(t, conn, tell("later"))
			}
			in.drain()
			if left := pgtest.Value(t, address, `SELECT count(*) FROM weir.inbox`); left != "0" {
				t.Errorf("%s rows stay in the inbox", left)
			}
		})
	}
}

func TestPublishersAreToldWhetherTheMoverWatches(t *testing.T) {
	address := pgtest.URL(t)
	in := openInbox(t, address)
	conn := session(t, address)
	run(t, conn, `LISTEN weir_inbox`)
	heard := func() bool {
		t.Helper()
		run(t, conn, tell("v"))
		run(t, conn, `SELECT 1`)
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // what is there is returned all the same
		n, _ := conn.WaitForNotification(ctx)
		conn = session(t, address) // the end of a context ends a connection
		run(t, conn, `LISTEN weir_inbox`)
		return n != nil
	}
	for _, length := range []time.Duration{time.Hour, 0, 2 * time.Hour} {
		if err := in.mute(t.Context(), length); err != nil {
			t.Fatal(err)
		}
		if in.look(); in.chunk.muted > length || in.chunk.muted < length-time.Minute {
			t.Errorf("hushed for %v, and the look says %v", length, in.chunk.muted)
		}
		if got := heard(); got == (length > 0) {
			t.Errorf("hushed for %v, and publish() notifies: %v", length, got)
		}
	}
	run(t, conn, `SELECT setval('weir.hushed', extract(epoch FROM clock_timestamp())::bigint - 1)`)
	if !heard() {
		t.Error("the time is over, and publish() does not notify")
	}
}

// The first look of a mover walks all that some transaction keeps, which may take minutes. Polls
// for what other processes wrote do not wait for it.
func TestAFirstLookKeepsNoPollWaiting(t *testing.T) {
	address := pgtest.URL(t)
	in := openInbox(t, address)
	way, witness := session(t, address), session(t, address)
	run(t, way, tell("event"))
	run(t, way, `BEGIN; LOCK TABLE weir.inbox`)
	looked := make(chan error, 1)
	go func() {
		var err error
		in.chunk, err = in.inbox.poll(t.Context())
		looked <- err
	}()
	for waits := false; !waits; {
		const sql = `SELECT count(*) > 0 FROM pg_locks WHERE relation = 'weir.inbox'::regclass AND NOT granted`
		if err := witness.QueryRow(t.Context(), sql).Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := in.store.Changes(t.Context(), eventlog.Mark{}); err != nil {
		t.Errorf("a poll during the first look: %v", err)
	}
	run(t, way, `ROLLBACK`)
	if err := <-looked; err != nil || len(in.chunk.rows) != 1 {
		t.Errorf("the look found %d rows (%v), want 1", len(in.chunk.rows), err)
	}
}
