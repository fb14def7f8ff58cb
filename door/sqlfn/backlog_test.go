package sqlfn

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestABacklogWarnsOnceAMinuteUntilItIsGone(t *testing.T) {
	var b backlog
	now := time.Unix(1_000_000, 0)
	warnings := 0
	pass := func(length time.Duration) {
		for range length / time.Second {
			now = now.Add(time.Second)
			if b.warns(now) {
				warnings++
			}
		}
	}
	b.emptied(now)
	b.found(&chunk{first: row{id: 7, time: now.Add(-time.Hour)}, round: bookmark{last: 20}}) // of a transaction that was open for an hour
	if b.rows != 14 || b.age(now) != time.Hour {
		t.Errorf("%d rows, the oldest %v", b.rows, b.age(now))
	}
	if pass(9 * time.Second); warnings != 0 {
		t.Error("a warning after nine seconds")
	}
	if pass(2 * time.Minute); warnings != 2 {
		t.Errorf("%d warnings in two minutes, want 2", warnings)
	}
	b.emptied(now)
	if b.rows != 0 || b.age(now) != 0 || b.warns(now) {
		t.Error("it is gone, and there is a warning")
	}
}

// noted is an Observer that keeps what waited last.
type noted struct {
	nobody
	rows   int64
	oldest time.Duration
}

func (n *noted) Waiting(rows int64, oldest time.Duration) { n.rows, n.oldest = rows, oldest }

// A mover that moves, and never comes to the end, warns; one that gives way to another leaves that
// to it.
func TestAMoverThatDoesNotGetOnSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		seen := &noted{}
		m := &Mover{cfg: Config{Observer: seen, Logger: slog.New(slog.NewTextHandler(&said, nil))}}
		m.reportBacklog(false, nil)
		for range 20 {
			time.Sleep(time.Second)
			m.backlog.found(&chunk{first: row{id: 7, time: time.Now().Add(-time.Minute)}, round: bookmark{last: 20}})
			m.reportBacklog(true, errTaken)
		}
		if seen.rows != 14 || seen.oldest != time.Minute || said.Len() > 0 {
			t.Errorf("beside another mover: %d rows, the oldest %v: %s", seen.rows, seen.oldest, &said)
		}
		m.reportBacklog(true, nil)
		m.reportBacklog(true, nil)
		if n := strings.Count(said.String(), "weir.inbox has a backlog"); n != 1 || !strings.Contains(said.String(), "events_at_most=14 oldest=1m0s for=20s") {
			t.Errorf("told %d times: %s", n, &said)
		}
		m.reportBacklog(false, nil)
		if seen.rows != 0 || seen.oldest != 0 {
			t.Errorf("the inbox is empty, and observers hear of %d rows, the oldest %v", seen.rows, seen.oldest)
		}
	})
}
