package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/chance"
)

const (
	// changePatience bounds how long a change of a topic is tried again while other processes
	// change topics, too.
	changePatience = 10 * time.Second
	// changePause is the longest first pause between two tries. It doubles up to changePauseMax.
	changePause, changePauseMax = 2 * time.Millisecond, 200 * time.Millisecond

	// A change that makes or deletes changeLarge partitions or more takes the store's time from
	// everybody, for half a second if there are ten thousand. Such a change counts as changeShare
	// times the time that it took, but as changeMost at most. The sum may be changeBurst ahead of
	// the clock; beyond that, large changes wait. So clients that make and delete topics in a loop
	// have a fifth of the store's time, and a few large topics can be made together. Smaller
	// changes cost about what a commit costs.
	changeLarge = 100
	changeShare = 5
	changeMost  = 10 * time.Second
	changeBurst = 20 * time.Second
)

// errResting: a large change must wait, because large ones had their share of the time.
var errResting = errors.New("a large change of topics was made a moment ago")

// topicEdit is a change of one topic, and its outcome.
type topicEdit struct {
	name string
	// id is the topic's: another topic is not touched (ErrUnknownTopic). Zero: the topic that is
	// read first. Another process may delete that one meanwhile and create another with the same
	// name, which a later try must not change.
	id     TopicID
	beside func(TopicID) string // a key by the id of a new topic, whose partitions are on the shard of that key; nil: on any
	// decide returns the topic's new state (no name: delete it; partitions numbered 0 are new and
	// get a number), and checks for the entry. old.Version 0: there is no such topic. known says
	// which of the topic's owners exist.
	decide func(old Topic, known owners) (Topic, []Check, error)

	next Topic
	err  error
}

const (
	// editsMax, editBytes and editPartitions bound the changes that share one entry. The first
	// change is in it however large it is.
	editsMax       = 256
	editBytes      = 1 << 20
	editPartitions = 10_000
)

// changeTopic makes one change.
func (l *Log) changeTopic(ctx context.Context, name string, id TopicID, beside func(TopicID) string, decide func(old Topic, known owners) (Topic, []Check, error)) (Topic, error) {
	edit := &topicEdit{name: name, id: id, beside: beside, decide: decide}
	l.changeTopics(ctx, edit)
	return edit.next, edit.err
}

// changeEach makes the changes that have no error yet, and returns what became of all.
func (l *Log) changeEach(ctx context.Context, edits []*topicEdit) ([]Topic, []error) {
	l.changeTopics(ctx, slices.DeleteFunc(slices.Clone(edits), func(e *topicEdit) bool { return e.err != nil })...)
	topics, errs := make([]Topic, len(edits)), make([]error, len(edits))
	for i, e := range edits {
		topics[i], errs[i] = e.next, e.err
	}
	return topics, errs
}

// TopicAudit records who changes topics.
type TopicAudit interface {
	// Prepare is called before topics change. If it returns an error, no topic changes.
	Prepare(ctx context.Context) error
	// Topics returns batches for the entry that makes the changes. They must be on the shard of the
	// catalog.
	Topics(ctx context.Context, changed []ChangedTopic) ([]Batch, error)
}

// ChangedTopic is a change of a topic. Old.Version 0: it is created. New.Name "": it is deleted.
type ChangedTopic struct{ Old, New Topic }

// Audit sets who records changes of topics. It must be called before the log is used.
func (l *Log) Audit(by TopicAudit) { l.audit = by }

// Auditor returns who records changes of topics; nil: nobody.
func (l *Log) Auditor() TopicAudit { return l.audit }

