package weir_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
)

// worked collects what the handlers of a queue get.
func worked(t *testing.T, w *weir.Log, name string) <-chan weir.Job {
	t.Helper()
	jobs := make(chan weir.Job, 100)
	worker, err := w.Work(t.Context(), weir.WorkOptions{Queue: name, Handler: func(_ context.Context, j weir.Job) error {
		jobs <- j
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := worker.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return jobs
}

// nextJob is the next job. It waits for it.
func nextJob(t *testing.T, jobs <-chan weir.Job) weir.Job {
	t.Helper()
	select {
	case j := <-jobs:
		return j
	case <-time.After(limit):
		t.Fatal("no job came")
		return weir.Job{}
	}
}

func TestMessagesEnqueuedInATransactionExistIfItCommits(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t)
	settings := weir.QueueSettings{Unique: true, Priorities: 2}
	if err := w.CreateQueue(t.Context(), weir.Queue{Name: "mail", Partitions: 1, Settings: settings}); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), `CREATE TABLE sent (value text)`); err != nil {
		t.Fatal(err)
	}
	undone := errors.New("undone")
	err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		if err := w.EnqueueTx(t.Context(), tx, "mail", weir.NewMessage{Value: []byte("never")}, weir.NewMessage{Value: []byte("never"), Unique: "u"}); err != nil {
			return err
		}
		return undone
	})
	if !errors.Is(err, undone) {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `INSERT INTO sent VALUES ('first')`); err != nil {
			return err
		}
		return w.EnqueueTx(t.Context(), tx, "mail",
			weir.NewMessage{Key: []byte("k"), Value: []byte("first"), Headers: []weir.Header{{Key: "a", Value: []byte("b")}}},
			weir.NewMessage{Value: []byte("unique"), Unique: "u"}, weir.NewMessage{Value: []byte("again"), Unique: "u"},
			weir.NewMessage{Value: []byte("urgent"), Priority: 1}, weir.NewMessage{Value: []byte("later"), Delay: 1500 * time.Millisecond, Unique: "v"},
			weir.NewMessage{Value: []byte("past"), At: time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC)}, weir.NewMessage{})
	})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	jobs := worked(t, w, "mail")
	got := map[string]weir.Job{}
	for range 6 {
		j := nextJob(t, jobs)
		if _, twice := got[string(j.Value)]; twice {
			t.Errorf("%q came twice", j.Value)
		}
		got[string(j.Value)] = j
		if string(j.Value) == "later" && time.Since(began) < 500*time.Millisecond {
			t.Errorf("the delayed message came after %v", time.Since(began))
		}
	}
	for _, v := range []string{"first", "unique", "urgent", "later", "past", ""} {
		if _, came := got[v]; !came {
			t.Errorf("%q did not come", v)
		}
	}
	if j := got["first"]; string(j.Key) != "k" || len(j.Headers) != 1 || j.Headers[0].Key != "a" || time.Since(j.Time).Abs() > time.Minute {
		t.Errorf("the message is %+v", j)
	}

	db, err := sql.Open("pgx", s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.EnqueueSQLTx(t.Context(), tx, "mail", weir.NewMessage{Value: []byte("by database/sql")}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if j := nextJob(t, jobs); string(j.Value) != "by database/sql" {
		t.Errorf("then %q came", j.Value)
	}
	for name, m := range map[string]struct {
		queue   string
		message weir.NewMessage
		want    error
	}{
		"unknown queue":  {"bills", weir.NewMessage{}, weir.ErrUnknownQueue},
		"too large":      {"mail", weir.NewMessage{Value: make([]byte, 20<<20)}, weir.ErrTooLarge},
		"unique, no UTF": {"mail", weir.NewMessage{Unique: "\xff"}, nil},
		"priority":       {"mail", weir.NewMessage{Priority: 2}, nil},
		"year 9999":      {"mail", weir.NewMessage{At: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)}, nil},
		"negative delay": {"mail", weir.NewMessage{Delay: -time.Second}, nil},
		"both":           {"mail", weir.NewMessage{Delay: time.Second, At: time.Now()}, nil},
	} {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := w.EnqueueTx(t.Context(), tx, m.queue, m.message); err == nil || m.want != nil && !errors.Is(err, m.want) {
			t.Errorf("%s: %v", name, err)
		}
		_ = tx.Rollback(t.Context())
	}
}

