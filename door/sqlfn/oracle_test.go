package sqlfn_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/door/sqlfn"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/proctest"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/store/postgres"
)

// jobs are what processes of the test do until they are killed, with the address of a database.
var jobs = map[string]func(address string) error{"mover": moverAlone, "session": sessionAlone}

func TestMain(m *testing.M) {
	proctest.Work(func(job string) error {
		name, address, _ := strings.Cut(job, " ")
		return jobs[name](address)
	})
	os.Exit(m.Run())
}

func moverAlone(address string) error {
	ctx := context.Background()
	for { // the server may be away
		store, err := postgres.Open(ctx, address, postgres.Options{})
		if err != nil {
			continue
		}
		door, err := sqlfn.Attach(ctx, store)
		if err != nil {
			store.Close()
			continue
		}
		log, err := eventlog.Open(ctx, store, eventlog.Config{})
		if err != nil {
			store.Close()
			continue
		}
		go log.Run(ctx)
		sqlfn.New(log, door, sqlfn.Config{}).Run(ctx)
	}
}

func random(t testing.TB) *rand.Rand {
	return seed.Random(t)
}

// user runs random transactions. Each event has a row in the table marker, made in the same breath:
// what became of a transaction of which the answer was lost, that table knows.
type user struct {
	rng     *rand.Rand
	address string
	name    int
	next    int
	conn    *pgx.Conn
}

func (u *user) run(ctx context.Context) {
	for ctx.Err() == nil {
		if u.conn == nil {
			conn, err := pgx.Connect(ctx, u.address)
			if err != nil {
				continue
			}
			u.conn = conn
		}
		if err := u.transaction(ctx); err != nil {
			u.conn.Close(context.Background())
			u.conn = nil
		}
	}
	if u.conn != nil {
		u.conn.Close(context.Background())
	}
}

func (u *user) event() string {
	u.next++
	id := fmt.Sprintf("%d-%d", u.name, u.next)
	return fmt.Sprintf(`INSERT INTO marker VALUES ('%s'); SELECT weir.publish('orders', 'key-%d', '%s');`, id, u.rng.IntN(20), id)
}

