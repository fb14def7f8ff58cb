package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// A change is built while all writers of the process wait: opsMax bounds its operations, opBytesMax
// the bytes of the records that it appends, and workMax the runs and messages that its operations
// pass over. One operation is always allowed.
const (
	opsMax     = 4096
	opBytesMax = 4 << 20
	workMax    = 1 << 20 // some 10 ms
)

// staleMax is how often a change is built again without a pause, after other processes changed the
// queue. After that it pauses each time.
const staleMax = 16

// holdingMax bounds how many operations of one process hold, at a time, the records that acks and
// nacks append: about opBytesMax and one message each.
const holdingMax = 16

type op struct {
	// apply changes the state and adds records and puts to the change. It may run again on a newer
	// state, so it must overwrite its earlier results.
	apply    func(s *state, c *change) (changed bool, err error)
	bytes    int64 // of records that it appends
	messages int64 // that it changes
	claims   bool  // it is a claim: in a queue with order by key it passes over the messages, too
	stale    bool  // set by apply: it refused a receipt

	maybeDone bool // an earlier attempt has an unknown outcome

	done        chan struct{} // closed once err is set
	err         error
	abandoned   bool   // its caller gave up after it was taken; guarded by shard.mu
	onAbandoned func() // called if it succeeded after its caller gave up; may be nil
}

// change is the entry under construction for one change of a shard.
type change struct {
	entry     eventlog.Entry
	batches   []loose
	last      map[eventlog.Partition]int // the index of a partition's last batch in batches
	keys      map[string]bool            // of the puts that put added
	maybeDone bool                       // op.maybeDone of the operation that is being applied
}

// unsureIfResent turns ErrStaleReceipt into ErrUnsure if the operation was sent before: the earlier
// attempt may itself have used the receipt.
func (c *change) unsureIfResent(err error) error {
	if c.maybeDone && errors.Is(err, ErrStaleReceipt) && !errors.Is(err, eventlog.ErrUnsure) {
		return fmt.Errorf("%w: the operation was sent twice, and the first attempt may have succeeded (%w)", eventlog.ErrUnsure, err)
	}
	return err
}

// loose is a batch before it is sealed.
type loose struct {
	topic     eventlog.Topic
	partition eventlog.Partition
	records   []batch.Record
	bytes     int
}

// append adds a record to the entry, and returns the index of its batch and its index there. A
// batch has max.message.bytes at most, but always one record, however large.
func (c *change) append(t eventlog.Topic, p eventlog.Partition, r batch.Record) (nth, record int) {
	if c.last == nil {
		c.last = make(map[eventlog.Partition]int)
	}
	size := batch.SealedSize(&r)
	nth, there := c.last[p]
	if !there || c.batches[nth].bytes+size > t.MaxMessageBytes() {
		nth = len(c.batches)
		c.last[p] = nth
		c.batches = append(c.batches, loose{topic: t, partition: p})
	}
	l := &c.batches[nth]
	l.records, l.bytes = append(l.records, r), l.bytes+size
	return nth, len(l.records) - 1
}

// put adds puts of unique keys, each key once: an entry must not have two puts of one key. Two
// messages share a unique key if somebody copied a record with its headers.
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
	for _, l := range c.batches {
		b, err := l.topic.Seal(l.partition, l.records)
		if err != nil {
			return err
		}
		batch.MarkOwn(b.Bytes) // see headers.go
		c.entry.Batches = append(c.entry.Batches, b)
	}
	return nil
}

// shard caches the state in one key: of a partition, of all partitions of a queue with limits, or
// of a wheel slot. Callers queue operations; when the log gathers its next flush, all queued
// operations become one change. At most one change is in flight.
type shard struct {
	owner *Queues
	q     *Queue // its definition is checked with every change; nil for a slot of the wheel
	name  string // for errors
	key   string

	mu       sync.Mutex // guards what follows
	queued   []*op
	oneByOne int // how many of the first queued operations are committed one by one, because a change with all of them was refused
	working  bool
	state    *state // as the store had it at version; nil: not known. It is never changed, only replaced
	version  eventlog.Version
	stateAt  time.Time // when state was last read or written
}

// do queues an operation and waits until it is durable. If ctx ends before it is taken, it is
// withdrawn (eventlog.ErrUnavailable); after that its outcome is unknown (eventlog.ErrUnsure).
func (s *shard) do(ctx context.Context, o *op) error {
	if err := s.owner.running(ctx); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	o.done = make(chan struct{})
	began := time.Now()
	s.mu.Lock()
	s.queued = append(s.queued, o)
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
	case <-o.done: // both channels may be ready: the answer counts
		return o.err
	default:
	}
	if i := slices.Index(s.queued, o); i >= 0 {
		s.queued = slices.Delete(s.queued, i, i+1)
		return fmt.Errorf("%s: %w: gave up before it was sent (%w)", s.name, s.owner.log.Late(began), context.Cause(ctx))
	}
	o.abandoned = true
	return fmt.Errorf("%s: %w: gave up while waiting for the store (%w)", s.name, eventlog.ErrUnsure, context.Cause(ctx))
}

