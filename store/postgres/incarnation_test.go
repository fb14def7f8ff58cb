package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
)

// PostgreSQL counts the calls of functions.
func TestAReadChecksTheIncarnationOnce(t *testing.T) {
	address := pgtest.URL(t)
	s := at(t, address)
	openPartitions(t, s, 1)
	publish(t, s, batch(1, 10), batch(1, 10), batch(1, 10))
	var known string
	if err := connect(t, address).QueryRow(t.Context(), `SELECT format('%s, %s, %s', server, tables, epoch) FROM weir.life()`).Scan(&known); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"force_generic_plan", "force_custom_plan"} { // the second as behind a pooler
		conn := connect(t, address)
		begin(t, conn, `SET track_functions = 'all'; SET plan_cache_mode = `+mode+`; PREPARE read AS `+postgres.ReadSQL)
		for name, spans := range map[string]string{
			"of no span":       `'{}', '{}', '{}'`,
			"of no partition":  `'{9}', '{0}', '{100}'`,
			"of bounds":        `'{1}', '{0}', '{0}'`,
			"of three batches": `'{1}', '{0}', '{100}'`,
		} {
			for _, told := range []string{"NULL, NULL, NULL", known} {
				begin(t, conn, `BEGIN`)
				before := checksOf(t, conn)
				begin(t, conn, `EXECUTE read (`+spans+`, 1000, `+told+`)`)
				after := checksOf(t, conn)
				begin(t, conn, `ROLLBACK`)
				if after-before != 1 {
					t.Errorf("%s, a read %s, told %s, called weir.still %d times, want once", mode, name, told, after-before)
				}
			}
		}
	}
}

// checksOf returns how often this connection has called weir.still.
func checksOf(t *testing.T, conn *pgx.Conn) (calls int) {
	t.Helper()
	const counted = `SELECT coalesce(pg_stat_get_xact_function_calls('weir.still'::regproc), 0)`
	if err := conn.QueryRow(t.Context(), counted).Scan(&calls); err != nil {
		t.Fatal(err)
	}
	return calls
}

// A read waits within its check; meanwhile another process begins an epoch and appends.
func TestAReadReturnsTheSnapshotThatItChecked(t *testing.T) {
	address := pgtest.URL(t)
	s, other := at(t, address), at(t, address)
	openPartitions(t, s, 1)
	if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil { // and other is told no incarnation: it does not wait
		t.Fatal(err)
	}
	pgtest.Exec(t, address, `DO $do$ BEGIN
		EXECUTE regexp_replace(pg_get_functiondef('weir.still'::regproc), 'BEGIN',
			'BEGIN IF server IS NOT NULL THEN PERFORM pg_advisory_lock_shared(7), pg_advisory_unlock_shared(7); END IF;'); END $do$`)
	lock := connect(t, address)
	begin(t, lock, `BEGIN; SELECT pg_advisory_xact_lock(7)`)
	read := func() ([]eventlog.Slice, error) {
		return s.Read(t.Context(), []eventlog.Span{{Partition: 1, MaxBytes: 100}}, 100)
	}
	type answer struct {
		slices []eventlog.Slice
		err    error
	}
	done := make(chan answer, 1)
	go func() {
		slices, err := read()
		done <- answer{slices, err}
	}()
	until(t, address, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = 'advisory')`)
	commit(t, other, eventlog.Entry{Puts: []eventlog.Put{{Key: eventlog.EpochKey, Version: 7, Value: []byte("x")}}})
	publish(t, other, batch(1, 10))
	begin(t, lock, `ROLLBACK`)
	if got := <-done; got.err != nil || got.slices[0].Bounds.Next != 0 || len(got.slices[0].Batches) != 0 {
		t.Errorf("the read returned %+v, %v; want the partition as it was before the epoch", got.slices, got.err)
	}
	if _, err := read(); !errors.Is(err, eventlog.ErrRewound) {
		t.Errorf("the next read: %v, want ErrRewound", err)
	}
}

// beginEpoch begins a leader epoch, as a process does after the server was restarted.
func beginEpoch(t *testing.T, s *postgres.Store, version eventlog.Version) error {
	out, err := s.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: eventlog.EpochKey, Version: version, Value: []byte("x")}}}})
	if err == nil {
		err = out[0].Err
	}
	return err
}

// What writes checks the incarnation when it has its locks: another process may have begun an epoch
// while it waited for them.
func TestAReplacementThatWaitedForAnEpochFails(t *testing.T) {
	address := pgtest.URL(t)
	s := at(t, address)
	openPartitions(t, s, 1)
	publish(t, s, batch(1, 10), batch(1, 10))
	if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil {
		t.Fatal(err)
	}
	replace := eventlog.Entry{
		Replaces: []eventlog.Replace{{Partition: 1, From: 0, To: 2, Batches: []eventlog.Batch{batch(1, 20), batch(1, 20)}}},
		Puts:     []eventlog.Put{{Key: eventlog.ReplacedKey(1), Version: 1, Value: []byte("replaced")}},
	}
	commit(t, s, replace) // the first one also makes a segment
	lock := connect(t, address)
	begin(t, lock, `BEGIN; SELECT weir.commit('{}', '{incarnation}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
		'{1}', '{1}', '{7}', '{0}', '{1}', '{0}', 'x', '{}')`)
	done := make(chan error, 1)
	go func() {
		_, err := s.Commit(t.Context(), []eventlog.Entry{replace})
		done <- err
	}()
	until(t, address, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%weir.replace%')`)
	begin(t, lock, `COMMIT`)
	if err := <-done; !errors.Is(err, eventlog.ErrRewound) {
		t.Errorf("a replacement that waited while another process began an epoch: %v, want ErrRewound", err)
	}
}

