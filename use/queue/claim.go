package queue

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/chance"
	"github.com/weir-log/weir/use/claims"
)

// Claim is what a worker asks for. The zero value of every field means its default.
type Claim struct {
	Max    int           // most messages; default 1, at most ClaimMax
	Lease  time.Duration // how long the worker has them; default: the queue's lease; 100 ms to 12 h
	Wait   time.Duration // how long to wait for the first one; default: not at all; at most WaitMax
	Worker string        // the worker's name, for people; at most 256 bytes
	// ID makes the claim repeatable after a lost answer: a claim with the same ID and Worker gets
	// the same messages while their leases last. At most 128 bytes; draw it at random for each
	// claim. "": a repetition is another claim.
	ID string

	// Stop, when closed, ends the wait as Wait does. A claim in flight is finished.
	Stop <-chan struct{}
	// Room is called before messages are claimed and read, and returns how many bytes the caller
	// has memory for. The first message comes whatever its size; messages that do not fit are given
	// back. Claim calls leave if it returns no messages; otherwise the caller must call it. nil: 16
	// MiB.
	Room func(context.Context) (bytes int64, leave func(), err error)

	sweep int                // how many messages to ask a partition for, at least, after a try that got only messages that must not be handed out; otherwise 0
	own   map[MessageID]bool // with an ID: the messages that this call has. true: this call claimed it; false: an earlier call with the same ID did
}

// goesOnFor bounds how long a claim without Wait tries again while none of the messages that it
// gets may be handed out: they are too old, purged, or had their last attempt.
const goesOnFor = 5 * time.Second

// claimBytes bounds the size of a claim's messages unless Claim.Room says otherwise.
const claimBytes = 16 << 20

const (
	// ClaimMax bounds the messages of one claim.
	ClaimMax = 1000
	// WaitMax bounds how long one claim waits.
	WaitMax   = 5 * time.Minute
	workerMax = 256
	idMax     = 128
)

// Message is a message that was claimed.
type Message struct {
	ID        MessageID
	Receipt   string // what Ack, Nack and Extend take
	Topic     string
	Partition int32 // the partition's number in the topic
	Offset    eventlog.Offset
	Key       []byte // nil: none
	Value     []byte
	Headers   []batch.RecordHeader
	Time      time.Time // when it was first enqueued; zero: unknown
	Attempt   int       // from 1
	Until     time.Time // when the lease ends, by the store's clock
}

func (q *Queue) checkClaim(c Claim) (Claim, error) {
	settings := q.def.Load().settings
	c.Max, c.Lease = cmp.Or(c.Max, 1), cmp.Or(c.Lease, settings.Lease)
	invalid := func(what string, value any, why string) (Claim, error) {
		return c, &eventlog.InvalidError{What: what, Value: fmt.Sprint(value), Why: why}
	}
	switch {
	case c.Max < 1 || c.Max > ClaimMax:
		return invalid("number of messages", c.Max, fmt.Sprintf("one claim takes 1 to %d", ClaimMax))
	case c.Lease < leaseMin || c.Lease > leaseMax:
		return invalid("lease", c.Lease, fmt.Sprintf("%v to %v are allowed", leaseMin, leaseMax))
	case c.Wait < 0 || c.Wait > WaitMax:
		return invalid("wait", c.Wait, fmt.Sprintf("0 to %v are allowed", WaitMax))
	case len(c.ID) > idMax:
		return invalid("claim id", shorten(c.ID, 64), fmt.Sprintf("it has %d bytes; at most %d are allowed", len(c.ID), idMax))
	case len(c.Worker) > workerMax:
		return invalid("worker", shorten(c.Worker, 64), fmt.Sprintf("it has %d bytes; at most %d are kept", len(c.Worker), workerMax))
	}
	return c, nil
}

