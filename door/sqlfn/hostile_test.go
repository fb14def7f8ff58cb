package sqlfn_test

import (
	"context"
	"slices"
	"testing"

	"github.com/weir-log/weir/door/sqlfn"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/publish"
)

// What a Kafka client says with its offsets is its own words, and PostgreSQL's text cannot hold a
// zero character.
func TestOddMetadataOfAKafkaClientStopsNobody(t *testing.T) {
	address := pgtest.URL(t)
	p := start(t, address)
	p.create("orders", 1, nil)
	topic := p.filled("positions", 1)
	conn := connect(t, address)
	exec(t, conn, `BEGIN; SELECT weir.commit_offset('g', 'positions', 0, 10)`)
	p.kafkaCommitWith(topic, "g", 7, "zero \x00, surrogate \xed\xa0\x80, \\u0000")
	exec(t, conn, `SELECT weir.publish('orders', NULL, 'first'); COMMIT`)
	p.read("orders", 1)
	exec(t, conn, `SELECT weir.publish('orders', NULL, 'second')`)
	p.read("orders", 2)
	if at := position(t, conn, "g", "positions"); at != 7 {
		t.Errorf("the group is at %d; the Kafka client committed 7 last", at)
	}
	exec(t, conn, `SELECT weir.commit_offset('g', 'positions', 0, 8, 7)`)
	p.carried(topic, "g", 8)
}

// A position that cannot be carried stays where it is, and the others go on.
func TestAPositionThatCannotBeCarriedHoldsUpNobody(t *testing.T) {
	address := pgtest.URL(t)
	p := start(t, address)
	topic := p.filled("orders", 1)
	conn := connect(t, address)
	exec(t, conn, `BEGIN; SELECT weir.commit_offset('broken', 'orders', 0, 10), weir.commit_offset('g', 'orders', 0, 20)`)
	key := group.OffsetKey("broken", group.TopicPartition{Topic: topic.ID})
	if _, err := p.log.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: key, Version: 1, Value: []byte("no JSON")}}}); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, `COMMIT`)
	p.carried(topic, "g", 20)
	exec(t, conn, `SELECT weir.commit_offset('g', 'orders', 0, 21)`)
	p.carried(topic, "g", 21)
}

// Rows of a topic that is deleted after the mover looked it up are dropped, and do not lie in the
// inbox for ever.
func TestRowsOfATopicDeletedMeanwhileAreDropped(t *testing.T) {
	address := pgtest.URL(t)
	other := start(t, address)
	other.create("gone", 1, nil)
	other.create("orders", 1, nil)
	other.stop()

	p := open(t, address) // it does not follow what others do, and so believes in the topic
	defer p.store.Close()
	conn := connect(t, address)
	exec(t, conn, `SELECT weir.publish('gone', NULL, 'x'), weir.publish('orders', NULL, 'y')`)
	deleter := open(t, address)
	defer deleter.store.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go deleter.log.Run(ctx)
	if err := deleter.log.DeleteTopic(ctx, "gone"); err != nil {
		t.Fatal(err)
	}
	go sqlfn.New(p.log, p.door, sqlfn.Config{}).Run(ctx)
	eventually(t, "the inbox is empty", func() bool {
		var rows int
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM weir.inbox`).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows == 0
	})
}

// A partitioner that names a partition which is not there keeps its own events, and nobody else's.
func TestAWrongPartitionerHoldsUpItsOwnEventsOnly(t *testing.T) {
	address := pgtest.URL(t)
	p := startWith(t, address, sqlfn.Config{}.WithPartitioner(func(e *publish.Event, n int) int32 {
		if string(e.Key) == "wrong" {
			return int32(n)
		}
		for _, h := range e.Headers {
			if h.Key == "to" {
				return int32(h.Value[0] - '0')
			}
		}
		return 0
	}))
	p.create("orders", 2, nil)
	conn := connect(t, address)
	exec(t, conn, `SELECT weir.publish('orders', 'a', '1'), weir.publish('orders', 'wrong', '2'), weir.publish('orders', 'a', '3', '{"to": "1"}')`)
	got := p.read("orders", 2)
	if !slices.Equal(values(got), []string{"1", "3"}) || got[1].Partition != 1 {
		t.Errorf("read %v", got)
	}
	var left string
	if err := conn.QueryRow(t.Context(), `SELECT string_agg(convert_from(value, 'UTF8'), ',') FROM weir.inbox`).Scan(&left); err != nil || left != "2" {
		t.Errorf("in the inbox: %q (%v)", left, err)
	}
}

func (p *process) kafkaCommitWith(topic eventlog.Topic, name string, offset eventlog.Offset, metadata string) {
	p.t.Helper()
	state, err := p.log.Get(p.t.Context(), group.StateKey(name))
	if err != nil {
		p.t.Fatal(err)
	}
	_, err = p.log.Append(p.t.Context(), group.OffsetEntry(state, name, []group.Committed{{
		TopicPartition: group.TopicPartition{Topic: topic.ID}, Name: topic.Name, Offset: offset, LeaderEpoch: -1, Metadata: metadata,
	}}))
	if err != nil {
		p.t.Fatal(err)
	}
}

// A Kafka client may commit with the metadata that it fetched: what it says still counts, for SQL
// as well.
func TestAKafkaClientThatCopiesMetadataIsNotTakenForTheMover(t *testing.T) {
	address := pgtest.URL(t)
	p := start(t, address)
	topic := p.filled("orders", 1)
	conn := connect(t, address)
	exec(t, conn, `SELECT weir.commit_offset('g', 'orders', 0, 10)`)
	p.carried(topic, "g", 10)
	p.kafkaCommitWith(topic, "g", 25, "weir.commit_offset 10")
	if at := position(t, conn, "g"); at != 25 {
		t.Errorf("the group is at %d; the Kafka client committed 25 last", at)
	}
	exec(t, conn, `BEGIN; SELECT weir.commit_offset('g', 'orders', 0, 30, 25)`)
	p.kafkaCommitWith(topic, "g", 28, "weir.commit_offset 10")
	exec(t, conn, `SELECT weir.commit_offset('h', 'orders', 0, 1); COMMIT`)
	p.carried(topic, "h", 1)
	p.carried(topic, "g", 28) // 30 was on its way, and does not undo it
}