// changeTopics makes changes of topics, each of which may be refused by itself: three store calls
// for hundreds of them, one more if some have owners, and a read of the catalog afterwards. On a
// store made of shards each is an entry of its own, because their parts may be on different shards.
//
// All changes of topics check one key. Those of this process wait for each other, so that none is
// in vain; those of other processes are the reason to try again. Small changes do not wait while a
// large one has to.
func (l *Log) changeTopics(ctx context.Context, edits ...*topicEdit) {
	if len(edits) == 0 {
		return
	}
	busy := func(why string) {
		for _, e := range edits {
			e.next, e.err = Topic{}, fmt.Errorf("change topic %q: %w: %s. Nothing happened; try again", e.name, ErrBusy, why)
		}
		edits = nil
	}
	if l.audit != nil {
		if err := l.audit.Prepare(ctx); err != nil {
			for _, e := range edits {
				e.next, e.err = Topic{}, fmt.Errorf("change topic %q: %w", e.name, err)
			}
			return
		}
	}
	if !l.takeTurn(ctx) {
		busy("this process makes other changes first")
		return
	}
	mine := true
	defer func() {
		if mine {
			<-l.changing
		}
	}()
	changed, until := false, time.Now().Add(changePatience)
	for most, group := changePause, editsMax; len(edits) > 0; {
		if l.Sharded() {
			group = 1
		}
		now := edits[:min(len(edits), group)]
		taken, err := l.changeOnce(ctx, now)
		switch {
		case errors.Is(err, ErrStale):
			timer := time.NewTimer(chance.N(most))
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			if timer.Stop(); ctx.Err() != nil || time.Now().After(until) {
				busy("those of other processes came first")
			}
			most = min(2*most, changePauseMax)
			continue
		case errors.Is(err, errResting):
			if mine = l.rest(ctx); !mine {
				busy(fmt.Sprintf("changes of %d partitions and more have a fifth of the store's time, and there were many", changeLarge))
			}
			until = time.Now().Add(changePatience)
			continue
		case errors.Is(err, ErrTooLarge) && taken > 1:
			group = 1
			continue
		}
		for _, e := range now[:taken] {
			if e.err == nil && err != nil {
				e.next, e.err = Topic{}, fmt.Errorf("change topic %q: %w", e.name, err)
			}
			changed = changed || e.err == nil
		}
		edits = edits[taken:]
		most, until = changePause, time.Now().Add(changePatience)
	}
	if !changed {
		return
	}
	if err := l.loadCatalog(ctx); err != nil {
		l.cfg.Logger.Warn("topics changed, but the catalog could not be read again", "err", err)
	}
}

