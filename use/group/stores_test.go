package group_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/group"
)

// What the other tests see on the store in memory holds on those that keep.
func TestGroupsOnRealStores(t *testing.T) {
	for name, open := range realStores {
		t.Run(name, func(t *testing.T) {
			store := open(t)
			t.Run("names", func(t *testing.T) { anyNames(t, store) })
			t.Run("restart and takeover", func(t *testing.T) { takeover(t, store) })
		})
	}
}

func opened(t *testing.T, s eventlog.Store, err error) eventlog.Store {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, s.Close()) })
	return s
}

func anyNames(t *testing.T, store eventlog.Store) {
	b := startBroker(t, store, group.Config{})
	o := b.topic(t, "named", 1)[0]
	o.Metadata = "nul \x00, broken \xff"
	names := []string{"", "a", "a/b", "a%2Fb", "A", "ü", "a\x00b", "\xff", "a b", "..", strings.Repeat("/", 512)}
	for i, name := range names {
		_, err := b.Commit(t.Context(), simple(name, at(o, eventlog.Offset(i))))
		check(t, err)
	}
	b.stop()
	b = startBroker(t, store, group.Config{})
	for i, name := range names {
		wantOffset(t, b, name, o.TopicPartition, eventlog.Offset(i))
	}
	listed, err := b.List(t.Context(), nil)
	check(t, err)
	if len(listed) != len(names) {
		t.Errorf("listed %v", listed)
	}
	for _, name := range names {
		check(t, b.Delete(t.Context(), name))
	}
}

// patiently repeats a call, which may be repeated, while the group asks for that: the store may
// take longer than a request waits for it. The end of the test is the deadline.
func patiently(t *testing.T, call func() error) error {
	for {
		err := call()
		if !errors.Is(err, group.ErrLoading) && !errors.Is(err, group.ErrUnavailable) && !errors.Is(err, eventlog.ErrUnsure) || t.Context().Err() != nil {
			return err
		}
	}
}

func takeover(t *testing.T, store eventlog.Store) {
	cfg := group.Config{InitialDelay: -1}
	a := startBroker(t, store, cfg)
	orders := a.topic(t, "orders", 3000)
	for i := range orders {
		orders[i].Offset = eventlog.Offset(i)
	}
	p := newPlayer(a, "g", "p")
	p.join.Session, p.join.Rebalance = 30*time.Minute, 30*time.Minute // a busy machine is no dead member
	check(t, patiently(t, func() error { return p.enter(t.Context()) }))
	check(t, patiently(t, func() error { return p.sync(t.Context()) }))
	check(t, patiently(t, func() error { return p.commit(t.Context(), orders...) }))

	b := startBroker(t, store, cfg)
	q := *p
	q.b = b
	check(t, patiently(t, func() error { return q.commit(t.Context(), at(orders[0], 70)) })) // the member goes on at b
	check(t, patiently(t, func() error { return p.commit(t.Context(), at(orders[0], 60)) })) // and back at a
	wantOffset(t, b, "g", orders[0].TopicPartition, 60)
	check(t, patiently(t, func() error { return q.commit(t.Context(), at(orders[0], 70)) }))
	all, err := a.Fetch(t.Context(), "g", nil)
	check(t, err)
	if len(all) != len(orders) || all[0].Offset != 70 || all[2999].Offset != 2999 {
		t.Fatalf("fetched %d offsets", len(all))
	}
	_, err = a.Leave(t.Context(), "g", []group.Leaver{{Member: p.join.Member}})
	check(t, err)
	check(t, b.Delete(t.Context(), "g"))
	if err := a.Delete(t.Context(), "g"); !errors.Is(err, group.ErrNotFound) {
		t.Fatalf("deleted twice: %v", err)
	}
	left, err := store.List(t.Context(), "group/", "", 10)
	check(t, err)
	if len(left) > 0 {
		t.Fatalf("the store still has %v", left)
	}
}
