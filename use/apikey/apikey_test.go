package apikey

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/recent"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/postgres"
	"github.com/weir-log/weir/store/sqlite"
)

func TestKeysOnEveryStore(t *testing.T) {
	for name, open := range map[string]func() (eventlog.Store, error){
		"memory": func() (eventlog.Store, error) { return memory.New(), nil },
		"sqlite": func() (eventlog.Store, error) {
			return sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "weir.db"), sqlite.Options{})
		},
		"postgres": func() (eventlog.Store, error) { return postgres.Open(t.Context(), pgtest.URL(t), postgres.Options{}) },
	} {
		t.Run(name, func(t *testing.T) {
			store, err := open()
			check(t, err)
			defer store.Close()
			rotate(t, store)
		})
	}
}

// rotate makes a second key, and revokes the first: both work in between.
func rotate(t *testing.T, store eventlog.Store) {
	keys := New(everystore.Direct(store), slog.New(slog.DiscardHandler))
	if any, err := keys.Any(t.Context()); err != nil || any {
		t.Fatalf("a new store has keys: %v, %v", any, err)
	}
	check(t, keys.Still(t.Context(), Everybody))
	spec := Spec{Name: "billing ü", Access: []Access{Write, Read, Write}, Topics: []string{"orders."}}
	first, old := create(t, keys, spec)
	second, new := create(t, keys, spec)
	if old == new || !strings.HasPrefix(old, "weir_"+first.ID+"_") || len(old) != len("weir_")+idLength+1+randomLength {
		t.Errorf("the secrets are %q and %q", old, new)
	}
	for _, secret := range []string{old, new} {
		id, err := keys.Check(t.Context(), secret)
		check(t, err)
		check(t, keys.Still(t.Context(), id))
		if id.Name() != "billing ü" || !id.May(Read, "orders.eu") || !id.May(Write, "orders.eu") || id.May(Admin, "orders.eu") {
			t.Errorf("the identity is %+v", id)
		}
	}
	_, err := keys.Revoke(t.Context(), first.ID)
	check(t, err)
	_, err = keys.Revoke(t.Context(), first.ID) // twice is once
	check(t, err)
	wantErr(t, keys, old, ErrRevoked)
	if err := keys.Still(t.Context(), Identity{first}); !errors.Is(err, ErrRevoked) {
		t.Errorf("still, of the first: %v, want %v", err, ErrRevoked)
	}
	for _, id := range []Identity{Everybody, {Key{ID: "nobody00"}}} {
		if err := keys.Still(t.Context(), id); !errors.Is(err, ErrUnknown) {
			t.Errorf("still, of %v: %v, want %v", id, err, ErrUnknown)
		}
	}
	if _, err := keys.Check(t.Context(), new); err != nil {
		t.Errorf("the second key, after the first was revoked: %v", err)
	}
	list, err := keys.List(t.Context())
	check(t, err)
	states := map[string]error{}
	for _, l := range list {
		states[l.ID] = l.Err
	}
	if len(list) != 2 || !errors.Is(states[first.ID], ErrRevoked) || states[second.ID] != nil {
		t.Errorf("listed: %+v", list)
	}
	kvs, err := store.List(t.Context(), "", "", 100)
	check(t, err)
	for _, kv := range kvs {
		if text := kv.Key + string(kv.Value); strings.Contains(text, old[len(old)-randomLength:]) || strings.Contains(text, new[len(new)-randomLength:]) {
			t.Errorf("the store holds a secret: %s", text)
		}
	}
}

