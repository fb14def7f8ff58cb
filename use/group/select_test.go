package group_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// shown is a store that remembers which keys it gave.
type shown struct {
	eventlog.Store
	mu   sync.Mutex // guards keys
	keys []string
}

func (s *shown) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	kvs, err := s.Store.List(ctx, prefix, after, limit)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kv := range kvs {
		s.keys = append(s.keys, kv.Key)
	}
	return kvs, err
}

// taken are the keys given since it was last asked.
func (s *shown) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := s.keys
	s.keys = nil
	return keys
}

func TestSelectReadsOnlyTheGroupsOfItsPrefixes(t *testing.T) {
	store := &shown{Store: memory.New()}
	b := startBroker(t, store, group.Config{})
	partitions := b.topic(t, "t", 1)
	for _, name := range []string{"shop/a", "shop/b", "shöp", "other", "bank"} {
		commit(t, b, name, partitions...)
	}
	store.taken()
	for _, c := range []struct{ prefixes, want []string }{
		{nil, nil},
		{[]string{"shop/"}, []string{"shop/a", "shop/b"}},
		{[]string{"sh\xc3", "bank"}, []string{"bank", "shöp"}}, // half a letter
		{group.AllPrefixes, []string{"bank", "other", "shop/a", "shop/b", "shöp"}},
	} {
		listed, err := b.Select(t.Context(), group.Filter{Prefixes: c.prefixes})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, g := range listed {
			got = append(got, g.Group)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.prefixes, got, c.want)
		}
		for _, key := range store.taken() {
			if strings.Contains(key, "other") && !slices.Contains(c.want, "other") {
				t.Errorf("%q: key %s was read", c.prefixes, key)
			}
		}
	}
}

// What a list takes is asked for before it is read, and what it did not need is given back.
func TestListsAskForMemoryBeforeTheyRead(t *testing.T) {
	store := &shown{Store: memory.New()}
	b := startBroker(t, store, group.Config{})
	partitions := b.topic(t, "t", 200)
	for n := range partitions {
		partitions[n].Metadata = strings.Repeat("m", 1000)
		commit(t, b, fmt.Sprint("many", n), partitions[n])
	}
	commit(t, b, "g", partitions...)
	full := errors.New("no memory")
	for name, list := range map[string]func(room func(int) error) error{
		"offsets": func(room func(int) error) error {
			_, err := b.FetchEach(t.Context(), []group.Wanted{{Group: "g"}}, room)
			return err
		},
		"groups": func(room func(int) error) error {
			_, err := b.Select(t.Context(), group.Filter{Prefixes: group.AllPrefixes, Room: room})
			return err
		},
	} {
		store.taken()
		if err := list(func(int) error { return full }); err == nil || len(store.taken()) > 0 {
			t.Errorf("%s: without memory they are read", name)
		}
		held, most := 0, 0
		if err := list(func(n int) error { held += n; most = max(most, held); return nil }); err != nil {
			t.Fatal(err)
		}
		if name == "offsets" && held < 200*1000 || held < 200*100 || most > held+1<<20 {
			t.Errorf("%s: %d bytes are held for 200 of them, and %d at most", name, held, most)
		}
	}
}
