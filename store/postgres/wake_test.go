package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
)

// listen has a store wake us, and returns when it listens.
func listen(t *testing.T, s *postgres.Store) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	woken, err := s.Wake(ctx)
	if err != nil {
		t.Fatal(err)
	}
	await(t, woken) // the first says that it listens
	return woken
}

func await(t *testing.T, woken <-chan struct{}) {
	t.Helper()
	select {
	case <-woken:
	case <-time.After(30 * time.Second):
		t.Fatal("not woken for 30 seconds")
	}
}

// publishUntilWoken publishes until a wake arrives: a process learns within a second that somebody
// listens.
func publishUntilWoken(t *testing.T, s *postgres.Store, woken <-chan struct{}) {
	t.Helper()
	for late := time.Now().Add(30 * time.Second); time.Now().Before(late); {
		// Right after a restart the first may fail; what matters is the one that does not.
		_, err := s.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{batch(1, 10)}}})
		if err != nil && !errors.Is(err, eventlog.ErrUnsure) && !errors.Is(err, eventlog.ErrUnavailable) {
			t.Fatal(err)
		}
		select {
		case <-woken:
			return
		default:
		}
	}
	t.Fatal("another process published for 30 seconds, and nobody was woken")
}

func TestCommitsOfOtherProcessesWake(t *testing.T) {
	address := pgtest.URL(t)
	writer, reader := at(t, address), at(t, address)
	openPartitions(t, writer, 1)
	publishUntilWoken(t, writer, listen(t, reader))
}

func TestOwnCommitsDoNotWake(t *testing.T) {
	address := pgtest.URL(t)
	writer, reader := at(t, address), at(t, address)
	openPartitions(t, writer, 1)
	mine, theirs := listen(t, writer), listen(t, reader)
	for range 3 { // each notification that the other gets, we get
		publishUntilWoken(t, writer, theirs)
	}
	select {
	case <-mine:
		t.Error("woken by a commit of our own")
	default:
	}
	publishUntilWoken(t, reader, mine)
}

func TestListeningSurvivesARestartOfTheServer(t *testing.T) {
	srv := pgtest.Start(t)
	address := srv.URL()
	writer, reader := at(t, address), at(t, address)
	openPartitions(t, writer, 1)
	woken := listen(t, reader)
	srv.Restart()
	await(t, woken) // it listens again, and something may have been missed
	publishUntilWoken(t, writer, woken)
}

func TestWakingEndsWithItsContext(t *testing.T) {
	s := at(t, pgtest.URL(t))
	ctx, cancel := context.WithCancel(t.Context())
	woken, err := s.Wake(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for range woken { // until it is closed
	}
}

func TestAListenerThatWasKilledIsForgotten(t *testing.T) {
	address := pgtest.URL(t)
	s := at(t, address)
	pgtest.Exec(t, address, `INSERT INTO weir.listener VALUES ('killed', now() - interval '1 hour'), ('alive', now() - interval '1 minute')`)
	listen(t, s)
	if got := pgtest.Value(t, address, `SELECT string_agg(nonce, ' ') FILTER (WHERE nonce IN ('killed', 'alive')) || ', ' || count(*) FROM weir.listener`); got != "alive, 2" {
		t.Errorf("listeners: %s; want the one that said so a minute ago, and this store", got)
	}
	s.Close()
	if got := pgtest.Value(t, address, `SELECT string_agg(nonce, ' ') FROM weir.listener`); got != "alive" {
		t.Errorf("after the store was closed the listeners are: %s", got)
	}
}
