package inbox

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "modernc.org/sqlite"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/mytest"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/use/publish"
)

// kinds are the stores that have an inbox.
var kinds = []string{"sqlite", "mysql"}

// rig is a log with an inbox, and a program's connections to its database.
type rig struct {
	*testing.T
	store     eventlog.Store
	log       *eventlog.Log
	publisher *publish.Publisher
	door      *Door
	url       string
	db        *sql.DB
	said      *syncBuffer // what was logged
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (r *rig) logger() *slog.Logger { return slog.New(slog.NewTextHandler(r.said, nil)) }

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func onEach(t *testing.T, test func(r *rig)) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) { test(newRig(t, everystore.URL(t, kind))) })
	}
}

func newRig(t *testing.T, url string) *rig {
	t.Helper()
	r := &rig{T: t, url: url, said: &syncBuffer{}}
	logger := slog.New(slog.NewTextHandler(r.said, nil))
	r.store = everystore.Open(t, url)
	var err error
	if r.door, err = Attach(t.Context(), r.store, logger); err != nil {
		t.Fatal(err)
	}
	if r.log, err = eventlog.Open(t.Context(), r.store, eventlog.Config{Logger: logger}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.log.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	r.publisher = publish.New(r.log, publish.Config{})
	r.db = program(t, url)
	for _, topic := range []string{"orders", "bills"} {
		if _, err := r.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: topic, Partitions: 2}); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// isMariaDB reports whether the rig's server is MariaDB, and not MySQL.
func (r *rig) isMariaDB() bool {
	r.Helper()
	return strings.Contains(mytest.Value(r.T, r.url, "SELECT VERSION()"), "MariaDB")
}

// program opens the database as any program could.
func program(t *testing.T, url string) *sql.DB {
	t.Helper()
	driver, source := "sqlite", strings.TrimPrefix(url, "sqlite:")+"?_pragma=busy_timeout(10000)&_txlock=immediate"
	if server, is := strings.CutPrefix(url, "mysql://"); is {
		user, rest, _ := strings.Cut(server, "@")
		host, name, _ := strings.Cut(rest, "/")
		config := mysql.NewConfig()
		config.User, config.Passwd, _ = strings.Cut(user, ":")
		config.Net, config.Addr, config.DBName = "tcp", host, name
		driver, source = "mysql", config.FormatDSN()
	}
	if strings.HasPrefix(url, "postgres") {
		driver, source = "pgx", url
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// move runs a mover until the test ends, or until the returned function is called.
func (r *rig) move() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = NewMover(r.log, r.door, r.publisher, slog.New(slog.NewTextHandler(r.said, nil)), nil).Run(ctx)
	}()
	stop = func() { cancel(); <-ended }
	r.Cleanup(stop)
	return stop
}

// insert publishes values to a topic in one transaction, with one key.
func (r *rig) insert(topic, key string, commit bool, values ...string) {
	r.Helper()
	tx, err := r.db.BeginTx(r.Context(), nil)
	if err != nil {
		r.Fatal(err)
	}
	var args []any
	for _, v := range values {
		args = append(args, topic, nil, []byte(key), []byte(v), nil, nil, int64(1700000000000))
	}
	if _, err := tx.ExecContext(r.Context(), Insert(len(values)), args...); err != nil {
		r.Fatal(err)
	}
	end := tx.Rollback
	if commit {
		end = tx.Commit
	}
	if err := end(); err != nil {
		r.Fatal(err)
	}
}

// events waits until a topic has n events and the inbox is empty, and returns their values by key,
// in order.
func (r *rig) events(topic string, n int) map[string][]string {
	r.Helper()
	about, err := r.log.Topic(r.Context(), topic)
	if err != nil {
		r.Fatal(err)
	}
	found, total := map[string][]string{}, 0
	want := eventlog.Want{MaxWait: 20 * time.Millisecond}
	for _, p := range about.Partitions {
		want.Spans = append(want.Spans, eventlog.Span{Partition: p, MaxBytes: 1 << 20})
	}
	for deadline := time.Now().Add(time.Minute); total < n || r.count("weir_inbox") > 0; {
		if time.Now().After(deadline) {
			r.Fatalf("%d of %d events of %s after a minute; what was logged:\n%s", total, n, topic, r.said)
		}
		got, err := r.log.Fetch(r.Context(), want)
		if err != nil {
			r.Fatal(err)
		}
		for i, slice := range got {
			if slice.Err != nil {
				r.Fatal(slice.Err)
			}
			for _, b := range slice.Batches {
				for rec, err := range b.Decode() {
					if err != nil {
						r.Fatal(err)
					}
					found[string(rec.Key)] = append(found[string(rec.Key)], string(rec.Value))
					total++
				}
				want.Spans[i].From = b.End()
			}
		}
	}
	if total > n {
		r.Fatalf("%d events of %s, want %d: %v", total, topic, n, found)
	}
	return found
}

func (r *rig) count(table string) (n int) {
	r.Helper()
	if err := r.db.QueryRowContext(r.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		r.Fatal(err)
	}
	return n
}

// Several movers, which end and begin again, publish each committed row exactly once, and rows of
// one session in their order.
func TestMoversPublishEachCommittedRowOnceAndInOrder(t *testing.T) {
	onEach(t, func(r *rig) {
		random := seed.Random(r)
		const sessions, transactions = 4, 40
		var wg sync.WaitGroup
		counts := make([]int, sessions)
		for s := range sessions {
			rolls := random.Uint64()
			wg.Go(func() {
				for n := range transactions {
					commit := rolls>>(n%60)&1 == 0
					var values []string
					for range 1 + n%5 {
						values = append(values, fmt.Sprint(counts[s]+len(values)))
					}
					r.insert("orders", fmt.Sprint("session", s), commit, values...)
					if commit {
						counts[s] += len(values)
					}
				}
			})
		}
		inserted := make(chan struct{})
		go func() { wg.Wait(); close(inserted) }()
		r.move()
		for restarts := 0; ; restarts++ {
			stop := r.move()
			select {
			case <-time.After(time.Duration(random.IntN(60)) * time.Millisecond):
				stop()
				continue
			case <-inserted:
				r.Logf("a mover began %d times", restarts)
			}
			break
		}
		all := 0
		for _, n := range counts {
			all += n
		}
		got := r.events("orders", all)
		for s, n := range counts {
			for i, v := range got[fmt.Sprint("session", s)] {
				if v != fmt.Sprint(i) {
					r.Fatalf("session %d: event %d is %s; of %d", s, i, v, n)
				}
			}
		}
	})
}

// failing fails to delete rows, as a mover that dies after its entry was committed.
type failing struct{ database }

var errDied = errors.New("died")

func (f failing) remove(context.Context, string, []int64, []int64) error { return errDied }

func TestWhatWasPublishedAndNotDeletedIsNotPublishedAgain(t *testing.T) {
	onEach(t, func(r *rig) {
		r.insert("orders", "k", true, "0", "1", "2")
		dying := *r.door
		dying.database = failing{r.door.database}
		m := NewMover(r.log, &dying, r.publisher, slog.New(slog.NewTextHandler(r.said, nil)), nil)
		if _, err := m.step(r.Context()); !errors.Is(err, errDied) {
			r.Fatal(err)
		}
		if n := r.count("weir_inbox"); n != 3 {
			r.Fatalf("%d rows are left, want 3", n)
		}
		r.insert("orders", "k", true, "3")
		r.move()
		if got := fmt.Sprint(r.events("orders", 4)["k"]); got != "[0 1 2 3]" {
			r.Error(got)
		}
	})
}

// Somebody empties the table, and its ids begin again at 1 (TRUNCATE does that on MariaDB and
// MySQL): rows that come then are not those that a mover published before, whatever their times
// are.
func TestRowsWithIDsOfEarlierOnesArePublished(t *testing.T) {
	onEach(t, func(r *rig) {
		r.insert("orders", "k", true, "0", "1", "2")
		stop := r.move()
		r.events("orders", 3)
		stop()
		empty := []string{"TRUNCATE TABLE weir_inbox"}
		if strings.HasPrefix(r.url, "sqlite:") {
			empty = []string{"DELETE FROM weir_inbox", "DELETE FROM sqlite_sequence WHERE name = 'weir_inbox'"}
		}
		for _, statement := range empty {
			if _, err := r.db.ExecContext(t.Context(), statement); err != nil {
				r.Fatal(err)
			}
		}
		r.insert("orders", "k", true, "3", "4", "5")
		r.move()
		if got := fmt.Sprint(r.events("orders", 6)["k"]); got != "[0 1 2 3 4 5]" {
			r.Error(got)
		}
	})
}

// A row that can never be published is kept beside, with the reason, and those after it are
// published.
func TestARowOfADeletedTopicIsKeptAndHoldsNobodyUp(t *testing.T) {
	onEach(t, func(r *rig) {
		r.insert("orders", "k", true, "0")
		r.insert("bills", "k", true, "lost", "too")
		r.insert("orders", "k", true, "1")
		if err := r.log.DeleteTopic(r.Context(), "bills"); err != nil {
			r.Fatal(err)
		}
		r.move()
		if got := fmt.Sprint(r.events("orders", 2)["k"]); got != "[0 1]" {
			r.Error(got)
		}
		var reason, value string
		if err := r.db.QueryRow("SELECT reason, event_value FROM weir_inbox_refused ORDER BY id LIMIT 1").Scan(&reason, &value); err != nil {
			r.Fatal(err)
		}
		if !strings.Contains(reason, "bills") || value != "lost" || r.count("weir_inbox_refused") != 2 {
			r.Errorf("%d rows were refused, the first, %q, because %q", r.count("weir_inbox_refused"), value, reason)
		}
		if !strings.Contains(r.said.String(), "weir_inbox_refused") {
			r.Error("nothing was logged about it")
		}
	})
}

// An event is for the topic that there was when it was published, not for one with the same name.
func TestARowOfADeletedTopicDoesNotReachItsNamesake(t *testing.T) {
	publish := map[string]string{
		"sqlite": "INSERT INTO weir_inbox (topic, event_value) VALUES ('bills', 'old')",
		"mysql":  "CALL weir_publish('bills', NULL, 'old')",
	}
	onEach(t, func(r *rig) {
		kind := strings.TrimPrefix(r.Name(), "TestARowOfADeletedTopicDoesNotReachItsNamesake/")
		if _, err := r.db.Exec(publish[kind]); err != nil {
			r.Fatal(err)
		}
		if err := r.log.DeleteTopic(r.Context(), "bills"); err != nil {
			r.Fatal(err)
		}
		if _, err := r.log.CreateTopic(r.Context(), eventlog.TopicSpec{Name: "bills", Partitions: 1}); err != nil {
			r.Fatal(err)
		}
		if _, err := r.db.Exec(strings.Replace(publish[kind], "old", "new", 1)); err != nil {
			r.Fatal(err)
		}
		r.move()
		if got := fmt.Sprint(r.events("bills", 1)[""]); got != "[new]" || r.count("weir_inbox_refused") != 1 {
			r.Errorf("%s, and %d rows were refused, want [new] and 1", got, r.count("weir_inbox_refused"))
		}
	})
}

// behind begins a log on a store that hears of other processes' changes when it asks.
func behind(t *testing.T, store eventlog.Store) (*eventlog.Log, *publish.Publisher) {
	t.Helper()
	log, err := eventlog.Open(t.Context(), store, eventlog.Config{Poll: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- log.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return log, publish.New(log, publish.Config{})
}

// anew deletes a topic and makes it anew.
func (r *rig) anew(topic string) {
	r.Helper()
	if err := r.log.DeleteTopic(r.Context(), topic); err != nil {
		r.Fatal(err)
	}
	if _, err := r.log.CreateTopic(r.Context(), eventlog.TopicSpec{Name: topic, Partitions: 2}); err != nil {
		r.Fatal(err)
	}
}

// A process that has not heard yet that a topic was made anew does not refuse an event for good
// that is for the new one.
func TestARowOfATopicThatIsNewToTheProcessIsMoved(t *testing.T) {
	onEach(t, func(r *rig) {
		log, publisher := behind(r.T, everystore.Open(r.T, r.url))
		r.anew("bills")
		r.insert("bills", "k", true, "0")
		m := NewMover(log, r.door, publisher, r.logger(), nil)
		for r.count("weir_inbox") > 0 {
			if _, err := m.step(r.Context()); err != nil {
				r.Fatal(err)
			}
		}
		if n := r.count("weir_inbox_refused"); n > 0 {
			r.Fatalf("%d rows were refused", n)
		}
		if got := fmt.Sprint(r.events("bills", 1)["k"]); got != "[0]" {
			r.Error(got)
		}
	})
}

func TestARowKeepsKeyHeadersPartitionAndTime(t *testing.T) {
	onEach(t, func(r *rig) {
		_, err := r.db.Exec(Insert(2),
			"orders", nil, []byte("k"), []byte{}, `{"b": "1", "a": null, "n": 2}`, int64(1), int64(1700000000123),
			"orders", nil, []byte("k"), nil, nil, int64(1), int64(1700000000124))
		if err != nil {
			r.Fatal(err)
		}
		r.move()
		r.events("orders", 2)
		topic, _ := r.log.Topic(r.Context(), "orders")
		got, err := r.log.Fetch(r.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: topic.Partitions[1], MaxBytes: 1 << 20}}})
		if err != nil {
			r.Fatal(err)
		}
		var text []string
		for _, b := range got[0].Batches {
			for rec, err := range b.Decode() {
				if err != nil {
					r.Fatal(err)
				}
				line := fmt.Sprintf("%s=%q %v %d", rec.Key, rec.Value, rec.Value == nil, rec.Timestamp)
				for _, h := range rec.Headers {
					line += fmt.Sprintf(" %s:%q:%v", h.Key, h.Value, h.Value == nil)
				}
				text = append(text, line)
			}
		}
		want := `[k="" false 1700000000123 b:"1":false a:"":true n:"2":false k="" true 1700000000124]`
		if got := fmt.Sprint(text); got != want {
			r.Errorf("%s, want %s", got, want)
		}
	})
}

