package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
	"github.com/weir-log/weir/store/storetest"
)

// traffic is a number of committers, and what each commit was said to have done.
type traffic struct {
	store eventlog.Store
	mu    sync.Mutex // guards all below
	acked map[string]eventlog.Offset
	lost  map[string]bool // certainly not done
	odd   []error         // neither done, nor unavailable, nor unsure
	acks  chan struct{}
}

const trafficPartitions = 3

// run commits until ctx ends. Each commit is one batch, whose bytes begin with its name, and one
// key of that name.
func (tr *traffic) run(ctx context.Context, committers int) {
	var all sync.WaitGroup
	for c := range committers {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				tr.commit(ctx, fmt.Sprintf("%d-%d", c, n))
			}
		})
	}
	all.Wait()
}

func (tr *traffic) commit(ctx context.Context, name string) {
	p := eventlog.Partition(1 + len(name)%trafficPartitions)
	body := []byte(fmt.Sprintf("%-20s", name) + strings.Repeat("x", rand.IntN(20_000)))
	outcomes, err := tr.store.Commit(ctx, []eventlog.Entry{{
		Batches: []eventlog.Batch{{Partition: p, Records: 1, MaxTime: 1, Bytes: body}},
		Puts:    []eventlog.Put{{Key: "named/" + name, Version: 1, Value: []byte{}, AddBase: 1}},
	}})
	if err == nil {
		err = outcomes[0].Err
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	switch {
	case err == nil:
		tr.acked[name] = outcomes[0].Base[0]
		select {
		case tr.acks <- struct{}{}:
		default:
		}
	case errors.Is(err, eventlog.ErrUnsure):
	case errors.Is(err, eventlog.ErrUnavailable):
		tr.lost[name] = true
	default:
		tr.odd = append(tr.odd, err)
	}
}

// await waits for so many acknowledgements.
func (tr *traffic) await(t *testing.T, n int) {
	t.Helper()
	late := time.After(time.Minute)
	for range n {
		select {
		case <-tr.acks:
		case <-late:
			tr.mu.Lock()
			defer tr.mu.Unlock()
			t.Fatalf("no commit went through for a minute; %d did before, and of errors there are %v", len(tr.acked), tr.odd)
		}
	}
}

// settle holds the log against what was said.
func (tr *traffic) settle(t *testing.T) {
	t.Helper()
	for _, err := range tr.odd {
		t.Errorf("an error that tells nothing: %v", err)
	}
	found := map[string]eventlog.Offset{}
	for p := range eventlog.Partition(trafficPartitions) {
		next := eventlog.Offset(0)
		for _, b := range held(t, tr.store, p+1) {
			if b.Base != next {
				t.Fatalf("partition %d has a gap: a batch at %d where %d should be", p+1, b.Base, next)
			}
			next++
			found[strings.TrimSpace(string(b.Bytes[:20]))] = b.Base
		}
	}
	for name, base := range tr.acked {
		if at, there := found[name]; !there || at != base {
			t.Errorf("%s was acknowledged at %d, and is at %d (%v)", name, base, at, there)
		}
	}
	keys := map[string]string{}
	for after := ""; ; {
		list, err := tr.store.List(t.Context(), "named/", after, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range list {
			keys[strings.TrimPrefix(kv.Key, "named/")] = string(kv.Value)
			after = kv.Key
		}
		if len(list) < 1000 {
			break
		}
	}
	for name, at := range found {
		if tr.lost[name] {
			t.Errorf("%s was said not to have happened, and is in the log", name)
		}
		if keys[name] != fmt.Sprint(at) {
			t.Errorf("%s is at %d, and its key says %q: half an entry", name, at, keys[name])
		}
	}
	if len(keys) != len(found) {
		t.Errorf("%d keys and %d batches: half an entry", len(keys), len(found))
	}
	t.Logf("%d acknowledged, %d in the log, %d certainly not", len(tr.acked), len(found), len(tr.lost))
}

// disturb runs traffic while something bad happens, again and again.
func disturb(t *testing.T, s eventlog.Store, rounds int, bad func()) {
	t.Helper()
	openPartitions(t, s, trafficPartitions)
	tr := &traffic{store: s, acked: map[string]eventlog.Offset{}, lost: map[string]bool{}, acks: make(chan struct{}, 1000)}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { tr.run(ctx, 4) })
	for range rounds {
		tr.await(t, 1+rand.IntN(30))
		bad()
	}
	for len(tr.acks) > 0 {
		<-tr.acks
	}
	tr.await(t, 20) // it healed
	stop()
	running.Wait()
	tr.settle(t)
}

func TestAcknowledgedSurvivesCrashesOfTheServer(t *testing.T) {
	srv := pgtest.Start(t)
	s := at(t, srv.URL())
	disturb(t, s, 4, func() {
		srv.KillImmediate()
		srv.Resume()
	})
}

func TestRestartOfTheServerHealsWithoutReopening(t *testing.T) {
	srv := pgtest.Start(t)
	s := at(t, srv.URL())
	disturb(t, s, 2, srv.Restart)
}

func TestTerminatedConnectionsNeverLie(t *testing.T) {
	address := pgtest.URL(t)
	s := at(t, address)
	conn := connect(t, address)
	disturb(t, s, 30, func() {
		if _, err := conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'weir'
			AND datname = current_database() AND state = 'active'`); err != nil {
			t.Error(err)
		}
	})
}

func TestDeadlocksAreNotSeen(t *testing.T) {
	address := pgtest.URL(t)
	s := at(t, address)
	openPartitions(t, s, 2)
	// A foreign session takes our rows the wrong way round: one of the two is rolled back, and if
	// that is us, we try again.
	conn := connect(t, address)
	begin(t, conn, `SET deadlock_timeout = '1h'; BEGIN; SELECT FROM weir.partition WHERE id = 2 FOR UPDATE`)
	done := make(chan error, 1)
	go func() {
		_, err := s.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{batch(1, 10), batch(2, 10)}}})
		done <- err
	}()
	until(t, address, `SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'weir' AND wait_event_type = 'Lock'`)
	if _, err := conn.Exec(t.Context(), `SELECT FROM weir.partition WHERE id = 1 FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// The writer of the WAL is told to dawdle: what a commit did not wait for is lost in a crash.
func TestAcknowledgedIsOnDiskWhateverTheRoleIsSetTo(t *testing.T) {
	srv := pgtest.Start(t)
	address := srv.URL()
	pgtest.Exec(t, srv.Admin(), `ALTER SYSTEM SET wal_writer_delay = '10s'`)
	pgtest.Exec(t, srv.Admin(), `ALTER SYSTEM SET wal_writer_flush_after = 0`)
	pgtest.Exec(t, srv.Admin(), `ALTER ROLE postgres SET synchronous_commit = off`)
	srv.Restart()
	s := at(t, address)
	openPartitions(t, s, 1)
	publish(t, s, batch(1, 100))
	srv.KillImmediate()
	srv.Resume()
	if all := held(t, at(t, address), 1); len(all) != 1 {
		t.Fatalf("after the crash the log has %d batches, and 1 was acknowledged", len(all))
	}
}

func TestDefaultsOfTheRoleDoNotMatter(t *testing.T) {
	address := pgtest.URL(t)
	database := pgtest.Value(t, address, `SELECT current_database()`)
	for _, setting := range []string{
		"default_transaction_isolation = 'serializable'", "lock_timeout = '1ms'", "statement_timeout = '5s'",
		"search_path = 'nowhere'", "bytea_output = 'escape'", "DateStyle = 'German'", "client_encoding = 'LATIN1'", "TimeZone = 'Asia/Tokyo'",
	} {
		pgtest.Exec(t, address, `ALTER DATABASE `+database+` SET `+setting)
	}
	s := at(t, address)
	openPartitions(t, s, 1)
	commit(t, s, eventlog.Entry{
		Batches: []eventlog.Batch{batch(1, 10)},
		Puts:    []eventlog.Put{{Key: "ключ", Version: 1, Value: []byte("v"), AddBase: 1}},
	})
	list, err := s.List(t.Context(), "к", "", 10)
	if err != nil || len(list) != 1 || list[0].Key != "ключ" || list[0].Age > time.Minute {
		t.Fatalf("%+v, %v", list, err)
	}
	// Behind a pooler there is no setting it for the session. It is refused, with the cure.
	pooled := at(t, address+"&weir_pooled=true")
	_, err = pooled.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{batch(1, 10)}}})
	if err == nil || !strings.Contains(err.Error(), "read committed") {
		t.Fatalf("a commit in a serializable transaction: %v, want to be told of read committed", err)
	}
}

// Without its triggers a commit would leave SQL sessions without topics.
func TestNothingIsCommittedWithoutTriggers(t *testing.T) {
	address := pgtest.URL(t)
	s := at(t, address)
	openPartitions(t, s, 1)
	pgtest.Exec(t, address, `ALTER DATABASE `+pgtest.Value(t, address, `SELECT current_database()`)+` SET session_replication_role = replica`)
	pgtest.Exec(t, address, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	for {
		_, err := s.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{batch(1, 10)}}})
		switch {
		case errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrUnsure): // of a connection that was ended
		case err == nil || !strings.Contains(err.Error(), "session_replication_role"):
			t.Fatalf("%v, want to be told of session_replication_role", err)
		default:
			return
		}
	}
}