func TestWrongSecretsOpenNothing(t *testing.T) {
	keys := New(everystore.Direct(memory.New()), slog.New(slog.DiscardHandler))
	key, secret := create(t, keys, Spec{Name: "a", Access: []Access{Admin}})
	other, _ := create(t, keys, Spec{Name: "b", Access: []Access{Admin}})
	end := secret[len(secret)-1:]
	changed := "a"
	if end == "a" {
		changed = "b"
	}
	for _, wrong := range []string{
		"", "weir_", "weir__", secret[:len(secret)-1], secret + "a", secret[:len(secret)-1] + changed, strings.ToUpper(secret),
		strings.Replace(secret, key.ID, other.ID, 1), strings.Replace(secret, "weir_", "wier_", 1), " " + secret, secret + "\n",
		"weir_" + key.ID + "_" + strings.Repeat("0", randomLength), "weir_aaaaaaaa_" + strings.Repeat("a", randomLength),
		"weir_" + strings.Repeat("/", idLength) + "_" + strings.Repeat("a", randomLength), strings.Repeat("x", 1<<20),
	} {
		wantErr(t, keys, wrong, ErrUnknown)
	}
	if _, err := keys.Check(t.Context(), secret); err != nil {
		t.Errorf("the right one: %v", err)
	}
}

func TestKeysAreGoodInTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := New(everystore.Direct(memory.New()), slog.New(slog.DiscardHandler))
		now := time.Now()
		_, secret := create(t, keys, Spec{Name: "a", Access: []Access{Read}, From: now.Add(time.Hour), Expires: now.Add(3 * time.Hour)})
		wantErr(t, keys, secret, ErrNotYet)
		time.Sleep(time.Hour)
		if _, err := keys.Check(t.Context(), secret); err != nil {
			t.Errorf("in its time: %v", err)
		}
		id, err := keys.Check(t.Context(), secret)
		check(t, err)
		time.Sleep(2 * time.Hour)
		wantErr(t, keys, secret, ErrExpired)
		if err := keys.Still(t.Context(), id); !errors.Is(err, ErrExpired) {
			t.Errorf("still: %v, want %v", err, ErrExpired)
		}
	})
}

// The clock of the store counts, and not those of who made the key and who judges it.
func TestWrongClockExpiresNobody(t *testing.T) {
	store := &fake{Store: memory.New()}
	keys := New(everystore.Direct(store), slog.New(slog.DiscardHandler))
	_, secret := create(t, keys, Spec{Name: "a", Access: []Access{Read}, Expires: time.Now().Add(time.Hour)})
	if _, err := keys.Check(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	store.later = 2 * time.Hour
	wantErr(t, New(everystore.Direct(store), slog.New(slog.DiscardHandler)), secret, ErrExpired)
}

func TestChangesReachOtherServersWithinSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		here, there := New(everystore.Direct(store), slog.New(slog.DiscardHandler)), New(everystore.Direct(store), slog.New(slog.DiscardHandler))
		if any, err := there.Any(t.Context()); any || err != nil {
			t.Fatal(any, err)
		}
		key, secret := create(t, here, Spec{Name: "a", Access: []Access{Read}})
		time.Sleep(freshForUnknown)
		if _, err := there.Check(t.Context(), secret); err != nil {
			t.Errorf("a new key: %v", err)
		}
		_, err := here.Revoke(t.Context(), key.ID)
		check(t, err)
		time.Sleep(freshFor)
		wantErr(t, there, secret, ErrRevoked)
		if any, err := there.Any(t.Context()); !any || err != nil {
			t.Errorf("after the last key was revoked there are keys: %v, %v; want true, so that the door stays shut", any, err)
		}
	})
}

func TestKeysCostFewTripsAndNoneWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fake{Store: memory.New()}
		keys := New(everystore.Direct(store), slog.New(slog.DiscardHandler))
		_, secret := create(t, keys, Spec{Name: "a", Access: []Access{Read}})
		store.lists = 0
		for range 1000 { // for ten seconds
			if _, err := keys.Check(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if most := int(10*time.Second/freshFor) + 1; store.lists > most {
			t.Errorf("%d trips for 1000 checks of a good key, want %d at most", store.lists, most)
		}
		store.lists = 0
		for i := range 1000 {
			wantErr(t, keys, fmt.Sprintf("weir_%08d_%s", i, strings.Repeat("a", randomLength)), ErrUnknown)
			time.Sleep(10 * time.Millisecond)
		}
		if most := int(10*time.Second/freshForUnknown) + 1; store.lists > most {
			t.Errorf("%d trips for 1000 checks of keys that are not there, want %d at most", store.lists, most)
		}
		store.lists = 0
		time.Sleep(time.Hour)
		if store.lists > 0 {
			t.Errorf("%d trips while nobody asked", store.lists)
		}
	})
}

