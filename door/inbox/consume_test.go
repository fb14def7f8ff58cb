package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/mytest"
	"github.com/weir-log/weir/internal/seed"
)

// consume calls weir_consume.
func consume(tx querier, consumer, topic string, partition int, most int64) (offsets []int64, err error) {
	events, err := readRows(tx.Query("CALL weir_consume(?, ?, ?, ?)", consumer, topic, partition, most))
	for _, e := range events {
		offsets = append(offsets, e.Offset)
	}
	return offsets, err
}

// consumeOnce consumes in a transaction of its own.
func (r *rig) consumeOnce(consumer, topic string, partition int, most int64, commit bool) (offsets []int64) {
	r.Helper()
	tx, err := r.db.BeginTx(r.Context(), nil)
	if err != nil {
		r.Fatal(err)
	}
	if offsets, err = consume(tx, consumer, topic, partition, most); err != nil {
		r.Fatal(err)
	}
	end := tx.Rollback
	if commit {
		end = tx.Commit
	}
	if err := end(); err != nil {
		r.Fatal(err)
	}
	return offsets
}

func TestAConsumersPositionCommitsWithItsTransaction(t *testing.T) {
	r := newRig(t, everystore.URL(t, "mysql"))
	p := r.partition("orders", 0)
	for range 3 {
		r.put(p, sealed(t, batch.None, make([]batch.Record, 4)...))
	}
	for _, step := range []struct {
		consumer string
		commit   bool
		want     []int64
	}{
		{"billing", false, []int64{0, 1, 2}},
		{"billing", true, []int64{0, 1, 2}},
		{"billing", false, []int64{3, 4, 5}},
		{"Billing", true, []int64{0, 1, 2}}, // another consumer
		{"billing", true, []int64{3, 4, 5}},
		{"billing", true, []int64{6, 7, 8}},
		{"billing", true, []int64{9, 10, 11}},
		{"billing", true, nil},
	} {
		if got := r.consumeOnce(step.consumer, "orders", 0, 3, step.commit); !slices.Equal(got, step.want) {
			t.Fatalf("%+v: got %d", step, got)
		}
	}
	r.put(p, sealed(t, batch.Gzip, make([]batch.Record, 5)...)) // one row
	r.put(p, sealed(t, batch.None, make([]batch.Record, 2)...))
	r.compact(batch.Compacted{Base: 17, Last: 18}, p)
	for _, want := range [][]int64{{12}, nil} {
		if got := r.consumeOnce("billing", "orders", 0, 3, true); !slices.Equal(got, want) {
			t.Fatalf("got %d, want %d", got, want)
		}
	}
	var position int64
	if err := r.db.QueryRow("SELECT next_offset FROM weir_position WHERE consumer = 'billing'").Scan(&position); err != nil || position != 19 {
		t.Errorf("the position is %d, want 19; %v", position, err)
	}
	if err := r.log.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	r.put(r.partition("orders", 0), sealed(t, batch.None, batch.Record{}))
	if got := r.consumeOnce("billing", "orders", 0, 3, true); !slices.Equal(got, []int64{0}) {
		t.Errorf("of a new topic with the same name: %d", got)
	}
}

