package sqlfn_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir/door/sqlfn"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/pgtest"
)

func eventRecord(value string) batch.Record {
	return batch.Record{Value: []byte(value), Timestamp: time.Now().UnixMilli()}
}

func TestAKeyGoesWhereKafkaClientsSendIt(t *testing.T) {
	address := pgtest.URL(t)
	p := start(t, address)
	const partitions = 7
	p.create("orders", partitions, nil)
	conn := connect(t, address)
	exec(t, conn, `SELECT weir.publish('orders', 'key-' || g, 'v') FROM generate_series(1, 300) AS g`)
	exec(t, conn, `SELECT weir.publish('orders', '', 'v'), weir.publish('orders', 'schlüssel', 'v'), weir.publish('orders', 'key-1', 'asked for', partition => 6)`)
	exec(t, conn, `SELECT weir.publish('orders', decode(md5(g::text), 'hex'), '\x00'::bytea) FROM generate_series(1, 100) AS g`)
	exec(t, conn, `SELECT weir.tombstone('orders', decode(md5(g::text), 'hex')) FROM generate_series(1, 100) AS g`)
	exec(t, conn, `SELECT weir.publish_all('orders', (SELECT array_agg(decode(md5(g::text), 'hex')) FROM generate_series(1, 100) AS g), (SELECT array_agg(g::text) FROM generate_series(1, 100) AS g))`)
	kafka := kgo.StickyKeyPartitioner(nil).ForTopic("orders")
	seen := make(map[string]int)
	defer func() {
		if n := len(seen); n != 300+3+100-1 { // one comes twice
			t.Errorf("%d keys came back", n)
		}
	}()
	for _, e := range p.read("orders", 603) {
		seen[e.Key]++
		want := int32(kafka.Partition(&kgo.Record{Key: []byte(e.Key)}, partitions))
		if e.Value == "asked for" {
			want = 6
		}
		if e.Partition != want {
			t.Errorf("key %q is in partition %d, and a Kafka client sends it to %d", e.Key, e.Partition, want)
		}
	}
}

func TestBatchesAreAsTheTopicAsks(t *testing.T) {
	address := pgtest.URL(t)
	p := start(t, address)
	topic := p.create("orders", 1, map[string]string{"compression.type": "zstd", "message.timestamp.type": "LogAppendTime", "max.message.bytes": "3000"})
	conn := connect(t, address)
	exec(t, conn, `SELECT weir.publish_all('orders', NULL, ARRAY(SELECT repeat('x', 500) FROM generate_series(1, 100)))`)
	p.read("orders", 100)
	slices, err := p.log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: topic.Partitions[0], MaxBytes: 1 << 20}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range slices[0].Batches {
		h, err := batch.Parse(b.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if h.Attributes.Codec() != batch.Zstd || !h.Attributes.AppendTime() || h.Records > 6 || h.Records < 4 {
			t.Errorf("a batch of %d records, codec %v, append time %v", h.Records, h.Attributes.Codec(), h.Attributes.AppendTime())
		}
	}
}

// journal is a log for people that a test reads.
type journal struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(b)
}

func (j *journal) lines(containing string) (found []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.buf.String()) {
		if strings.Contains(line, containing) {
			found = append(found, line)
		}
	}
	return found
}

