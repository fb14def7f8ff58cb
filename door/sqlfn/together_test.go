package sqlfn_test

import (
	"testing"

	"github.com/weir-log/weir/internal/pgtest"
)

// Two processes are the first on a new database at the same time: the second finds what the first
// has made while it waited for it.
func TestProcessesThatStartTogetherMakeTheTriggersOnce(t *testing.T) {
	address := pgtest.URL(t)
	open(t, address).store.Close()
	const made = `SELECT weir.add_triggers()`
	for range 20 { // the second waits for a tenth of a second, and may give up before the first commits
		pgtest.Exec(t, address, `DROP TRIGGER durably ON weir.acked; DROP TRIGGER durably ON weir.consumed; DROP TRIGGER nacked_durably ON weir.nacked`)
		first, second := connect(t, address), connect(t, address)
		exec(t, first, `BEGIN`)
		exec(t, first, made)
		told := make(chan error, 1)
		var is bool
		go func() { told <- second.QueryRow(t.Context(), made).Scan(&is) }()
		await(t, address, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query = '`+made+`' AND wait_event_type = 'Lock')
			OR NOT EXISTS (SELECT FROM pg_stat_activity WHERE query = '`+made+`' AND state = 'active')`)
		exec(t, first, `COMMIT`)
		if err := <-told; err != nil {
			t.Fatal(err)
		}
		if is {
			return
		}
	}
	t.Error("the second gave up each time: the test shows nothing")
}