func TestStoreThatIsAwayLeavesTheLastKeysForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fake{Store: memory.New()}
		keys := New(everystore.Direct(store), slog.New(slog.DiscardHandler))
		_, secret := create(t, keys, Spec{Name: "a", Access: []Access{Read}})
		if _, err := keys.Check(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		store.err = fmt.Errorf("%w: gone", eventlog.ErrUnavailable)
		for range 9 {
			time.Sleep(time.Minute)
			if _, err := keys.Check(t.Context(), secret); err != nil {
				t.Fatalf("while the store is away: %v", err)
			}
		}
		time.Sleep(recent.StaleMax - 9*time.Minute + time.Second)
		wantErr(t, keys, secret, eventlog.ErrUnavailable)
		store.err = nil
		time.Sleep(freshFor)
		if _, err := keys.Check(t.Context(), secret); err != nil {
			t.Errorf("with the store again: %v", err)
		}
		store.err = fmt.Errorf("%w: gone", eventlog.ErrUnavailable)
		wantErr(t, New(everystore.Direct(store), slog.New(slog.DiscardHandler)), secret, eventlog.ErrUnavailable)
	})
}

func TestKeyExpiresWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fake{Store: memory.New()}
		keys := New(everystore.Direct(store), slog.New(slog.DiscardHandler))
		_, secret := create(t, keys, Spec{Name: "a", Access: []Access{Read}, Expires: time.Now().Add(time.Minute)})
		if _, err := keys.Check(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		store.err = fmt.Errorf("%w: gone", eventlog.ErrUnavailable)
		time.Sleep(time.Minute)
		wantErr(t, keys, secret, ErrExpired)
	})
}

// A store that does not answer holds one caller, and that one not for long.
func TestHangingStoreHoldsOneCallerForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fake{Store: memory.New()}
		keys := New(everystore.Direct(store), slog.New(slog.DiscardHandler))
		_, secret := create(t, keys, Spec{Name: "a", Access: []Access{Read}})
		if _, err := keys.Check(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		store.hang = true
		time.Sleep(freshFor)
		begin := time.Now()
		held := make(chan error)
		go func() {
			_, err := keys.Check(t.Context(), secret)
			held <- err
		}()
		synctest.Wait()
		if _, err := keys.Check(t.Context(), secret); err != nil || time.Since(begin) > 0 {
			t.Errorf("the others: %v after %s", err, time.Since(begin))
		}
		if err := <-held; err != nil || time.Since(begin) != recent.AskMax {
			t.Errorf("the one that asked: %v after %s, want nil after %s", err, time.Since(begin), recent.AskMax)
		}
	})
}

