package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// opsMax bounds what one change of a shard takes together, and opBytesMax the records that it appends.
const (
	opsMax     = 4096
	opBytesMax = 4 << 20
)

// op is what one caller asks of a shard.
type op struct {
	// apply changes the state and says what else belongs to the change. It reports whether anything changed. It runs again,
	// on a newer state, when another process was faster: results are overwritten.
	apply func(s *state, c *change) (changed bool, err error)
	bytes int64 // of records that it appends
	stale bool  // set by apply: it refused a receipt

	doubt bool // it was sent before, and may have happened: another process changed the state since

	done chan struct{} // closed once err is there
	err  error
	gone bool   // its caller went away after it was taken; guarded by shard.mu
	left func() // called when it happened and its caller was gone; may be nil
}

// change is one entry of a shard, while it is being made.
type change struct {
	entry eventlog.Entry
	loose map[eventlog.Partition]*loose
	order []eventlog.Partition // of loose, by first mention
	keys  map[string]bool      // that put puts
	doubt bool                 // of the operation that is applied: op.doubt
}

// inDoubt says of a receipt that is stale now that it may be so by this very operation, when that was sent before.
func (c *change) inDoubt(err error) error {
	if c.doubt && errors.Is(err, ErrStaleReceipt) && !errors.Is(err, eventlog.ErrUnsure) {
		return fmt.Errorf("%w: it was sent twice, and the first may have happened (%w)", eventlog.ErrUnsure, err)
	}
	return err
}

type loose struct {
	topic   eventlog.Topic
	records []batch.Record
}

// append adds a record to the entry.
func (c *change) append(t eventlog.Topic, p eventlog.Partition, r batch.Record) {
	if c.loose == nil {
		c.loose = make(map[eventlog.Partition]*loose)
	}
	l := c.loose[p]
	if l == nil {
		l = &loose{topic: t}
		c.loose[p] = l
		c.order = append(c.order, p)
	}
	l.records = append(l.records, r)
}

// put adds unique keys to the entry, which may name each key once. Two messages have the same one when somebody copied a record with its headers.
func (c *change) put(puts []eventlog.Put) {
	for _, p := range puts {
		if c.keys == nil {
			c.keys = make(map[string]bool)
		}
		if !c.keys[p.Key] {
			c.keys[p.Key] = true
			c.entry.Puts = append(c.entry.Puts, p)
		}
	}
}

func (c *change) seal() error {
	for _, p := range c.order {
		l := c.loose[p]
		b, err := l.topic.Seal(p, l.records)
		if err != nil {
			return err
		}
		c.entry.Batches = append(c.entry.Batches, b)
	}
	return nil
}

// shard is one state in the store, as this process knows it: that of a partition of a queue, or of a slot of the wheel. Callers put operations in a line; all that wait when a flush of the
// log gathers become one change of the state. A shard has at most one change under way.
type shard struct {
	owner *Queues
	q     *Queue // its definition is checked with every change; nil for a slot of the wheel
	what  string // for errors
	key   string

	learning sync.Mutex           // held by whoever reads keys
	keys     atomic.Pointer[keys] // for a queue that keeps order by key

	mu      sync.Mutex // guards what follows
	line    []*op
	alone   int // so many operations of the line go alone: what they were part of was refused for one of them
	working bool
	state   *state // as the store had it at version; nil: not known. It is never changed, only replaced
	version eventlog.Version
	seen    time.Time // when the store showed it last, or took our change
}

// do runs an operation and waits until it is durable. Until it was taken, the end of ctx withdraws it (eventlog.ErrUnavailable);
// later the outcome is unknown (eventlog.ErrUnsure).
func (s *shard) do(ctx context.Context, o *op) error {
	if err := s.owner.running(ctx); err != nil {
		return fmt.Errorf("%s: %w", s.what, err)
	}
	o.done = make(chan struct{})
	s.mu.Lock()
	s.line = append(s.line, o)
	start := !s.working
	s.working = true
	s.mu.Unlock()
	if start && !s.owner.start(s.work) { // Run has ended
		s.mu.Lock()
		s.working = false
		s.mu.Unlock()
		s.fail(eventlog.ErrClosed)
	}
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-o.done: // both may have been ready, and the answer counts
		return o.err
	default:
	}
	if i := slices.Index(s.line, o); i >= 0 {
		s.line = slices.Delete(s.line, i, i+1)
		return fmt.Errorf("%s: %w: gave up before it was sent (%w)", s.what, eventlog.ErrUnavailable, context.Cause(ctx))
	}
	o.gone = true
	return fmt.Errorf("%s: %w: gave up while it was on its way (%w)", s.what, eventlog.ErrUnsure, context.Cause(ctx))
}

