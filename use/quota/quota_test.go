package quota_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/quota"
)

func quotasOf(store eventlog.Store) *quota.Quotas {
	return quota.New(everystore.Direct(store), slog.New(slog.DiscardHandler))
}

// set changes the quotas of one entity.
func set(t *testing.T, quotas *quota.Quotas, e quota.Entity, limits map[quota.Kind]float64) {
	t.Helper()
	if err := quotas.Change(t.Context(), []quota.Change{{Entity: e, Set: limits}})[0]; err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T, quotas *quota.Quotas, f quota.Filter) []quota.Quota {
	t.Helper()
	all, err := quotas.List(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var alice = quota.Entity{User: quota.Named("alice")}

func TestQuotasSurviveRestart(t *testing.T) {
	everystore.Run(t, func(t *testing.T, open func(*testing.T) eventlog.Store) {
		store := open(t)
		odd := quota.Entity{User: quota.Named("ä/<default>"), ClientID: quota.Default}
		set(t, quotasOf(store), alice, map[quota.Kind]float64{quota.ProducerByteRate: 1024, quota.RequestPercentage: 0.5})
		set(t, quotasOf(store), odd, map[quota.Kind]float64{quota.ConsumerByteRate: math.MaxInt64})
		set(t, quotasOf(store), quota.Entity{IP: quota.Default}, map[quota.Kind]float64{quota.ConnectionCreationRate: 3})
		quotas := quotasOf(store)
		all := list(t, quotas, quota.All)
		if len(all) != 3 || all[1].Entity != odd || !maps.Equal(all[0].Limits, map[quota.Kind]float64{quota.ProducerByteRate: 1024, quota.RequestPercentage: 0.5}) {
			t.Fatalf("listed are %v", all)
		}
		set(t, quotas, alice, map[quota.Kind]float64{quota.ProducerByteRate: 1})
		if err := quotas.Change(t.Context(), []quota.Change{{Entity: alice, Unset: []quota.Kind{quota.RequestPercentage, quota.ConsumerByteRate}}})[0]; err != nil {
			t.Fatal(err)
		}
		if got := list(t, quotasOf(store), quota.All); len(got) != 3 || !maps.Equal(got[0].Limits, map[quota.Kind]float64{quota.ProducerByteRate: 1}) {
			t.Errorf("after a change: %v", got)
		}
		errs := quotas.Change(t.Context(), []quota.Change{{Entity: alice, Unset: []quota.Kind{quota.ProducerByteRate}}, {Entity: odd, Clear: true}, {Entity: quota.Entity{User: quota.Named("bob")}, Clear: true}})
		if errs[0] != nil || errs[1] != nil || !errors.Is(errs[2], quota.ErrUnknown) {
			t.Error(errs)
		}
		if got := list(t, quotasOf(store), quota.All); len(got) != 1 {
			t.Errorf("left are %v", got)
		}
	})
}

func TestTryChangesNothing(t *testing.T) {
	quotas := quotasOf(memory.New())
	errs := quotas.Try(t.Context(), []quota.Change{
		{Entity: alice, Set: map[quota.Kind]float64{quota.ProducerByteRate: 1}},
		{Entity: alice, Set: map[quota.Kind]float64{quota.ProducerByteRate: -1}},
	})
	if errs[0] != nil || errs[1] == nil || len(list(t, quotas, quota.All)) != 0 {
		t.Errorf("%v, and %v are stored", errs, list(t, quotas, quota.All))
	}
}

func TestBadQuotasAreRefused(t *testing.T) {
	quotas := quotasOf(memory.New())
	named := func(user, id, ip string) quota.Entity {
		return quota.Entity{User: quota.Named(user), ClientID: quota.Named(id), IP: quota.Named(ip)}
	}
	for _, c := range []struct {
		entity quota.Entity
		kind   quota.Kind
		limit  float64
		says   string
	}{
		{quota.Entity{}, quota.ProducerByteRate, 1, "empty"},
		{named("alice", "", "10.0.0.1"), quota.ProducerByteRate, 1, "cannot be combined"},
		{named("", "", "db.internal"), quota.ConnectionCreationRate, 1, "not an IP address"},
		{named("", "", "fe80::1%eth0"), quota.ConnectionCreationRate, 1, "not an IP address"},
		{named("", "", "::ffff:10.0.0.1"), quota.ConnectionCreationRate, 1, "not an IP address"}, // IPOf gives the form in which it is one
		{named("", "", "10.0.0.1"), quota.ProducerByteRate, 1, "unknown for ip 10.0.0.1"},
		{named("alice", "", ""), quota.ConnectionCreationRate, 1, "unknown for user alice"},
		{named("", "", "10.0.0.1"), quota.ControllerMutationRate, 1, "unknown for ip"},
		{named("alice", "", ""), quota.ControllerMutationRate, 0, "greater than 0"},
		{named("alice", "", ""), "speed", 1, "unknown"},
		{named("alice", "", ""), quota.ProducerByteRate, 0, "greater than 0"},
		{named("alice", "", ""), quota.ProducerByteRate, -1, "greater than 0"},
		{named("alice", "", ""), quota.RequestPercentage, math.NaN(), "greater than 0"},
		{named("alice", "", ""), quota.RequestPercentage, math.Inf(1), "limit"},
		{named("alice", "", ""), quota.ProducerByteRate, math.Inf(1), "whole"},
		{named("alice", "", ""), quota.ProducerByteRate, 1.5, "whole"},
		{named("alice", "", ""), quota.ProducerByteRate, 1e300, "limit"},
		{named("", "", "10.0.0.1"), quota.ConnectionCreationRate, 1 << 31, "limit"},
		{named(strings.Repeat("x", 256), "", ""), quota.ProducerByteRate, 1, "255"},
		{named("", "a\nb", ""), quota.ProducerByteRate, 1, "cannot be printed"},
		{named("", "\xff", ""), quota.ProducerByteRate, 1, "cannot be printed"},
	} {
		err := quotas.Change(t.Context(), []quota.Change{{Entity: c.entity, Set: map[quota.Kind]float64{c.kind: c.limit}}})[0]
		if _, ok := errors.AsType[*eventlog.InvalidError](err); !ok || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s of %v to %v: %v; want %q", c.kind, c.entity, c.limit, err, c.says)
		}
	}
	if all := list(t, quotas, quota.All); len(all) != 0 {
		t.Errorf("stored are %v", all)
	}
}

func TestQuotasAreBounded(t *testing.T) {
	quotas := quotasOf(memory.New())
	var changes []quota.Change
	for i := range quota.EntitiesMax + 1 {
		changes = append(changes, quota.Change{Entity: quota.Entity{ClientID: quota.Named(fmt.Sprint(i))}, Set: map[quota.Kind]float64{quota.ProducerByteRate: 1}})
	}
	errs := quotas.Change(t.Context(), changes)
	if err := errors.Join(errs[:quota.EntitiesMax]...); err != nil || !errors.Is(errs[quota.EntitiesMax], quota.ErrTooMany) {
		t.Errorf("%v; and of the last one %v", err, errs[quota.EntitiesMax])
	}
	set(t, quotas, changes[0].Entity, map[quota.Kind]float64{quota.ProducerByteRate: 2}) // one that is there may change
}

func TestDamagedQuotaBoundsNobodyAndCanBeRemoved(t *testing.T) {
	store := memory.New()
	for key, value := range map[string]string{"quota/x": "{", "quota/y": `{"user":{"name":"alice"},"limits":{"producer_byte_rate":1}}`} {
		if _, err := store.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: key, Version: 1, Value: []byte(value)}}}}); err != nil {
			t.Fatal(err)
		}
	}
	quotas := quotasOf(store)
	enforcer := quota.NewEnforcer(quotas)
	if enforcer.Refresh(t.Context()); enforcer.Active() {
		t.Error("a quota that cannot be read bounds somebody")
	}
	set(t, quotas, alice, map[quota.Kind]float64{quota.ProducerByteRate: 1})
	if n, err := quotas.DeleteDamaged(t.Context()); n != 2 || err != nil {
		t.Errorf("%d were removed: %v", n, err)
	}
	if all := list(t, quotas, quota.All); len(all) != 1 {
		t.Errorf("left are %v", all)
	}
}