func TestKeysThatMayNotBe(t *testing.T) {
	now := time.Now()
	read := []Access{Read}
	for name, s := range map[string]Spec{
		"no name":            {AllTopics: true, AllGroups: true, Access: read},
		"long name":          {AllTopics: true, AllGroups: true, Name: strings.Repeat("a", nameMax+1), Access: read},
		"escapes":            {AllTopics: true, AllGroups: true, Name: "\x1b[31mred", Access: read},
		"not UTF-8":          {AllTopics: true, AllGroups: true, Name: "\xff", Access: read},
		"no access":          {Name: "a", AllTopics: true, AllGroups: true},
		"no topics":          {Name: "a", Access: read},
		"groups alone":       {Name: "a", Access: read, Groups: []string{"billing"}},
		"no groups":          {Name: "a", Access: read, AllTopics: true},
		"some of all":        {Name: "a", Access: read, Topics: []string{"orders."}, AllTopics: true, AllGroups: true},
		"some groups of all": {Name: "a", Access: read, AllTopics: true, Groups: []string{"billing"}, AllGroups: true},
		"some queues of all": {Name: "a", Access: read, Queues: []string{"mail"}, AllQueues: true},
		"an empty queue":     {Name: "a", Access: read, Queues: []string{""}},
		"nothing at all":     {Name: "a", Access: read},
		"strange access":     {AllTopics: true, AllGroups: true, Name: "a", Access: []Access{"root"}},
		"strange topic":      {Name: "a", Access: read, Topics: []string{"orders/*"}},
		"too many topics":    {Name: "a", Access: read, Topics: make([]string, PrefixesMax+1)},
		"too many groups":    {AllTopics: true, Name: "a", Access: read, Groups: make([]string, PrefixesMax+1)},
		"expired":            {AllTopics: true, AllGroups: true, Name: "a", Access: read, Expires: now.Add(-time.Hour)},
		"never good":         {AllTopics: true, AllGroups: true, Name: "a", Access: read, From: now.Add(2 * time.Hour), Expires: now.Add(time.Hour)},
		"an empty prefix":    {Name: "a", Access: read, Topics: []string{""}},
		"newline in topic":   {Name: "a", Access: read, Topics: []string{"a\nb"}},
		"an empty group":     {AllTopics: true, Name: "a", Access: read, Groups: []string{"a", ""}},
		"a long group":       {AllTopics: true, Name: "a", Access: read, Groups: []string{strings.Repeat("a", groupMax+1)}},
		"newline in group":   {AllTopics: true, Name: "a", Access: read, Groups: []string{"a\nb"}},
		"bytes in group":     {AllTopics: true, Name: "a", Access: read, Groups: []string{"\xff"}},
		"a name and all":     {AllTopics: true, AllGroups: true, Name: "a", Access: read, TopicNames: []string{"a"}},
		"an empty name":      {Name: "a", Access: read, TopicNames: []string{""}},
		"a pattern":          {Name: "a", Access: read, QueueNames: []string{"mail*"}},
		"all groups by name": {Name: "a", Access: read, Topics: []string{"a"}, GroupNames: []string{"*"}},
		"too many together":  {Name: "a", Access: read, Topics: make([]string, PrefixesMax), TopicNames: []string{"a"}},
		"metrics of a topic": {Name: "a", Access: []Access{Metrics}, Topics: []string{"a"}},
		"metrics of a group": {Name: "a", Access: []Access{Metrics}, AllGroups: true},
	} {
		keys := New(everystore.Direct(memory.New()), slog.New(slog.DiscardHandler))
		var invalid *eventlog.InvalidError
		if _, _, err := keys.Create(t.Context(), s); !errors.As(err, &invalid) {
			t.Errorf("%s: %v, want an InvalidError", name, err)
		}
		if any, _ := keys.Any(t.Context()); any {
			t.Errorf("%s: it was stored", name)
		}
	}
}

func TestOldKeysMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		keys := New(everystore.Direct(store), slog.New(slog.DiscardHandler))
		first, _ := create(t, keys, Spec{Name: "a", Access: []Access{Read}})
		var flush []eventlog.Entry
		for i := range keysMax - 1 {
			old := stored{Key: Key{Name: "a", Created: time.Now(), Expires: time.Now().Add(time.Hour)}, SHA256: strings.Repeat("00", sha256.Size)}
			flush = append(flush, eventlog.Entry{Puts: []eventlog.Put{{Key: fmt.Sprintf("%s%08d", statePrefix, i), Version: 1, Value: encode(old)}}})
		}
		_, err := store.Commit(t.Context(), flush)
		check(t, err)
		if _, _, err := keys.Create(t.Context(), anything(Spec{Name: "a", Access: []Access{Read}})); !errors.Is(err, ErrTooMany) {
			t.Errorf("one too many: %v", err)
		}
		_, err = keys.Revoke(t.Context(), first.ID)
		check(t, err)
		time.Sleep(keptFor)
		if _, _, err := keys.Create(t.Context(), anything(Spec{Name: "a", Access: []Access{Read}})); !errors.Is(err, ErrTooMany) {
			t.Errorf("too early: %v", err)
		}
		time.Sleep(2 * time.Hour)
		create(t, keys, Spec{Name: "new", Access: []Access{Read}})
		if list, err := keys.List(t.Context()); err != nil || len(list) != 1 || list[0].Name != "new" {
			t.Errorf("left: %d keys, %v", len(list), err)
		}
	})
}

