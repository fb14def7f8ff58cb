package user

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
)

// withUser makes users of whom there is one.
func withUser(t *testing.T, store eventlog.Store, name, password string, m Mechanism, iterations int) *Users {
	t.Helper()
	c, err := FromPassword(m, password, iterations)
	if err != nil {
		t.Fatal(err)
	}
	users := New(everystore.Direct(store), slog.New(slog.DiscardHandler))
	if err := users.Change(t.Context(), []Change{{Name: name, Set: map[Mechanism]Credential{m: c}}})[0]; err != nil {
		t.Fatal(err)
	}
	return users
}

func TestPasswordsAreComparedWithTheUsersCredential(t *testing.T) {
	for _, m := range Mechanisms {
		p := NewPasswords(withUser(t, memory.New(), "alice", "right password", m, IterationsMin))
		found, err := p.Check(t.Context(), "alice", "right password")
		if err != nil || found.Name() != "alice" || !found.Known() {
			t.Errorf("%s: %+v, %v", m, found, err)
		}
		for what, c := range map[string]struct {
			name, password string
			want           error
		}{
			"a wrong password":            {"alice", "wrong password", ErrPassword},
			"no password":                 {"alice", "", ErrPassword},
			"a password that is too long": {"alice", fmt.Sprintf("%0257d", 0), ErrPassword},
			"an unknown user":             {"bob", "right password", ErrUnknown},
			"no user":                     {"", "right password", ErrUnknown},
			"an impossible user":          {"al\x00ice", "right password", ErrUnknown},
		} {
			if found, err := p.Check(t.Context(), c.name, c.password); !errors.Is(err, c.want) || found.Known() {
				t.Errorf("%s: %s: %+v, %v", m, what, found, err)
			}
			if _, ok, err := p.Recall(t.Context(), c.name, c.password); ok || err != nil {
				t.Errorf("%s: %s is remembered: %v", m, what, err)
			}
		}
	}
	nobody := NewPasswords(New(everystore.Direct(memory.New()), slog.New(slog.DiscardHandler)))
	if _, err := nobody.Check(t.Context(), "alice", "right password"); !errors.Is(err, ErrUnknown) {
		t.Errorf("without users: %v", err)
	}
}

// Whoever measures the time of an answer cannot tell which names exist: an unknown name costs what
// some user costs.
func TestAnUnknownNameCostsWhatAUserCosts(t *testing.T) {
	store := memory.New()
	withUser(t, store, "alice", "long enough", SHA512, 5000)
	users := withUser(t, store, "bob", "long enough", SHA512, 6000)
	seen := map[int]bool{}
	for i := 0; i < 100 || len(seen) < 2 && i < 1_000_000; i++ { // two users' shares may be unequal
		found, err := users.login(t.Context(), fmt.Sprint("nobody", i))
		if err != nil || found.known || found.m != SHA512 {
			t.Fatalf("%+v, %v", found, err)
		}
		again, _ := users.login(t.Context(), fmt.Sprint("nobody", i))
		if again.Iterations != found.Iterations {
			t.Errorf("nobody%d costs %d hashes, and then %d", i, found.Iterations, again.Iterations)
		}
		seen[found.Iterations] = true
	}
	if len(seen) != 2 || !seen[5000] || !seen[6000] {
		t.Errorf("unknown names cost %v hashes", seen)
	}
	if found, err := NewPasswords(users).Check(t.Context(), "nobody1", "long enough"); !errors.Is(err, ErrUnknown) {
		t.Errorf("with the password of the user whose work it imitates: %+v, %v", found, err)
	}
}

func TestARightPasswordIsRememberedUntilTheUserChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		users := withUser(t, store, "alice", "right password", SHA256, IterationsMin)
		p := NewPasswords(users)
		recalls := func() bool {
			t.Helper()
			found, ok, err := p.Recall(t.Context(), "alice", "right password")
			if err != nil || ok && found.Name() != "alice" {
				t.Fatalf("%+v, %v", found, err)
			}
			return ok
		}
		check := func() {
			t.Helper()
			if _, err := p.Check(t.Context(), "alice", "right password"); err != nil {
				t.Fatal(err)
			}
		}
		if recalls() {
			t.Error("it is remembered before it was checked")
		}
		check()
		if !recalls() {
			t.Error("it is not remembered")
		}
		if time.Sleep(rememberedFor); recalls() {
			t.Errorf("it is remembered for longer than %v", rememberedFor)
		}
		check()
		withUser(t, store, "alice", "another password", SHA256, IterationsMin) // in another process
		if time.Sleep(freshFor); recalls() {
			t.Error("a password that was changed is remembered")
		}
		if _, err := p.Check(t.Context(), "alice", "right password"); !errors.Is(err, ErrPassword) {
			t.Errorf("the former password: %v", err)
		}
	})
}

func TestWhoeverHadUsersHasThemForGood(t *testing.T) {
	store := memory.New()
	users := New(everystore.Direct(store), slog.New(slog.DiscardHandler))
	has := func() bool {
		t.Helper()
		had, err := users.Any(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return had
	}
	if has() {
		t.Error("a new store has users")
	}
	users = withUser(t, store, "alice", "right password", SHA256, IterationsMin)
	if !has() {
		t.Error("there is a user, and Any does not say so")
	}
	if err := users.Change(t.Context(), []Change{{Name: "alice", Clear: true}})[0]; err != nil {
		t.Fatal(err)
	}
	if !has() {
		t.Error("when the last user is deleted, it is as if there never were users")
	}
	if _, err := New(everystore.Direct(away{}), slog.New(slog.DiscardHandler)).Any(t.Context()); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("without the store: %v", err)
	}
}

// away is a store that does not answer.
type away struct{ eventlog.Store }

func (away) List(context.Context, string, string, int) ([]eventlog.KeyValue, error) {
	return nil, eventlog.ErrUnavailable
}
