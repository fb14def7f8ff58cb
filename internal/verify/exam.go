package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-log/weir/eventlog"
)

// Options of an exam. The zero value of every field means its default.
type Options struct {
	Rate      int64                           // the most bytes that are read in a second; default: any
	Found     func(Finding)                   // gets each finding, once it is certain
	Undecided func(check string, place Place) // gets each place that changed with every look
	Progress  func(Progress)                  // is called after every read of the log, and after pages of keys
	Checks    []Check                         // of the keys, in their order; those of this package come first
}

// Progress says how far an exam has come.
type Progress struct {
	Check      string // which check runs
	Read, Held int64  // bytes of the log that were read, and that there are about
	Keys       int64  // keys that were read
	Found      int64  // findings so far
}

// Check is a part of an exam. Both functions may be nil.
type Check struct {
	Name string
	// Visit returns what gets the batches of a partition, in order, while the log is read; nil: the
	// check does not need this partition. topic has no name where no topic has the partition.
	Visit func(x *Exam, topic eventlog.Topic, number int) Visitor
	// Run checks the keys, after the log was read.
	Run func(ctx context.Context, x *Exam) error
}

// Visitor gets consecutive batches of a partition, which are not damaged. Its error ends the exam.
type Visitor func(ctx context.Context, batches []eventlog.Placed) error

// Exam examines one store. One goroutine uses it.
type Exam struct {
	Topics []eventlog.Topic // at the beginning, by name

	store  *source
	opts   Options
	check  string // which one runs
	homes  map[eventlog.Partition]home
	result Result
	held   int64
	read   int64
}

// home is where a partition belongs.
type home struct {
	topic  eventlog.Topic
	number int
}

// Run examines a store. The error says why the exam is not complete; what was found until then is
// in the result.
func Run(ctx context.Context, store eventlog.Store, opts Options) (Result, error) {
	x := &Exam{store: &source{Store: store, rate: opts.Rate}, opts: opts}
	err := x.run(ctx)
	if ctx.Err() != nil { // a read that was cut short may have an error of its own
		err = context.Cause(ctx)
	}
	x.result.Bytes, x.result.Keys = x.store.bytes, x.store.keys
	return x.result, err
}

func (x *Exam) run(ctx context.Context) error {
	bounds, _, err := x.store.Changes(ctx, eventlog.Mark{}) // from now on a rewind is an error
	if err != nil {
		return fmt.Errorf("read the bounds of all partitions: %w", err)
	}
	if _, err := eventlog.FindShardMark(ctx, x.store); err != nil { // what it needs and this weir does not know would be taken for damage
		return fmt.Errorf("read what the store is: %w", err)
	}
	if _, err := x.store.List(ctx, "", "", 1); err != nil { // it asks every shard: Changes leaves out a shard that has never answered
		return fmt.Errorf("read a key of each shard: %w", err)
	}
	if x.Topics, _, err = eventlog.TopicsIn(ctx, x.store); err != nil {
		return err
	}
	x.homes = make(map[eventlog.Partition]home)
	for _, t := range x.Topics {
		for n, p := range t.Partitions {
			x.homes[p] = home{t, n}
		}
	}
	checks := append([]Check{{Name: "log"}, {Name: "topics", Run: checkTopics}, (&producers{newest: make(map[producerIn]eventlog.Offset)}).check()}, x.opts.Checks...)
	x.check = "log"
	if err := x.readLog(ctx, bounds, checks); err != nil {
		return fmt.Errorf("examine the log: %w", err)
	}
	for _, c := range checks {
		if c.Run == nil {
			continue
		}
		x.check = c.Name
		x.progress()
		if err := c.Run(ctx, x); err != nil {
			return fmt.Errorf("examine %s: %w", c.Name, err)
		}
	}
	return nil
}

