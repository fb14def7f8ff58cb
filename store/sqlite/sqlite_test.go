package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storetest"
)

func TestMain(m *testing.M) {
	storetest.Work(open)
	os.Exit(m.Run())
}

func open(ctx context.Context, place string) (eventlog.Store, error) {
	return Open(ctx, place, Options{})
}

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Place: func(t *testing.T) string { return filepath.Join(t.TempDir(), "deep", "er", "log ?%#.db") },
		Open:  open,
	})
}