// sent is a change whose answer was lost.
type sent struct {
	writer string           // who signed it; "": there is none
	from   eventlog.Version // that it checks
	fence  string           // who signed the last change that was to keep it from coming
}

// work commits changes until nobody asks for more.
func (s *shard) work(ctx context.Context) {
	var taken []*op // not answered yet
	var lost sent   // the change that took them, if its outcome is not known
	fresh := false  // the state was read after they came
	give := func(err error) {
		for _, o := range taken {
			o.doubt = o.doubt || lost.writer != ""
		}
		s.answer(taken, err)
		taken, lost = nil, sent{}
	}
	for failures := 0; ; {
		s.mu.Lock()
		if len(s.line) == 0 && len(taken) == 0 {
			s.working = false
			s.mu.Unlock()
			return
		}
		known := s.state != nil
		s.mu.Unlock()
		if !known {
			if err := s.load(ctx); err != nil {
				if lost.writer != "" && !errors.Is(err, ErrUnknownQueue) && ctx.Err() == nil { // what was sent must be found out
					failures++
					pause(ctx, failures)
					continue
				}
				give(err)
				s.fail(err)
				continue
			}
			failures, fresh = 0, true
		}
		if lost.writer != "" {
			happened, err := s.settle(ctx, &lost, taken)
			switch {
			case happened:
				lost = sent{}
				give(nil)
			case err == nil:
				lost = sent{}
			case ctx.Err() != nil || errors.Is(err, eventlog.ErrClosed):
				give(err)
			default:
				failures++
				pause(ctx, failures)
			}
			continue
		}
		var next *state
		from, version := s.version, s.version.Next()
		ticket := s.owner.log.SubmitLate(ctx, s.size(), func() (eventlog.Entry, bool) {
			taken = append(taken, s.take(len(taken))...)
			var e eventlog.Entry
			e, next = s.apply(taken, version)
			return e, next != nil
		})
		_, err := ticket.Wait(ctx)
		switch {
		case err == nil && next == nil && !fresh && slices.ContainsFunc(taken, func(o *op) bool { return o.stale || errors.Is(o.err, ErrStaleReceipt) }):
			s.forget() // a receipt may be of a claim that another process made, which nobody told this one
			continue
		case err == nil:
			if next != nil {
				s.keep(next, version)
			}
			give(nil)
		case errors.Is(err, eventlog.ErrStale) && s.q != nil:
			s.forget()
		case errors.Is(err, eventlog.ErrUnsure) && next != nil && ctx.Err() == nil:
			lost = sent{writer: next.writer, from: from}
			s.forget()
		case len(taken) > 1 && isRefusal(err):
			s.putBack(taken) // one of them may be to blame, and the others are not to suffer
			s.forget()
			taken = nil
		default:
			s.forget()
			give(err)
		}
		fresh = fresh && len(taken) > 0
	}
}

// settle finds out what became of a change whose answer was lost, from the state that was read since. Where that is as it was, the change may still
// be on its way: then the state moves on as it is, which fences the change. With nil and false it has not happened, or it is in doubt (op.doubt). An error
// leaves it open.
//
// The operations do not run again before it is settled: what they found belongs to the change that happened.
func (s *shard) settle(ctx context.Context, lost *sent, taken []*op) (happened bool, err error) {
	known := s.known()
	switch {
	case known.writer == lost.writer:
		return true, nil
	case lost.fence != "" && known.writer == lost.fence:
		return false, nil
	case s.version != lost.from || s.q != nil && !s.q.decides(s.key):
		for _, o := range taken {
			o.doubt = true // it happened before another process changed the state, or not at all
		}
		return false, nil
	}
	next, version := known.clone(), s.version.Next()
	next.writer = s.owner.sign()
	lost.fence = next.writer
	if _, err := s.owner.log.Append(ctx, s.entryOf(&change{}, next, version)); err != nil {
		s.forget()
		return false, err
	}
	s.keep(next, version)
	return false, nil
}

