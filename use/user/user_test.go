package user_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/user"
)

func usersOf(store eventlog.Store) *user.Users {
	return user.New(everystore.Direct(store), slog.New(slog.DiscardHandler))
}

func credential(t *testing.T, m user.Mechanism, password string) user.Credential {
	t.Helper()
	c, err := user.FromPassword(m, password, user.IterationsMin)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func set(t *testing.T, users *user.Users, c user.Change) {
	t.Helper()
	if err := users.Change(t.Context(), []user.Change{c})[0]; err != nil {
		t.Fatal(err)
	}
}

func TestPasswordsAndIterationsAreBounded(t *testing.T) {
	if c := credential(t, user.SHA512, "long enough"); len(c.StoredKey) != 64 || len(c.ServerKey) != 64 {
		t.Errorf("keys of %d and %d bytes", len(c.StoredKey), len(c.ServerKey))
	}
	for _, n := range []int{0, 4095, 16385} {
		if _, err := user.FromPassword(user.SHA256, "long enough", n); err == nil {
			t.Errorf("%d iterations are allowed", n)
		}
	}
	for _, password := range []string{"", "seven77", "pass\u00adword", "line\nbreak", string(bytes.Repeat([]byte("x"), 257))} {
		if _, err := user.FromPassword(user.SHA256, password, 4096); err == nil {
			t.Errorf("password %q is allowed", password)
		}
	}
}

func TestUsersSurviveRestart(t *testing.T) {
	everystore.Run(t, func(t *testing.T, open func(*testing.T) eventlog.Store) {
		store := open(t)
		first := credential(t, user.SHA256, "first password")
		set(t, usersOf(store), user.Change{Name: "alice", Create: true, Set: map[user.Mechanism]user.Credential{user.SHA256: first}})
		users := usersOf(store)
		found, err := users.Lookup(t.Context(), "alice", user.SHA256)
		if err != nil || !found.Known() || !bytes.Equal(found.StoredKey, first.StoredKey) {
			t.Fatalf("found %+v: %v", found, err)
		}
		if found, _ := users.Lookup(t.Context(), "alice", user.SHA512); found.Known() {
			t.Error("alice has a credential that nobody made")
		}
		for _, c := range []struct {
			user.Change
			want error
		}{
			{user.Change{Name: "alice", Create: true}, user.ErrExists},
			{user.Change{Name: "bob", Clear: true}, user.ErrUnknown},
			{user.Change{Name: "alice", Unset: []user.Mechanism{user.SHA512}}, user.ErrUnknown},
		} {
			if err := users.Change(t.Context(), []user.Change{c.Change})[0]; !errors.Is(err, c.want) {
				t.Errorf("%+v: %v, want %v", c.Change, err, c.want)
			}
		}
		set(t, users, user.Change{Name: "alice", Unset: []user.Mechanism{user.SHA256}})
		if list, err := users.List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("listed are %v: %v", list, err)
		}
	})
}

func TestChangedUserIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		server, elsewhere := usersOf(store), usersOf(store)
		for _, name := range []string{"deleted", "changed", "same"} {
			set(t, elsewhere, user.Change{Name: name, Set: map[user.Mechanism]user.Credential{user.SHA256: credential(t, user.SHA256, "first password")}})
		}
		found := map[string]user.Found{}
		for _, name := range []string{"deleted", "changed", "same"} {
			found[name], _ = server.Lookup(t.Context(), name, user.SHA256)
			if err := server.Still(t.Context(), found[name]); err != nil {
				t.Fatal(err)
			}
		}
		set(t, elsewhere, user.Change{Name: "deleted", Clear: true})
		set(t, elsewhere, user.Change{Name: "changed", Clear: true, Set: map[user.Mechanism]user.Credential{user.SHA256: credential(t, user.SHA256, "first password")}})
		time.Sleep(2 * time.Second)
		for name, f := range found {
			if err := server.Still(t.Context(), f); (err == nil) != (name == "same") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// counting counts how often users are read.
type counting struct {
	eventlog.Store
	lists int
}

func (c *counting) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	c.lists++
	return c.Store.List(ctx, prefix, after, limit)
}

