package sqlfn_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
)

// A standby shows what there is, and takes nothing.
func TestAStandbyReadsAndTakesNothing(t *testing.T) {
	srv := pgtest.Start(t)
	address := srv.URL()
	p := start(t, address)
	p.create("orders", 2, nil)
	standby := srv.Standby()
	for i := range 20 {
		pgtest.Exec(t, address, fmt.Sprintf(`SELECT weir.publish('orders', 'k%d', 'v%d')`, i, i))
	}
	p.read("orders", 20)
	conn := connect(t, standby.At(address))
	eventually(t, "the standby has all events", func() bool {
		return pgtest.Value(t, standby.At(address), `SELECT count(*) FROM weir.events('orders')`) == "20"
	})
	for _, sql := range []string{`SELECT * FROM weir.topics`, `SELECT * FROM weir.partitions`, `SELECT * FROM weir.groups`,
		`SELECT * FROM weir.last_events('orders')`, `SELECT weir.position('g', 'orders', 0)`} {
		exec(t, conn, sql)
	}
	for _, sql := range []string{`SELECT weir.publish('orders', 'k', 'v')`, `SELECT weir.publish_all('orders', NULL, ARRAY['v'])`,
		`SELECT weir.tombstone('orders', 'k')`, `SELECT weir.commit_offset('g', 'orders', 0, 1)`} {
		if got := refusal(t, conn, sql); got.Code != "25006" {
			t.Errorf("%s: %v, want 25006", sql, got)
		}
	}
	if _, err := postgres.Open(t.Context(), standby.At(address), postgres.Options{}); err == nil || !strings.Contains(err.Error(), "connect to the primary") {
		t.Errorf("weir on a standby: %v", err)
	}
}
