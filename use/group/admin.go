package group

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-log/weir/eventlog"
)

type (
	// Listed is a group in a list.
	Listed struct {
		Group        string
		ProtocolType string
		State        State
	}

	// Described is a group in full.
	Described struct {
		Group        string
		State        State
		Generation   int32
		ProtocolType string
		Protocol     string
		Members      []Member
	}

	// Member is one member of a described group.
	Member struct {
		ID, Instance         string
		ClientID, ClientHost string
		Metadata, Assignment []byte
	}
)

// List returns all groups, sorted by name: one trip per thousand. Filters are Kafka's: states in any case, and none means all.
func (c *Coordinator) List(ctx context.Context, states []string) ([]Listed, error) {
	found := make(map[string]Listed)
	err := c.log.ListAll(ctx, statePrefix, func(kv eventlog.KeyValue) error {
		var s storedState
		name, err := nameOfStateKey(kv.Key)
		if err == nil {
			err = json.Unmarshal(kv.Value, &s)
		}
		if err != nil {
			return fmt.Errorf("key %q: %w", kv.Key, err)
		}
		l := Listed{Group: name, ProtocolType: s.ProtocolType, State: Empty}
		if len(s.Members) > 0 {
			l.State = Stable
		}
		found[name] = l
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list groups: %w (%w)", ErrLoading, err)
	}
	// What this process coordinates is newer in memory.
	for _, g := range c.all() {
		c.stay(g)
		if g.owned && (g.version > 0 || len(g.members) > 0) {
			found[g.name] = Listed{Group: g.name, ProtocolType: g.protocolType, State: g.state}
		}
		g.leave()
	}
	out := slices.Collect(maps.Values(found))
	out = slices.DeleteFunc(out, func(l Listed) bool {
		return len(states) > 0 && !slices.ContainsFunc(states, func(s string) bool { return strings.EqualFold(s, string(l.State)) })
	})
	slices.SortFunc(out, func(a, b Listed) int { return strings.Compare(a.Group, b.Group) })
	return out, nil
}

// all lists the groups in memory.
func (c *Coordinator) all() []*group {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.groups))
}

// Describe returns a group in full, or ErrNotFound. What members bring and are given is shown once the group is stable, as in Kafka.
func (c *Coordinator) Describe(ctx context.Context, name string) (Described, error) {
	g, err := c.enterFresh(ctx, name)
	if err != nil {
		return Described{}, err
	}
	defer g.leave()
	if g.version == 0 && g.state == Empty {
		return Described{Group: name, State: Dead}, fmt.Errorf("group %q: %w", name, ErrNotFound)
	}
	d := Described{Group: name, State: g.state, Generation: g.generation, ProtocolType: g.protocolType}
	for _, m := range g.byID() {
		o := Member{ID: m.id, Instance: m.instance, ClientID: m.clientID, ClientHost: m.clientHost}
		if g.state == Stable {
			d.Protocol = g.protocol
			o.Metadata, o.Assignment = m.metadata(g.protocol), m.assignment
		}
		d.Members = append(d.Members, o)
	}
	return d, nil
}

// Delete removes a group without members, and all its offsets, in one entry.
func (c *Coordinator) Delete(ctx context.Context, name string) error {
	g, err := c.enterFresh(ctx, name)
	if err != nil {
		return err
	}
	defer g.leave()
	if g.state == Empty {
		// Commits may be on their way. Owning the group anew lets each of them come first, and be seen, or not at all.
		if err := g.own(ctx); err != nil {
			return err
		}
	}
	switch {
	case g.state != Empty:
		return fmt.Errorf("delete group %q: %w: it has %d members", name, ErrNotEmpty, len(g.members))
	case g.version == 0:
		return fmt.Errorf("delete group %q: %w", name, ErrNotFound)
	}
	return g.erase(ctx)
}

// erase removes the group from the store.
func (g *group) erase(ctx context.Context) error {
	// The version of a put that forgets a key only says that the key moves forward.
	puts := []eventlog.Put{{Key: stateKey(g.name), Version: g.version + 1}}
	for tp := range g.offsets {
		puts = append(puts, eventlog.Put{Key: offsetKey(g.name, tp), Version: g.version + 1})
	}
	if err := g.write(ctx, puts...); err != nil {
		return err
	}
	g.reset()
	return nil
}
