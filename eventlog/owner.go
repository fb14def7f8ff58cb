package eventlog

import (
	"context"
	"fmt"
	"slices"
	"strconv"
)

// Owner is a part of weir that needs all records of a topic: a queue, for example. A topic names
// its owners, so that every change of a topic takes them into account, through every protocol and
// in every process.
type Owner struct {
	// Key has a value as long as the owner exists. On a store made of shards it is on shard 0.
	Key string `json:"key"`
	// Name is shown to people, as in: queue "orders".
	Name string `json:"name"`
	// Fixed: the topic must get no more partitions, because the owner relies on which key is in
	// which partition.
	Fixed bool `json:"fixed,omitempty"`
}

// Owned reports whether the topic says that it has this owner.
func (t Topic) Owned(by Owner) bool { return slices.Contains(t.Owners, by) }

// needed reports whether somebody may need all records of the topic. Then compaction leaves it
// alone, whatever its settings say.
func (t Topic) needed() bool { return t.Writer != "" || len(t.Owners) > 0 }

// OwnTopic adds an owner to a topic, durably, or replaces what the topic says of it. It costs
// nothing if the topic says so already. The owner is not noted for another topic that has taken the
// name (ErrUnknownTopic).
//
// The owner may not exist yet. Then the entry that makes it must check that the topic is Unchanged:
// a change of the topic ignores owners that do not exist.
//
// The parameter now has the versions of keys that the caller read and relies on: ErrStale if a key
// has another version since.
func (l *Log) OwnTopic(ctx context.Context, t Topic, by Owner, now ...Check) (Topic, error) {
	if t.Owned(by) {
		return t, nil
	}
	return l.changeOwners(ctx, t, by.Key, []Owner{by}, now)
}

// DisownTopic removes an owner from a topic, durably. The parameter now is that of OwnTopic.
func (l *Log) DisownTopic(ctx context.Context, t Topic, by Owner, now ...Check) error {
	if !t.Owned(by) {
		return nil
	}
	_, err := l.changeOwners(ctx, t, by.Key, nil, now)
	return err
}

// changeOwners replaces the owner of a key.
func (l *Log) changeOwners(ctx context.Context, t Topic, key string, with []Owner, now []Check) (Topic, error) {
	return l.changeTopic(ctx, t.Name, t.ID, nil, func(t Topic, _ owners) (Topic, []Check, error) {
		if t.Version == 0 || t.deleting {
			return Topic{}, nil, fmt.Errorf("%w: %q", ErrUnknownTopic, t.Name)
		}
		for _, c := range now { // because changeTopic tries again whenever a check does not hold in its commit
			if kv, err := l.Get(ctx, c.Key); err != nil {
				return Topic{}, nil, err
			} else if kv.Version != c.Version {
				return Topic{}, nil, fmt.Errorf("change the owners of topic %q: %w", t.Name, ErrStale)
			}
		}
		others := slices.DeleteFunc(slices.Clone(t.Owners), func(o Owner) bool { return o.Key == key })
		t.Owners = append(others, with...)
		return t, now, nil
	})
}

// CheckDeletes returns, for each topic, an *InvalidError if no client may delete its records,
// because somebody needs them. It costs a store call for hundreds of topics that have owners.
func (l *Log) CheckDeletes(ctx context.Context, topics ...Topic) []error {
	errs := make([]error, len(topics))
	known, err := l.ownersOf(ctx, topics)
	for i, t := range topics {
		if errs[i] = err; err == nil {
			errs[i] = t.checkDeletes(known)
		}
	}
	return errs
}

func (t Topic) checkDeletes(known owners) error {
	refuse := func(who string) error {
		return &InvalidError{What: "topic", Value: t.Name, Why: who + ", so clients may not delete them one by one"}
	}
	switch {
	case InternalTopic(t.Name):
		return &InvalidError{What: "topic", Value: t.Name, Why: "it is internal: clients may not delete its records"}
	case t.Writer != "":
		return refuse(fmt.Sprintf("only %s may change it, and projections need its records; set its retention.ms instead", t.Writer))
	}
	if owner, _ := known.first(t.Owners); owner.Key != "" {
		return refuse(fmt.Sprintf("%s needs its records", owner.Name))
	}
	return nil
}

// checkOwners returns an *InvalidError if an owner forbids what was changed: the topic is
// compacted, or has partitions without a number yet. If only owners that do not exist any more
// forbid it, it returns the topic without them, and checks that none of them begins to exist.
func (t Topic) checkOwners(known owners) (Topic, []Check, error) {
	compacted, grows := t.Compacted(), slices.Contains(t.Partitions, catalogPartition)
	forbids := func(o Owner) bool { return compacted || grows && o.Fixed }
	var asked []Owner
	for _, o := range t.Owners {
		if forbids(o) {
			asked = append(asked, o)
		}
	}
	owner, gone := known.first(asked)
	switch {
	case owner.Key != "" && compacted:
		return Topic{}, nil, &InvalidError{What: "cleanup.policy", Value: t.Setting("cleanup.policy"),
			Why: fmt.Sprintf("%s needs all records of topic %q; allowed: delete", owner.Name, t.Name)}
	case owner.Key != "":
		return Topic{}, nil, &InvalidError{What: "number of partitions", Value: strconv.Itoa(len(t.Partitions)),
			Why: fmt.Sprintf("%s keeps the order of keys, so topic %q must not get more partitions", owner.Name, t.Name)}
	}
	t.Owners = slices.DeleteFunc(slices.Clone(t.Owners), forbids)
	return t, gone, nil
}

// owners says which keys of topics' owners exist.
type owners map[string]bool

// ownersOf reads which owners of topics exist: one store call for each thousand, none if there are
// none.
func (l *Log) ownersOf(ctx context.Context, topics []Topic) (owners, error) {
	var keys []string
	for _, t := range topics {
		for _, o := range t.Owners {
			keys = append(keys, o.Key)
		}
	}
	slices.Sort(keys)
	known := make(owners)
	err := l.GetAll(ctx, slices.Compact(keys), func(kv KeyValue) error {
		known[kv.Key] = kv.Version != 0
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for the owners of topics: %w", err)
	}
	return known, nil
}

// first returns the first of a topic's owners that exists. If none does, gone checks that this
// stays so.
func (known owners) first(of []Owner) (first Owner, gone []Check) {
	for _, o := range of {
		if known[o.Key] {
			return o, nil
		}
		gone = append(gone, Check{Key: o.Key})
	}
	return Owner{}, gone
}