// A topic that is made again under its old name is another one.
func TestADeletedTopicTakesItsEventsAlong(t *testing.T) {
	address := pgtest.URL(t)
	setup := start(t, address)
	setup.create("orders", 2, nil)
	setup.create("kept", 1, nil)
	setup.stop()
	conn := connect(t, address)
	exec(t, conn, `SELECT weir.publish('orders', g::text, 'old'), weir.publish('kept', NULL, 'kept') FROM generate_series(1, 50) AS g`)
	admin := open(t, address)
	defer admin.store.Close()
	go admin.log.Run(t.Context())
	if err := admin.log.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	admin.create("orders", 2, nil)
	exec(t, conn, `SELECT weir.publish('orders', NULL, 'new')`)
	var said journal
	p := startWith(t, address, sqlfn.Config{Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if got := p.read("kept", 50); len(got) != 50 {
		t.Errorf("%d events", len(got))
	}
	if got := values(p.read("orders", 1)); len(got) != 1 || got[0] != "new" {
		t.Errorf("the new topic has %q", got)
	}
	if lines := said.lines("dropped"); len(lines) != 1 || !strings.Contains(lines[0], "events=50") {
		t.Errorf("said: %q", lines)
	}
}

// One partition is damaged: its rows stay, and the others' are moved.
func TestAPartitionThatCannotBeWrittenHoldsUpNoOther(t *testing.T) {
	address := pgtest.URL(t)
	var said journal
	p := startWith(t, address, sqlfn.Config{Logger: slog.New(slog.NewTextHandler(&said, nil))})
	topic := p.create("orders", 3, nil)
	if _, err := p.store.Commit(t.Context(), []eventlog.Entry{{Forgets: topic.Partitions[1:2]}}); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, address)
	for round := range 3 {
		for n := range 3 {
			exec(t, conn, `SELECT weir.publish('orders', NULL, $1, partition => $2)`, fmt.Sprint(round), n)
		}
		eventually(t, "the other partitions have theirs", func() bool {
			for _, n := range []int{0, 2} {
				if b, _ := p.log.Bounds(t.Context(), topic.Partitions[n]); b[0].Bounds.Next != eventlog.Offset(round+1) {
					return false
				}
			}
			return true
		})
	}
	if got := pgtest.Value(t, address, `SELECT count(*) FROM weir.inbox`); got != "3" {
		t.Errorf("%s rows are in the inbox, want 3", got)
	}
	if lines := said.lines("stay in weir.inbox"); len(lines) == 0 || !strings.Contains(lines[0], "partition=1") {
		t.Errorf("said: %q", lines)
	}
}

// What only the owner of the tables can write.
func TestRowsThatAreNoEventsStayWhereTheyAre(t *testing.T) {
	address := pgtest.URL(t)
	var said journal
	p := startWith(t, address, sqlfn.Config{Logger: slog.New(slog.NewTextHandler(&said, nil))})
	topic := p.create("orders", 1, nil)
	conn := connect(t, address)
	for _, row := range []string{`7, '{}'`, `NULL, '[1]'`, `NULL, '"a"'`} {
		exec(t, conn, `INSERT INTO weir.inbox (xact, topic, value, size, partition, headers) SELECT pg_current_xact_id(), $1, 'odd', 1, `+row, topic.ID.String())
		exec(t, conn, `SELECT weir.publish('orders', 'k', 'v')`)
	}
	p.read("orders", 3)
	if got := pgtest.Value(t, address, `SELECT count(*) FROM weir.inbox`); got != "3" {
		t.Errorf("%s rows are in the inbox, want the 3 odd ones", got)
	}
	if lines := said.lines("cannot move events published by SQL into the log; they stay"); len(lines) == 0 {
		t.Error("nothing was said")
	}
}

// A mover that has not heard of a topic, or of its new partitions, asks before it judges.
func TestTopicsOfOtherProcessesAreKnownInTime(t *testing.T) {
	address := pgtest.URL(t)
	p, other := start(t, address), open(t, address)
	defer other.store.Close()
	go other.log.Run(t.Context())
	other.create("orders", 1, nil)
	conn := connect(t, address)
	exec(t, conn, `SELECT weir.publish('orders', 'k', 'v')`)
	p.read("orders", 1)
	if _, err := other.log.ChangeTopic(t.Context(), "orders", eventlog.TopicChange{Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, `SELECT weir.publish('orders', 'k', 'v', partition => 3)`)
	eventually(t, "the new partitions are known", func() bool {
		topic, err := p.log.Topic(t.Context(), "orders")
		return err == nil && len(topic.Partitions) == 4
	})
	if got := p.read("orders", 2); got[1].Partition != 3 {
		t.Errorf("%+v", got)
	}
}