// What a transaction has locked is left for the next time, and holds up nobody.
func TestPositionsGoWithTheirTopic(t *testing.T) {
	r := newRig(t, everystore.URL(t, "mysql"))
	for _, topic := range []string{"orders", "bills"} {
		r.put(r.partition(topic, 0), sealed(t, batch.None, batch.Record{}))
	}
	for _, consumer := range []string{"billing", "mailing", "holding"} {
		r.consumeOnce(consumer, "orders", 0, 1, true)
	}
	r.consumeOnce("billing", "bills", 0, 1, true)
	holder, err := r.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback()
	if _, err := consume(holder, "holding", "orders", 0, 1); err != nil {
		t.Fatal(err)
	}
	if err := r.log.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	r.put(r.partition("orders", 0), sealed(t, batch.None, batch.Record{}))
	r.consumeOnce("new", "orders", 0, 1, true)

	m := NewMover(r.log, r.door, r.publisher, r.logger(), nil)
	want := func(when, want string) {
		t.Helper()
		if _, err := m.step(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got string
		if err := r.db.QueryRow("SELECT GROUP_CONCAT(consumer ORDER BY consumer) FROM weir_position").Scan(&got); err != nil || got != want {
			t.Errorf("%s there are the positions of %s, want %s; %v\n%s", when, got, want, err, r.said)
		}
	}
	want("after the topic", "billing,holding,new")
	if err := holder.Rollback(); err != nil {
		t.Fatal(err)
	}
	want("before an hour has gone by", "billing,holding,new")
	m.prunedAt = m.prunedAt.Add(-forgetEvery)
	want("after an hour", "billing,new")
}

// Several programs with one consumer's name, which sometimes roll back: each event is handled in
// exactly one committed transaction, and in order.
func TestConsumersOfOneNameHandleEachEventOnce(t *testing.T) {
	random := seed.Random(t)
	r := newRig(t, everystore.URL(t, "mysql"))
	const programs, events = 3, 300
	p := r.partition("orders", 0)
	for range events / 3 {
		r.put(p, sealed(t, batch.None, make([]batch.Record, 3)...))
	}
	if _, err := r.db.Exec("CREATE TABLE handled (event_offset BIGINT PRIMARY KEY, nth BIGINT AUTO_INCREMENT UNIQUE)"); err != nil {
		t.Fatal(err)
	}
	// While the position does not exist, InnoDB may find a deadlock between those who insert it.
	if got := r.consumeOnce("billing", "orders", 0, 1, true); !slices.Equal(got, []int64{0}) {
		t.Fatal(got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for n := range programs {
		rolls := random.Uint64()
		isolation := []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead}[n%2]
		wg.Go(func() {
			for turn := 0; ; turn++ {
				tx, err := r.db.BeginTx(ctx, &sql.TxOptions{Isolation: isolation})
				if err != nil {
					t.Error(err)
					return
				}
				offsets, err := consume(tx, "billing", "orders", 0, 7)
				for _, offset := range offsets {
					if err == nil {
						_, err = tx.Exec("INSERT INTO handled (event_offset) VALUES (?)", offset)
					}
				}
				end := tx.Commit
				if rolls>>(turn%64)&1 == 0 {
					end = tx.Rollback
				}
				if err == nil {
					err = end()
				}
				if err != nil {
					t.Error(err)
					return
				}
				var done int
				if err := r.db.QueryRowContext(ctx, "SELECT count(*) FROM handled").Scan(&done); err != nil {
					t.Error(err)
					return
				}
				if done == events-1 {
					return
				}
			}
		})
	}
	wg.Wait()
	var disorder int
	const compare = "SELECT count(*) FROM handled a JOIN handled b ON b.nth > a.nth WHERE b.event_offset < a.event_offset"
	if err := r.db.QueryRow(compare).Scan(&disorder); err != nil || disorder != 0 {
		t.Errorf("%d pairs of events were handled in the wrong order; %v", disorder, err)
	}
}

func TestSQLRefusesToConsumeWhatIsNotThere(t *testing.T) {
	r := newRig(t, everystore.URL(t, "mysql"))
	r.put(r.partition("orders", 0), sealed(t, batch.None, batch.Record{}))
	for name, c := range map[string]struct {
		args []any
		want string
	}{
		"no consumer":      {[]any{nil, "orders", 0, 1}, "consumer is NULL"},
		"unknown topic":    {[]any{"c", "nobody", 0, 1}, "topic 'nobody' does not exist"},
		"partition 2 of 2": {[]any{"c", "orders", 2, 1}, "partition 2 does not exist"},
		"partition -1":     {[]any{"c", "orders", -1, 1}, "partition -1 does not exist"},
		"no partition":     {[]any{"c", "orders", nil, 1}, "partition_number is NULL"},
	} {
		tx, err := r.db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec("CALL weir_consume(?, ?, ?, ?)", c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error about %q", name, err, c.want)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.count("weir_position"); n != 0 {
		t.Errorf("%d positions were stored", n)
	}
	if _, err := r.db.Exec("CALL weir_consume('c', 'orders', 0, 1)"); err == nil || !strings.Contains(err.Error(), "begin a transaction first") {
		t.Errorf("outside of a transaction: %v", err)
	}
	conn, err := r.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range []string{"SET autocommit = 0", "CALL weir_consume('c', 'orders', 0, 1)", "ROLLBACK", "SET autocommit = 1"} {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Errorf("without autocommit each statement is in a transaction, and %s fails: %v", statement, err)
		}
	}
	if got := fmt.Sprint(r.consumeOnce("c", "orders", 0, 1, true)); got != "[0]" {
		t.Errorf("%s, want [0]", got)
	}
}

// The defaults of the server, of the database and of the program's session do not change what SQL
// reads and consumes.
func TestSQLReadsAndConsumesOnAnOddServer(t *testing.T) {
	server := mytest.Start(t, "--max-allowed-packet=4M", "--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT", "--character-set-server=latin1", "--lower-case-table-names=1",
		"--default-time-zone=-05:00", "--autocommit=0")
	r := newRig(t, server.URL())
	records, p := odd(), r.partition("orders", 0)
	var want []shownEvent
	for i := range records {
		records[i].Offset = int64(i)
		want = append(want, shown(records[i]))
	}
	r.put(p, sealed(t, batch.None, records...))
	sameEvents(t, r.readOn("orders", 0, 0, 3), want)
	for _, consumer := range []string{"☂ one", "☂ two", "? one"} {
		if got := r.consumeOnce(consumer, "orders", 0, 3, true); !slices.Equal(got, []int64{0, 1, 2}) {
			t.Errorf("consumer %s: %d", consumer, got)
		}
	}
	if got := r.consumeOnce("☂ one", "orders", 0, 1, true); !slices.Equal(got, []int64{3}) {
		t.Errorf("%d, want [3]", got)
	}
	large := int64(len(records))
	r.put(p, sealed(t, batch.None, batch.Record{Value: make([]byte, 5<<20)}))
	r.put(p, sealed(t, batch.None, batch.Record{Value: make([]byte, 3<<20)}))
	if _, err := read(r.db, "orders", 0, large, 10); err == nil || !strings.Contains(err.Error(), "max_allowed_packet is 4194304: raise it, or use another door") {
		t.Errorf("a batch larger than a packet: %v", err)
	}
	if events := r.readOn("orders", 0, large+1, 10); len(events) != 1 || len(events[0].Value) != 3<<20 {
		t.Errorf("%d events after it", len(events))
	}
}
