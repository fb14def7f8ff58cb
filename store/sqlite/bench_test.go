package sqlite

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/weir-log/weir/eventlog"
)

// BenchmarkCommit makes flushes of several shapes.
func BenchmarkCommit(b *testing.B) {
	for _, c := range []struct {
		name                      string
		entries, batch, partition int
	}{
		{"1x100B", 1, 100, 1}, {"4x4KiB", 4, 4 << 10, 4}, {"40x1KiB", 40, 1 << 10, 40},
		{"3x128KiB", 3, 128 << 10, 4}, {"16x128KiB", 16, 128 << 10, 4},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := benchStore(b, c.partition)
			random := rand.NewChaCha8([32]byte{})
			flush := make([]eventlog.Entry, c.entries)
			for i := range flush {
				bytes := make([]byte, c.batch)
				random.Read(bytes)
				flush[i].Batches = []eventlog.Batch{{Partition: eventlog.Partition(i % c.partition), Records: 100, MaxTime: 1, Bytes: bytes}}
			}
			b.SetBytes(int64(c.entries * c.batch))
			for b.Loop() {
				if _, err := s.Commit(b.Context(), flush); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRead reads a log from its beginning to its end, and then again.
func BenchmarkRead(b *testing.B) {
	for _, c := range []struct {
		name        string
		batch, span int
	}{{"1KiB", 1 << 10, 1 << 20}, {"128KiB", 128 << 10, 1 << 20}} {
		b.Run(c.name, func(b *testing.B) {
			s := benchStore(b, 1)
			const total = 512 << 20
			entry := eventlog.Entry{}
			for range (4 << 20) / c.batch {
				entry.Batches = append(entry.Batches, eventlog.Batch{Partition: 0, Records: 1, MaxTime: 1, Bytes: make([]byte, c.batch)})
			}
			for range total / (4 << 20) {
				if _, err := s.Commit(b.Context(), []eventlog.Entry{entry}); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(c.span))
			var at eventlog.Offset
			for b.Loop() {
				slices, err := s.Read(b.Context(), []eventlog.Span{{Partition: 0, From: at, MaxBytes: c.span}}, 1<<20)
				if err != nil {
					b.Fatal(err)
				}
				if at += eventlog.Offset(len(slices[0].Batches)); at >= slices[0].Bounds.Next {
					at = 0
				}
			}
		})
	}
}

func benchStore(b *testing.B, partitions int) *Store {
	s, err := Open(context.Background(), filepath.Join(b.TempDir(), "log.db"), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	var entry eventlog.Entry
	for id := range partitions {
		entry.Batches = append(entry.Batches, eventlog.Batch{Partition: eventlog.Partition(id)})
	}
	if _, err := s.Commit(b.Context(), []eventlog.Entry{entry}); err != nil {
		b.Fatal(err)
	}
	return s
}
