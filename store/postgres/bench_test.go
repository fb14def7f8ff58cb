package postgres_test

import (
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
)

// benchStore opens a store with some partitions on a server of its own, which waits for the disk.
func benchStore(b *testing.B, partitions int) *postgres.Store {
	b.Helper()
	s, err := postgres.Open(b.Context(), pgtest.Start(b).URL(), postgres.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	var open eventlog.Entry
	for p := range partitions {
		open.Batches = append(open.Batches, eventlog.Batch{Partition: eventlog.Partition(p)})
	}
	benchCommit(b, s, []eventlog.Entry{open})
	return s
}

func benchCommit(b *testing.B, s *postgres.Store, flush []eventlog.Entry) {
	outcomes, err := s.Commit(b.Context(), flush)
	if err != nil {
		b.Fatal(err)
	}
	for _, o := range outcomes {
		if o.Err != nil {
			b.Fatal(o.Err)
		}
	}
}

func noise(size int) []byte {
	bytes := make([]byte, size)
	rand.Read(bytes)
	return bytes
}

// BenchmarkCommit makes flushes of several shapes, of bytes that do not compress.
func BenchmarkCommit(b *testing.B) {
	for _, c := range []struct {
		name                       string
		entries, batch, partitions int
		puts                       bool
	}{
		{"1x100B", 1, 100, 1, false}, {"40x300B+40puts", 40, 300, 40, true}, {"40x1KiB", 40, 1 << 10, 40, false},
		{"3x128KiB", 3, 128 << 10, 4, false}, {"12x128KiB", 12, 128 << 10, 4, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := benchStore(b, c.partitions)
			flush := make([]eventlog.Entry, c.entries)
			for i := range flush {
				flush[i].Batches = []eventlog.Batch{{Partition: eventlog.Partition(i % c.partitions), Records: 100, MaxTime: 1, Bytes: noise(c.batch)}}
				if c.puts {
					flush[i].Puts = []eventlog.Put{{Key: fmt.Sprint("key/", i), Version: 1, Value: noise(50), AddBase: 1}}
				}
			}
			b.SetBytes(int64(c.entries * c.batch))
			for b.Loop() {
				benchCommit(b, s, flush)
			}
		})
	}
}

// BenchmarkRead reads a log from its beginning to its end, and then again.
func BenchmarkRead(b *testing.B) {
	for _, c := range []struct {
		name  string
		batch int
	}{{"100B", 100}, {"1KiB", 1 << 10}, {"128KiB", 128 << 10}} {
		b.Run(c.name, func(b *testing.B) {
			s := benchStore(b, 1)
			const span, flush, flushes = 1 << 20, 2 << 20, 128
			entry := eventlog.Entry{}
			for range flush / c.batch {
				entry.Batches = append(entry.Batches, eventlog.Batch{Partition: 0, Records: 1, MaxTime: 1, Bytes: noise(c.batch)})
			}
			for range min(flushes, 1_000_000*c.batch/flush) {
				benchCommit(b, s, []eventlog.Entry{entry})
			}
			b.SetBytes(span)
			var at eventlog.Offset
			for b.Loop() {
				slices, err := s.Read(b.Context(), []eventlog.Span{{Partition: 0, From: at, MaxBytes: span}}, 1<<20)
				if err != nil {
					b.Fatal(err)
				}
				last := slices[0].Batches[len(slices[0].Batches)-1]
				if at = last.Base + 1; at == slices[0].Bounds.Next {
					at = 0
				}
			}
		})
	}
}

// BenchmarkLayout compares the ways for 12 batches of 128 KiB to rest in PostgreSQL. See
// docs/decisions.
func BenchmarkLayout(b *testing.B) {
	const size, count = 128 << 10, 12
	for _, c := range []struct{ name, table, insert string }{
		{"TOAST", `CREATE TABLE t (id bigserial, n int, bytes bytea, PRIMARY KEY (id, n)); ALTER TABLE t ALTER bytes SET STORAGE EXTERNAL`,
			`INSERT INTO t (n, bytes) SELECT 0, substring($1::bytea FROM b * 131072 + 1 FOR 131072) FROM generate_series(0, 11) AS b`},
		{"pieces", `CREATE TABLE t (id bigserial, n int, bytes bytea, PRIMARY KEY (id, n)); ALTER TABLE t ALTER bytes SET STORAGE PLAIN`,
			`INSERT INTO t (n, bytes) SELECT n, substring($1::bytea FROM b * 131072 + n * 8088 + 1 FOR least(8088, 131072 - n * 8088))
			 FROM generate_series(0, 11) AS b, generate_series(0, 131071 / 8088) AS n`},
		{"nothing", `SELECT 1`, `SELECT octet_length($1::bytea)`},
	} {
		b.Run(c.name, func(b *testing.B) {
			config, err := pgx.ParseConfig(pgtest.Start(b).URL())
			if err != nil {
				b.Fatal(err)
			}
			config.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
			conn, err := pgx.ConnectConfig(b.Context(), config)
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close(b.Context())
			if _, err := conn.PgConn().Exec(b.Context(), c.table).ReadAll(); err != nil {
				b.Fatal(err)
			}
			body := noise(size * count)
			b.SetBytes(size * count)
			for b.Loop() {
				if _, err := conn.Exec(b.Context(), c.insert, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
