package mysql

import (
	"fmt"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/mytest"
	"github.com/weir-log/weir/store/storetest"
)

// An iteration appends 1000 batches of 1 KiB, and trims so many that 20,000 stay. With an old view,
// a transaction that is open since before sees all of them.
// docs/decisions/mysql-deletes-batches-row-by-row.md has figures.
func BenchmarkTrim(b *testing.B) {
	for _, old := range []bool{false, true} {
		b.Run(fmt.Sprintf("oldview=%t", old), func(b *testing.B) {
			server, err := mytest.Launch("", "--innodb-file-per-table=1")
			if err != nil {
				b.Fatal(err)
			}
			defer server.Close()
			address, err := server.Database("trim")
			if err != nil {
				b.Fatal(err)
			}
			s, err := Open(b.Context(), address, Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			view, err := s.reads.Conn(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			defer view.Close()
			if old {
				if _, err := view.ExecContext(b.Context(), "START TRANSACTION WITH CONSISTENT SNAPSHOT"); err != nil {
					b.Fatal(err)
				}
			}
			entry := eventlog.Entry{Batches: []eventlog.Batch{{Partition: 1}}}
			for range 1000 {
				entry.Batches = append(entry.Batches, eventlog.Batch{Partition: 1, Records: 1, Bytes: make([]byte, 1024)})
			}
			next := eventlog.Offset(0)
			for b.Loop() {
				if outcomes, err := s.Commit(b.Context(), []eventlog.Entry{entry}); err != nil || outcomes[0].Err != nil {
					b.Fatal(err, outcomes)
				}
				next += 1000
				if err := storetest.Trim(b.Context(), s, 1, max(0, next-20_000)); err != nil {
					b.Fatal(err)
				}
				for left := 1; left > 0; {
					if err := s.reads.QueryRowContext(b.Context(), "SELECT count(*) FROM weir_trash").Scan(&left); err != nil {
						b.Fatal(err)
					}
				}
			}
			var size float64
			if err := s.reads.QueryRowContext(b.Context(), "SELECT sum(file_size) / 1048576 FROM information_schema.innodb_sys_tablespaces WHERE name LIKE 'trim/%'").Scan(&size); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(size, "MiB-of-files")
		})
	}
}