func TestAServerThatIsAwayIsUnavailable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away := l.Addr().String()
	l.Close()
	_, err = postgres.Open(t.Context(), "postgres://weir:tell-nobody@"+away+"/weir?sslmode=disable", postgres.Options{})
	if !errors.Is(err, eventlog.ErrUnavailable) || !strings.Contains(err.Error(), away) {
		t.Errorf("nobody listens there: %v, want ErrUnavailable and the address", err)
	}

	srv := pgtest.Start(t)
	s := at(t, srv.URL())
	openPartitions(t, s, 1)
	srv.Stop()
	calls := map[string]func() error{
		"read":  func() error { _, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1}}, 0); return err },
		"moved": func() error { _, _, err := s.Changes(t.Context(), eventlog.Mark{}); return err },
		"seek":  func() error { _, err := s.Seek(t.Context(), []eventlog.Goal{{Partition: 1}}); return err },
		"list":  func() error { _, err := s.List(t.Context(), "", "", 1); return err },
		"trim":  func() error { return storetest.Trim(t.Context(), s, 1, 1) },
		"commit": func() error {
			_, err := s.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{batch(1, 10)}}})
			return err
		},
	}
	for name, call := range calls {
		// The first call may find a connection that looks alive: a change sent on it is unsure.
		if err := call(); !errors.Is(err, eventlog.ErrUnavailable) && !errors.Is(err, eventlog.ErrUnsure) {
			t.Errorf("%s: %v, want ErrUnavailable or ErrUnsure", name, err)
		}
		if err := call(); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("%s, again: %v, want ErrUnavailable", name, err)
		}
	}
	srv.Resume()
	for name, call := range calls {
		if err := call(); err != nil {
			t.Errorf("%s, with the server back: %v", name, err)
		}
	}
}

