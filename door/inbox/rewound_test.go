package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/use/publish"
)

// another are the statements after which a database is in another incarnation.
var another = map[string]string{
	"sqlite": "CREATE TABLE another (n INTEGER)", // it changes the version of the schema
	"mysql":  "DELETE FROM weir_life",            // as a restart of the server does
}

// backup copies the log, and returns a function that puts the copy back and keeps the inbox: what
// a failover to a replica does that lacks what was committed to the log since.
func (r *rig) backup() (putBack func()) {
	r.Helper()
	kind, _, _ := strings.Cut(r.url, ":")
	tables := map[string][]string{
		"sqlite": {"partition", "batch", "body", "state"},
		"mysql":  {"weir_partition", "weir_piece", "weir_batch", "weir_state"}, // in the order in which the sweeper locks their rows
	}[kind]
	for _, table := range tables {
		if _, err := r.db.Exec("CREATE TABLE copy_of_" + table + " AS SELECT * FROM " + table); err != nil {
			r.Fatal(err)
		}
	}
	return func() {
		r.Helper()
		tx, err := r.db.Begin()
		if err != nil {
			r.Fatal(err)
		}
		statements := []string{another[kind]}
		for _, table := range tables {
			statements = append(statements, "DELETE FROM "+table, "INSERT INTO "+table+" SELECT * FROM copy_of_"+table)
		}
		for _, statement := range statements {
			if _, err := tx.Exec(statement); err != nil {
				r.Fatalf("%s: %v", statement, err)
			}
		}
		if err := tx.Commit(); err != nil {
			r.Fatal(err)
		}
	}
}

// late is a database that is rewound before a mover changes what it has read there.
type late struct {
	database
	rewind func()
}

func (l late) remove(ctx context.Context, in string, ids, times []int64) error {
	l.rewind()
	return l.database.remove(ctx, in, ids, times)
}

func (l late) refuse(ctx context.Context, in string, id int64, reason string) error {
	l.rewind()
	return l.database.refuse(ctx, in, id, reason)
}

// lateMover returns a mover on a late database.
func (r *rig) lateMover() *Mover {
	r.Helper()
	door := *r.door
	door.database = late{r.door.database, r.backup()}
	return NewMover(r.log, &door, r.publisher, r.logger(), nil)
}

// The entry that published a chunk was acknowledged, and is lost. The mover is late to delete the
// chunk's rows, which are there: they are all that is left of the events.
func TestWhatAFailoverLostIsPublishedAgain(t *testing.T) {
	onEach(t, func(r *rig) {
		r.insert("orders", "k", true, "0", "1", "2")
		_, err := r.lateMover().step(r.Context())
		if n := r.count("weir_inbox"); !errors.Is(err, eventlog.ErrRewound) || n != 3 {
			r.Fatalf("the late mover: %v; %d rows are left, want 3", err, n)
		}
		if !strings.Contains(err.Error(), "depends on a read") {
			r.Fatalf("the mover was not late: %v", err)
		}
		r.move()
		for deadline := time.Now().Add(time.Minute); r.count("weir_inbox") > 0; <-time.After(time.Millisecond) {
			if time.Now().After(deadline) {
				r.Fatalf("rows are left after a minute; what was logged:\n%s", r.said)
			}
		}
		if got := fmt.Sprint(r.events("orders", 3)["k"]); got != "[0 1 2]" {
			r.Error(got)
		}
	})
}

// The row that has the id now may be another one.
func TestARowIsNotRefusedInAnotherIncarnation(t *testing.T) {
	onEach(t, func(r *rig) {
		m := r.lateMover()
		if _, err := r.db.Exec("INSERT INTO weir_inbox (id, topic, topic_id, event_value, published_at) VALUES (5, 'orders', 'no id', 'v', 7)"); err != nil {
			r.Fatal(err)
		}
		_, err := m.step(r.Context())
		if n, refused := r.count("weir_inbox"), r.count("weir_inbox_refused"); !errors.Is(err, eventlog.ErrRewound) || n != 1 || refused != 0 {
			r.Errorf("%v; %d rows are left, and %d were refused", err, n, refused)
		}
	})
}

// lateToForget is late with positions, too.
type lateToForget struct {
	mysqlTables
	rewind func()
}

func (l lateToForget) forgetPositions(ctx context.Context, in, topic string) error {
	l.rewind()
	return l.mysqlTables.forgetPositions(ctx, in, topic)
}

// The deletion of a topic is lost: its consumers go on where they were.
func TestPositionsOfATopicThatAFailoverBroughtBackStay(t *testing.T) {
	r := newRig(t, everystore.URL(t, "mysql"))
	r.put(r.partition("orders", 0), sealed(t, batch.None, batch.Record{}))
	r.consumeOnce("billing", "orders", 0, 1, true)
	putBack, times := r.backup(), 0
	if err := r.log.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	door := *r.door
	door.database = lateToForget{r.door.database.(mysqlTables), func() { putBack(); times++ }}
	NewMover(r.log, &door, r.publisher, r.logger(), nil).forgetPositions(t.Context())
	if n := r.count("weir_position"); n != 1 || times != 1 {
		t.Errorf("%d positions are left, want 1; the mover was late %d times; what was logged:\n%s", n, times, r.said)
	}
}

