package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
)

// What walks a long way says so. All else is given up when the store gives up an answer.
func TestASessionTakesTheTimeThatItIsGiven(t *testing.T) {
	s, err := postgres.Open(t.Context(), pgtest.URL(t), postgres.Hasty(postgres.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	c, err := s.Session()
	if err != nil {
		t.Fatal(err)
	}
	long := func(ctx context.Context, conn *pgxpool.Conn) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx)
		_, err = tx.Exec(ctx, `SET LOCAL statement_timeout = 0; SELECT pg_sleep(0.5)`)
		return err
	}
	if err := c.Read(t.Context(), 0, long); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("half a second, where the store waits for 300 ms: %v, want ErrUnavailable", err)
	}
	if err := c.Read(t.Context(), time.Minute, long); err != nil {
		t.Errorf("half a second of a minute: %v", err)
	}
}