// Claim gives the worker free messages, durably: nobody else gets them until their leases end. It
// asks the partitions one after the other, from the highest priority down, until it has enough
// messages. It takes those of one partition in the order of their offsets. One claim in eight
// begins with a lower priority. Claims that begin with the same priority begin with its partitions
// in turn.
//
// If no message is free it waits, at most Claim.Wait or until ctx ends, and then returns none.
// After eventlog.ErrUnsure messages may have been claimed; they are free again when their leases
// end.
func (q *Queue) Claim(ctx context.Context, c Claim) ([]Message, error) {
	c, err := q.checkClaim(c)
	if err != nil {
		return nil, fmt.Errorf("claim from queue %q: %w", q.name, err)
	}
	if err := q.owner.running(ctx); err != nil {
		return nil, wrapClaim(err, q.name)
	}
	var timeout <-chan time.Time
	me, woken := &claims.Waiter{Bell: make(chan struct{}, 1)}, false
	if c.Wait > 0 {
		timer := time.NewTimer(c.Wait)
		defer timer.Stop()
		timeout = timer.C
		defer q.wait()()
		q.waiting.Join(me)
		defer q.waiting.Leave(me)
	}
	if c.ID != "" {
		c.own = make(map[MessageID]bool)
		if messages, err := q.repeated(ctx, c); err != nil || len(messages) > 0 {
			return messages, wrapClaim(err, q.name)
		}
	}
	for began := time.Now(); ; {
		var messages []Message
		var ended int
		var again time.Duration
		err := q.update(ctx)
		if err == nil {
			messages, ended, again, err = q.claimOnce(ctx, c)
		}
		if woken && (err != nil || len(messages) > 0) {
			q.waiting.Wake(2) // there may be more messages, or, after an error, ones that this claim could not get
		}
		if err != nil {
			return nil, wrapClaim(err, q.name)
		}
		if len(messages) > 0 {
			return messages, nil
		}
		c.sweep = min(ClaimMax, 4*ended)
		if again == 0 { // it read newer states, or must not hand out any message that it got: try again
			if ctx.Err() != nil || isClosed(c.Stop) || time.Since(began) >= cmp.Or(c.Wait, goesOnFor) {
				return nil, nil
			}
			continue
		}
		if c.Wait == 0 {
			return nil, nil
		}
		q.waiting.WakeIn(max(again, time.Millisecond))
		select {
		case <-me.Bell:
			woken = true
			q.waiting.Join(me)
		case <-timeout:
			return nil, nil
		case <-c.Stop:
			return nil, nil
		case <-ctx.Done():
			return nil, nil
		}
	}
}

func wrapClaim(err error, queue string) error {
	if err != nil {
		err = fmt.Errorf("claim from queue %q: %w", queue, err)
	}
	return err
}