// The network swallows everything, and no connection ends.
func TestSilenceOfTheNetworkIsUnavailable(t *testing.T) {
	address, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	hole := newHole(t, address.Host)
	address.Host = hole.Addr().String()
	address.RawQuery += "&connect_timeout=1"
	s, err := postgres.Open(t.Context(), address.String(), postgres.Hasty(postgres.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	openPartitions(t, s, 1)
	calls := map[string]func() error{
		"read":  func() error { _, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1}}, 0); return err },
		"moved": func() error { _, _, err := s.Changes(t.Context(), eventlog.Mark{}); return err },
		"seek":  func() error { _, err := s.Seek(t.Context(), []eventlog.Goal{{Partition: 1}}); return err },
		"list":  func() error { _, err := s.List(t.Context(), "", "", 1); return err },
	}
	works := func(call func() error) (err error) {
		for range 30 { // on a busy machine a hasty store gives up on a healthy network, too
			if err = call(); !errors.Is(err, eventlog.ErrUnavailable) {
				break
			}
		}
		return err
	}
	for name, call := range calls {
		if err := works(call); err != nil {
			t.Errorf("%s, before: %v", name, err)
		}
	}
	hole.swallow.Store(true)
	_, err = s.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{batch(1, 10)}}})
	if !errors.Is(err, eventlog.ErrUnsure) && !errors.Is(err, eventlog.ErrUnavailable) { // unavailable, if its connection was tried first
		t.Errorf("commit: %v, want ErrUnsure", err)
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", name, err)
		}
	}
	hole.mend()
	for name, call := range calls {
		if err := works(call); err != nil {
			t.Errorf("%s, after: %v", name, err)
		}
	}
}

// hole passes bytes on to a server and back, until it is told to swallow them.
type hole struct {
	net.Listener
	swallow atomic.Bool
	mu      sync.Mutex // guards conns
	conns   []net.Conn
}

// mend lets bytes through again. The connections that lost some end.
func (h *hole) mend() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.swallow.Store(false)
	for _, c := range h.conns {
		c.Close()
	}
}

