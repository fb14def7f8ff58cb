package sqlfn_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/door/sqlfn"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
	"github.com/weir-log/weir/use/group"
)

// reader is a log on PostgreSQL with a Kafka door before it, and a session that reads it with SQL.
type reader struct {
	*pgx.Conn
	t      *testing.T
	url    string
	log    *eventlog.Log
	groups *group.Coordinator
	kafka  string // where the Kafka door listens
}

func startReader(t *testing.T) *reader {
	t.Helper()
	r := &reader{t: t, url: pgtest.URL(t)}
	store, err := postgres.Open(t.Context(), r.url, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	door, err := sqlfn.Attach(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	// The records of these tests are old.
	if r.log, err = eventlog.Open(t.Context(), store, eventlog.Config{}); err != nil {
		t.Fatal(err)
	}
	r.groups = group.New(r.log, group.Config{InitialDelay: -1})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.kafka = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func() error{
		func() error { return r.log.Run(ctx) },
		func() error { return r.groups.Run(ctx) },
		func() error { return sqlfn.New(r.log, door, sqlfn.Config{}).Run(ctx) },
		func() error {
			return kafka.New(r.log, r.groups, kafka.Config{}).Serve(ctx, kafka.Listener{Listener: listener})
		},
	} {
		running.Go(func() {
			if err := run(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
		store.Close()
	})
	r.Conn = connect(t, r.url)
	return r
}

// exec runs a statement that must succeed.
func (r *reader) exec(sql string, args ...any) {
	r.t.Helper()
	if _, err := r.Exec(r.t.Context(), sql, args...); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

// topic creates a topic.
func (r *reader) topic(name string, partitions int, config map[string]string) eventlog.Topic {
	r.t.Helper()
	topic, err := r.log.CreateTopic(r.t.Context(), eventlog.TopicSpec{Name: name, Partitions: partitions, Config: config})
	if err != nil {
		r.t.Fatal(err)
	}
	return topic
}

// put appends a batch as a producer could have made it.
func (r *reader) put(p eventlog.Partition, raw []byte) {
	r.t.Helper()
	h, err := batch.Check(raw)
	if err == nil {
		_, err = r.log.Append(r.t.Context(), eventlog.Entry{Batches: []eventlog.Batch{{
			Partition: p, Records: h.Records, MaxTime: eventlog.Timestamp(h.MaxTimestamp), Bytes: raw,
		}}})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// fill appends batches of so many records each, of about 100 bytes.
func (r *reader) fill(p eventlog.Partition, sizes ...int) {
	r.t.Helper()
	n := 0
	for _, size := range sizes {
		var records []batch.Record
		for range size {
			records = append(records, batch.Record{Timestamp: 1_700_000_000_000 + int64(n), Value: make([]byte, 100)})
			n++
		}
		raw, err := batch.Seal(records, batch.None)
		if err != nil {
			r.t.Fatal(err)
		}
		r.put(p, raw)
	}
}

// client is a Kafka client.
func (r *reader) client(opts ...kgo.Opt) *kgo.Client {
	r.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(r.kafka)}, opts...)...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(cl.Close)
	return cl
}

// row is a row of weir.events.
type row struct {
	Partition   int32
	Offset      int64
	Time        *int64 // in milliseconds since 1970; nil also where it is infinite
	Key         []byte
	KeyText     *string
	Value       []byte
	ValueText   *string
	Headers     *string
	Compression *string
	Records     int32
}

// events runs a query from weir.events or weir.last_events.
func (r *reader) events(from string, args ...any) []row {
	r.t.Helper()
	rows, err := r.Query(r.t.Context(), `
		SELECT partition, "offset", CASE WHEN isfinite("timestamp") THEN round(extract(epoch FROM "timestamp") * 1000)::bigint END,
		       key, key_text, value, value_text, headers::text, compression, records
		FROM `+from, args...)
	if err != nil {
		r.t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil {
		r.t.Fatalf("%s: %v", from, err)
	}
	return list
}

// one is the one value that a query gives.
func one[T any](r *reader, sql string, args ...any) (v T) {
	r.t.Helper()
	if err := r.QueryRow(r.t.Context(), sql, args...).Scan(&v); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// limit bounds what waits for somebody else.
func (r *reader) limit() context.Context {
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	r.t.Cleanup(cancel)
	return ctx
}