// nonce returns the number in a claim's receipts: for a claim with an ID always the same one.
func (q *Queue) nonce(c Claim) uint32 {
	if c.ID == "" {
		return chance.Uint32()
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %s %s", q.id, len(c.Worker), c.Worker, c.ID))
	return binary.BigEndian.Uint32(sum[:])
}

// wish returns the claim's request to the state of a partition, for at most `most` messages to hand
// out.
func (c Claim) wish(nonce uint32, earliest, latest claims.Time, most int) claims.Wish {
	return claims.Wish{
		Most: most, Sweep: c.sweep, Now: earliest, Until: latest + claims.Time(c.Lease.Milliseconds()),
		Nonce: nonce, Worker: c.Worker, Repeats: c.ID != "",
		Has: func(g claims.Grant) bool { _, is := c.own[MessageID{g.Partition, g.Offset}]; return is },
	}
}

// owns notes what a claim with an ID was granted. found: an earlier call with that ID had claimed
// it.
func (c Claim) owns(granted []claims.Grant, found bool) {
	for _, g := range granted {
		if c.ID != "" {
			c.own[MessageID{g.Partition, g.Offset}] = !found
		}
	}
}

// inTime drops messages whose leases may have ended while they were read: other workers may have
// them. Those that this call claimed are given back, without counting the attempt. Those that an
// earlier call with the same ID claimed are not: that call may have handed them to a worker.
func (q *Queue) inTime(ctx context.Context, c Claim, messages []Message) (kept []Message, err error) {
	if len(messages) == 0 {
		return nil, nil
	}
	_, latest, err := q.owner.clock.Now(ctx)
	var late []Message
	for _, m := range messages {
		if err == nil && claims.Time(m.Until.UnixMilli()) > latest {
			kept = append(kept, m)
		} else if g, err := q.parse(m.Receipt); err == nil && (c.ID == "" || c.own[MessageID{g.Partition, g.Offset}]) {
			late = append(late, m)
		}
	}
	q.GiveBack(late) // not in the background: a claim that comes before the messages are back would count this claim as an attempt
	return kept, err
}

// repeated returns the messages that an earlier claim with the same ID got and still has, without
// those that an SQL transaction has acknowledged. It costs one store call per thousand partitions
// or 4 MiB of states, and, for each partition that has such messages, a commit and what
// withoutAcked reads.
func (q *Queue) repeated(ctx context.Context, c Claim) (messages []Message, err error) {
	earliest, latest, err := q.owner.clock.Now(ctx)
	if err != nil {
		return nil, err
	}
	nonce := q.nonce(c)
	in, err := q.having(ctx, c.wish(nonce, earliest, latest, c.Max))
	if err != nil || len(in) == 0 {
		return nil, err
	}
	levels, err := q.levels(ctx)
	if err != nil {
		return nil, err
	}
	room, leave, err := c.room(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if len(messages) == 0 {
			leave()
		}
	}()
	var got []claims.Grant
	for _, p := range in {
		if _, there := topicOf(levels, p); !there {
			continue // the topic was deleted
		}
		w := c.wish(nonce, earliest, latest, c.Max-len(got))
		var some []claims.Grant
		if err := q.change(ctx, p, &op{apply: func(st *claims.State, _ *change) (bool, error) {
			mine := st.Part(p)
			*mine, some = mine.Repeat(w)
			return len(some) > 0, nil
		}}); err != nil {
			return nil, err
		}
		c.owns(some, true)
		if some, err = q.withoutAcked(ctx, p, some); err != nil {
			return nil, err
		}
		got = append(got, some...)
	}
	if ended, err := q.overBefore(ctx, got); ended || err != nil {
		return nil, err
	}
	var over []ending
	for _, g := range got {
		topic, _ := topicOf(levels, g.Partition)
		m, end, err := q.message(ctx, topic, g, earliest)
		if err != nil {
			return nil, err
		}
		if end != nil {
			over = append(over, *end)
			continue
		}
		if room -= m.size(); room < 0 && len(messages) > 0 {
			break // this message comes again when its lease has ended
		}
		messages = append(messages, m)
	}
	if err := q.endAll(ctx, over); err != nil {
		return nil, err
	}
	return q.inTime(ctx, c, messages)
}

// having returns the partitions with messages that earlier claims with the wish's nonce and worker
// still have: their leases have not ended.
func (q *Queue) having(ctx context.Context, w claims.Wish) (in []eventlog.Partition, err error) {
	partitions, err := q.partitions(ctx)
	if err != nil {
		return nil, err
	}
	mentioned := claims.Mentions(w.Nonce) // to decode all states costs far more than to search them
	mentions := func(state []byte) bool {
		return w.Nonce == 0 || bytes.Contains(state, mentioned[0]) || bytes.Contains(state, mentioned[1])
	}
	keys := slices.Compact(q.def.Load().keysOfParts(partitions))
	err = q.log.GetAll(ctx, keys, func(kv eventlog.KeyValue) error {
		if kv.Version == 0 || !mentions(kv.Value) {
			return nil
		}
		s, err := claims.Decode(kv.Value)
		if err != nil {
			return fmt.Errorf("key %s does not hold a state: %w", kv.Key, err)
		}
		for i := range s.Parts {
			if len(s.Parts[i].Earlier(w)) > 0 {
				in = append(in, s.Parts[i].Partition)
			}
		}
		return nil
	})
	return in, err
}

// claimOnce asks the partitions, one after the other, until there are enough messages. If there are
// none, again is how long to wait before the next try; 0: try again at once. ended counts the
// messages that it claimed but must not hand out.
func (q *Queue) claimOnce(ctx context.Context, c Claim) (messages []Message, ended int, again time.Duration, err error) {
	if q.def.Load().settings.Paused {
		if err := q.redefine(ctx); err != nil || q.def.Load().settings.Paused {
			return nil, 0, refreshEvery, err
		}
	}
	levels, err := q.levels(ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	t := &try{q: q, c: c, nonce: q.nonce(c), again: time.Minute}
	if t.earliest, t.latest, err = q.owner.clock.Now(ctx); err != nil {
		return nil, 0, 0, err
	}
	defer func() {
		if len(messages) == 0 && t.leave != nil {
			t.leave()
		}
	}()
	switch err := t.askAll(ctx, q.order(levels)); {
	case errors.Is(err, errMoved): // the queue was changed just now
		t.again = 0
	case len(t.messages) > 0: // an error must not lose what was claimed already
	case err != nil:
		return nil, t.ended, 0, err
	case t.unresolved: // other processes may give messages back, and this one is not notified
		t.again = min(t.again, refreshEvery)
		refreshed, err := q.refreshStates(ctx)
		if err != nil {
			return nil, t.ended, 0, err
		}
		if refreshed {
			t.again = 0
		}
	}
	if messages, err = q.inTime(ctx, c, t.messages); len(messages) < len(t.messages) {
		t.again = 0
	}
	return messages, t.ended, t.again, err
}

// try is one try of a claim: what it knows, and what it has so far.
type try struct {
	q                *Queue
	c                Claim
	nonce            uint32
	earliest, latest claims.Time // the store's time
	room             int64       // how many bytes more the caller has memory for; negative: it has no more
	leave            func()      // gives the memory back, see Claim.Room; nil: the caller was not asked

	messages   []Message
	ended      int           // how many it claimed but must not hand out
	again      time.Duration // after this time another try may get messages, if this one gets none
	unresolved bool          // other processes may give messages back
}

func (t *try) wish() claims.Wish {
	return t.c.wish(t.nonce, t.earliest, t.latest, t.c.Max-len(t.messages))
}

// askAll asks partitions until there are enough messages.
func (t *try) askAll(ctx context.Context, order iter.Seq2[*eventlog.Topic, eventlog.Partition]) error {
	states := fillFirst
	for topic, p := range order {
		s := t.q.shard(p)
		if s.known() == nil {
			if err := t.q.fill(ctx, order, p, states); err != nil {
				return err
			}
			states = min(fillMore*states, fillMost)
		}
		known, err := s.get(ctx)
		if err != nil {
			return err
		}
		if !t.consider(known, p).Free {
			continue
		}
		if rate := t.q.def.Load().settings.Rate; rate > 0 {
			t.again = min(t.again, max(time.Duration(float64(time.Second)/rate), 5*time.Millisecond))
		}
		ended := t.ended
		if err := t.claimFrom(ctx, *topic, p); err != nil || len(t.messages) == t.c.Max || t.room < 0 {
			return err
		}
		if t.ended > ended {
			t.again = 0 // there may be other messages after them
		}
		// Another process may have claimed first: t.again must not be later than the end of that
		// process's leases.
		if now := s.known(); now != nil && now != known {
			t.consider(now, p)
			if t.q.def.Load().settings.KeyOrder && now.Next(p) > known.Next(p) {
				t.again = 0 // messages were skipped because of their keys: there may be others after them
			}
		}
	}
	return nil
}

// consider notes when messages of a partition may become free.
func (t *try) consider(s *claims.State, p eventlog.Partition) claims.Prospect {
	seen := s.Prospect(t.q.candidates(p), t.wish())
	t.unresolved = t.unresolved || seen.Unresolved
	t.again = min(t.again, seen.Wait)
	return seen
}

// candidates returns which messages of a partition a claim may get, by the bounds and settings that
// this process knows.
func (q *Queue) candidates(p eventlog.Partition) claims.Candidates {
	settings := q.def.Load().settings
	bounds, _ := q.log.Known(p)
	c := claims.Candidates{Partition: p, First: bounds.First, End: bounds.Stable(), Limits: claims.Limits{
		Paused: settings.Paused, Attempts: int32(max(settings.Attempts, 0)), Window: int64(settings.Window),
		Concurrency: settings.Concurrency, Rate: settings.Rate,
	}}
	if settings.KeyOrder {
		c.InOrder = q.keysOf(p).keys.Load().order
	}
	return c
}

// room returns how many bytes of messages the claim may return, see Claim.Room.
func (c Claim) room(ctx context.Context) (bytes int64, leave func(), err error) {
	if c.Room == nil {
		return claimBytes, func() {}, nil
	}
	bytes, leave, err = c.Room(ctx)
	return max(bytes, 1), leave, err
}

// askRoom asks the caller for memory, once.
func (t *try) askRoom(ctx context.Context) error {
	if t.leave != nil {
		return nil
	}
	room, leave, err := t.c.room(ctx)
	if err != nil {
		return err
	}
	t.room, t.leave = room, leave
	t.earliest, t.latest, err = t.q.owner.clock.Now(ctx) // leases count from now: the caller may have waited
	return err
}

// claimFrom claims from one partition, and adds the messages that may be handed out, while there is
// room for them. Those that must not be handed out leave the queue, some as dead letters (endAll).
// Those for which there is no room are given back. Those that an SQL transaction has acknowledged
// (withoutAcked) stay claimed.
func (t *try) claimFrom(ctx context.Context, topic eventlog.Topic, p eventlog.Partition) error {
	if err := t.askRoom(ctx); err != nil {
		return err
	}
	got, err := t.take(ctx, p)
	if err != nil {
		return err
	}
	t.c.owns(got.Granted, got.Found)
	t.q.buryAll(p, got.Spent)
	if ended, err := t.q.overBefore(ctx, got.Granted); ended || err != nil {
		// Not in the background: a claim that comes before the messages are back would count this
		// claim as an attempt.
		t.giveBack(p, got, got.Granted)
		return err
	}
	later := func(rest []claims.Grant) {
		if len(rest) > 0 {
			t.q.owner.start(func(context.Context) { t.giveBack(p, got, rest) })
		}
	}
	mine, err := t.q.withoutAcked(ctx, p, got.Granted)
	if err != nil {
		later(got.Granted)
		return err
	}
	over, rest, err := t.handOut(ctx, topic, mine, got.Allowed)
	t.ended += len(got.Granted) - len(mine) + len(over)
	later(rest)
	if endErr := t.q.endAll(ctx, over); endErr != nil {
		err = cmp.Or(err, endErr)
		stay := make([]claims.Grant, len(over))
		for i, e := range over {
			stay[i] = e.Grant
		}
		later(stay)
	}
	return err
}

// take changes the state of one partition, see claims.State.Take.
func (t *try) take(ctx context.Context, p eventlog.Partition) (claims.Taken, error) {
	if t.q.def.Load().settings.KeyOrder {
		if err := t.q.keysOf(p).read(ctx, t.q, p, max(t.c.Max, t.c.sweep)); err != nil {
			return claims.Taken{}, err
		}
	}
	w := t.wish()
	var got claims.Taken
	o := &op{
		claims: true,
		apply: func(st *claims.State, ch *change) (changed bool, err error) {
			w.Repeats = ch.maybeDone || t.c.ID != ""
			var next *claims.State
			next, got, changed = st.Take(t.q.candidates(p), w)
			*st = *next
			return changed, nil
		},
		missed: func() { t.giveBack(p, got, got.Granted) },
	}
	if err := t.q.change(ctx, p, o); err != nil {
		return claims.Taken{}, err // do not return got: the operation may still run, and write to it
	}
	return got, nil
}

// giveBack returns messages to the queue, unless an earlier call with the same ID may have handed
// them out.
func (t *try) giveBack(p eventlog.Partition, got claims.Taken, rest []claims.Grant) {
	if !got.Found || t.c.ID == "" {
		t.q.giveBack(p, rest)
	}
}

// handOut reads claimed messages, and adds at most `most` of them to t.messages, while there is
// room. It returns those that must not be handed out, such as old or purged ones, and the rest,
// which it did not read or has no room for. granted has more than `most` messages if many of them
// are expected to be ones that must not be handed out (Wish.Sweep).
func (t *try) handOut(ctx context.Context, topic eventlog.Topic, granted []claims.Grant, most int) (
	over []ending, rest []claims.Grant, err error,
) {
	most += len(t.messages)
	for i, g := range granted {
		if len(t.messages) >= most {
			return over, granted[i:], nil
		}
		m, end, err := t.q.message(ctx, topic, g, t.earliest)
		if err != nil {
			return over, granted[i:], err
		}
		if end != nil {
			over = append(over, *end)
			continue
		}
		if t.room -= m.size(); t.room < 0 && len(t.messages) > 0 {
			return over, granted[i:], nil
		}
		t.messages = append(t.messages, m)
	}
	return over, nil, nil
}

// message reads a claimed message. end is set if it must not be handed out: it is gone, unreadable,
// purged, another queue's, too old, or has no attempts left.
func (q *Queue) message(ctx context.Context, topic eventlog.Topic, g claims.Grant, now claims.Time) (m Message, end *ending, err error) {
	rec, err := q.records.read(ctx, g.Partition, g.Offset)
	switch {
	case errors.Is(err, errNoRecord):
		return m, &ending{Grant: g}, nil
	case errors.Is(err, errUnreadable):
		return m, &ending{g, reasonUnreadable, err.Error()}, nil
	case err != nil:
		return m, nil, err
	}
	if q.wasPurged(rec) || q.isOthers(rec) {
		return m, &ending{Grant: g}, nil
	}
	settings := q.def.Load().settings
	if since := available(rec); settings.TTL > 0 && !since.IsZero() && claims.Time(since.Add(settings.TTL).UnixMilli()) < now {
		if settings.DropExpired {
			return m, &ending{Grant: g}, nil
		}
		return m, &ending{g, reasonExpired, fmt.Sprintf("it is older than the queue's ttl, %v", settings.TTL)}, nil
	}
	before := priorAttempts(rec)
	if settings.Attempts > 0 && before+int(g.Attempt) > settings.Attempts {
		return m, &ending{g, reasonAttempts, noAnswer}, nil
	}
	m = Message{
		ID: idOf(g, rec), Receipt: q.receipt(g), Topic: topic.Name, Partition: number(topic, g.Partition), Offset: g.Offset,
		Key: rec.Key, Value: rec.Value, Headers: rec.Headers, Attempt: before + int(g.Attempt), Until: time.UnixMilli(int64(g.Until)),
	}
	m.Time = enqueued(rec)
	return m, nil, nil
}

// wasPurged reports whether a purge missed a message that it should have discarded: the message was
// delayed, and was moved from the wheel (the topic of delayed messages) to the queue's topic after
// the purge had read where that topic ends.
func (q *Queue) wasPurged(rec batch.Record) bool {
	to, moved := header(rec, headerTo)
	name, id, _ := strings.Cut(to, "/")
	return moved && name == q.name && slices.Contains(q.def.Load().purged, id)
}

// size is about what a message takes in memory.
func (m *Message) size() int64 {
	n := 256 + len(m.Key) + len(m.Value)
	for _, h := range m.Headers {
		n += 64 + len(h.Key) + len(h.Value)
	}
	return int64(n)
}

// header finds a header that a queue gave a message: the last one of that name.
func header(rec batch.Record, key string) (string, bool) {
	for _, h := range slices.Backward(rec.Headers) {
		if h.Key == key {
			return string(h.Value), true
		}
	}
	return "", false
}

// headerText is header for callers that treat a missing header as an empty one.
func headerText(rec batch.Record, key string) string {
	text, _ := header(rec, key)
	return text
}

// idOf is where a message was first enqueued.
func idOf(g claims.Grant, rec batch.Record) MessageID {
	if text, moved := header(rec, HeaderID); moved {
		if id, err := ParseID(text); err == nil {
			return id
		}
	}
	return MessageID{g.Partition, g.Offset}
}

// priorAttempts returns how many attempts a message had before it was delayed for a retry: 0 to
// attemptsMax, whatever its header says.
func priorAttempts(rec batch.Record) int {
	text, _ := header(rec, HeaderPriorAttempts)
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return min(n, attemptsMax)
}

// enqueued is when a message was first enqueued; zero: unknown.
func enqueued(rec batch.Record) time.Time { return headerTime(rec, HeaderEnqueued) }

// available is when a message could first be claimed, after its delay if it had one; zero if nobody
// knows.
func available(rec batch.Record) time.Time { return headerTime(rec, headerAvailable) }

// headerTime is the time in a header that is added when a message moves; without that header, the
// record's time.
func headerTime(rec batch.Record, name string) time.Time {
	if text, moved := header(rec, name); moved {
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			return at
		}
	}
	if rec.Timestamp == batch.NoTimestamp {
		return time.Time{}
	}
	return time.UnixMilli(rec.Timestamp)
}

// timeText is a time in a header.
func timeText(t time.Time) []byte { return []byte(t.UTC().Format(time.RFC3339Nano)) }

func number(t eventlog.Topic, p eventlog.Partition) int32 {
	for i, has := range t.Partitions {
		if has == p {
			return int32(i)
		}
	}
	return -1
}

// GiveBack returns messages that their worker never got: they may be claimed immediately, and the
// attempt does not count. It is not a worker's answer, so it reports no error: if it fails, the
// messages come back when their leases end.
func (q *Queue) GiveBack(messages []Message) {
	byPartition := make(map[eventlog.Partition][]claims.Grant)
	for _, m := range messages {
		if g, err := q.parse(m.Receipt); err == nil {
			g.Until = claims.Time(m.Until.UnixMilli())
			byPartition[g.Partition] = append(byPartition[g.Partition], g)
		}
	}
	for p, granted := range byPartition {
		q.giveBack(p, granted)
	}
}

// overBefore reports whether leases ended before their claim was stored, as can happen while the
// store is unavailable: other workers may have the messages now.
func (q *Queue) overBefore(ctx context.Context, granted []claims.Grant) (bool, error) {
	if len(granted) == 0 {
		return false, nil
	}
	now, _, err := q.owner.clock.Now(ctx)
	return slices.ContainsFunc(granted, func(g claims.Grant) bool { return g.Until <= now }), err
}

// giveBack undoes claims whose messages no worker got: the next worker gets them, as the same
// attempt.
func (q *Queue) giveBack(p eventlog.Partition, granted []claims.Grant) {
	if len(granted) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	defer cancel()
	err := q.change(ctx, p, &op{apply: func(s *claims.State, _ *change) (changed bool, err error) {
		e := claims.Edit{Part: s.Part(p)}
		for _, g := range granted {
			if r, err := e.Held(g); err == nil && r.Until == g.Until { // with another Until, the lease was extended, or a repeated claim has the message
				back := claims.Run{Fate: claims.Waiting, Attempt: r.Attempt - 1, Reason: r.Reason}
				if g.Again() {
					back.Until = claims.GivenBack
				}
				e.Put(g.Offset, back)
			}
		}
		return e.Apply(), nil
	}})
	if err != nil {
		q.owner.logger.Info("claimed messages were not delivered, and come back when their leases end", "queue", q.name, "messages", len(granted), "err", err)
		return
	}
	q.wakeClaims()
}
