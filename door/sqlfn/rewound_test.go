package sqlfn

import (
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/group"
)

// goOn has a mover step until the inbox is empty. Steps may fail until the log has noticed what
// became of the store.
func goOn(t *testing.T, m *Mover, address string) {
	t.Helper()
	var err error
	for late := time.Now().Add(30 * time.Second); time.Now().Before(late); {
		if _, err = m.step(t.Context()); err == nil && pgtest.Value(t, address, `SELECT count(*) FROM weir.inbox`) == "0" {
			return
		}
	}
	t.Fatalf("30 seconds of steps, and %s rows are in the inbox; the last step: %v", pgtest.Value(t, address, `SELECT count(*) FROM weir.inbox`), err)
}

// readAll returns the values of all events of a topic of one partition, through a log of its own.
func readAll(t *testing.T, address, topic string) (all []string) {
	t.Helper()
	m := still(t, address)
	about, err := m.log.Topic(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	for from := eventlog.Offset(0); ; {
		slices, err := m.log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: about.Partitions[0], From: from, MaxBytes: 1 << 20}}, MaxBytes: 1 << 20})
		if err != nil || slices[0].Err != nil {
			t.Fatal(err, slices[0].Err)
		}
		if len(slices[0].Batches) == 0 {
			return all
		}
		for _, b := range slices[0].Batches {
			for r, err := range batch.Records(b.Bytes, 1<<20) {
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, string(r.Value))
			}
			from = b.End()
		}
	}
}

// onNewConnection does something again after a connection turned out to be broken.
func onNewConnection(do func() error) error {
	err := do()
	if errors.Is(err, eventlog.ErrUnsure) {
		err = do()
	}
	return err
}

// ordersTopic makes the topic that tell publishes to.
func ordersTopic(t *testing.T, m *Mover) {
	t.Helper()
	if _, err := m.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
}

