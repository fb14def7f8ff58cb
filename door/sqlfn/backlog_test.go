package sqlfn

import (
	"testing"
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
	b.found(&chunk{rows: []row{{id: 7, time: now.Add(-time.Hour)}}, round: bookmark{last: 20}}) // of a transaction that was open for an hour
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
