package stream_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/stream"
)

// of are events about a subject, with ids that do not tell their data, which are their names.
func of(subject string, names ...string) []stream.NewEvent {
	events := named(names...)
	for i := range events {
		events[i].Subject = subject
		events[i].ID = fmt.Sprintf("%x", sha256.Sum256(events[i].Data))
	}
	return events
}

// readable returns the data of a stream's events; that of an erased one is "-".
func readable(t *testing.T, c *stream.Category, name string) (all []string) {
	t.Helper()
	for e, err := range c.Events(t.Context(), name, stream.Range{}) {
		check(t, err)
		if e.Erased != (e.Data == nil) || e.Erased && e.Subject == "" {
			t.Errorf("event %+v", e)
		}
		if e.Erased {
			e.Data = []byte("-")
		}
		all = append(all, string(e.Data))
	}
	return all
}

func isReadable(t *testing.T, c *stream.Category, name string, want ...string) {
	t.Helper()
	if got := readable(t, c, name); !slices.Equal(got, want) {
		t.Errorf("stream %s has %q, want %q", name, got, want)
	}
}

func TestWhatIsAboutASubjectIsForgottenInAllProcesses(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		p, c := orders(t, reopen)
		other, elsewhere := another(t, reopen)
		_, err := c.Append(t.Context(), "s", 0, append(of("ann", "secret-1"), plain("public")...)...)
		check(t, err)
		_, err = elsewhere.Append(t.Context(), "s", 2, of("bob", "secret-2")...)
		check(t, err)
		_, err = other.AppendAll(t.Context(), stream.Part{Category: elsewhere, Stream: "s", Expected: 3, Events: of("ann", "secret-3")},
			stream.Part{Category: elsewhere, Stream: "u", Expected: stream.NoStream, Events: of("ann", "secret-4")})
		check(t, err)
		for _, c := range []*stream.Category{c, elsewhere} {
			isReadable(t, c, "s", "secret-1", "public", "secret-2", "secret-3")
			isReadable(t, c, "u", "secret-4")
		}
		for _, partition := range records(t, p.log, "orders") {
			for _, r := range partition {
				if bytes.Contains(r.Value, []byte("secret")) {
					t.Errorf("the topic has %q", r.Value)
				}
			}
		}
		check(t, p.log.ListAll(t.Context(), "stream/event/", func(kv eventlog.KeyValue) error {
			if bytes.Contains(kv.Value, []byte("secret")) {
				t.Errorf("the store has %q under %s", kv.Value, kv.Key)
			}
			return nil
		}))

		for range 2 { // the second time there is nothing to do
			check(t, elsewhere.ForgetSubject(t.Context(), "ann"))
		}
		for _, c := range []*stream.Category{c, elsewhere} {
			isReadable(t, c, "s", "-", "public", "secret-2", "-")
			isReadable(t, c, "u", "-")
		}
		// Both processes remember the key that is destroyed.
		_, err = c.Append(t.Context(), "s", 4, of("ann", "later-1")...)
		check(t, err)
		_, err = other.AppendAll(t.Context(), stream.Part{Category: elsewhere, Stream: "s", Expected: 5, Events: of("ann", "later-2")})
		check(t, err)
		for _, c := range []*stream.Category{c, elsewhere} {
			isReadable(t, c, "s", "-", "public", "secret-2", "-", "later-1", "later-2")
		}
	})
}

// An append that is repeated is known by its ids, whether what it says can still be read or not. Of
// another subject it is another event.
func TestARepeatedAppendAboutASubjectIsKnown(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		for i, forget := range []bool{false, false, true, true} {
			if forget {
				check(t, c.ForgetSubject(t.Context(), "ann"))
			}
			for _, expected := range []stream.Expected{0, stream.Any} {
				done, err := c.Append(t.Context(), expected.String(), expected, of("ann", "a", "b")...)
				check(t, err)
				if done.Duplicate != (i > 0) || done.Version != 2 {
					t.Errorf("try %d at %v: %+v", i, expected, done)
				}
			}
		}
		if _, err := c.Append(t.Context(), "version 0", 0, of("bob", "a", "b")...); !errors.Is(err, stream.ErrIDReused) {
			t.Errorf("about another subject: %v", err)
		}
	})
}

func TestBadSubjectsAreRefused(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		check(t, c.ForgetSubject(t.Context(), "nobody"))
		var invalid *eventlog.InvalidError
		for _, subject := range []string{strings.Repeat("x", 256), "\xff", "a\nb"} {
			if _, err := c.Append(t.Context(), "s", stream.Any, of(subject, "a")...); !errors.As(err, &invalid) {
				t.Errorf("an append about %q: %v", subject[:1], err)
			}
			if err := c.ForgetSubject(t.Context(), subject); !errors.As(err, &invalid) {
				t.Errorf("forget %q: %v", subject[:1], err)
			}
		}
		if err := c.ForgetSubject(t.Context(), ""); !errors.As(err, &invalid) {
			t.Errorf("forget nobody: %v", err)
		}
		large := of("ann", "a")
		large[0].Data = make([]byte, 1<<20)
		if _, err := c.Append(t.Context(), "s", stream.Any, large...); !errors.Is(err, eventlog.ErrTooLarge) {
			t.Errorf("an event that encryption makes too large: %v", err)
		}
		for _, subject := range []string{"ann/../bob", strings.Repeat("ü", 127), "%2f"} {
			_, err := c.Append(t.Context(), "names", stream.Any, of(subject, subject)...)
			check(t, err)
			check(t, c.ForgetSubject(t.Context(), subject))
		}
		isReadable(t, c, "names", "-", "-", "-")
	})
}

// secrets notes which keys are put as secrets, and which are not.
type secrets struct {
	eventlog.Store
	put sync.Map // by key: whether it was a secret
}

func (s *secrets) Unwrap() eventlog.Store { return s.Store }

func (s *secrets) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	for _, e := range flush {
		for _, p := range e.Puts {
			s.put.Store(p.Key, p.Secret)
		}
	}
	return s.Store.Commit(ctx, flush)
}

// A store is told that a subject's key is to be destroyed, so that it keeps no copy for long.
func TestTheKeyOfASubjectIsASecret(t *testing.T) {
	store := &secrets{Store: memory.New()}
	_, c := orders(t, func(*testing.T) eventlog.Store { return store })
	_, err := c.Append(t.Context(), "s", 0, of("ann", "data")...)
	check(t, err)
	keys := 0
	store.put.Range(func(key, secret any) bool {
		is := strings.HasPrefix(key.(string), "stream/subject/")
		if is {
			keys++
		}
		if is != secret.(bool) {
			t.Errorf("%s was put as a secret: %v", key, secret)
		}
		return true
	})
	if keys != 1 {
		t.Errorf("%d keys of subjects were put", keys)
	}
}
