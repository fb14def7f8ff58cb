package sqlfn_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/pgtest"
)

// BenchmarkEvents counts a topic with SQL, again and again. Beside the time it tells what of the
// server's processor each record took, which does not depend on what else the machine does.
func BenchmarkEvents(b *testing.B) {
	value := fmt.Appendf(nil, `{"id": 1234567, "name": "customer", "pad": %q}`, strings.Repeat("x", 80))
	trace := []batch.RecordHeader{{Key: "traceparent", Value: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")}}
	for _, c := range []struct {
		name   string
		batch  int
		record batch.Record
	}{
		{"130B", 100, batch.Record{Key: []byte("key-1"), Value: value}},
		{"1KiB", 100, batch.Record{Key: []byte("key-1"), Value: bytes.Repeat([]byte("x"), 1<<10)}},
		{"130B-each-its-own-batch", 1, batch.Record{Key: []byte("key-1"), Value: value}},
		{"130B-with-a-header", 100, batch.Record{Key: []byte("key-1"), Value: value, Headers: trace}},
		{"130B-no-text", 100, batch.Record{Key: []byte("key-1"), Value: append([]byte{0xff}, value...)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			const records = 50_000
			address := pgtest.URL(b)
			p := start(b, address)
			at := p.create("t", 1, map[string]string{"retention.ms": "-1"}).Partitions[0]
			list := make([]batch.Record, c.batch)
			for i := range list {
				list[i] = c.record
			}
			raw, err := batch.Seal(list, batch.None)
			if err != nil {
				b.Fatal(err)
			}
			var last *eventlog.Ticket // the others are durable before it
			for range records / c.batch {
				last = p.log.Submit(b.Context(), eventlog.Entry{Batches: []eventlog.Batch{{Partition: at, Records: int32(c.batch), Bytes: bytes.Clone(raw)}}})
			}
			if _, err := last.Wait(b.Context()); err != nil {
				b.Fatal(err)
			}
			conn := connect(b, address)
			before := ticks(conn.PgConn().PID())
			for b.Loop() {
				var n int
				if err := conn.QueryRow(b.Context(), `SELECT count(*) FROM weir.events('t')`).Scan(&n); err != nil || n != records {
					b.Fatal(n, err)
				}
			}
			done := float64(b.N) * records
			b.ReportMetric(done/b.Elapsed().Seconds(), "records/s")
			if after := ticks(conn.PgConn().PID()); after > before {
				b.ReportMetric((after-before)*10_000/done, "server-µs/record")
			}
		})
	}
}

// ticks is how many hundredths of a second a process of this machine has taken of its processors; 0
// where that cannot be told.
func ticks(pid uint32) float64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return user + system
}
