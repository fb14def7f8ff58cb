package sqlfn_test

import (
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/weir-log/weir/internal/pgtest"
)

// PREPARE TRANSACTION refuses what notified. Publishers notify while weir is idle, but not where the server allows prepared transactions.
func TestATransactionThatPublishesIsPreparedAlsoWhileWeirIsIdle(t *testing.T) {
	srv := pgtest.Start(t)
	pgtest.Exec(t, srv.Admin(), `ALTER SYSTEM SET max_prepared_transactions = 100`)
	srv.Restart()
	address := srv.URL()
	p := start(t, address)
	p.create("orders", 1, nil)
	pgtest.Exec(t, address, `SELECT setval('weir.hushed', 1)`) // as an idle mover does: since 1970 nobody has said that there is no need to notify
	conn := connect(t, address)
	name := rand.Text() // of the whole server
	for _, sql := range []string{
		`BEGIN`, `SELECT weir.publish('orders', 'k', 'v')`, fmt.Sprintf(`PREPARE TRANSACTION '%s'`, name), fmt.Sprintf(`COMMIT PREPARED '%s'`, name),
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if got := p.read("orders", 1); len(got) != 1 || got[0].Value != "v" {
		t.Errorf("events: %+v", got)
	}
}