func TestDamagedKeyOpensNothingAndHarmsNobody(t *testing.T) {
	store := memory.New()
	keys := New(everystore.Direct(store), slog.New(slog.DiscardHandler))
	_, secret := create(t, keys, Spec{Name: "a", Access: []Access{Read}})
	sum := sha256.Sum256([]byte("weir_newer000_" + strings.Repeat("a", randomLength)))
	for id, value := range map[string]string{
		"bad00000": "{", "null0000": "null", "short000": `{"access":["admin"],"sha256":"00"}`,
		"newer000": fmt.Sprintf(`{"access":["admin"],"sha256":"%x","only_on":["tuesday"]}`, sum),
	} {
		_, err := store.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: statePrefix + id, Version: 1, Value: []byte(value)}}}})
		check(t, err)
		wantErr(t, New(everystore.Direct(store), slog.New(slog.DiscardHandler)), "weir_"+id+"_"+strings.Repeat("a", randomLength), ErrUnknown)
	}
	if _, err := New(everystore.Direct(store), slog.New(slog.DiscardHandler)).Check(t.Context(), secret); err != nil {
		t.Errorf("the good one: %v", err)
	}
	_, err := keys.Revoke(t.Context(), "bad00000")
	check(t, err)
	list, err := keys.List(t.Context())
	check(t, err)
	for _, l := range list {
		switch want := map[string]error{"bad00000": ErrRevoked, "null0000": ErrDamaged, "short000": ErrDamaged, "newer000": ErrDamaged}[l.ID]; {
		case !errors.Is(l.Err, want):
			t.Errorf("%s: %v, want %v", l.ID, l.Err, want)
		}
	}
	if _, err := keys.Revoke(t.Context(), "nobody00"); !errors.Is(err, ErrUnknown) {
		t.Errorf("a key that is not there: %v", err)
	}
}

func TestWhatAnIdentityMay(t *testing.T) {
	reader := Identity{Key{Access: []Access{Read}, AllTopics: true, AllGroups: true}}
	limited := Identity{Key{Access: []Access{Read, Write}, Topics: []string{"orders.", "audit"}}}
	admin := Identity{Key{Access: []Access{Admin}, AllTopics: true, AllGroups: true}}
	nowhere := Identity{Key{Access: []Access{Admin}}}
	empty := Identity{Key{Access: []Access{Admin}, Topics: []string{""}, Groups: []string{""}}}
	local := Identity{Key{Access: []Access{Admin}, Topics: []string{"orders."}}}
	for _, c := range []struct {
		id     Identity
		access Access
		topic  string
		want   bool
	}{
		{reader, Read, "orders.eu", true}, {reader, Read, "", true}, {reader, Write, "orders.eu", false}, {reader, Admin, "", false},
		{limited, Read, "orders.eu", true}, {limited, Write, "audit-2026", true}, {limited, Read, "orders", false},
		{limited, Read, "my-orders.eu", false}, {limited, Read, "", false}, {limited, Admin, "orders.eu", false},
		{admin, Read, "x", true}, {admin, Write, "x", true}, {admin, Admin, "", true},
		{local, Admin, "orders.eu", true}, {local, Write, "orders.eu", true}, {local, Admin, "users", false}, {local, Admin, "", false},
		{nowhere, Read, "x", false}, {nowhere, Admin, "", false}, {empty, Read, "x", false}, {empty, Read, "", false},
		{Identity{}, Read, "x", false}, {Everybody, Admin, "", true}, {Everybody, Write, "x", true},
	} {
		if got := c.id.May(c.access, c.topic); got != c.want {
			t.Errorf("%+v may %s %q: %v, want %v", c.id, c.access, c.topic, got, c.want)
		}
	}
}

