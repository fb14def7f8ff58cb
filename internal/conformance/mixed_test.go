package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestWhatNobodyReadIsMissing(t *testing.T) {
	began := time.Now()
	at := func(n int) time.Time { return began.Add(time.Duration(n) * time.Second) }
	r := newReads(2)
	r.published(0, 0, "a", at(1))
	r.published(1, 0, "b", at(1))
	r.line("one", "read 0 0 a", at(2))
	if got := r.missing(time.Time{}, nil); got != "nobody has read partition 1, offset 0" {
		t.Errorf("of all it misses %q", got)
	}
	r.line("one", "read 1 0 b", at(2))
	if got := r.missing(time.Time{}, nil); got != "" {
		t.Errorf("of all it misses %q", got)
	}
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() {}, "nobody reads partition 0"},
		{func() { r.published(0, 1, "c", at(4)) }, "nobody reads partition 0"},
		{func() { r.line("one", "read 0 1 c", at(5)) }, "nobody reads partition 1"},
		{func() { r.line("two", "read 1 1 d", at(2)) }, "nobody reads partition 1"}, // before the publisher hears of it
		{func() { r.published(1, 1, "d", at(4)) }, "two reads nothing"},
		{func() { r.line("two", "read 1 1 d", at(6)) }, ""},
	} {
		step.do()
		if got := r.missing(at(3), []string{"one", "two"}); got != step.want {
			t.Errorf("since 3 it misses %q, want %q", got, step.want)
		}
	}
}

func TestAwaitSaysWhatIsMissing(t *testing.T) {
	r := newReads(1)
	r.published(0, 7, "a", time.Now())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.await(ctx, time.Time{}, nil, time.Minute); err == nil || !strings.Contains(err.Error(), "partition 0, offset 7") {
		t.Errorf("it says %v", err)
	}
}

func TestARoundHasWhatWaitedAndWhatCameAgain(t *testing.T) {
	began := time.Now()
	r := newReads(1)
	r.round("a broker is killed")
	r.published(0, 0, "a", began)
	r.line("one", "read 0 0 a", began.Add(3*time.Second))
	r.line("two", "read 0 0 a", began.Add(4*time.Second))
	r.handedOver()
	r.published(0, 1, "b", began)
	r.line("two", "read 0 1 b", began.Add(9*time.Second))
	if r.waited() != 3*time.Second || r.cameAgain() != 1 {
		t.Errorf("it waited %v, and %d came again", r.waited(), r.cameAgain())
	}
	var out strings.Builder
	if err := r.verdict(&out); err != nil || !strings.Contains(out.String(), "| a broker is killed | 1 | 3.0 s | 3.0 s | 1 | 1 |") {
		t.Errorf("the verdict is %v:\n%s", err, out.String())
	}
}

func TestAnotherValueAndAnotherWordAreFaults(t *testing.T) {
	for _, lines := range [][]string{{"read 0 0 a", "read 0 0 b"}, {"read 1 0 a"}, {"says 0 0 a"}, {"read 0"}} {
		r := newReads(1)
		for _, line := range lines {
			r.line("one", line, time.Now())
		}
		if err := r.verdict(io.Discard); err == nil || !strings.HasPrefix(err.Error(), "1 faults") {
			t.Errorf("after %q the verdict is %v", lines, err)
		}
	}
}

func TestHarmOfNoSuchNameIsRefused(t *testing.T) {
	err := runMixed(t.Context(), options{rounds: 1, run: "an earthquake"}, t.TempDir())
	if err == nil || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "no harm has such a name") {
		t.Errorf("it says %v", err)
	}
}
