package sqlfn

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
	"github.com/weir-log/weir/use/stream"
)

// still is a mover that nobody runs, and that carries positions only when told to.
func still(t *testing.T, address string) *Mover {
	t.Helper()
	store, door := attached(t, address)
	log, err := eventlog.Open(t.Context(), store, eventlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { log.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	m := New(log, door, Config{Streams: stream.New(log, stream.Config{})})
	m.positions.carried = time.Now().Add(time.Hour)
	return m
}

// Positions rest in the inbox for a moment, where every mover finds them. The one that comes second
// goes on where it was: to look through the whole inbox again would cost most where most consume.
func TestAMoverWhosePositionsAnotherCarriedDoesNotBeginAnew(t *testing.T) {
	address := pgtest.URL(t)
	one, two := still(t, address), still(t, address)
	topic, err := one.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	Fill(t, one.log, topic)
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	run := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	// step lets a mover look once, and carry positions if it is to.
	step := func(m *Mover, carry bool, want error) {
		t.Helper()
		m.positions.carried = time.Now().Add(time.Hour)
		if carry {
			m.positions.carried = time.Time{}
		}
		if _, err := m.step(t.Context()); !errors.Is(err, want) {
			t.Fatalf("got %v, want %v", err, want)
		}
	}
	waiting := func(m *Mover, want int) {
		t.Helper()
		if got := len(m.positions.rows); got != want {
			t.Fatalf("%d positions wait, want %d", got, want)
		}
	}
	run(`SELECT weir.publish('orders', NULL, 'has no place'); UPDATE weir.inbox SET partition = 7`) // left alone: found by who begins anew
	run(`SELECT weir.commit_offset('g', 'orders', 0, 10)`)
	step(one, false, nil)
	waiting(one, 1)
	step(two, false, nil)
	waiting(two, 1)
	step(one, true, nil)
	waiting(one, 0)
	run(`SELECT weir.commit_offset('g', 'orders', 0, 20)`)
	step(two, true, errTaken) // it has two, one of which was carried
	waiting(two, 2)
	chunk, err := two.inbox.poll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(chunk.rows) > 0 {
		t.Errorf("the next look found %d rows that were found before", len(chunk.rows))
	}
	two.inbox.pass(chunk)
	step(two, true, nil)
	if got := pgtest.Value(t, address, `SELECT count(*) FROM weir.inbox WHERE grp IS NOT NULL`); got != "0" {
		t.Errorf("%s positions are still in the inbox", got)
	}
	if got := pgtest.Value(t, address, `SELECT committed_offset FROM weir.groups`); got != "20" {
		t.Errorf("the group is at %s, want 20", got)
	}
}

// A lane finds positions, and the main lane finds them again behind it: they are in the inbox until
// they are carried.
func TestAPositionThatIsFoundTwiceIsCarriedOnce(t *testing.T) {
	address := pgtest.URL(t)
	m := still(t, address)
	ordersTopic(t, m)
	topic, err := m.log.Topic(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	Fill(t, m.log, topic)
	pgtest.Exec(t, address, `SELECT weir.commit_offset('g', 'orders', 0, 10)`)
	pgtest.Exec(t, address, `SELECT weir.commit_offset('g', 'orders', 0, 20)`)
	chunk, err := m.inbox.poll(t.Context())
	if err != nil || len(chunk.rows) != 2 {
		t.Fatal(err, chunk)
	}
	m.positions.add(chunk.rows)
	m.positions.add(chunk.rows[1:])
	if err := m.carryPositions(t.Context()); err != nil {
		t.Errorf("the positions were not carried: %v", err)
	}
	if got := pgtest.Value(t, address, `SELECT committed_offset FROM weir.groups`); got != "20" {
		t.Errorf("the group is at %s, want 20", got)
	}
}

// attached opens a store and its door, without a log.
func attached(t *testing.T, address string) (*postgres.Store, *Door) {
	t.Helper()
	store, err := postgres.Open(t.Context(), address, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	door, err := Attach(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	return store, door
}