// An asynchronous standby is promoted while the mover holds rows of which the standby never heard.
// Their ids are given out again.
func TestAMoverOfAPromotedStandbyMovesWhatIsThereOnce(t *testing.T) {
	const next = `SELECT CASE WHEN is_called THEN last_value + 1 ELSE last_value END FROM weir.inbox_id_seq`
	var held *chunk
	for name, hold := range map[string]struct {
		lost string                     // what is committed last, and lost
		find func(m *Mover) error       // has the mover find it
		act  func(m *Mover) (err error) // has it act on what it found
	}{
		"a move": {lost: tell("lost"), find: func(m *Mover) (err error) {
			held, err = m.inbox.poll(t.Context())
			return err
		}, act: func(m *Mover) error { return m.moveEvents(t.Context(), held.rows) }},
		"a carry": {lost: `SELECT weir.commit_offset('g', 'orders', 0, 1)`, find: func(m *Mover) error {
			_, err := m.step(t.Context())
			return err
		}, act: func(m *Mover) error { return m.carryPositions(t.Context()) }},
	} {
		t.Run(name, func(t *testing.T) {
			primary := pgtest.Start(t)
			address := primary.URL()
			standby := primary.Standby()
			there := standby.At(address)
			alias := pgtest.NewAlias(t, address)
			m := still(t, alias.At(address))
			ordersTopic(t, m)
			pgtest.Exec(t, address, tell("kept"))
			if _, err := m.step(t.Context()); err != nil {
				t.Fatal(err)
			}
			upTo := pgtest.Value(t, address, `SELECT pg_current_wal_lsn()`)
			for pgtest.Value(t, standby.Admin(), `SELECT pg_last_wal_replay_lsn() >= '`+upTo+`'`) != "true" {
			}
			pgtest.Exec(t, standby.Admin(), `ALTER SYSTEM SET primary_conninfo = ''`)
			pgtest.Exec(t, standby.Admin(), `SELECT pg_reload_conf()`)
			for pgtest.Value(t, standby.Admin(), `SELECT count(*) FROM pg_stat_wal_receiver`) != "0" {
			}
			// The WAL counts ids in steps: the standby goes on behind those that the primary may
			// have given out.
			for pgtest.Value(t, address, next) != pgtest.Value(t, there, next) {
				pgtest.Exec(t, address, tell("lost before"))
				if _, err := m.step(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			pgtest.Exec(t, address, hold.lost)
			if err := hold.find(m); err != nil {
				t.Fatal(err)
			}
			primary.KillImmediate()
			alias.Point(there)
			pgtest.Value(t, standby.Admin(), `SELECT pg_promote()`)
			pgtest.Exec(t, there, tell("new"))

			if err := onNewConnection(func() error { return hold.act(m) }); !errors.Is(err, eventlog.ErrRewound) {
				t.Errorf("the mover acted on what it found before: %v, want ErrRewound", err)
			}
			goOn(t, m, there)
			if got := readAll(t, there, "orders"); !slices.Equal(got, []string{"kept", "new"}) {
				t.Errorf("the log holds %q, want kept and new", got)
			}
		})
	}
}

// A dump is restored under a running server. What was moved after the dump was made is in the inbox
// again, with numbers that the mover has passed.
func TestAMoverFindsWhatIsBackInARestoredInbox(t *testing.T) {
	address := pgtest.URL(t)
	sameVersion(t, address, "pg_dump")
	m := still(t, address)
	ordersTopic(t, m)
	for _, value := range []string{"a", "b", "c"} {
		pgtest.Exec(t, address, tell(value))
		goOn(t, m, address)
	}
	pgtest.Exec(t, address, tell("d"))
	pgtest.Exec(t, address, tell("e"))
	for range 20 { // ids that the mover passes, and that the dump knows of
		pgtest.Exec(t, address, `BEGIN; `+tell("undone")+`; ROLLBACK`)
	}
	dump := filepath.Join(t.TempDir(), "dump")
	client(t, "pg_dump", "--format=custom", "--schema=weir", "--file="+dump, address)
	goOn(t, m, address)
	for range 3 {
		goOn(t, m, address)
	}
	client(t, "pg_restore", "--clean", "--single-transaction", "--dbname="+address, dump)
	goOn(t, m, address)
	if got := readAll(t, address, "orders"); !slices.Equal(got, []string{"a", "b", "c", "d", "e"}) {
		t.Errorf("the log holds %q, want a to e", got)
	}
}

// sameVersion skips a test whose client program is of another major version than the server:
// pg_dump refuses a newer server, and an older one does not understand what it writes.
func sameVersion(t *testing.T, address, name string) {
	t.Helper()
	program, err := pgtest.Program(name)
	if err != nil {
		t.Skip(err)
	}
	said, err := exec.Command(program, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	server, _, _ := strings.Cut(pgtest.Value(t, address, `SHOW server_version`), ".")
	if !strings.Contains(string(said), ") "+server+".") {
		t.Skipf("the server is PostgreSQL %s, and this is %s", server, said)
	}
}

// client runs one of PostgreSQL's programs.
func client(t *testing.T, name string, args ...string) {
	t.Helper()
	program, err := pgtest.Program(name)
	if err != nil {
		t.Skip(err)
	}
	if said, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, said)
	}
}

// Until the log has begun the epoch of a store that may have lost its end, nothing is appended to
// it: what is appended before belongs to no epoch.
func TestAMoverAppendsNothingBeforeItsLogKnowsTheIncarnation(t *testing.T) {
	address := pgtest.URL(t)
	one := openInbox(t, address)
	if _, _, err := one.store.Changes(t.Context(), eventlog.Mark{}); err != nil {
		t.Fatal(err)
	}
	conn := session(t, address)
	run(t, conn, tell("a"))
	one.expect("a")
	run(t, conn, `SELECT weir.commit('{}', '{incarnation}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
		'{1}', '{1}', '{7}', '{0}', '{1}', '{0}', 'x', '{}')`)
	if err := one.tryMove(); !errors.Is(err, eventlog.ErrRewound) {
		t.Fatalf("a move after another process began an epoch: %v, want ErrRewound", err)
	}
	one.expect("a")
	if err := one.tryMove(); !errors.Is(err, eventlog.ErrRewound) {
		t.Fatalf("a move in an epoch of which the log does not know: %v, want ErrRewound", err)
	}
	if _, _, err := one.store.Changes(t.Context(), eventlog.Mark{}); err != nil {
		t.Fatal(err)
	}
	one.expect("a")
	one.move()
	one.expect()
}

// What was committed without waiting for the disk can be seen, and be lost in a crash; the next
// transactions get its ids.
func TestAMoverDoesNotMoveWhatACrashTook(t *testing.T) {
	srv := pgtest.Start(t)
	address := srv.URL()
	for _, setting := range []string{`wal_writer_delay = '10s'`, `wal_writer_flush_after = 0`, `full_page_writes = off`} {
		pgtest.Exec(t, srv.Admin(), `ALTER SYSTEM SET `+setting)
	}
	srv.Restart()
	in := openInbox(t, address)
	in.expect()
	conn := session(t, address)
	run(t, conn, `CHECKPOINT`)
	run(t, conn, `SELECT pg_switch_wal()`) // a commit that fills a page of the WAL has it flushed: begin with an empty one
	run(t, conn, `SET synchronous_commit = off; `+tell("lost"))
	in.expect("lost")
	srv.KillImmediate()
	srv.Resume()
	conn = session(t, address)
	run(t, conn, tell("new"))
	if got := pgtest.Value(t, address, `SELECT min(id) FROM weir.inbox`); got != "1" {
		t.Fatalf("the event that came after the crash has id %s, and the lost one had 1: the test shows nothing", got)
	}
	if err := onNewConnection(in.tryMove); !errors.Is(err, eventlog.ErrRewound) {
		t.Errorf("the mover acted on what it found before the crash: %v, want ErrRewound", err)
	}
	in.expect("new")
	in.move()
}

// What SQL knows of groups and queues is read in the log's incarnation, as the log is: a server
// that took over may know less.
func TestPositionsAndAcksAreReadInTheLogsIncarnation(t *testing.T) {
	address := pgtest.URL(t)
	store, door := attached(t, address)
	if _, _, err := store.Changes(t.Context(), eventlog.Mark{}); err != nil {
		t.Fatal(err)
	}
	of := []group.TopicPartition{{Topic: eventlog.TopicID{1}}}
	reads := map[string]func() error{
		"positions": func() error { _, err := door.Positions(t.Context(), "g", of); return err },
		"keeps":     func() error { _, err := door.Keeps(t.Context(), "g", of); return err },
		"carried":   func() error { return door.Carried(t.Context(), []string{"g"}, of) },
		"acked":     func() error { _, err := door.Acked(t.Context(), []string{"q"}, 1); return err },
	}
	for what, read := range reads {
		if err := read(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	run(t, session(t, address), `SELECT weir.commit('{}', '{incarnation}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
		'{1}', '{1}', '{7}', '{0}', '{1}', '{0}', 'x', '{}')`) // another process begins an epoch
	for what, read := range reads {
		if err := read(); !errors.Is(err, eventlog.ErrRewound) {
			t.Errorf("%s, in another incarnation: %v, want ErrRewound", what, err)
		}
	}
}
