package sqlfn_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/use/stream"
)

const waitsForHold = `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = 'advisory')`

// Two transactions that append to one stream come one after the other; those that append to two
// streams do not wait.
func TestTransactionsWaitForOneStreamAndNotForTwo(t *testing.T) {
	address := pgtest.URL(t)
	startStreams(t, address, true)
	one, two, three := connect(t, address), connect(t, address), connect(t, address)
	for round, end := range []string{"COMMIT", "ROLLBACK"} {
		name := fmt.Sprint("s", round)
		call := `SELECT weir.append('account', '` + name + `', 0, 'T', 'v')`
		exec(t, one, `BEGIN`)
		exec(t, one, call)
		second := make(chan error, 1)
		go func() {
			_, err := two.Exec(context.Background(), call)
			second <- err
		}()
		await(t, address, waitsForHold)
		exec(t, three, `SET lock_timeout = '1ms'`)
		exec(t, three, `SELECT weir.append('account', 'other', 'any', 'T', 'v')`) // waits for nobody
		if got := refusal(t, three, call); got.Code != "55P03" {
			t.Errorf("lock_timeout: %v", got)
		}
		exec(t, one, end)
		err := <-second
		var refused *pgconn.PgError
		switch {
		case end == "ROLLBACK" && err != nil:
			t.Errorf("after a rollback: %v", err)
		case end == "COMMIT" && (!errors.As(err, &refused) || refused.Code != "WE011" || !strings.Contains(refused.Message, "is at version 1, but version 0 was expected")):
			t.Errorf("after a commit: %v", err)
		}
	}
}

// An append in Go waits for the transaction that holds the stream, and then conflicts or goes
// through. If its caller gives up first, nothing was appended.
func TestAnAppendInGoWaitsForTheTransactionThatHoldsItsStream(t *testing.T) {
	address := pgtest.URL(t)
	p, c := startStreams(t, address, true)
	q, far := startStreams(t, address, true) // another process
	conn := connect(t, address)
	event := stream.NewEvent{Type: "T", Data: []byte("go")}
	for round, end := range []string{"COMMIT", "ROLLBACK"} {
		name := fmt.Sprint("s", round)
		exec(t, conn, `BEGIN`)
		exec(t, conn, `SELECT weir.append('account', $1, 0, 'T', 'sql')`, name)
		for p, c := range map[*process]*stream.Category{p: c, q: far} {
			err := p.whileHeld(func(ctx context.Context) error {
				_, err := c.Append(ctx, name, stream.Any, event)
				return err
			})
			if !errors.Is(err, eventlog.ErrHeld) || !errors.Is(err, context.Canceled) || errors.Is(err, eventlog.ErrUnsure) || !strings.Contains(err.Error(), "a transaction that appends with SQL holds the stream; nothing was appended") {
				t.Errorf("%s: the caller gave up: %v", end, err)
			}
			if _, err := c.Append(t.Context(), "other", stream.Any, event); err != nil {
				t.Errorf("another stream: %v", err)
			}
		}
		err := p.whileHeld(func(ctx context.Context) error {
			_, err := stream.New(p.log, stream.Config{}).AppendAll(ctx,
				stream.Part{Category: c, Stream: name, Expected: stream.Any, Events: []stream.NewEvent{event}}, stream.Part{Category: c, Stream: "another", Expected: stream.Any, Events: []stream.NewEvent{event}})
			return err
		})
		if !errors.Is(err, eventlog.ErrHeld) && !errors.Is(err, eventlog.ErrUnsure) {
			t.Errorf("AppendAll: %v", err)
		}
		type result struct {
			done stream.Appended
			err  error
		}
		results := make(chan result, 2)
		for _, c := range []*stream.Category{c, far} {
			go func() {
				done, err := c.Append(context.Background(), name, 0, event)
				results <- result{done, err}
			}()
		}
		exec(t, conn, end)
		conflicts, done := 0, 0
		for range 2 {
			r := <-results
			var conflict *stream.ConflictError
			switch {
			case r.err == nil && r.done.First == 0:
				done++
			case errors.As(r.err, &conflict) && conflict.Actual == 1:
				conflicts++
			default:
				t.Errorf("%s: %+v %v", end, r.done, r.err)
			}
		}
		if want := map[string]int{"COMMIT": 0, "ROLLBACK": 1}[end]; done != want || conflicts != 2-want {
			t.Errorf("%s: %d appends and %d conflicts", end, done, conflicts)
		}
		if got, want := inGo(t, far, name), map[string]string{"COMMIT": "0:sql", "ROLLBACK": "0:go"}[end]; got != want {
			t.Errorf("%s: %s, want %s", end, got, want)
		}
	}
}