// What the mover would refuse is refused when it is published.
func TestSQLRefusesWhatCannotBePublished(t *testing.T) {
	calls := map[string]string{
		"sqlite": "INSERT INTO weir_inbox (topic, event_key, event_value, headers, partition_number) VALUES (?, ?, ?, ?, ?)",
		"mysql":  "CALL weir_publish_event(?, ?, ?, ?, ?)",
	}
	for kind, call := range calls {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, everystore.URL(t, kind))
			if _, err := r.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "states", Partitions: 1, Config: map[string]string{"cleanup.policy": "compact,delete"}}); err != nil {
				t.Fatal(err)
			}
			for name, c := range map[string]struct {
				args []any
				want string
			}{
				"unknown topic":    {[]any{"nobody", "k", "v", nil, nil}, "does not exist"},
				"nothing":          {[]any{"orders", nil, nil, nil, nil}, "tombstone"},
				"too large":        {[]any{"orders", "k", strings.Repeat("v", 1<<20+1), nil, nil}, "max.message.bytes"},
				"no JSON":          {[]any{"orders", "k", "v", "{", nil}, "headers must be a JSON object"},
				"no object":        {[]any{"orders", "k", "v", `["a"]`, nil}, "headers must be a JSON object"},
				"partition 2 of 2": {[]any{"orders", "k", "v", nil, 2}, "partition"},
				"partition -1":     {[]any{"orders", "k", "v", nil, -1}, "partition"},
				"compacted":        {[]any{"states", nil, "v", nil, nil}, "has no key"},
			} {
				if _, err := r.db.Exec(call, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %v, want an error about %q", name, err, c.want)
				}
			}
			if n := r.count("weir_inbox"); n != 0 {
				t.Errorf("%d rows were inserted", n)
			}
			if _, err := r.db.Exec(call, "states", "k", "v", nil, nil); err != nil {
				t.Error(err)
			}
			if _, err := r.db.Exec(call, "orders", "k", "v", `{"a": "1"}`, 1); err != nil {
				t.Error(err)
			}
			r.move()
			r.events("orders", 1)
		})
	}
}