// lostChange is a change whose outcome is unknown, because the store's answer was lost.
type lostChange struct {
	writer string           // the writer id in the state that it puts; "": no change is lost
	from   eventlog.Version // the version that it checks
	fence  string           // the writer id of the last change made to fence it
}

// work commits changes until no operation is queued.
func (s *shard) work(ctx context.Context) {
	var taken []*op     // not answered yet
	var lost lostChange // the change with these operations, if its outcome is unknown
	stales := 0         // how often their change was refused because another process had changed the state
	fresh := false      // the state was read after they were taken
	rereads := false    // the state is read again after a refused receipt; no operation joins before those taken are answered, or this could repeat for ever
	give := func(err error) {
		for _, o := range taken {
			o.maybeDone = o.maybeDone || lost.writer != ""
		}
		s.answer(taken, err)
		taken, lost, stales, rereads = nil, lostChange{}, 0, false
	}
	for failures := 0; ; {
		s.mu.Lock()
		if len(s.queued) == 0 && len(taken) == 0 {
			s.working = false
			s.mu.Unlock()
			return
		}
		known := s.state != nil
		s.mu.Unlock()
		if !known {
			if err := s.load(ctx); err != nil {
				if lost.writer != "" && !errors.Is(err, ErrUnknownQueue) && ctx.Err() == nil { // the outcome of the lost change must still be found out: retry
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
			happened, err := s.resolveLost(ctx, &lost, taken)
			switch {
			case happened:
				lost = lostChange{}
				give(nil)
			case err == nil:
				lost = lostChange{}
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
		var unsealed error
		ticket := s.owner.log.SubmitLate(ctx, s.size(), func() (e eventlog.Entry, _ bool) {
			if !rereads {
				more := s.take(taken)
				taken, fresh = append(taken, more...), fresh && len(more) == 0
			}
			e, next, unsealed = s.apply(taken, version)
			return e, next != nil
		})
		_, err := ticket.Wait(ctx)
		if unsealed != nil {
			err = unsealed
		}
		switch {
		case err == nil && next == nil && !fresh && slices.ContainsFunc(taken, func(o *op) bool { return o.stale || errors.Is(o.err, ErrStaleReceipt) }):
			s.forget() // the receipt may belong to a claim of another process that this state does not have yet: read the state and apply again
			rereads = true
			continue
		case err == nil:
			if next != nil {
				s.keep(next, version)
			}
			give(nil)
		case errors.Is(err, eventlog.ErrStale) && s.q != nil:
			s.forget()
			if stales++; stales > staleMax {
				pause(ctx, 1)
			}
		case errors.Is(err, eventlog.ErrUnsure) && next != nil && ctx.Err() == nil:
			lost = lostChange{writer: next.writer, from: from}
			s.forget()
		case len(taken) > 1 && isRefusal(err):
			s.putBack(taken) // find the operation that caused the refusal: commit them one by one
			s.forget()
			taken, rereads = nil, false
		default:
			s.forget()
			give(err)
		}
		fresh = fresh && len(taken) > 0
	}
}

// resolveLost finds out from the newly read state whether a lost change was committed. If the state
// is unchanged, the change may still be in flight: the same state is put under a new version, so
// the store refuses the change. If another process changed the state, nobody can tell, and
// op.maybeDone is set. On error call it again.
//
// Do not apply the operations again before it succeeds: their results belong to the change that may
// have been committed.
func (s *shard) resolveLost(ctx context.Context, lost *lostChange, taken []*op) (happened bool, err error) {
	known := s.known()
	switch {
	case known.writer == lost.writer:
		return true, nil
	case lost.fence != "" && known.writer == lost.fence:
		return false, nil
	case s.version != lost.from || s.q != nil && !s.q.decides(s.key):
		for _, o := range taken {
			o.maybeDone = true // nobody can tell: it was committed before another process changed the state, or not at all
		}
		return false, nil
	}
	next, version := known.clone(), s.version.Next()
	next.writer = s.owner.newWriterID()
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

// size estimates the encoded size of the state, in bytes.
func (s *shard) size() int64 { return 256 + runSize*s.known().count() }

// passes estimates how many runs an operation passes over, and how many messages a claim passes
// over, besides those that it changes. The caller holds s.mu.
func (s *shard) passes() (runs, messages int64) {
	if s.q != nil && s.q.def.Load().settings.KeyOrder {
		for i := range s.state.parts {
			messages += int64(s.state.parts[i].next - s.state.parts[i].floor)
		}
	}
	return 1 + s.state.count(), messages
}

// take removes operations from the queue, for a change that already has the operations in had.
func (s *shard) take(had []*op) []*op {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, bytes, work := 0, int64(0), int64(0)
	runs, messages := s.passes()
	count := func(o *op) {
		bytes += o.bytes
		work += runs + o.messages
		if o.claims {
			work += messages
		}
	}
	for _, o := range had {
		count(o)
	}
	if s.oneByOne > 0 {
		if len(had) == 0 {
			n, s.oneByOne = min(1, len(s.queued)), s.oneByOne-1
		}
		bytes = opBytesMax + 1
	}
	for ; n < len(s.queued) && len(had)+n < opsMax; n++ {
		count(s.queued[n])
		if len(had)+n > 0 && (bytes > opBytesMax || work > workMax) {
			break
		}
	}
	taken := slices.Clone(s.queued[:n])
	s.queued = slices.Delete(s.queued, 0, n)
	return taken
}

// putBack returns operations to the head of the queue, to be committed one by one.
func (s *shard) putBack(ops []*op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queued = append(ops, s.queued...)
	s.oneByOne = len(ops)
}

// isRefusal reports whether an error is permanent: the same entry would be refused again.
func isRefusal(err error) bool {
	return !errors.Is(err, eventlog.ErrUnavailable) && !errors.Is(err, eventlog.ErrClosed) && !errors.Is(err, eventlog.ErrUnsure)
}

// apply makes one entry of the operations. A nil state: none of them changes anything. An error:
// their records cannot be sealed as batches.
func (s *shard) apply(ops []*op, version eventlog.Version) (eventlog.Entry, *state, error) {
	next := s.known().clone()
	c := &change{}
	if s.q != nil && !s.q.decides(s.key) { // limits were added to the queue or removed: another key holds its state now
		for _, o := range ops {
			o.err = errMoved
		}
		return eventlog.Entry{}, nil, nil
	}
	changed := false
	for _, o := range ops {
		var did bool
		c.maybeDone = o.maybeDone
		did, o.err = o.apply(next, c)
		changed = changed || did
		o.err = c.unsureIfResent(o.err)
	}
	if !changed {
		return eventlog.Entry{}, nil, nil
	}
	if err := c.seal(); err != nil {
		return eventlog.Entry{}, nil, fmt.Errorf("%s: %w", s.name, err)
	}
	next.writer = s.owner.newWriterID()
	return s.entryOf(c, next, version), next, nil
}

// entryOf builds the entry that replaces the known state with next.
func (s *shard) entryOf(c *change, next *state, version eventlog.Version) eventlog.Entry {
	c.entry.Checks = append(c.entry.Checks, eventlog.Check{Key: s.key, Version: s.version})
	if s.q != nil { // so that a pause, change or deletion of the queue takes effect in every process immediately
		c.entry.Checks = append(c.entry.Checks, eventlog.Check{Key: defKey(s.q.name), Version: s.q.def.Load().version})
	}
	next.after = "" // what the earlier id's state has is in next
	c.entry.Puts = append(c.entry.Puts, eventlog.Put{Key: s.key, Version: version, Value: next.encode()})
	return c.entry
}

// errMoved: the operation was sent to the shard of a key that no longer holds the queue's state.
var errMoved = errors.New("the queue's state moved to another key")

// load reads the queue's definition and the state: two store calls, and one more after a purge.
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
		return fmt.Errorf("%s: read its state: %w", s.name, err)
	}
	next, err := s.parse(kv)
	if err == nil && s.q != nil {
		err = s.owner.addEarlier(ctx, []string{s.key}, []*state{next})
	}
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
		return nil, fmt.Errorf("%s: decode the state in key %s: %w", s.name, s.key, err)
	}
	return parsed, nil
}

// refresh replaces the cached state with kv, unless a change is in flight: that change will notice
// by itself.
func (s *shard) refresh(kv eventlog.KeyValue) error {
	s.mu.Lock()
	idle := !s.working && (s.state == nil || s.version != kv.Version)
	s.stateAt = time.Now()
	s.mu.Unlock()
	if !idle {
		return nil
	}
	next, err := s.parse(kv)
	if err != nil || next.after != "" { // load knows what to do with such a state
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.working {
		s.state, s.version = next, kv.Version
	}
	return nil
}

// fill keeps a state, unless one is known or a change is in flight.
func (s *shard) fill(next *state, version eventlog.Version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == nil && !s.working {
		s.state, s.version, s.stateAt = next, version, time.Now()
	}
}

func (s *shard) keep(next *state, version eventlog.Version) {
	s.mu.Lock()
	s.state, s.version, s.stateAt = next, version, time.Now()
	s.mu.Unlock()
}

func (s *shard) forget() {
	s.mu.Lock()
	s.state = nil
	s.mu.Unlock()
}

// answer completes operations. The change's error replaces the operations' own errors: only a
// commit proves that the state they were applied to is current. An operation whose earlier attempt
// may have succeeded gets ErrUnsure, never a definite failure.
func (s *shard) answer(ops []*op, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range ops {
		if err != nil {
			o.err = err
		}
		if err != nil && o.maybeDone && !errors.Is(err, eventlog.ErrUnsure) {
			o.err = fmt.Errorf("%s: %w: an earlier attempt may have succeeded, and the last one failed: %w", s.name, eventlog.ErrUnsure, err)
		}
		close(o.done)
		if o.abandoned && o.err == nil && o.onAbandoned != nil {
			s.owner.start(func(context.Context) { o.onAbandoned() })
		}
	}
}

// fail answers all queued operations with err.
func (s *shard) fail(err error) {
	s.mu.Lock()
	line := s.queued
	s.queued = nil
	s.mu.Unlock()
	s.answer(line, err)
}