// What is committed and not carried holds its stream; a mover of any process carries it, also after
// the server was killed.
func TestACommittedAppendHoldsItsStreamUntilAnyMoverCarriesIt(t *testing.T) {
	srv := pgtest.Start(t)
	address := srv.URL()
	p, c := startStreams(t, address, false)
	conn := connect(t, address)
	exec(t, conn, `SELECT weir.append('account', 'a', 0, 'T', 'sql')`)
	err := p.whileHeld(func(ctx context.Context) error {
		_, err := c.Append(ctx, "a", stream.Any, stream.NewEvent{Type: "T"})
		return err
	})
	if !errors.Is(err, eventlog.ErrHeld) {
		t.Errorf("before it is carried: %v", err)
	}
	p, _ = startStreams(t, address, true)
	for round := range 5 {
		for n := range 20 {
			exec(t, conn, `SELECT weir.append('account', $1, 'any', 'T', $2)`, fmt.Sprint("s", n%3), fmt.Sprint(round*20+n))
		}
		srv.KillImmediate()
		srv.Resume()
		conn = connect(t, address)
	}
	carried(t, address)
	all := ""
	for _, name := range []string{"s0", "s1", "s2"} {
		all += " " + inGo(t, c, name)
	}
	if got := len(strings.Fields(all)); got != 100 || inGo(t, c, "a") != "0:sql" {
		t.Errorf("%d events, want 100: %s", got, all)
	}
	if got := len(p.read("account", 101)); got != 101 {
		t.Errorf("%d records, want 101", got)
	}
	if done, err := c.Append(t.Context(), "a", 1, stream.NewEvent{Type: "T"}); err != nil || done.Version != 2 {
		t.Errorf("then in Go: %+v %v", done, err)
	}
}

// The mover carries what is committed while a next transaction holds the stream; what that one has
// appended follows it.
func TestTheMoverCarriesWhileANextTransactionHoldsTheStream(t *testing.T) {
	address := pgtest.URL(t)
	_, c := startStreams(t, address, false)
	conn := connect(t, address)
	exec(t, conn, `SELECT weir.append('account', 'a', 0, 'T', 'v')`)
	exec(t, conn, `BEGIN`)
	exec(t, conn, `SELECT weir.append('account', 'a', 1, 'T', 'w')`)
	startStreams(t, address, true)
	eventually(t, "the first event is carried", func() bool { return inGo(t, c, "a") == "0:v" })
	if v := bySQL(t, conn, `append('account', 'a', 2, 'T', 'x')`); v != 3 {
		t.Errorf("version %d, want 3", v)
	}
	if got := inStream(t, conn, `'a'`); got != "0:v 1:w 2:x" {
		t.Errorf("in the transaction: %s", got)
	}
	exec(t, conn, `COMMIT`)
	carried(t, address)
	if got := inGo(t, c, "a"); got != "0:v 1:w 2:x" {
		t.Errorf("then: %s", got)
	}
}

// If a category is deleted, what was appended to it and is not carried goes with it.
func TestAppendsToADeletedCategoryAreDropped(t *testing.T) {
	address := pgtest.URL(t)
	p, _ := startStreams(t, address, false)
	conn := connect(t, address)
	exec(t, conn, `SELECT weir.append('account', 'a', 0, 'T', 'v'), weir.append('account', 'b', 0, 'T', 'v')`)
	exec(t, conn, `BEGIN`)
	exec(t, conn, `SELECT weir.append('account', 'c', 0, 'T', 'v')`)
	if err := p.log.DeleteTopic(t.Context(), "account"); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, `COMMIT`)
	_, c := startStreams(t, address, true) // a new category of that name
	carried(t, address)
	if got := inGo(t, c, "a"); got != "" {
		t.Errorf("the new category has %s", got)
	}
	exec(t, conn, `SELECT weir.append('account', 'a', 0, 'T', 'new')`)
	carried(t, address)
	if got := inGo(t, c, "a"); got != "0:new" {
		t.Errorf("the new category has %s", got)
	}
}

// attempt is one append of a random history.
type attempt struct {
	stream   string
	value    string
	expected int64 // −1: any version
	version  int64 // that it got, if committed
	is       bool  // committed
}