func newHole(t *testing.T, server string) *hole {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hole{Listener: l}
	var running sync.WaitGroup
	pass := func(to, from net.Conn) {
		defer to.Close()
		for buf := make([]byte, 32<<10); ; {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			if !h.swallow.Load() {
				to.Write(buf[:n])
			}
		}
	}
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			h.mu.Lock()
			h.conns = append(h.conns, client, there)
			h.mu.Unlock()
			running.Go(func() { pass(there, client) })
			running.Go(func() { pass(client, there) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return h
}

func TestPasswordsAreNotInErrors(t *testing.T) {
	good, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	const secret = "p#ss w@rd%"
	for name, change := range map[string]func(*url.URL){
		"wrong password": func(*url.URL) {},
		"wrong database": func(u *url.URL) { u.Path = "/nowhere" },
		"wrong port":     func(u *url.URL) { u.Host = "127.0.0.1:1" },
		"wrong option":   func(u *url.URL) { u.RawQuery += "&weir_readers=none" },
		"wrong sslmode":  func(u *url.URL) { u.RawQuery = "sslmode=maybe" },
	} {
		bad := *good
		bad.User = url.UserPassword("postgres", secret)
		change(&bad)
		for _, address := range []string{bad.String(), "postgres://postgres:" + secret + "@127.0.0.1:5432/x?sslmode=maybe"} {
			_, err := postgres.Open(t.Context(), address, postgres.Options{})
			if err == nil {
				t.Errorf("%s: opened", name)
			} else if text := err.Error(); strings.Contains(text, secret) || strings.Contains(text, url.QueryEscape(secret)) || strings.Contains(text, "p%23ss") {
				t.Errorf("%s: the password is in the error: %v", name, err)
			}
			if _, err := postgres.Examine(t.Context(), address); err != nil && strings.Contains(err.Error(), "ss w") {
				t.Errorf("%s: the password is in the error: %v", name, err)
			}
		}
	}
}

func TestAKeyThatCannotBeKeptFailsAlone(t *testing.T) {
	s := at(t, pgtest.URL(t))
	openPartitions(t, s, 1)
	flush := []eventlog.Entry{{Batches: []eventlog.Batch{batch(1, 10)}}}
	for _, key := range []string{"a\x00b", "\xff", strings.Repeat("k", 2001)} {
		flush = append(flush, eventlog.Entry{Puts: []eventlog.Put{{Key: key, Version: 1, Value: []byte("v")}}},
			eventlog.Entry{Checks: []eventlog.Check{{Key: key}}, Batches: []eventlog.Batch{batch(1, 10)}})
	}
	flush = append(flush, eventlog.Entry{
		Batches: []eventlog.Batch{batch(1, 10)},
		Puts:    []eventlog.Put{{Key: strings.Repeat("\U0010ffff", 500), Version: 1, Value: []byte("v")}},
	})
	outcomes, err := s.Commit(t.Context(), flush)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range outcomes {
		if good := i == 0 || i == len(flush)-1; (o.Err == nil) != good {
			t.Errorf("entry %d: %v", i, o.Err)
		}
	}
	if b := outcomes[len(flush)-1].Base[0]; b != 1 {
		t.Errorf("the last entry begins at %d, want 1", b)
	}
	if list, err := s.List(t.Context(), "", "", 10); err != nil || len(list) != 1 {
		t.Errorf("%d keys (%v), want the longest alone", len(list), err)
	}
}

// Nothing of ours is ever written twice: locks see to it. Where it is all the same, a table is
// damaged or we have a bug, and no patience mends that.
func TestADuplicateIsReportedAndNotTriedAgain(t *testing.T) {
	address := pgtest.URL(t)
	s := at(t, address)
	openPartitions(t, s, 1)
	pgtest.Exec(t, address, `INSERT INTO weir.batch_1 VALUES (1, 0, 0, 0, 1, 1, 0, 'x')`) // where the next batch goes
	_, err := s.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{batch(1, 10)}}})
	if err == nil || errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrUnsure) || !strings.Contains(err.Error(), "batch_1_pkey") {
		t.Errorf("%v, want the duplicate key named, and no advice to try again", err)
	}
	pgtest.Exec(t, address, `DELETE FROM weir.batch_1`)
	publish(t, s, batch(1, 10))
	if got := held(t, s, 1); len(got) != 1 || got[0].Base != 0 {
		t.Errorf("afterwards the log holds %+v, want the batch at 0", got)
	}
}

// connect opens a session of somebody else's.
func connect(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// begin runs several statements, the last of which leaves a transaction open.
func begin(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatal(err)
	}
}

// until asks the database until it says true.
func until(t *testing.T, address, question string) {
	t.Helper()
	conn := connect(t, address)
	for late := time.Now().Add(time.Minute); ; {
		var yes bool
		if err := conn.QueryRow(t.Context(), question).Scan(&yes); err != nil {
			t.Fatal(err)
		}
		if yes {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("for a minute this was not so: %s", question)
		}
	}
}