// The filter of KIP-546: what Kafka's ClientQuotasImage.describe finds.
func TestFilterFindsEntities(t *testing.T) {
	entities := map[string]quota.Entity{
		"alice":   alice,
		"bob":     {User: quota.Named("bob")},
		"others":  {User: quota.Default},
		"alice/c": {User: quota.Named("alice"), ClientID: quota.Named("c")},
		"alice/*": {User: quota.Named("alice"), ClientID: quota.Default},
		"c":       {ClientID: quota.Named("c")},
		"ip":      {IP: quota.Named("10.0.0.1")},
	}
	is := func(name string) quota.Component { return quota.Component{Match: quota.Exact, Name: name} }
	byDefault, some, none := quota.Component{Match: quota.IsDefault}, quota.Component{Match: quota.AnyPart}, quota.Whatever
	for _, c := range []struct {
		user, client, ip quota.Component
		strict           bool
		want             string
	}{
		{none, none, none, false, "alice alice/* alice/c bob c ip others"},
		{none, none, none, true, ""},
		{is("alice"), none, none, false, "alice alice/* alice/c"},
		{is("alice"), none, none, true, "alice"},
		{is(""), none, none, false, ""},
		{byDefault, none, none, true, "others"},
		{some, none, none, false, "alice alice/* alice/c bob others"},
		{some, none, none, true, "alice bob others"},
		{some, some, none, true, "alice/* alice/c"},
		{some, byDefault, none, true, "alice/*"},
		{none, is("c"), none, false, "alice/c c"},
		{none, is("c"), none, true, "c"},
		{none, none, is("10.0.0.1"), true, "ip"},
		{none, none, byDefault, false, ""},
	} {
		f := quota.Filter{User: c.user, ClientID: c.client, IP: c.ip, Strict: c.strict}
		for name, e := range entities {
			if want := strings.Contains(" "+c.want+" ", " "+name+" "); f.Finds(e) != want {
				t.Errorf("%+v finds %s: %v", f, name, !want)
			}
		}
	}
}