func TestNothingOfAShardIsChangedInAnotherIncarnation(t *testing.T) {
	r := newSetRig(t, "postgres", "mysql", "sqlite")
	for n, m := range r.opened() {
		r.in(n, true, "k", "0")
		chunk, err := m.read(t.Context())
		if err != nil || len(chunk) != 1 {
			t.Fatalf("shard %d: %d rows, %v", n, len(chunk), err)
		}
		id, at := chunk[0].id, chunk[0].at
		changes := []struct {
			name                   string
			run                    func(in string) error
			rows, targets, refused int // afterwards
		}{
			{"aim", func(in string) error { return m.door.aim(t.Context(), in, []target{{id: id}}) }, 1, 1, 0},
			{"remove", func(in string) error { return m.door.remove(t.Context(), in, []int64{id}, []int64{at}) }, 0, 0, 0},
			{"refuse", func(in string) error { return m.door.refuse(t.Context(), in, id+1, "why") }, 0, 0, 1},
		}
		rows, targets := 1, 0
		for _, c := range changes {
			if c.name == "refuse" {
				r.in(n, true, "k", "1")
				rows++
			}
			if err := c.run("another"); !errors.Is(err, eventlog.ErrRewound) {
				t.Errorf("shard %d: %s in another incarnation: %v", n, c.name, err)
			}
			if got := r.rows(n, "weir_inbox"); got != rows {
				t.Errorf("shard %d: %s in another incarnation left %d rows, want %d", n, c.name, got, rows)
			}
			if got := r.rows(n, "weir_inbox_target"); got != targets {
				t.Errorf("shard %d: %s in another incarnation left %d targets, want %d", n, c.name, got, targets)
			}
			if err := c.run(m.in); err != nil {
				t.Errorf("shard %d: %s: %v", n, c.name, err)
			}
			rows, targets = r.rows(n, "weir_inbox"), r.rows(n, "weir_inbox_target")
			if refused := r.rows(n, "weir_inbox_refused"); rows != c.rows || targets != c.targets || refused != c.refused {
				t.Errorf("shard %d: after %s there are %d rows, %d targets and %d refused rows; want %d, %d and %d", n, c.name, rows, targets, refused, c.rows, c.targets, c.refused)
			}
		}
	}
}

// keyOn returns a key whose partition of orders is on a shard.
func (r *setRig) keyOn(shard int) string {
	r.Helper()
	about, err := r.log.Topic(r.Context(), "orders")
	if err != nil {
		r.Fatal(err)
	}
	for i := 0; ; i++ {
		key := fmt.Sprint("key ", i)
		_, number, err := r.publisher.Choose(r.Context(), &publish.Event{Topic: "orders", Key: []byte(key)})
		if err != nil {
			r.Fatal(err)
		}
		if about.Partitions[number].Shard() == shard {
			return key
		}
	}
}

// A failover of a shard's database loses the deletion of a row whose event is published. A mover
// that has run all the time finds the row in the key of its partition, as one that begins does.
func TestARowThatAFailoverBringsBackIsPublishedOnce(t *testing.T) {
	for _, kinds := range [][]string{{"sqlite", "sqlite"}, {"sqlite", "mysql"}} {
		t.Run(kinds[1], func(t *testing.T) {
			r := newSetRig(t, kinds...)
			m := r.opened()[1]
			key := r.keyOn(0) // that shard loses nothing
			r.in(1, true, key, "0")
			var at int64
			if err := r.dbs[1].QueryRow("SELECT published_at FROM weir_inbox").Scan(&at); err != nil {
				t.Fatal(err)
			}
			if _, err := m.step(t.Context()); !errors.Is(err, errLearned) {
				t.Fatal(err)
			}
			if n, err := m.step(t.Context()); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			if _, err := r.dbs[1].Exec("INSERT INTO weir_inbox (id, topic, event_key, event_value, published_at) VALUES (1, 'orders', ?, '0', ?)", key, at); err != nil {
				t.Fatal(err)
			}
			if _, err := r.dbs[1].Exec(another[kinds[1]]); err != nil {
				t.Fatal(err)
			}
			for r.rows(1, "weir_inbox") > 0 {
				if _, err := m.step(t.Context()); err != nil && !errors.Is(err, errLearned) && !errors.Is(err, eventlog.ErrUnavailable) && !errors.Is(err, eventlog.ErrStale) {
					t.Fatal(err)
				}
			}
			r.once(1)
		})
	}
}

// A query is repeated if the connection broke, but not for rows that somebody has seen.
func TestABrokenConnectionShowsNoRowOfAShardTwice(t *testing.T) {
	r := newSetRig(t, "postgres", "sqlite")
	m := r.opened()[0]
	seen := map[int64]int{}
	err := m.door.query(t.Context(), func(row []any) error {
		n := row[0].(int64)
		if seen[n]++; n == 1 && seen[n] == 1 {
			_, err := r.dbs[0].Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query LIKE '%generate_series(1, 2000)%'")
			return err
		}
		return nil
	}, "SELECT n, repeat('x', 100000) FROM generate_series(1, 2000) AS n") // more than the sockets hold: the server waits to send it
	if !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("the connection broke: %v", err)
	}
	for n, times := range seen {
		if times > 1 {
			t.Fatalf("row %d was shown %d times", n, times)
		}
	}
}