func TestWhichGroupsAKeyReaches(t *testing.T) {
	keys := New(everystore.Direct(memory.New()), slog.New(slog.DiscardHandler))
	read := []Access{Read}
	for _, c := range []struct {
		name     string
		spec     Spec
		yes, no  []string
		anything bool // that belongs to no topic and no group
	}{
		{"no limits", Spec{Access: read}, []string{"billing", "orders.a"}, nil, true},
		{"as its topics", Spec{Access: read, Topics: []string{"orders.", "audit"}}, []string{"orders.a", "orders.", "audit2"},
			[]string{"billing", "orders", "Orders.a", "my-orders.a", ""}, false},
		{"of its own", Spec{Access: read, Topics: []string{"orders."}, Groups: []string{"billing/", "é"}}, []string{"billing/eu", "été"},
			[]string{"orders.a", "billing", ""}, false},
		{"all topics, some groups", Spec{Access: read, Groups: []string{"billing"}}, []string{"billing"}, []string{"orders.a", ""}, false},
		{"an admin of some", Spec{Access: []Access{Admin}, Groups: []string{"billing"}}, []string{"billing"}, []string{"orders.a", ""}, false},
		{"a writer", Spec{Access: []Access{Write}}, nil, []string{"billing", ""}, false},
	} {
		c.spec.Name = c.name
		key, secret := create(t, keys, c.spec)
		id, err := keys.Check(t.Context(), secret)
		check(t, err)
		for _, group := range append(c.yes, c.no...) {
			if want := slices.Contains(c.yes, group); id.MayGroup(Read, group) != want {
				t.Errorf("%s: it may read group %q: %v, want %v; the key is %+v", c.name, group, !want, want, key)
			}
			if id.MayGroup(Admin, group) && !slices.Contains(c.spec.Access, Admin) {
				t.Errorf("%s: it may change group %q", c.name, group)
			}
		}
		if id.May(Read, "") != c.anything {
			t.Errorf("%s: it may read what belongs to no topic and no group: %v", c.name, !c.anything)
		}
	}
	if !Everybody.MayGroup(Admin, "billing") || (Identity{}).MayGroup(Read, "billing") {
		t.Error("everybody may not, or nobody may")
	}
}

func TestWhichQueuesAKeyReaches(t *testing.T) {
	keys := New(everystore.Direct(memory.New()), slog.New(slog.DiscardHandler))
	read := []Access{Read}
	for _, c := range []struct {
		name    string
		spec    Spec
		yes, no []string
		topics  []string // that it may read
	}{
		{"no limits", Spec{Access: read, AllTopics: true, AllGroups: true}, []string{"mail", "orders.a"}, nil, []string{"mail"}},
		{"as its topics", Spec{Access: read, Topics: []string{"orders."}}, []string{"orders.a"}, []string{"mail", "orders", ""}, []string{"orders.a"}},
		{"of its own", Spec{Access: read, Topics: []string{"orders."}, Queues: []string{"mail"}}, []string{"mail", "mail.eu"}, []string{"orders.a", ""}, []string{"orders.a"}},
		{"queues alone", Spec{Access: read, Queues: []string{"mail."}}, []string{"mail.eu"}, []string{"mail", "bills", ""}, nil},
		{"all queues alone", Spec{Access: read, AllQueues: true}, []string{"mail", "bills"}, nil, nil},
		{"all topics, some groups", Spec{Access: read, AllTopics: true, Groups: []string{"billing"}}, nil, []string{"mail", "billing"}, []string{"mail"}},
		{"all topics and groups, some queues", Spec{Access: read, AllTopics: true, AllGroups: true, Queues: []string{"mail"}}, []string{"mail"}, []string{"bills"}, []string{"mail"}},
	} {
		c.spec.Name = c.name
		key, secret, err := keys.Create(t.Context(), c.spec)
		check(t, err)
		id, err := keys.Check(t.Context(), secret)
		check(t, err)
		for _, queue := range append(c.yes, c.no...) {
			if want := slices.Contains(c.yes, queue); id.MayQueue(Read, queue) != want || id.MayQueue(Write, queue) || id.MayQueue(Admin, queue) {
				t.Errorf("%s: it may read queue %q: %v, want %v, and nothing else; the key is %+v", c.name, queue, !want, want, key)
			}
		}
		for _, topic := range []string{"mail", "orders.a", "mail.eu"} {
			if want := slices.Contains(c.topics, topic) || key.AllTopics; id.May(Read, topic) != want {
				t.Errorf("%s: it may read topic %q: %v, want %v; the key is %+v", c.name, topic, !want, want, key)
			}
		}
		if c.spec.AllTopics == false && (id.MayGroup(Read, "mail.eu") || id.May(Read, "")) {
			t.Errorf("%s: it reaches groups, or what belongs to no topic", c.name)
		}
	}
	if !Everybody.MayQueue(Admin, "mail") || (Identity{}).MayQueue(Read, "mail") {
		t.Error("everybody may not, or nobody may")
	}
}

