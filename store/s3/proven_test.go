package s3

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/doctor"
)

// Unclear answers do not prove that a server honours If-None-Match; some of them do not keep others
// from proving it.
func TestUnclearAnswersProveNothing(t *testing.T) {
	for name, c := range map[string]struct {
		unclear func(n int32) bool
		opens   bool
	}{
		"all":                {func(int32) bool { return true }, false},
		"every third":        {func(n int32) bool { return n%3 == 0 }, true},
		"those of a moment":  {func(n int32) bool { return n < 12 }, true},
		"that of each fifth": {func(n int32) bool { return n%5 == 0 }, false},
	} {
		for _, done := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, done: %v", name, done), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFake()
					var puts atomic.Int32
					f.answerPuts(func(key string, do func() error) error {
						if !strings.HasPrefix(key, "probe/") || !c.unclear(puts.Add(1)) {
							return do()
						}
						if done {
							_ = do()
						}
						return errLost
					})
					s, err := f.open(t.Context(), quick)
					if err == nil {
						defer s.Close()
					}
					if (err == nil) != c.opens || err != nil && !errors.Is(err, eventlog.ErrUnavailable) {
						t.Errorf("%v; it opens: %v", err, c.opens)
					}
				})
			})
		}
	}
}

// A process that is alone, by its URL, sees all the same what a command wrote into the bucket, and
// that the bucket does not answer. It costs two gets every verify, and some of upkeep.
func TestAProcessThatIsAloneLooksNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		at := quick
		at.alone, at.verify, at.poll = true, 10*time.Second, time.Second
		s, err := f.open(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		command, err := f.open(t.Context(), quick)
		if err != nil {
			t.Fatal(err)
		}
		defer command.Close()
		if err := putKey(t, command, "revoked"); err != nil {
			t.Fatal(err)
		}
		pass(at.verify)
		found, err := s.Get(t.Context(), []string{"revoked"}, 100)
		if err != nil || found[0].Version == 0 {
			t.Errorf("after %v it has %v, %v", at.verify, found, err)
		}
		var gets atomic.Int32
		f.answerGets(func(string) { gets.Add(1) })
		_, mark, err := s.Changes(t.Context(), eventlog.Mark{})
		for began := time.Now(); err == nil && time.Since(began) < time.Hour; pass(time.Second / 2) {
			_, mark, err = s.Changes(t.Context(), mark)
		}
		if most := 2*int32(time.Hour/at.verify) + 60; err != nil || gets.Load() > most || gets.Load() < most/3 {
			t.Errorf("an idle hour took %d gets, at most %d are promised; %v", gets.Load(), most, err)
		}
		gone := &deaf{s.bucket}
		s.bucket = gone
		pass(at.verify)
		if _, _, err := s.Changes(t.Context(), mark); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("the bucket does not answer, and the log's poll is told %v", err)
		}
	})
}

// deaf is a bucket that does not answer gets.
type deaf struct{ bucket }

func (d *deaf) get(context.Context, string, int64, int64) ([]byte, answer, error) {
	return nil, answer{}, errLost
}

// The server's clock is a day ahead for a moment. Keys that are put afterwards are as old as they
// are.
func TestAgesAfterTheServersClockWasAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s, err := f.open(t.Context(), quick)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		f.pass(24 * time.Hour)
		if err := putKey(t, s, "ahead"); err != nil {
			t.Fatal(err)
		}
		f.pass(-24 * time.Hour)
		if err := putKey(t, s, "after"); err != nil {
			t.Fatal(err)
		}
		if err := s.snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		fresh, err := f.open(t.Context(), quick)
		if err != nil {
			t.Fatal(err)
		}
		defer fresh.Close()
		pass(time.Hour)
		for _, s := range []*Store{s, fresh} {
			found, err := s.Get(t.Context(), []string{"after", "ahead"}, 100)
			if err != nil {
				t.Fatal(err)
			}
			if age := found[0].Age; age > time.Hour || age < time.Hour-5*time.Second {
				t.Errorf("an hour later its age is %v", age)
			}
		}
	})
}

// The server's clock was ahead when a process asked last. It is suspended while commits are
// deleted, and is not told that its commit is done.
func TestAWriterIsPowerlessThatWasSuspendedWhenTheServersClockWasAhead(t *testing.T) {
	f := newFake()
	zombie := opened(t, f)
	mustPublish(t, zombie, "a")
	f.pass(24 * time.Hour)
	expect(t, zombie, "a")
	f.pass(-24 * time.Hour)
	s := opened(t, f)
	zombie.mu.Lock()
	zombie.verified = time.Now().Add(time.Hour) // it was suspended before its put
	zombie.mu.Unlock()
	f.answerPuts(func(key string, do func() error) error {
		f.answerPuts(nil)
		tended(t, s, f, "b", "c")
		if len(f.Keys(key)) > 0 {
			t.Fatalf("%s was not deleted: the test tests nothing", key)
		}
		return do()
	})
	if _, err := publish(t, zombie, "lost"); !errors.Is(err, eventlog.ErrUnsure) {
		t.Errorf("the suspended writer was told %v, want ErrUnsure", err)
	}
	for _, s := range []*Store{zombie, s, opened(t, f)} {
		expect(t, s, "a", "b", "c")
	}
}

// S3 takes a put up to 15 minutes after it was signed, which may be more than grace. A commit that
// arrives when others of its number were deleted lies where nobody looks, and is deleted.
func TestAPutThatArrivesAfterGraceDoesNoHarm(t *testing.T) {
	f := newFake()
	writer, s := opened(t, f), opened(t, f)
	mustPublish(t, writer, "a")
	var late func() error
	ctx, giveUp := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer giveUp()
	f.answerPuts(func(_ string, do func() error) error { late = do; return errLost })
	c := writer.compose(effects{puts: []put{{key: "late", version: 1, value: []byte("late")}}})
	if _, _, err := writer.create(ctx, ctx, c, nil); !errors.Is(err, eventlog.ErrUnsure) {
		t.Fatal(err)
	}
	f.answerPuts(nil)
	tended(t, s, f, "b", "c", "d")
	if len(f.Keys(commitKey(c.number))) > 0 {
		t.Fatal("the commit of its number was not deleted: the test tests nothing")
	}
	if err := late(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Store{writer, s, opened(t, f)} {
		expect(t, s, "a", "b", "c", "d")
		if keys := has(t, s); len(keys) > 0 {
			t.Errorf("the store has %v", keys)
		}
	}
	if findings, level := examined(t, f); level >= doctor.Bad {
		t.Errorf("doctor says %v", findings)
	}
	tended(t, s, f, "e", "f")
	if len(f.Keys(commitKey(c.number))) > 0 {
		t.Error("it was not deleted")
	}
}