func (x *Exam) progress() {
	if x.opts.Progress != nil {
		x.opts.Progress(Progress{Check: x.check, Read: x.read, Held: max(x.held, x.read), Keys: x.store.keys, Found: x.result.Found})
	}
}

// as runs do under the name of another check: a Visitor's findings are its own, and not those of
// the log.
func (x *Exam) as(check string, do func() error) error {
	before := x.check
	x.check = check
	defer func() { x.check = before }()
	return do()
}

// Place returns the place of an offset of a partition; -1: the partition as a whole.
func (x *Exam) Place(p eventlog.Partition, offset eventlog.Offset) Place {
	place := Place{Partition: p, Offset: offset}
	if h, known := x.homes[p]; known {
		place.Topic, place.Number = h.topic.Name, h.number
	}
	return place
}

// Store returns the store, which refuses changes. What is read of it for a judgement is read with a
// View.
func (x *Exam) Store() eventlog.Store { return x.store }

// Keys calls visit with all keys under prefix, in pages.
func (x *Exam) Keys(ctx context.Context, prefix string, visit func(page []eventlog.KeyValue) error) error {
	return x.KeysPaged(ctx, prefix, pageKeys, visit)
}

// KeysPaged is Keys with another bound for a page, for keys with large values.
func (x *Exam) KeysPaged(ctx context.Context, prefix string, most int, visit func(page []eventlog.KeyValue) error) error {
	for after := ""; ; {
		page, err := x.store.List(ctx, prefix, after, most)
		if err != nil {
			return fmt.Errorf("list keys under %q: %w", prefix, err)
		}
		if len(page) == 0 {
			return nil
		}
		if err := visit(page); err != nil {
			return err
		}
		x.progress()
		if after = page[len(page)-1].Key; len(page) < most {
			return nil
		}
	}
}

// looksMost bounds how often one place is looked at.
const looksMost = 12

// Confirm calls look, which reads with its View and says with View.Find what is wrong, until it
// finds nothing, or twice in a row the same in keys of the same versions. Then it reports that.
func (x *Exam) Confirm(ctx context.Context, look func(v *View) error) error {
	var before *View
	for n := 1; n <= looksMost; n++ {
		v := &View{x: x}
		if err := look(v); err != nil {
			return err
		}
		switch {
		case len(v.found) == 0:
			return nil
		case before != nil && before.same(v):
			for _, f := range v.found {
				x.report(f)
			}
			return nil
		}
		if before != nil {
			eventlog.Pause(ctx, n-1)
		}
		if before = v; ctx.Err() != nil {
			return ctx.Err()
		}
	}
	x.result.Undecided++
	if x.opts.Undecided != nil {
		x.opts.Undecided(x.check, before.found[0].Place)
	}
	return nil
}

func (x *Exam) report(f Finding) {
	f.Check = x.check
	x.result.Found++
	if x.opts.Found != nil {
		x.opts.Found(f)
	}
}

// View is one look at a place. It notes the versions of all keys that it reads.
type View struct {
	x     *Exam
	seen  strings.Builder // the keys and their versions
	found []Finding
}

// same reports whether two looks read and found the same.
func (v *View) same(o *View) bool {
	if v.seen.String() != o.seen.String() || len(v.found) != len(o.found) {
		return false
	}
	for i := range v.found {
		if v.found[i].Place != o.found[i].Place || v.found[i].Do != o.found[i].Do { // What may name an end, which grows
			return false
		}
	}
	return true
}

func (v *View) note(kvs []eventlog.KeyValue) {
	for _, kv := range kvs {
		fmt.Fprintf(&v.seen, "%q %d\n", kv.Key, kv.Version)
	}
}

// Find says that something is wrong.
func (v *View) Find(place Place, do, format string, args ...any) {
	v.found = append(v.found, Finding{Place: place, What: fmt.Sprintf(format, args...), Do: do})
}

// Get reads keys: version 0 where there is none.
func (v *View) Get(ctx context.Context, keys ...string) (all []eventlog.KeyValue, err error) {
	all, err = v.x.Get(ctx, keys...)
	v.note(all)
	return all, err
}