// failing is a store that stops answering, and counts how often it is read.
type failing struct {
	eventlog.Store
	away  atomic.Bool
	lists atomic.Int64
}

func (f *failing) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if f.lists.Add(1); f.away.Load() {
		return nil, eventlog.ErrUnavailable
	}
	return f.Store.List(ctx, prefix, after, limit)
}

// The filter of an entity finds what has its parts, whatever else that has.
func TestFilterOfAnEntityFindsWhatHasItsParts(t *testing.T) {
	nightly := quota.Entity{User: quota.Named("alice"), ClientID: quota.Named("nightly")}
	everyone := quota.Entity{User: quota.Default}
	for _, c := range []struct {
		of, e quota.Entity
		want  bool
	}{
		{quota.Entity{}, alice, true}, {alice, alice, true}, {alice, nightly, true}, {nightly, alice, false}, {everyone, alice, false}, {everyone, everyone, true},
		{quota.Entity{ClientID: quota.Named("nightly")}, nightly, true}, {quota.Entity{IP: quota.Default}, alice, false},
	} {
		if got := quota.FilterOf(c.of).Finds(c.e); got != c.want {
			t.Errorf("the filter of %q finds %q: %v", c.of, c.e, got)
		}
	}
	for text, want := range map[string]string{"::ffff:10.0.0.1": "10.0.0.1", "10.0.0.1": "10.0.0.1", "a": "a", "": ""} {
		if got := (quota.Entity{IP: quota.Named(text)}).Normal(); got.IP.Name != want {
			t.Errorf("%q becomes %q", text, got.IP.Name)
		}
	}
}

func TestAnEntityWithoutQuotasHasNoLimits(t *testing.T) {
	quotas := quotasOf(memory.New())
	if q, err := quotas.Find(t.Context(), alice); err != nil || q.Entity != alice || len(q.Limits) != 0 {
		t.Errorf("%v, %v", q, err)
	}
	set(t, quotas, alice, map[quota.Kind]float64{quota.ProducerByteRate: 5})
	if q, err := quotas.Find(t.Context(), alice); err != nil || q.Limits[quota.ProducerByteRate] != 5 {
		t.Errorf("%v, %v", q, err)
	}
}