// Whoever asks for names cannot tell which exist: by the salt, the iterations, or the work.
func TestUnknownUserLooksLikeAKnownOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: memory.New()}
		users := usersOf(store)
		c, err := user.FromPassword(user.SHA256, "long enough", 6000)
		if err != nil {
			t.Fatal(err)
		}
		set(t, users, user.Change{Name: "alice", Set: map[user.Mechanism]user.Credential{user.SHA256: c}})
		salts := map[string]bool{}
		for i := range 100 {
			name := fmt.Sprint("nobody", i)
			store.lists = 0
			found, err := users.Lookup(t.Context(), name, user.SHA256)
			if err != nil || found.Known() || found.Iterations != 6000 || len(found.Salt) < 20 || len(found.Salt) > 26 || len(found.StoredKey) != 32 {
				t.Fatalf("%+v: %v", found, err)
			}
			if i > 0 && store.lists > 0 {
				t.Error("a lookup of an unknown user reads the store")
			}
			salts[string(found.Salt)] = true
			again, _ := usersOf(store).Lookup(t.Context(), name, user.SHA256) // another process
			if !bytes.Equal(again.Salt, found.Salt) {
				t.Errorf("%s has a salt of its own in each process", name)
			}
		}
		if len(salts) != 100 {
			t.Errorf("100 users have %d salts", len(salts))
		}
		imported := user.Credential{Salt: []byte{0, 255, 1, 2, 3, 4, 5, 6}, Iterations: 4096, StoredKey: c.StoredKey, ServerKey: c.ServerKey}
		set(t, users, user.Change{Name: "alice", Set: map[user.Mechanism]user.Credential{user.SHA256: imported}})
		if found, _ := users.Lookup(t.Context(), "nobody", user.SHA256); len(found.Salt) != 8 || found.Iterations != 4096 {
			t.Errorf("%+v", found)
		}
	})
}

func TestUsersAreBounded(t *testing.T) {
	users := usersOf(memory.New())
	c := map[user.Mechanism]user.Credential{user.SHA256: credential(t, user.SHA256, "long enough")}
	var changes []user.Change
	for i := range 1001 {
		changes = append(changes, user.Change{Name: fmt.Sprint("u", i), Set: c})
	}
	errs := users.Change(t.Context(), changes)
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i != 1000 || !errors.Is(errs[1000], user.ErrTooMany) {
		t.Errorf("user %d is refused first: %v", i, errs[1000])
	}
}

// A value that cannot be read lets nobody in, and can be deleted.
func TestDamagedUserCannotLogIn(t *testing.T) {
	store := memory.New()
	_, err := store.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: "scram/user/alice", Version: 1, Value: []byte(`{"scram":{"SCRAM-SHA-256":{"salt":"AA=="}}}`)}}}})
	if err != nil {
		t.Fatal(err)
	}
	users := usersOf(store)
	if found, err := users.Lookup(t.Context(), "alice", user.SHA256); err != nil || found.Known() {
		t.Errorf("%+v: %v", found, err)
	}
	if list, err := users.List(t.Context()); err != nil || len(list) != 1 || !list[0].Damaged {
		t.Errorf("listed are %+v: %v", list, err)
	}
	set(t, users, user.Change{Name: "alice", Clear: true})
}

// failing is a store that stops answering.
type failing struct {
	eventlog.Store
	away bool
}

func (f *failing) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if f.away {
		return nil, eventlog.ErrUnavailable
	}
	return f.Store.List(ctx, prefix, after, limit)
}

func TestKnownUsersOutliveAnOutageOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &failing{Store: memory.New()}
		users := usersOf(store)
		set(t, users, user.Change{Name: "alice", Set: map[user.Mechanism]user.Credential{user.SHA256: credential(t, user.SHA256, "long enough")}})
		found, err := users.Lookup(t.Context(), "alice", user.SHA256)
		if err != nil {
			t.Fatal(err)
		}
		store.away = true
		time.Sleep(9 * time.Minute)
		if again, err := users.Lookup(t.Context(), "alice", user.SHA256); err != nil || !again.Known() || users.Still(t.Context(), found) != nil {
			t.Errorf("after nine minutes: %+v, %v", again, err)
		}
		time.Sleep(2 * time.Minute)
		if _, err := users.Lookup(t.Context(), "alice", user.SHA256); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("after eleven minutes: %v", err)
		}
		if _, err := usersOf(store).Lookup(t.Context(), "alice", user.SHA256); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("a new server: %v", err)
		}
	})
}

func TestCredentialsAreForKnownMechanismsOnly(t *testing.T) {
	all, err := user.Credentials("a long password", nil, user.IterationsMin)
	if err != nil || len(all) != len(user.Mechanisms) {
		t.Errorf("without a mechanism: %d credentials, %v", len(all), err)
	}
	one, err := user.Credentials("a long password", []user.Mechanism{user.SHA512, user.SHA512}, user.IterationsMin)
	if err != nil || len(one) != 1 || one[user.SHA512].Iterations != user.IterationsMin {
		t.Errorf("for one: %d credentials, %v", len(one), err)
	}
	var invalid *eventlog.InvalidError
	for _, m := range []user.Mechanism{"PLAIN", ""} {
		if _, err := user.Credentials("a long password", []user.Mechanism{m}, user.IterationsMin); !errors.As(err, &invalid) {
			t.Errorf("for %q: %v", m, err)
		}
	}
}