// transaction runs one, and fails where the connection is of no use any more.
func (u *user) transaction(ctx context.Context) error {
	steps := []string{`BEGIN;`}
	prepare := u.rng.IntN(5) == 0
	for depth := range 1 + u.rng.IntN(4) {
		switch u.rng.IntN(4) {
		case 0:
			steps = append(steps, fmt.Sprintf(`SAVEPOINT s%d;`, depth), u.event(), fmt.Sprintf(`ROLLBACK TO s%d;`, depth))
		case 1:
			steps = append(steps, fmt.Sprintf(`SAVEPOINT s%d;`, depth), u.event(), fmt.Sprintf(`RELEASE s%d;`, depth))
		case 2:
			steps = append(steps, u.many())
		default:
			steps = append(steps, u.event())
		}
	}
	name := fmt.Sprintf("p-%d-%d", u.name, u.next)
	switch {
	case prepare:
		steps = append(steps, fmt.Sprintf(`PREPARE TRANSACTION '%s';`, name), []string{`COMMIT`, `ROLLBACK`}[u.rng.IntN(2)]+fmt.Sprintf(` PREPARED '%s';`, name))
	case u.rng.IntN(4) == 0:
		steps = append(steps, `ROLLBACK;`)
	default:
		steps = append(steps, `COMMIT;`)
	}
	if u.rng.IntN(20) == 0 {
		steps = slices.Insert(steps, u.rng.IntN(len(steps)), `SELECT pg_terminate_backend(pg_backend_pid());`)
	}
	for _, step := range steps {
		if _, err := u.conn.Exec(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

func (u *user) many() string {
	n := 1 + u.rng.IntN(50)
	first := u.next + 1
	u.next += n
	return fmt.Sprintf(`INSERT INTO marker SELECT '%d-' || g FROM generate_series(%d, %d) AS g;
		SELECT weir.publish_all('orders', NULL, ARRAY(SELECT '%d-' || g FROM generate_series(%d, %d) AS g));`, u.name, first, u.next, u.name, first, u.next)
}

// Row T9, with everything that may go wrong: a user's row is there if and only if its event is,
// once.
func TestEventsAreThoseOfCommittedTransactions(t *testing.T) {
	rng := random(t)
	srv := pgtest.Start(t)
	pgtest.Exec(t, srv.Admin(), `ALTER SYSTEM SET max_prepared_transactions = 100`)
	srv.Restart()
	address := srv.URL()
	pgtest.Exec(t, address, `CREATE TABLE marker (id text PRIMARY KEY)`)
	setup := start(t, address)
	setup.create("orders", 3, nil)
	setup.stop()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var users sync.WaitGroup
	for name := range 6 {
		u := &user{rng: rand.New(rand.NewPCG(rng.Uint64(), 1)), address: address, name: name}
		users.Go(func() { u.run(ctx) })
	}
	committed := func() int {
		n, _ := strconv.Atoi(pgtest.Value(t, address, `SELECT count(*) FROM marker`))
		return n
	}
	movers := []*proctest.Process{proctest.Start(t, "mover "+address), proctest.Start(t, "mover "+address)}
	incarnation := ""
	for round := range 10 {
		before := committed()
		eventually(t, "users commit more", func() bool { return committed() > before+200 })
		switch round {
		case 4:
			srv.KillImmediate()
			srv.Resume()
		case 7: // what one of the server's processes dies of, all of them do
			pid, _ := strconv.Atoi(pgtest.Value(t, address, `
				SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1`))
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the server recovers", func() bool {
				conn, err := pgx.Connect(t.Context(), address)
				if err != nil {
					return false
				}
				defer conn.Close(t.Context())
				var crashed bool // the row comes back with the first look
				return conn.QueryRow(t.Context(), `SELECT NOT EXISTS (SELECT FROM weir.incarnation WHERE id = $1)`, incarnation).Scan(&crashed) == nil && crashed
			})
		default:
			which := rng.IntN(len(movers))
			movers[which].Kill()
			movers[which] = proctest.Start(t, "mover "+address)
		}
		eventually(t, "a mover has looked since the last crash", func() bool {
			conn, err := pgx.Connect(t.Context(), address)
			if err != nil {
				return false
			}
			defer conn.Close(t.Context())
			return conn.QueryRow(t.Context(), `SELECT id::text FROM weir.incarnation`).Scan(&incarnation) == nil
		})
	}
	cancel()
	users.Wait()
	for _, gid := range strings.Fields(pgtest.Value(t, address, `SELECT coalesce(string_agg(gid, ' '), '') FROM pg_prepared_xacts`)) {
		pgtest.Exec(t, address, []string{`COMMIT`, `ROLLBACK`}[rng.IntN(2)]+` PREPARED '`+gid+`'`)
	}
	if err := compare(t, address); err != nil {
		t.Error(err)
	}
}

// compare holds the events against the markers, once the inbox is empty.
func compare(t *testing.T, address string) error {
	t.Helper()
	eventually(t, "the inbox is empty", func() bool { return pgtest.Value(t, address, `SELECT count(*) FROM weir.inbox`) == "0" })
	p := start(t, address)
	ids := strings.Fields(pgtest.Value(t, address, `SELECT string_agg(id, ' ') FROM marker`))
	held, _ := strconv.Atoi(pgtest.Value(t, address, `SELECT sum(next_offset) FROM weir.partitions WHERE topic = 'orders'`))
	seen := map[string]int{}
	for _, e := range p.read("orders", max(held, len(ids))) {
		seen[e.Value]++
	}
	for _, id := range ids {
		if seen[id] != 1 {
			return fmt.Errorf("%s was committed, and %d events are there", id, seen[id])
		}
		delete(seen, id)
	}
	if len(seen) > 0 {
		return fmt.Errorf("%d events of transactions that were not committed: %v", len(seen), seen)
	}
	t.Logf("%d events, each once", len(ids))
	return nil
}

// Writers of one key take turns, as they do where each locks what it changes. The first half is
// written while nobody moves, so that rounds of many looks are moved while the other half comes.
func TestEventsOfAKeyComeInTheOrderOfItsTransactions(t *testing.T) {
	rng := random(t)
	address := pgtest.URL(t)
	setup := start(t, address)
	setup.create("orders", 3, nil)
	setup.stop()
	const keys, half = 10, 8000
	pgtest.Exec(t, address, `CREATE TABLE counter AS SELECT g AS key, 0 AS n FROM generate_series(0, 9) AS g`)
	var total atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var users sync.WaitGroup
	for range 6 {
		rng := rand.New(rand.NewPCG(rng.Uint64(), 1))
		conn := connect(t, address)
		users.Go(func() {
			for ctx.Err() == nil {
				// The number of the transaction is taken before its turn comes: numbers and turns
				// are not in one order.
				_, err := conn.Exec(context.Background(), fmt.Sprintf(`
					BEGIN; SELECT pg_current_xact_id();
					UPDATE counter SET n = n + 10 WHERE key = %d;
					SELECT weir.publish_all('orders', array_agg('%[1]d'::text), array_agg((n - 10 + g)::text ORDER BY g))
					FROM counter, generate_series(1, 10) AS g WHERE key = %[1]d;
					COMMIT`, rng.IntN(keys)))
				if err != nil {
					t.Error(err)
					return
				}
				total.Add(10)
			}
		})
	}
	eventually(t, "the first half is written", func() bool { return total.Load() > half })
	movers := []*proctest.Process{proctest.Start(t, "mover "+address), proctest.Start(t, "mover "+address)}
	for part := range 5 { // and movers are killed
		which := rng.IntN(len(movers))
		movers[which].Kill()
		movers[which] = proctest.Start(t, "mover "+address)
		eventually(t, "the other half is written", func() bool { return total.Load() > int64(half+half*(part+1)/5) })
	}
	cancel()
	users.Wait()
	p := start(t, address)
	last := map[string]int{}
	for _, e := range p.read("orders", int(total.Load())) {
		n, _ := strconv.Atoi(e.Value)
		if n != last[e.Key]+1 {
			t.Fatalf("key %s: %d came after %d", e.Key, n, last[e.Key])
		}
		last[e.Key] = n
	}
}

// sessionAlone publishes, commits, publishes more, and does not come to commit that.
func sessionAlone(address string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	for _, sql := range []string{`SELECT weir.publish('orders', 'k', 'committed')`, `BEGIN`, `SELECT weir.publish('orders', 'k', 'open')`} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	fmt.Println("published")
	select {}
}

func TestAKilledSessionPublishedWhatItCommitted(t *testing.T) {
	address := pgtest.URL(t)
	p := start(t, address)
	p.create("orders", 1, nil)
	session := proctest.Start(t, "session "+address)
	if said := <-session.Lines; said != "published" {
		t.Fatalf("the session said %q", said)
	}
	session.Kill()
	eventually(t, "the server takes note", func() bool {
		return pgtest.Value(t, address, `SELECT count(*) FROM pg_locks WHERE relation = 'weir.inbox'::regclass AND pid <> pg_backend_pid() AND mode = 'RowExclusiveLock'`) == "0"
	})
	pgtest.Exec(t, address, `SELECT weir.publish('orders', 'k', 'after')`)
	if got := values(p.read("orders", 2)); !slices.Equal(got, []string{"committed", "after"}) {
		t.Errorf("%q", got)
	}
}

func TestAnEventNeedsNoFurtherTraffic(t *testing.T) {
	address := pgtest.URL(t)
	setup := start(t, address)
	setup.create("orders", 1, nil)
	setup.stop()
	conn := connect(t, address)
	exec(t, conn, `SELECT weir.publish('orders', 'k', 'lonely')`)
	conn.Close(t.Context())
	start(t, address).read("orders", 1)
}

// notifies tells whether publishers notify.
func notifies(t testing.TB, address string) bool {
	return pgtest.Value(t, address, `SELECT to_timestamp(last_value) <= clock_timestamp() FROM weir.hushed`) == "true"
}

func TestPublishersNotifyWhileSomebodyIsThereToHear(t *testing.T) {
	address := pgtest.URL(t)
	p := start(t, address)
	p.create("orders", 1, nil)
	eventually(t, "publishers notify the first mover", func() bool { return notifies(t, address) })
	p.stop()
	for range 2 {
		p, other := start(t, address), start(t, address)
		eventually(t, "publishers notify the next movers", func() bool { return notifies(t, address) })
		other.stop()
		eventually(t, "publishers notify the other mover", func() bool { return notifies(t, address) }) // which may have begun to listen just now
		p.stop()
	}
}

// A mover that is idle leaves the word of another that watches the inbox closely. A word for longer
// than such a mover would give is from a time when nobody listened.
func TestMoversDoNotOverruleEachOther(t *testing.T) {
	address := pgtest.URL(t)
	p := start(t, address)
	p.create("orders", 1, nil)
	conn := connect(t, address)
	eventually(t, "publishers notify", func() bool { return notifies(t, address) })
	n := 0
	publish := func() {
		exec(t, conn, `SELECT weir.publish('orders', 'k', 'v')`)
		n++
		p.read("orders", n) // and so the mover has looked
	}
	exec(t, conn, `SELECT setval('weir.hushed', extract(epoch FROM clock_timestamp())::bigint + 3)`)
	said := pgtest.Value(t, address, `SELECT last_value FROM weir.hushed`)
	for range 3 {
		publish()
	}
	if now := pgtest.Value(t, address, `SELECT last_value FROM weir.hushed`); now != said {
		t.Errorf("another mover said %s, and it became %s", said, now)
	}
	exec(t, conn, `SELECT setval('weir.hushed', extract(epoch FROM clock_timestamp())::bigint + 3600)`)
	publish()
	eventually(t, "publishers notify again", func() bool { return notifies(t, address) })
}

// While a transaction with events stays open, those of others come, by SQL and otherwise; when it
// ends, so do its own.
func TestAnOpenTransactionStopsNobody(t *testing.T) {
	address := pgtest.URL(t)
	p := start(t, address)
	topic, positions := p.create("orders", 1, nil), p.filled("positions", 1)
	slow, other := connect(t, address), connect(t, address)
	exec(t, slow, `BEGIN; SELECT weir.publish('orders', 'k', 'slow 1'); SELECT weir.commit_offset('g', 'positions', 0, 1, 0)`)
	for i := range 20 {
		exec(t, other, `SELECT weir.publish('orders', 'k', 'other')`)
		exec(t, other, `SELECT weir.commit_offset('h', 'positions', 0, $1)`, i+1)
		p.read("orders", 2*i+1)
		if _, err := p.log.Publish(t.Context(), topic.Partitions[0], eventRecord("direct")); err != nil {
			t.Fatal(err)
		}
		p.carried(positions, "h", eventlog.Offset(i+1))
	}
	exec(t, slow, `SELECT weir.publish('orders', 'k', 'slow 2'); COMMIT`)
	got := values(p.read("orders", 42))
	if n := len(got); n != 42 || got[n-2] != "slow 1" || got[n-1] != "slow 2" {
		t.Errorf("%q", got)
	}
	p.carried(positions, "g", 1)
}

// Without a notification, cut off from them, and behind a pooler the poll finds what is new.
func TestWithoutNotificationsThePollFindsWhatIsNew(t *testing.T) {
	for name, c := range map[string]struct {
		options string
		break_  string
	}{
		"switched off": {"", `SET weir.notify = off`},
		"cut off":      {"", `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()`},
		"pooler":       {"&weir_pooled=true", `SELECT`},
		"hushed":       {"", `SELECT setval('weir.hushed', extract(epoch FROM clock_timestamp())::bigint + 3)`},
	} {
		t.Run(name, func(t *testing.T) {
			address := pgtest.URL(t)
			p := start(t, address+c.options)
			p.create("orders", 1, nil)
			conn := connect(t, address)
			for i := range 3 {
				exec(t, conn, c.break_)
				began := time.Now()
				exec(t, conn, `SELECT weir.publish('orders', 'k', 'v')`)
				p.read("orders", i+1)
				t.Logf("after %v", time.Since(began))
			}
		})
	}
}