func (s *shard) known() *state {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// size is about what the state takes in the store.
func (s *shard) size() int64 {
	runs := 0
	for i := range s.known().parts {
		runs += len(s.known().parts[i].runs)
	}
	return 256 + 96*int64(runs)
}

// take takes operations from the line, up to opsMax with those that were taken before.
func (s *shard) take(had int) []*op {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, bytes := 0, int64(0)
	if s.alone > 0 {
		if had == 0 {
			n, s.alone = 1, s.alone-1
		}
		bytes = opBytesMax + 1
	}
	for n < len(s.line) && had+n < opsMax && (n == 0 || bytes+s.line[n].bytes <= opBytesMax) {
		bytes += s.line[n].bytes
		n++
	}
	taken := slices.Clone(s.line[:n])
	s.line = slices.Delete(s.line, 0, n)
	return taken
}

// putBack puts operations at the head of the line, to go alone.
func (s *shard) putBack(ops []*op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = append(ops, s.line...)
	s.alone = len(ops)
}

// isRefusal reports whether the log refused an entry for what it is, for good.
func isRefusal(err error) bool {
	return !errors.Is(err, eventlog.ErrUnavailable) && !errors.Is(err, eventlog.ErrClosed) && !errors.Is(err, eventlog.ErrUnsure)
}

// apply makes one entry of operations; nil where none of them changes anything.
func (s *shard) apply(ops []*op, version eventlog.Version) (eventlog.Entry, *state) {
	next := s.known().clone()
	c := &change{}
	if s.q != nil && !s.q.decides(s.key) { // the queue got limits, or lost them: another state decides now
		for _, o := range ops {
			o.err = errMoved
		}
		return eventlog.Entry{}, nil
	}
	changed := false
	for _, o := range ops {
		var did bool
		c.doubt = o.doubt
		did, o.err = o.apply(next, c)
		changed = changed || did
		o.err = c.inDoubt(o.err)
	}
	if !changed {
		return eventlog.Entry{}, nil
	}
	if err := c.seal(); err != nil {
		panic(fmt.Sprintf("%s: seal records that were read from the log: %v", s.what, err))
	}
	next.writer = s.owner.sign()
	return s.entryOf(c, next, version), next
}

// entryOf is the entry that puts a state in the place of the one that is known.
func (s *shard) entryOf(c *change, next *state, version eventlog.Version) eventlog.Entry {
	c.entry.Checks = append(c.entry.Checks, eventlog.Check{Key: s.key, Version: s.version})
	if s.q != nil { // who pauses, alters or deletes a queue is obeyed by every process at once
		c.entry.Checks = append(c.entry.Checks, eventlog.Check{Key: defKey(s.q.name), Version: s.q.def.Load().version})
	}
	c.entry.Puts = append(c.entry.Puts, eventlog.Put{Key: s.key, Version: version, Value: next.encode()})
	return c.entry
}

// errMoved: the state that was asked decides no longer.
var errMoved = errors.New("the queue's state moved to another key")

// load reads the queue's definition and the state: two trips.
func (s *shard) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	if s.q != nil {
		if err := s.q.redefine(ctx); err != nil {
			return err
		}
	}
	kv, err := s.owner.log.Get(ctx, s.key)
	if err != nil {
		return fmt.Errorf("%s: read its state: %w", s.what, err)
	}
	next, err := s.parse(kv)
	if err != nil {
		return err
	}
	s.keep(next, kv.Version)
	return nil
}

func (s *shard) parse(kv eventlog.KeyValue) (*state, error) {
	if kv.Version == 0 {
		return &state{}, nil
	}
	parsed, err := decode(kv.Value)
	if err != nil {
		return nil, fmt.Errorf("%s: key %s does not hold a state: %w", s.what, s.key, err)
	}
	return parsed, nil
}

// refresh takes in what the store was seen to hold, unless a change is under way, which finds out by itself.
func (s *shard) refresh(kv eventlog.KeyValue) error {
	s.mu.Lock()
	idle := !s.working && (s.state == nil || s.version != kv.Version)
	s.seen = time.Now()
	s.mu.Unlock()
	if !idle {
		return nil
	}
	next, err := s.parse(kv)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.working {
		s.state, s.version = next, kv.Version
	}
	return nil
}

func (s *shard) keep(next *state, version eventlog.Version) {
	s.mu.Lock()
	s.state, s.version, s.seen = next, version, time.Now()
	s.mu.Unlock()
}

func (s *shard) forget() {
	s.mu.Lock()
	s.state = nil
	s.mu.Unlock()
}

// answer ends operations. An error of theirs counts more than that of the change. What may have happened is not told as what has not.
func (s *shard) answer(ops []*op, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range ops {
		if err != nil {
			o.err = err
		}
		if err != nil && o.doubt && !errors.Is(err, eventlog.ErrUnsure) {
			o.err = fmt.Errorf("%s: %w: it was sent, and then: %w", s.what, eventlog.ErrUnsure, err)
		}
		close(o.done)
		if o.gone && o.err == nil && o.left != nil {
			s.owner.start(func(context.Context) { o.left() })
		}
	}
}

// fail ends all operations that wait.
func (s *shard) fail(err error) {
	s.mu.Lock()
	line := s.line
	s.line = nil
	s.mu.Unlock()
	s.answer(line, err)
}
