package weir_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir"
)

// Behind a cache everything is as without: the SQL door of PostgreSQL, notifications, consumers of
// old events, of which the second reads files.
func TestALogWithACache(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		dir := t.TempDir()
		w := s.open(t, weir.Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Poll: 10 * time.Millisecond, CacheDir: dir, CacheBytes: 64 << 20, TailBytes: 1})
		ensure(t, w, "orders", 1)
		const flushes = 40
		var want []string
		for i := range flushes {
			value := fmt.Sprintf("%05d%s", i, strings.Repeat("x", 100_000))
			publish(t, w, "orders", value)
			want = append(want, value)
		}
		if s.kind == "postgres" {
			conn, err := pgx.Connect(t.Context(), s.url)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(t.Context())
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := w.PublishTx(t.Context(), tx, events("orders", "in a transaction")...); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			want = append(want, "in a transaction")
		}
		for n := range 2 {
			got := &seen{}
			consume(t, w, weir.Subscription{Group: fmt.Sprint("g", n), Topics: []string{"orders"}, Handler: got.note})
			got.wait(t, len(want))
		}
		blocks, err := filepath.Glob(filepath.Join(dir, "*.weirblock"))
		if err != nil || len(blocks) == 0 {
			t.Errorf("%d blocks in %s, %v", len(blocks), dir, err)
		}
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			t.Error(err)
		}
	}, "sqlite", "postgres")
}
