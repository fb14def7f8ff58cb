package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
)

// Any session that may connect can take any advisory lock. Here one takes all of the class that
// weir once used.
func TestWhoMayOnlyConnectHoldsUpNothing(t *testing.T) {
	address := pgtest.URL(t)
	visitor := connect(t, as(t, address, `SELECT`))
	begin(t, visitor, `SELECT pg_advisory_lock(2003134834, n) FROM generate_series(0, 67) AS n`)

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := postgres.Open(ctx, address+small, postgres.Options{})
	if err != nil {
		t.Fatalf("the schema was not installed: %v", err)
	}
	t.Cleanup(func() { s.Close() })
	listen(t, s)
	var e eventlog.Entry
	for n := range 200 {
		e.Puts = append(e.Puts, eventlog.Put{Key: fmt.Sprint("key ", n), Version: 1, Value: []byte("v")})
	}
	for _, entry := range []eventlog.Entry{e, {Batches: []eventlog.Batch{{Partition: 1}, {Partition: 2}}}} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := s.Commit(ctx, []eventlog.Entry{entry})
			done <- err
		}()
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		case <-ctx.Done():
			t.Fatalf("a commit of %d new partitions and %d new keys waits", len(entry.Batches), len(entry.Puts))
		}
	}
	for range 20 { // until batches that are kept lie among many that are not, and are moved
		publish(t, s, batch(1, 20_000), batch(2, 180_000))
		trim(t, s, 2, bounds(t, s, 2).Next)
		sweepOnce(t, s)
	}
	if got := pgtest.Value(t, address, `SELECT count(*) FROM weir.segment WHERE survivors`); got == "0" {
		t.Error("the sweep moved nothing")
	}

	for _, sql := range []string{
		`SELECT FROM weir.guard FOR NO KEY UPDATE`, `SELECT FROM weir.listener`, `BEGIN; LOCK TABLE weir.migration IN SHARE ROW EXCLUSIVE MODE`,
	} {
		if _, err := visitor.PgConn().Exec(t.Context(), sql).ReadAll(); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%s, by who may only connect: %v", sql, err)
		}
	}
}