func TestProceduresPublishInTheCallersTransaction(t *testing.T) {
	r := newRig(t, everystore.URL(t, "mysql"))
	r.move()
	for n, commit := range []bool{false, true} {
		tx, err := r.db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec("CALL weir_publish(?, ?, ?)", "orders", "k", fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(r.events("orders", 1)["k"]); got != "[1]" {
		t.Error(got)
	}
}

// A user who may only call the procedures publishes and reads; weir's own user need not be allowed
// to create procedures.
func TestRightsOfUsersOnMySQL(t *testing.T) {
	server := mytest.Start(t)
	url := server.URL()
	r := newRig(t, url)
	database := url[strings.LastIndex(url, "/")+1:]
	mytest.Exec(t, server.Admin(), "CREATE USER app@127.0.0.1 IDENTIFIED BY 'secret'")
	mytest.Exec(t, server.Admin(), "GRANT EXECUTE ON PROCEDURE "+database+".weir_publish TO app@127.0.0.1")
	app := program(t, strings.Replace(url, "root@", "app:secret@", 1))
	if _, err := app.Exec("CALL weir_publish('orders', 'k', 'v')"); err != nil {
		t.Error(err)
	}
	if _, err := app.Exec("DELETE FROM weir_inbox"); err == nil {
		t.Error("the program may delete rows of the inbox")
	}
	r.move()
	r.events("orders", 1)
	if _, err := app.Exec("CALL weir_events('orders', 0, 0, 1)"); err == nil {
		t.Error("a program that may only publish reads events")
	}
	mytest.Exec(t, server.Admin(), "CREATE USER analyst@127.0.0.1 IDENTIFIED BY 'secret'")
	mytest.Exec(t, server.Admin(), "GRANT EXECUTE ON PROCEDURE "+database+".weir_events TO analyst@127.0.0.1", "GRANT EXECUTE ON PROCEDURE "+database+".weir_partitions TO analyst@127.0.0.1")
	analyst := program(t, strings.Replace(url, "root@", "analyst:secret@", 1))
	found := 0
	for partition := range 2 {
		events, err := read(analyst, "orders", partition, 0, 10)
		if err != nil {
			t.Error(err)
		}
		found += len(events)
	}
	if _, err := analyst.Exec("CALL weir_partitions(NULL)"); err != nil || found != 1 {
		t.Errorf("the analyst reads %d events, want 1; %v", found, err)
	}
	if _, err := analyst.Exec("CALL weir_consume('c', 'orders', 0, 10)"); err == nil || !strings.Contains(err.Error(), "denied") {
		t.Errorf("an analyst consumes: %v", err)
	}
	mytest.Exec(t, server.Admin(), "CREATE USER billing@127.0.0.1 IDENTIFIED BY 'secret'", "GRANT EXECUTE ON PROCEDURE "+database+".weir_consume TO billing@127.0.0.1")
	tx, err := program(t, strings.Replace(url, "root@", "billing:secret@", 1)).Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := consume(tx, "billing", "orders", 0, 10); err != nil {
		t.Error(err)
	}
	if err := tx.Commit(); err != nil {
		t.Error(err)
	}
	if _, err := analyst.Exec("SELECT * FROM weir_piece"); err == nil {
		t.Error("the analyst may read tables")
	}

	mytest.Exec(t, server.Admin(), "CREATE USER weir@127.0.0.1 IDENTIFIED BY 'secret'")
	own := server.URL()
	mytest.Exec(t, server.Admin(), "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX ON "+own[strings.LastIndex(own, "/")+1:]+".* TO weir@127.0.0.1")
	r = newRig(t, strings.Replace(own, "root@", "weir:secret@", 1))
	if !strings.Contains(r.said.String(), "CREATE ROUTINE") {
		t.Errorf("no warning that the procedures are missing: %s", r.said)
	}
	r.insert("orders", "k", true, "v")
	r.move()
	r.events("orders", 1)
}

// Two inboxes have different names, so a log that was copied does not delete rows of its own inbox,
// whose ids were used in the other one.
func TestAnInboxHasANameOfItsOwn(t *testing.T) {
	for _, kind := range kinds {
		one, two := newRig(t, everystore.URL(t, kind)), newRig(t, everystore.URL(t, kind))
		if one.door.name == two.door.name || one.door.name == "" {
			t.Errorf("on %s: %q and %q", kind, one.door.name, two.door.name)
		}
	}
}

func TestWaitingCountsTheRows(t *testing.T) {
	for _, kind := range kinds {
		store := everystore.Open(t, everystore.URL(t, kind))
		if n, err := Waiting(t.Context(), store); err != nil || n != 0 {
			t.Errorf("%s without the table: %d, %v", kind, n, err)
		}
	}
	for _, kind := range kinds {
		url := everystore.URL(t, kind)
		r := newRig(t, url)
		r.insert("orders", "k", true, "0", "1")
		if n, err := Waiting(t.Context(), everystore.Open(t, url)); err != nil || n != 2 {
			t.Errorf("%s: %d, %v, want 2", kind, n, err)
		}
	}
}
