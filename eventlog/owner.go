package eventlog

import (
	"context"
	"fmt"
	"slices"
)

// Owner is a part of weir that needs all records of a topic: a queue, for example. A topic says whose it is, so
// that whatever changes topics asks, through every protocol and in every process.
type Owner struct {
	// Key has a value as long as the owner exists. On a store made of shards it is on shard 0.
	Key string `json:"key"`
	// Name is shown to people, as in: queue "orders".
	Name string `json:"name"`
}

// Owned reports whether the topic says that it has this owner.
func (t Topic) Owned(by Owner) bool { return slices.Contains(t.Owners, by) }

// needed reports whether somebody may need all records of the topic. Then compaction leaves it alone, whatever its
// settings say.
func (t Topic) needed() bool { return t.Writer != "" || len(t.Owners) > 0 }

// OwnTopic adds an owner to a topic, durably. It costs nothing if the topic has that owner already. The owner is not
// noted for another topic that has taken the name (ErrUnknownTopic).
//
// The owner may not exist yet. Then the entry that makes it must check that the topic is Unchanged: a change of the
// topic ignores owners that do not exist.
func (l *Log) OwnTopic(ctx context.Context, t Topic, by Owner) (Topic, error) {
	if t.Owned(by) {
		return t, nil
	}
	return l.changeOwners(ctx, t, func(owners []Owner) ([]Owner, []Check, error) {
		if slices.Contains(owners, by) {
			return owners, nil, nil
		}
		return append(owners, by), nil, nil
	})
}

// DisownTopic removes an owner from a topic, durably. as is the version of the owner's key that the caller read, 0 if
// it has no value: ErrStale if it has another version now.
func (l *Log) DisownTopic(ctx context.Context, t Topic, by Owner, as Version) error {
	if !t.Owned(by) {
		return nil
	}
	_, err := l.changeOwners(ctx, t, func(owners []Owner) ([]Owner, []Check, error) {
		kv, err := l.Get(ctx, by.Key)
		if err == nil && kv.Version != as {
			err = fmt.Errorf("%s: %w", by.Name, ErrStale)
		}
		left := slices.DeleteFunc(owners, func(o Owner) bool { return o == by })
		return left, []Check{{Key: by.Key, Version: as}}, err
	})
	return err
}

func (l *Log) changeOwners(ctx context.Context, t Topic, change func([]Owner) ([]Owner, []Check, error)) (Topic, error) {
	return l.changeTopic(ctx, t.Name, t.ID, nil, func(now Topic) (Topic, []Check, error) {
		if now.Version == 0 || now.deleting {
			return Topic{}, nil, fmt.Errorf("%w: %q", ErrUnknownTopic, t.Name)
		}
		owners, checks, err := change(slices.Clone(now.Owners))
		now.Owners = owners
		return now, checks, err
	})
}

// CheckDeletes returns an *InvalidError if no client may delete records of the topic, because somebody needs them.
// It costs a store call if the topic has owners.
func (l *Log) CheckDeletes(ctx context.Context, t Topic) error {
	refuse := func(who string) error {
		return &InvalidError{What: "topic", Value: t.Name, Why: who + ", so clients may not delete them one by one"}
	}
	switch {
	case InternalTopic(t.Name):
		return &InvalidError{What: "topic", Value: t.Name, Why: "it is internal: clients may not delete its records"}
	case t.Writer != "":
		return refuse(fmt.Sprintf("only %s may change it, and projections need its records; set its retention.ms instead", t.Writer))
	}
	owner, _, err := l.owner(ctx, t)
	if err != nil || owner.Key == "" {
		return err
	}
	return refuse(fmt.Sprintf("%s needs its records", owner.Name))
}

// checkOwners returns an *InvalidError if the topic is compacted and has an owner. If it is compacted and its owners
// do not exist any more, it returns the topic without them, and checks that none of them begins to exist.
func (l *Log) checkOwners(ctx context.Context, t Topic) (Topic, []Check, error) {
	if !t.Compacted() || len(t.Owners) == 0 {
		return t, nil, nil
	}
	owner, gone, err := l.owner(ctx, t)
	switch {
	case err != nil:
		return Topic{}, nil, err
	case owner.Key != "":
		return Topic{}, nil, &InvalidError{What: "cleanup.policy", Value: t.Setting("cleanup.policy"),
			Why: fmt.Sprintf("%s needs all records of topic %q; allowed: delete", owner.Name, t.Name)}
	}
	t.Owners = nil
	return t, gone, nil
}

// owner returns the first owner of a topic that exists. If there is none, gone checks that this stays so. It reads
// one key for each owner up to the first one that exists: owners that end remove themselves (DisownTopic), so few do
// not exist.
func (l *Log) owner(ctx context.Context, t Topic) (first Owner, gone []Check, err error) {
	for _, o := range t.Owners {
		kv, err := l.Get(ctx, o.Key)
		if err != nil {
			return Owner{}, nil, fmt.Errorf("look for %s, which needs topic %q: %w", o.Name, t.Name, err)
		}
		if kv.Version != 0 {
			return o, nil, nil
		}
		gone = append(gone, Check{Key: o.Key})
	}
	return Owner{}, gone, nil
}