// takeTurn waits until this caller may change topics. It reports false if ctx ends first.
func (l *Log) takeTurn(ctx context.Context) bool {
	select {
	case l.changing <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// rest gives the turn to others until a large change may begin, and takes it again. It reports
// false, and the caller has no turn, if ctx ends first.
func (l *Log) rest(ctx context.Context) bool {
	timer := time.NewTimer(time.Until(l.largeTime) - changeBurst)
	defer timer.Stop()
	<-l.changing
	select {
	case <-timer.C:
		return l.takeTurn(ctx)
	case <-ctx.Done():
		return false
	}
}

// checkAll returns an error if a change that adds so many partitions (more) would make too many,
// together with those of the topics that this process knows: every partition takes memory in every
// process, as long as its topic exists.
func (l *Log) checkAll(more int) error {
	if is := len(l.catalog.Load().owner); more > 0 && is+more > l.cfg.TotalPartitions {
		return &InvalidError{What: "number of partitions", Value: strconv.Itoa(more),
			Why: fmt.Sprintf("all topics together have %d partitions already, and may have %d; delete topics, use fewer partitions, or raise that limit (weir serve --partitions-max; in Go Options.PartitionsMax)", is, l.cfg.TotalPartitions)}
	}
	return nil
}

// changeOnce tries to make the first of these changes, as many as fit into an entry. It returns how
// many it has handled. Those that were refused have an error of their own; err is the error of the
// entry that has the others. errResting: nothing was tried.
func (l *Log) changeOnce(ctx context.Context, edits []*topicEdit) (taken int, err error) {
	head, err := l.Get(ctx, catalogKey)
	if err != nil {
		return len(edits), err
	}
	keys := make([]string, len(edits))
	for i, e := range edits {
		keys[i] = topicPrefix + e.name
	}
	var found []KeyValue
	if err := l.GetAll(ctx, keys, func(kv KeyValue) error { found = append(found, kv); return nil }); err != nil {
		return len(edits), err
	}
	c, err := l.newCatalogChange(head)
	if err != nil {
		return len(edits), err
	}
	olds, bad := make([]Topic, len(edits)), make([]error, len(edits))
	for i := range edits {
		olds[i], bad[i] = parseTopic(found[i])
	}
	known, err := l.ownersOf(ctx, olds)
	if err != nil {
		return len(edits), err
	}
	for i, e := range edits {
		if c.full() || slices.ContainsFunc(edits[:i], func(other *topicEdit) bool { return other.name == e.name }) {
			break // an entry puts each key at most once
		}
		taken++
		e.next, e.err = Topic{}, nil
		old, err := olds[i], bad[i]
		if err == nil && e.id == (TopicID{}) {
			e.id = old.ID
		}
		if err == nil && old.ID != e.id {
			err = fmt.Errorf("%w: %q with id %v: it was deleted", ErrUnknownTopic, e.name, e.id)
		}
		var checks []Check
		if err == nil {
			e.next, checks, err = e.decide(old, known)
		}
		if err == nil {
			if err = l.checkAll(c.more + len(e.next.Partitions) - len(old.Partitions)); err != nil {
				err = fmt.Errorf("change topic %q: %w", e.name, err)
			}
		}
		if err == nil {
			e.next, err = c.add(old, e.next, e.beside)
		}
		if err == nil {
			c.more += max(0, len(e.next.Partitions)-len(old.Partitions))
		}
		if err != nil {
			e.next, e.err = Topic{}, err
			continue
		}
		c.check(checks)
	}
	if len(c.records) == 0 {
		return taken, nil // all were refused
	}
	if l.audit != nil {
		batches, err := l.audit.Topics(ctx, c.changed)
		if err != nil {
			return taken, err
		}
		c.e.Batches = append(c.e.Batches, batches...)
	}
	if !c.large() {
		_, err = l.Append(ctx, c.entry())
		return taken, err
	}
	began := time.Now()
	if l.largeTime.Sub(began) > changeBurst {
		return taken, errResting
	}
	if l.largeTime.Before(began) {
		l.largeTime = began
	}
	_, err = l.Append(ctx, c.entry())
	l.largeTime = l.largeTime.Add(min(changeShare*time.Since(began), changeMost))
	return taken, err
}

// catalogChange is an entry that changes topics.
type catalogChange struct {
	l       *Log
	version Version
	free    Partition // the next free number
	e       Entry
	records []batch.Record // the records for the catalog's partition
	changed []ChangedTopic
	bytes   int
	more    int // how many partitions the changes add
	checked map[string]bool
}

func (l *Log) newCatalogChange(head KeyValue) (*catalogChange, error) {
	free, err := freePartition(head)
	if err != nil {
		return nil, err
	}
	return &catalogChange{
		l: l, version: head.Version + 1, free: max(free, Partition(epochNumbers(l.LeaderEpoch()))), checked: make(map[string]bool),
		e: Entry{
			Checks:  []Check{{Key: catalogKey, Version: head.Version}},
			Batches: []Batch{{Partition: catalogPartition}},
		},
	}, nil
}

// full reports whether the entry should have no more changes.
func (c *catalogChange) full() bool { return c.bytes >= editBytes || c.partitions() >= editPartitions }

// large reports whether the entry keeps others waiting.
func (c *catalogChange) large() bool { return c.partitions() >= changeLarge }

// partitions is how many partitions the entry makes and deletes, and one for the catalog's own.
func (c *catalogChange) partitions() int { return len(c.e.Batches) + len(c.e.Forgets) }

// add replaces old by next. The partitions of a new topic are on the shard of the key that beside
// returns; beside nil: on any.
func (c *catalogChange) add(old, next Topic, beside func(TopicID) string) (Topic, error) {
	change := batch.Record{Key: []byte(old.Name)}
	if next.Name == "" {
		c.e.Puts, c.e.Forgets = append(c.e.Puts, Put{Key: topicPrefix + old.Name}), append(c.e.Forgets, old.Partitions...)
	} else {
		next.Version = c.version
		var key string
		if beside != nil {
			key = beside(next.ID)
		}
		numbered := slices.Clone(next.Partitions)
		next.Partitions = slices.Clone(next.Partitions)
		free, err := c.l.numberOn(&next, key, c.free)
		if err != nil {
			return Topic{}, err
		}
		c.free = free
		for i, p := range next.Partitions {
			if numbered[i] == catalogPartition {
				c.e.Batches = append(c.e.Batches, Batch{Partition: p})
			}
		}
		change = batch.Record{Key: []byte(next.Name), Value: next.json()}
		c.e.Puts = append(c.e.Puts, Put{Key: topicPrefix + next.Name, Version: c.version, Value: change.Value})
	}
	// A change of a topic is small, and deleting a topic or shortening its retention frees space.
	c.e.UsesReserve = old.Version != 0 && (c.e.UsesReserve || len(c.records) == 0)
	c.records, c.changed = append(c.records, change), append(c.changed, ChangedTopic{old, next})
	c.bytes += 2*len(change.Value) + len(change.Key)
	return next, nil
}

// check adds checks, each once.
func (c *catalogChange) check(checks []Check) {
	for _, k := range checks {
		if !c.checked[k.Key] {
			c.checked[k.Key] = true
			c.e.Checks = append(c.e.Checks, k)
		}
	}
}

// entry returns the entry of the changes that were added.
func (c *catalogChange) entry() Entry {
	e := c.e
	e.Puts = append(e.Puts, Put{Key: catalogKey, Version: c.version, Value: strconv.AppendInt(nil, int64(c.free), 10)})
	e.Batches = append(e.Batches, defaultSealing.sealLoose(catalogPartition, c.records))
	return e
}

// freePartition returns the next free partition number, from the value of catalogKey.
func freePartition(head KeyValue) (Partition, error) {
	if head.Version == 0 {
		return catalogPartition + 1, nil
	}
	n, err := strconv.ParseInt(string(head.Value), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("key %s holds %q: %w", catalogKey, head.Value, err)
	}
	return Partition(n), nil
}