// Sessions, and Go in two processes, append to two streams at the same time, commit and roll back.
// Whatever happens: versions have no gaps, what was acknowledged is there once, at the version that
// was told; what was rolled back is not; a conflict tells a version that is not the expected one;
// and all doors read the same.
func TestARandomHistoryOfAppendsIsStrict(t *testing.T) {
	seed := seed.New(t)
	address := pgtest.URL(t)
	_, near := startStreams(t, address, true)
	_, far := startStreams(t, address, true)
	var mu sync.Mutex // guards all, seen and conflicts
	var all []attempt
	seen := make(map[string]int64) // a version that each stream has at least had
	conflicts := 0
	note := func(some ...attempt) {
		mu.Lock()
		defer mu.Unlock()
		for _, a := range some {
			if all = append(all, a); a.is {
				seen[a.stream] = max(seen[a.stream], a.version+1)
			}
		}
	}
	known := func(name string) int64 {
		mu.Lock()
		defer mu.Unlock()
		return seen[name]
	}
	conflict := func(name string, expected, actual, before int64) {
		mu.Lock()
		defer mu.Unlock()
		// A conflict in Go may tell an older version if events are not carried yet, but only if it
		// is a conflict at the new one, too.
		if conflicts++; expected == actual || expected < 0 || actual < before && expected > actual {
			t.Errorf("stream %s: version %d was expected, and the conflict says %d; before it was at %d at least", name, expected, actual, before)
		}
	}
	expect := func(r *rand.Rand, name string) int64 {
		switch r.IntN(4) {
		case 0:
			return -1
		case 1:
			return max(0, known(name)+r.Int64N(3)-1)
		}
		return known(name)
	}
	var workers sync.WaitGroup
	streams := []string{"a", "b"}
	for worker := range 4 {
		r := rand.New(rand.NewPCG(seed, uint64(worker)))
		conn := connect(t, address)
		workers.Go(func() {
			for n := range 40 {
				_, err := conn.Exec(t.Context(), `BEGIN`)
				var mine []attempt
				for m := range 1 + r.IntN(3) {
					a := attempt{stream: streams[r.IntN(2)], value: fmt.Sprintf("sql-%d-%d-%d", worker, n, m)}
					a.expected = expect(r, a.stream)
					before := known(a.stream)
					expected := "any"
					if a.expected >= 0 {
						expected = strconv.FormatInt(a.expected, 10)
					}
					if err = conn.QueryRow(t.Context(), `SELECT weir.append('account', $1, $2::text, 'T', $3) - 1`, a.stream, expected, a.value).Scan(&a.version); err != nil {
						var refused *pgconn.PgError
						if !errors.As(err, &refused) {
							t.Error(err)
							return
						}
						var actual int64
						if refused.Code == "WE011" {
							_, rest, _ := strings.Cut(refused.Message, "is at version ")
							if _, err := fmt.Sscan(rest[:strings.Index(rest, ",")], &actual); err != nil {
								t.Error(refused.Message)
							}
							conflict(a.stream, a.expected, actual, before)
						} else if refused.Code != "40P01" {
							t.Error(err)
						}
						note(a)
						break
					}
					mine = append(mine, a)
				}
				end := "COMMIT"
				if err != nil || r.IntN(3) == 0 {
					end = "ROLLBACK"
				}
				if _, err := conn.Exec(t.Context(), end); err != nil {
					t.Error(err)
				}
				for i := range mine {
					mine[i].is = end == "COMMIT"
				}
				note(mine...)
			}
		})
	}
	for worker, c := range []*stream.Category{near, far} {
		r := rand.New(rand.NewPCG(seed, uint64(100+worker)))
		workers.Go(func() {
			for n := range 60 {
				a := attempt{stream: streams[r.IntN(2)], value: fmt.Sprintf("go-%d-%d", worker, n)}
				a.expected = expect(r, a.stream)
				before := known(a.stream)
				done, err := c.Append(t.Context(), a.stream, stream.Expected(a.expected), stream.NewEvent{Type: "T", Data: []byte(a.value)})
				var refused *stream.ConflictError
				switch {
				case errors.As(err, &refused):
					conflict(a.stream, a.expected, refused.Actual, before)
				case err != nil:
					t.Error(err)
				default:
					a.version, a.is = done.First, true
				}
				note(a)
			}
		})
	}
	workers.Wait()
	carried(t, address)
	conn := connect(t, address)
	events := make(map[string][]string)
	for _, name := range streams {
		read := inGo(t, far, name)
		events[name] = strings.Fields(read)
		if got := inStream(t, conn, `'`+name+`'`); got != read {
			t.Errorf("weir.stream: %s\nGo: %s", got, read)
		}
		if got := inTopic(t, conn, name); got != read {
			t.Errorf("weir.events: %s\nGo: %s", got, read)
		}
	}
	there := 0
	for _, a := range all {
		want := fmt.Sprintf("%d:%s", a.version, a.value)
		switch list := events[a.stream]; {
		case a.is && (a.version >= int64(len(list)) || list[a.version] != want):
			t.Errorf("%s was acknowledged in stream %s, and is not there", want, a.stream)
		case a.is && a.expected >= 0 && a.expected != a.version:
			// the version that was expected may be that of an earlier event of the same
			// transaction; never another
			t.Errorf("%s was appended to stream %s at version %d, and %d was expected", a.value, a.stream, a.version, a.expected)
		}
		if a.is {
			there++
		}
	}
	if n := len(events["a"]) + len(events["b"]); n != there || there < 50 || conflicts < 10 {
		t.Errorf("%d events, %d of them acknowledged, %d conflicts", n, there, conflicts)
	}
	t.Logf("%d events, %d conflicts", there, conflicts)
}

// inTopic lists the events of a stream as weir.events returns them.
func inTopic(t *testing.T, conn *pgx.Conn, name string) string {
	t.Helper()
	return texts(t, conn, `SELECT coalesce(string_agg((headers ->> 'weir.stream.version') || ':' || value_text, ' ' ORDER BY partition, "offset"), '') FROM weir.events('account') WHERE key_text = '`+name+`'`)[0]
}
