package postgres_test

import (
	"context"
	"os"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
	"github.com/weir-log/weir/store/storetest"
)

func open(ctx context.Context, place string) (eventlog.Store, error) {
	return postgres.Open(ctx, place, postgres.Options{})
}

func TestMain(m *testing.M) {
	storetest.Work(open)
	os.Exit(m.Run())
}

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Place: func(t *testing.T) string { return pgtest.URL(t) },
		Open:  open,
	})
}