func TestMessagesOfAQueueThatIsGoneLeaveTheInbox(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t)
	for _, name := range []string{"gone", "mail"} {
		if err := w.CreateQueue(t.Context(), weir.Queue{Name: name, Partitions: 1, Settings: weir.QueueSettings{Unique: true}}); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := pgx.Connect(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gone", "mail"} {
		if err := w.EnqueueTx(t.Context(), tx, name, weir.NewMessage{Value: []byte(name), Delay: time.Millisecond}, weir.NewMessage{Value: []byte(name), Unique: "u"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.DeleteQueue(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	jobs := worked(t, w, "mail")
	for range 2 {
		if j := nextJob(t, jobs); string(j.Value) != "mail" {
			t.Errorf("%q came", j.Value)
		}
	}
	for n, end := 1, time.Now().Add(limit); n > 0; {
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM weir.inbox`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			t.Fatalf("%d rows stay in the inbox", n)
		}
	}
	_, err = w.FindMessage(t.Context(), "gone", weir.MessageID{})
	if !errors.Is(err, weir.ErrUnknownQueue) || errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("the queue that is gone: %v", err)
	}
}

// The topic of priority 1 is deleted. Messages of priority 0 that their queue has to place are none
// of it; what was for priority 1 goes with it.
func TestMessagesOfOtherPrioritiesAreMovedWhenATopicIsDeleted(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t)
	if err := w.CreateQueue(t.Context(), weir.Queue{Name: "mail", Partitions: 1, Settings: weir.QueueSettings{Unique: true, Priorities: 2}}); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = w.EnqueueTx(t.Context(), tx, "mail", weir.NewMessage{Value: []byte("plain")}, weir.NewMessage{Value: []byte("unique"), Unique: "u"},
		weir.NewMessage{Value: []byte("delayed"), Delay: 10 * time.Millisecond}, weir.NewMessage{Value: []byte("gone"), Unique: "v", Priority: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.DeleteTopic(t.Context(), "mail.p1"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	jobs := worked(t, w, "mail")
	got := map[string]bool{}
	for range 3 {
		got[string(nextJob(t, jobs).Value)] = true
	}
	if !got["plain"] || !got["unique"] || !got["delayed"] {
		t.Errorf("these came: %v", got)
	}
	eventually(t, "the inbox is empty", func() bool {
		n := 1
		return conn.QueryRow(t.Context(), `SELECT count(*) FROM weir.inbox`).Scan(&n) == nil && n == 0
	})
}

func TestEnqueueInATransactionNeedsPostgreSQL(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		if err := w.EnqueueTx(t.Context(), nil, "mail", weir.NewMessage{}); !errors.Is(err, weir.ErrNotPostgres) {
			t.Errorf("%v, want ErrNotPostgres", err)
		}
	}, "memory", "sqlite")
}

func TestAMessageAckedInATransactionIsHandledExactlyOnce(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t)
	if err := w.CreateQueue(t.Context(), weir.Queue{Name: "mail", Partitions: 1, Settings: weir.QueueSettings{Lease: time.Second, Delays: []time.Duration{0}}}); err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), `CREATE TABLE sent (value text, attempt int)`); err != nil {
		t.Fatal(err)
	}
	undone := errors.New("undone")
	tries := make(chan string, 100)
	worker, err := w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Handler: func(ctx context.Context, j weir.Job) error {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO sent VALUES ($1, $2)`, string(j.Value), j.Attempt); err != nil {
				return err
			}
			if err := j.AckTx(ctx, tx); err != nil {
				return err
			}
			if string(j.Value) == "rolled back" && j.Attempt == 1 {
				return undone
			}
			return nil
		})
		tries <- string(j.Value)
		if string(j.Value) == "committed, and failed" {
			return undone
		}
		return err
	}})
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"plain", "rolled back", "committed, and failed"}
	for _, v := range all {
		if _, err := w.Enqueue(t.Context(), "mail", weir.NewMessage{Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
	for range len(all) + 1 {
		select {
		case <-tries:
		case <-time.After(limit):
			t.Fatal("nothing more is handled")
		}
	}
	for end := time.Now().Add(limit); ; {
		stats, err := w.QueueStats(t.Context(), "mail")
		if err == nil && stats.Ready+stats.Claimed+stats.Waiting == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("there is %+v, %v", stats, err)
		}
	}
	if err := worker.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(tries); n > 0 {
		t.Errorf("%d more were handled, such as %q", n, <-tries)
	}
	var got string
	if err := pool.QueryRow(t.Context(), `SELECT string_agg(format('%s %s', value, attempt), '; ' ORDER BY value) FROM sent`).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if got != "committed, and failed 1; plain 1; rolled back 2" {
		t.Errorf("handled: %s", got)
	}
}

func TestAJobThatNoWorkerClaimedIsNotAcked(t *testing.T) {
	if err := (weir.Job{}).AckTx(t.Context(), nil); err == nil {
		t.Error("it is")
	}
}