// What a key says of groups is what `weir key list` shows, whatever a later version does without
// it.
func TestGroupsAreKeptWithTheKey(t *testing.T) {
	keys := New(everystore.Direct(memory.New()), slog.New(slog.DiscardHandler))
	create(t, keys, Spec{Name: "a", Access: []Access{Read}, Topics: []string{"b.", "a.", "b."}})
	list, err := keys.List(t.Context())
	check(t, err)
	if want := []string{"a.", "b."}; !slices.Equal(list[0].Groups, want) || !slices.Equal(list[0].Topics, want) {
		t.Errorf("it is %+v, want groups %q", list[0].Key, want)
	}
}

// Keys made before groups were limited could not look at groups, or delete them, when they were for
// some topics. They still cannot.
func TestKeyThatNamesNoGroups(t *testing.T) {
	for topics, want := range map[string]bool{``: true, `,"topics":["orders."]`: false} {
		store, secret := memory.New(), "weir_aaaaaaaa_"+strings.Repeat("a", randomLength)
		value := fmt.Sprintf(`{"id":"aaaaaaaa","name":"a","access":["admin"]%s,"created":"2026-01-31T08:00:00Z","sha256":"%x"}`, topics, sha256.Sum256([]byte(secret)))
		_, err := store.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: statePrefix + "aaaaaaaa", Version: 1, Value: []byte(value)}}}})
		check(t, err)
		id, err := New(everystore.Direct(store), slog.New(slog.DiscardHandler)).Check(t.Context(), secret)
		check(t, err)
		if !id.May(Read, "orders.eu") || id.MayGroup(Read, "orders.eu") != want || id.MayGroup(Admin, "billing") != want || id.May(Admin, "") != want {
			t.Errorf("%s reaches groups: %v, want %v", value, !want, want)
		}
	}
}

// fake is a store that can be slow, away, and of another time.
type fake struct {
	*memory.Store
	lists int
	later time.Duration
	err   error
	hang  bool
}

func (f *fake) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	f.lists++
	if f.hang {
		<-ctx.Done()
		return nil, fmt.Errorf("%w: %w", eventlog.ErrUnavailable, ctx.Err())
	}
	if f.err != nil {
		return nil, f.err
	}
	kvs, err := f.Store.List(ctx, prefix, after, limit)
	for i := range kvs {
		kvs[i].Age += f.later
	}
	return kvs, err
}

// anything lets a key that names no topics have all, and likewise all groups.
func anything(s Spec) Spec {
	s.AllTopics = len(s.Topics) == 0
	s.AllGroups = s.AllTopics && len(s.Groups) == 0 && !onlyWrites(s.Access)
	return s
}

func create(t *testing.T, keys *Keys, s Spec) (Key, string) {
	t.Helper()
	key, secret, err := keys.Create(t.Context(), anything(s))
	check(t, err)
	return key, secret
}

func wantErr(t *testing.T, keys *Keys, secret string, want error) {
	t.Helper()
	if id, err := keys.Check(t.Context(), secret); !errors.Is(err, want) {
		t.Errorf("check %.80q: %v, %v, want %v", secret, id, err, want)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
