package postgres_test

import (
	"net/url"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
)

// A URL names two servers, as operators write it for a failover. The primary restarts. No
// connection stays at the standby, which lags.
func TestKeysAreNeverReadFromAStandby(t *testing.T) {
	primary := pgtest.Start(t)
	address := primary.URL()
	standby := primary.Standby()
	both, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	second, err := url.Parse(standby.Admin())
	if err != nil {
		t.Fatal(err)
	}
	query := both.Query()
	query.Set("host", both.Hostname()+","+second.Hostname())
	query.Set("port", both.Port()+","+second.Port())
	both.Host, both.RawQuery = "", query.Encode()
	store, err := postgres.Open(t.Context(), both.String(), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	put := func(version eventlog.Version, value string) {
		t.Helper()
		entry := eventlog.Entry{
			Checks: []eventlog.Check{{Key: "group/g", Version: version - 1}},
			Puts:   []eventlog.Put{{Key: "group/g", Version: version, Value: []byte(value)}},
		}
		for range 20 { // connections may be broken
			if out, err := store.Commit(t.Context(), []eventlog.Entry{entry}); err == nil && out[0].Err == nil {
				return
			}
		}
		t.Fatal("it cannot commit")
	}
	put(1, "old")
	upTo := pgtest.Value(t, address, `SELECT pg_current_wal_lsn()`)
	for pgtest.Value(t, standby.Admin(), `SELECT pg_last_wal_replay_lsn() >= '`+upTo+`'`) != "true" {
	}
	primary.Stop()
	if keys, err := store.List(t.Context(), "group/", "", 10); err == nil {
		t.Errorf("while the primary is away it read %+v", keys)
	}
	primary.Resume()
	pgtest.Exec(t, standby.Admin(), `SELECT pg_wal_replay_pause()`)
	put(2, "new")
	for range 3 {
		if keys, err := store.List(t.Context(), "group/", "", 10); err == nil && (len(keys) != 1 || string(keys[0].Value) != "new") {
			t.Errorf("the key was put as new, and is read as %+v", keys)
		}
	}
}
