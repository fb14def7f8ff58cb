package sqlfn_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/stream"
)

// Events that were appended with SQL, and are not carried yet, are forgotten too: Forget waits for
// them, also where it has nothing else to do.
func TestForgetWaitsForWhatSQLHasAppended(t *testing.T) {
	address := pgtest.URL(t)
	p, c := startStreams(t, address, false)
	conn := connect(t, address)
	for n := range 4 {
		if _, err := c.Append(t.Context(), "a", stream.Any, stream.NewEvent{Type: "T", Data: fmt.Append(nil, n), Time: time.UnixMilli(int64(1000 * n))}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Forget(t.Context(), "a", math.MaxInt64); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, `SELECT weir.append_all('account', 'a', 4, ARRAY['T0', 'T1'], ARRAY['4', '5'])`)
	err := p.whileHeld(func(ctx context.Context) error { return c.Forget(ctx, "a", math.MaxInt64) })
	if !errors.Is(err, eventlog.ErrHeld) {
		t.Errorf("forget: %v, want ErrHeld; SQL reads %s", err, inStream(t, conn, `'a', 4`))
	}
}
