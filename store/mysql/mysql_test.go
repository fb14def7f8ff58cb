package mysql

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/mytest"
	"github.com/weir-log/weir/store/storetest"
)

func TestMain(m *testing.M) {
	storetest.Work(open)
	os.Exit(m.Run())
}

func open(ctx context.Context, place string) (eventlog.Store, error) {
	s, err := Open(ctx, place, Options{})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Place:  func(t *testing.T) string { return mytest.URL(t) },
		Open:   open,
		Backup: backup,
	})
}

var allTables = []string{"weir_migration", "weir_partition", "weir_batch", "weir_piece", "weir_state", "weir_trash", "weir_swept", "weir_guard", "weir_life"}

// backup copies a database, and returns a function that puts the copy in its place, as mysqldump's
// files do: tables are dropped and created again, under open connections.
func backup(t *testing.T, address string) (restore func()) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	name := u.Path[1:]
	copied := name + "_copy"
	copyAll := func(from, to string) {
		t.Helper()
		for _, table := range allTables {
			mytest.Exec(t, address, "CREATE TABLE "+to+"."+table+" LIKE "+from+"."+table, "INSERT INTO "+to+"."+table+" SELECT * FROM "+from+"."+table)
		}
	}
	mytest.Exec(t, address, "CREATE DATABASE "+copied)
	t.Cleanup(func() { mytest.Exec(t, address, "DROP DATABASE "+copied) })
	copyAll(name, copied)
	return func() {
		t.Helper()
		const created = "SELECT timestampdiff(SECOND, create_time, now()) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'weir_partition'"
		for mytest.Value(t, address, created) == "0" { // the time has seconds; nobody restores a backup in the second in which the tables were created
		}
		for _, table := range allTables {
			mytest.Exec(t, address, "DROP TABLE "+table)
		}
		copyAll(copied, name)
	}
}

// Who must stop does not wait for answerMax: here another transaction has a lock.
func TestATransactionThatIsNotAnsweredEndsSoonAfterItsCaller(t *testing.T) {
	s := at(t, mytest.URL(t))
	release := lock(t, s.reads, "SELECT id FROM weir_guard WHERE id = 0 FOR UPDATE")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	_, err := change(ctx, s.commits, func(tx *transaction) (none struct{}, err error) {
		var locking text
		var now incarnation
		begin(&locking, &now, false)
		leave()
		return none, tx.run(&locking)
	})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("the transaction ended with %v, want one that certainly did not happen, because its caller left", err)
	}
	release()
	must(t, s, eventlog.Entry{Puts: []eventlog.Put{{Key: "k", Version: 1, Value: []byte("v")}}})
}

func TestWhoLeavesDoesNotWaitForABarrier(t *testing.T) {
	s := at(t, mytest.URL(t))
	if err := s.passBarrier(t.Context()); err != nil { // the row is there now
		t.Fatal(err)
	}
	release := lock(t, s.commits, "SELECT * FROM weir_barrier FOR UPDATE")
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if err := s.passBarrier(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("for a caller who has left: %v, want that it was cancelled", err)
	}
	release()
	if err := s.passBarrier(t.Context()); err != nil {
		t.Errorf("for the next caller: %v", err)
	}
}

// lock locks rows in a transaction of its own, until the function that it returns is called.
func lock(t *testing.T, db *sql.DB, rows string) (release func()) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	release = func() { _ = tx.Rollback() }
	t.Cleanup(release)
	return release
}