func TestTrimsThatWaitedForAnEpochFail(t *testing.T) {
	address := pgtest.URL(t)
	s := at(t, address)
	openPartitions(t, s, 2)
	publish(t, s, batch(1, 10), batch(2, 10))
	if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil {
		t.Fatal(err)
	}
	lock := connect(t, address)
	begin(t, lock, `BEGIN; SELECT weir.commit('{}', '{incarnation}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
		'{1}', '{1}', '{7}', '{0}', '{1}', '{0}', 'x', '{}')`)
	done := make(chan error, 1)
	go func() {
		_, err := s.Trim(t.Context(), []eventlog.Trim{{Partition: 2, Before: 1}, {Partition: 1, Before: 1}})
		done <- err
	}()
	until(t, address, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%weir.trim%')`)
	begin(t, lock, `COMMIT`)
	if err := <-done; !errors.Is(err, eventlog.ErrRewound) {
		t.Errorf("trims that waited while another process began an epoch: %v, want ErrRewound", err)
	}
	for p := range eventlog.Partition(2) {
		if got := bounds(t, at(t, address), p+1); got.First != 0 {
			t.Errorf("trimmed in an epoch that is over: %+v", got)
		}
	}
}

// VACUUM, ANALYZE, REINDEX CONCURRENTLY and CREATE INDEX CONCURRENTLY lock their tables like this,
// for as long as they run.
func TestAnEpochBeginsWhileTablesAreVacuumed(t *testing.T) {
	address := pgtest.URL(t)
	s := at(t, address)
	openPartitions(t, s, 1)
	var tables string
	if err := connect(t, address).QueryRow(t.Context(), `
		SELECT string_agg(format('weir.%I', relname), ', ') FROM pg_class WHERE relnamespace = 'weir'::regnamespace AND relkind = 'r'`).Scan(&tables); err != nil {
		t.Fatal(err)
	}
	begin(t, connect(t, address), `BEGIN; LOCK TABLE `+tables+` IN SHARE UPDATE EXCLUSIVE MODE`)
	if err := beginEpoch(t, s, 7); err != nil {
		t.Errorf("an epoch during a vacuum: %v", err)
	}
}

// Otherwise a record of the earlier epoch could be acknowledged after the new one began.
func TestAnEpochBeginsWhenTheCommitsInProgressHaveEnded(t *testing.T) {
	address := pgtest.URL(t)
	s, other := at(t, address), at(t, address)
	openPartitions(t, s, 2)
	for what, sql := range map[string]string{
		"commit": `SELECT weir.commit('{1}', '{}', '{1}', '{1}', '{1}', '{0}', '{0}', '{8}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '12345678', '{}')`,
		"trim":   `SELECT weir.trim(1, 0)`,
	} {
		slow := connect(t, address)
		begin(t, slow, `SET application_name = 'the slow one'; BEGIN; `+sql)
		err := beginEpoch(t, s, 7)
		if !errors.Is(err, eventlog.ErrUnavailable) || !strings.Contains(err.Error(), fmt.Sprint("pid ", slow.PgConn().PID())) || !strings.Contains(err.Error(), "the slow one") {
			t.Errorf("an epoch during a %s: %v; want ErrUnavailable, and the session's pid and name", what, err)
		}
		publish(t, other, batch(2, 10)) // the epoch has not begun, and so others commit
		begin(t, slow, `COMMIT`)
		slow.Close(t.Context())
	}
	if err := beginEpoch(t, s, 7); err != nil {
		t.Errorf("an epoch after the commit: %v", err)
	}
}

// What only checks the epoch's key begins none: it is a commit like any other.
func TestACheckOfTheEpochWaitsForNobody(t *testing.T) {
	address := pgtest.URL(t)
	s := at(t, address)
	openPartitions(t, s, 1)
	begin(t, connect(t, address), `BEGIN; LOCK TABLE weir.epoch IN ROW EXCLUSIVE MODE`)
	commit(t, s, eventlog.Entry{Checks: []eventlog.Check{{Key: eventlog.EpochKey}}, Puts: []eventlog.Put{{Key: "k", Version: 1, Value: []byte("v")}}})
}

// These errors are in the log, and in /readyz.
func TestErrorsOfAPollArePlainText(t *testing.T) {
	s := at(t, pgtest.URL(t))
	_, mark, err := s.Changes(t.Context(), eventlog.Mark{})
	if err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	other := mark
	other.Incarnation.Epoch++
	_, _, rewound := s.Changes(t.Context(), other)
	_, _, unanswered := s.Changes(cancelled, mark)
	other.Place = "x"
	_, _, foreign := s.Changes(t.Context(), other)
	if !errors.Is(rewound, eventlog.ErrRewound) || unanswered == nil || foreign == nil {
		t.Fatal(rewound, unanswered, foreign)
	}
	for _, err := range []error{rewound, unanswered, foreign} {
		if strings.ContainsAny(err.Error(), "{}") {
			t.Errorf("an operator reads: %v", err)
		}
	}
}