// Get reads keys for a first look: version 0 where there is none.
func (x *Exam) Get(ctx context.Context, keys ...string) (all []eventlog.KeyValue, err error) {
	for len(keys) > 0 {
		page, err := x.store.Get(ctx, keys[:min(len(keys), pageKeys)], readBytes)
		if err != nil {
			return nil, fmt.Errorf("read %d keys: %w", len(keys), err)
		}
		all, keys = append(all, page...), keys[len(page):]
	}
	return all, nil
}

// GetEach is Get that holds only a few MiB of values at a time.
func (x *Exam) GetEach(ctx context.Context, keys []string, visit func(eventlog.KeyValue) error) error {
	for len(keys) > 0 {
		page, err := x.store.Get(ctx, keys[:min(len(keys), pageKeys)], readBytes)
		if err != nil {
			return fmt.Errorf("read %d keys: %w", len(keys), err)
		}
		for _, kv := range page {
			if err := visit(kv); err != nil {
				return err
			}
		}
		keys = keys[len(page):]
	}
	return nil
}

// List reads keys as eventlog.Store.List does.
func (v *View) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	list, err := v.x.store.List(ctx, prefix, after, limit)
	v.note(list)
	return list, err
}

// Read reads batches of a partition, beginning with the one that holds the offset from.
func (v *View) Read(ctx context.Context, p eventlog.Partition, from eventlog.Offset, bytes int) (eventlog.Slice, error) {
	slices, err := v.x.store.Read(ctx, []eventlog.Span{{Partition: p, From: from, MaxBytes: bytes}}, max(bytes, 1))
	if err != nil {
		return eventlog.Slice{}, err
	}
	return slices[0], nil
}

// Bounds reads the bounds of a partition; false: it does not exist. Keys that must not pass its end
// are read before.
func (v *View) Bounds(ctx context.Context, p eventlog.Partition) (eventlog.Bounds, bool, error) {
	all, err := v.x.Bounds(ctx, p)
	b, there := all[p]
	return b, there, err
}

// Bounds reads the bounds of partitions, those that exist, for a first look.
func (x *Exam) Bounds(ctx context.Context, ps ...eventlog.Partition) (map[eventlog.Partition]eventlog.Bounds, error) {
	bounds := make(map[eventlog.Partition]eventlog.Bounds, len(ps))
	for some := range slices.Chunk(ps, pageKeys) {
		spans := make([]eventlog.Span, len(some))
		for i, p := range some {
			spans[i].Partition = p
		}
		read, err := x.store.Read(ctx, spans, 0)
		if err != nil {
			return nil, fmt.Errorf("read the bounds of %d partitions: %w", len(some), err)
		}
		for i, slice := range read {
			if slice.Err == nil {
				bounds[some[i]] = slice.Bounds
			}
		}
	}
	return bounds, nil
}

// First is a first look: it reports nothing, and says whether there is something to Confirm.
func (x *Exam) First(look func(v *View) error) (suspicious bool, err error) {
	v := &View{x: x}
	err = look(v)
	return len(v.found) > 0, err
}

// Judge is Confirm, if a first look finds something.
func (x *Exam) Judge(ctx context.Context, look func(v *View) error) error {
	if suspicious, err := x.First(look); err != nil || !suspicious {
		return err
	}
	return x.Confirm(ctx, look)
}

// Topics reads all topics, by their ids.
func (v *View) Topics(ctx context.Context) (map[eventlog.TopicID]eventlog.Topic, error) {
	topics, version, err := eventlog.TopicsIn(ctx, v.x.store)
	fmt.Fprintf(&v.seen, "topics %d\n", version)
	byID := make(map[eventlog.TopicID]eventlog.Topic, len(topics))
	for _, t := range topics {
		byID[t.ID] = t
	}
	return byID, err
}
