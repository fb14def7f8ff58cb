package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
)

// A held key refuses the entries that check it as holdable, at once, and no others.
func TestAHeldKeyRefusesHoldableChecksAndNothingElse(t *testing.T) {
	address := pgtest.URL(t)
	s, err := postgres.Open(t.Context(), address, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	entry := func(key string, version eventlog.Version, holdable bool) eventlog.Entry {
		return eventlog.Entry{Checks: []eventlog.Check{{Key: key, Version: version, Holdable: holdable}}, Puts: []eventlog.Put{{Key: "put with " + key, Version: 1, Value: []byte("v")}}}
	}
	put := func(key string, version eventlog.Version) {
		t.Helper()
		if out, err := s.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: key, Version: version, Value: []byte("v")}}}}); err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
	}
	expectIn := func(when string, version eventlog.Version, want error, beside ...eventlog.Entry) {
		t.Helper()
		for _, c := range []struct {
			entry eventlog.Entry
			want  error
		}{
			{entry("held", version, true), want},
			{entry("held", version, false), nil},
			{entry("held", version+1, true), eventlog.ErrStale},
			{entry("free", 0, true), nil},
			{eventlog.Entry{Checks: []eventlog.Check{{Key: "free", Holdable: true}, {Key: "held", Version: version, Holdable: true}}}, want},
		} {
			out, err := s.Commit(t.Context(), append([]eventlog.Entry{c.entry}, beside...))
			if err != nil || !errors.Is(out[0].Err, c.want) || c.want == nil && out[0].Err != nil || len(beside) > 0 && out[1].Err != nil {
				t.Errorf("%s: %+v beside %d: %v %v, want %v", when, c.entry.Checks, len(beside), out, err, c.want)
			}
		}
		if got := pgtest.Value(t, address, `SELECT count(*) FROM weir.state WHERE key = 'put with held'`); want != nil && got != "1" { // by the check that is not holdable
			t.Errorf("%s: %s keys were put", when, got)
		}
	}
	expect := func(when string, version eventlog.Version, want error) {
		t.Helper()
		expectIn(when, version, want)
		expectIn(when, version, want, entry("other", 0, false))
	}
	conn := connect(t, address)
	expect("nothing is held", 0, nil)
	begin(t, conn, `BEGIN; SELECT weir.hold('held'); SAVEPOINT s; SELECT weir.hold('free'); ROLLBACK TO s`)
	expect("a transaction holds a key that does not exist", 0, eventlog.ErrHeld)
	put("held", 5) // who carries may
	expect("a transaction holds a key", 5, eventlog.ErrHeld)
	begin(t, conn, `ROLLBACK`)
	expect("it rolled back", 5, nil)
	begin(t, conn, `BEGIN; SELECT weir.hold('held'); INSERT INTO weir.held VALUES ('held', 6), ('held', 5), ('hel', 9), ('held!', 9)`)
	expect("a transaction will change the key", 5, eventlog.ErrHeld)
	begin(t, conn, `COMMIT`)
	expect("the change is not carried", 5, eventlog.ErrHeld)
	put("held", 6)
	expect("the change is carried", 6, nil)
}

// After a transaction has got a key, no commit that did not see that is still on its way: hold
// waits for those that have checked the key.
func TestHoldWaitsForCommitsThatHaveCheckedTheKey(t *testing.T) {
	for name, statement := range map[string]string{
		"several": `SELECT weir.commit('{}', '{k}', '{}', '{}', '{}', '{}', '{}', '{}', '{1}', '{1}', '{0}', '{1}', '{1}', '{7}', '{0}', '{1}', '{0}', 'v', '{1}')`,
		"one":     `SELECT weir.commit_one(NULL, NULL, NULL, NULL, '{k}', '{t}', '{0}', '{7}', '{0}', '{1}', '{f}', 1, 'v', NULL, NULL, NULL)`,
	} {
		t.Run(name, func(t *testing.T) { holdWaitsFor(t, statement) })
	}
}

func holdWaitsFor(t *testing.T, statement string) {
	address := pgtest.URL(t)
	s, err := postgres.Open(t.Context(), address, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	flush, holder := connect(t, address), connect(t, address)
	begin(t, flush, `BEGIN; `+statement)
	found := make(chan string, 1)
	go func() {
		var version string
		err := holder.QueryRow(context.Background(), `WITH h AS MATERIALIZED (SELECT weir.hold('k')) SELECT 'held' FROM h`).Scan(&version)
		if err == nil {
			err = holder.QueryRow(context.Background(), `SELECT version::text FROM weir.state WHERE key = 'k'`).Scan(&version)
		}
		if err != nil {
			version = err.Error()
		}
		found <- version
	}()
	until(t, address, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = 'advisory')`)
	begin(t, flush, `COMMIT`)
	if got := <-found; got != "7" {
		t.Errorf("after hold the key is at version %s, want 7", got)
	}
}

// Nobody who may only connect can compute the number of a key's lock.
func TestTheNumbersOfLocksDifferBetweenDatabases(t *testing.T) {
	numbers := make(map[string]bool)
	for range 2 {
		address := pgtest.URL(t)
		s, err := postgres.Open(t.Context(), address, postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		numbers[pgtest.Value(t, address, `SELECT weir.lock_number('k', s.secret) FROM weir.secret s`)] = true
		numbers[pgtest.Value(t, address, `SELECT weir.lock_number('l', s.secret) FROM weir.secret s`)] = true
	}
	if len(numbers) != 4 {
		t.Errorf("two keys in two databases have the numbers %v", numbers)
	}
}
