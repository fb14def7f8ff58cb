package sim

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/judge"
	"github.com/weir-log/weir/use/queue"
)

// ledger is what is judged where the store, or a member of it, is put back to an earlier state
// while processes use it. What was acknowledged before may be lost. What was acknowledged to a call
// that began later is there, once; all processes agree; a group gets everything that is there,
// although its positions may point to what is lost; and nobody is told that records are lost if
// they are there.
type ledger struct {
	w *world

	mu       sync.Mutex // guards what follows; judge reads all but handled without it
	notes    []*note
	values   map[string]bool
	handled  map[string]bool              // by the group
	passed   map[int32]int64              // how far it has handled each partition of the topic
	restored judge.Moment                 // when a copy was put back last
	members  map[int]bool                 // those that were put back
	cuts     []cut                        // of a bucket
	parts    map[int32]eventlog.Partition // of the topic, by number
}

// cut says when a copy of a bucket was put back, what the newest leader epoch of any process was
// then, and where each partition of the topic ended, as far as acknowledgements and the group tell.
type cut struct {
	at    judge.Moment
	epoch int32
	ends  map[int32]int64
}

// note is a call that wrote one thing.
type note struct {
	to           string // the topic, the queue or the stream
	value        string
	began, ended judge.Moment
	outcome      judge.Outcome
	place        judge.Place
	epoch        int32 // the leader epoch, at that time, of the process that acknowledged it
}

const (
	keptTopic, keptQueue, keptGroup = "kept", "kept-queue", "keepers"
	keptPartitions                  = 3
	keptStreams                     = 2
)

func newLedger(w *world) *ledger {
	l := &ledger{w: w, values: map[string]bool{}, handled: map[string]bool{}, passed: map[int32]int64{}, members: map[int]bool{}, parts: map[int32]eventlog.Partition{}}
	w.counts = judge.NewModel(w.now, w.history)
	return l
}

func (l *ledger) broken(invariant, format string, args ...any) {
	l.w.counts.Broken(invariant, nil, format, args...)
}

// make makes what the ledger is about. A nil ledger does nothing.
func (l *ledger) make() {
	if l == nil {
		return
	}
	l.w.until(func(ctx context.Context, p *life) error {
		if err := p.log.EnsureTopic(ctx, weir.Topic{Name: keptTopic, Partitions: keptPartitions}); err != nil {
			return err
		}
		t, err := p.parts.Log.TopicNow(ctx, keptTopic)
		l.mu.Lock()
		defer l.mu.Unlock()
		for i, p := range t.Partitions {
			l.parts[int32(i)] = p
		}
		return err
	})
	l.w.until(func(ctx context.Context, p *life) error {
		return p.log.EnsureQueue(ctx, weir.Queue{Name: keptQueue, Partitions: 2})
	})
}

func (l *ledger) acts() {
	if l == nil {
		return
	}
	for n := range 3 {
		l.w.act(fmt.Sprintf("ledger%d", n), func(ctx context.Context, random *rand.Rand) { l.write(ctx, random, fmt.Sprintf("k%d", n)) })
	}
}

// lost notes that a copy of a member was put back.
func (l *ledger) lost(member int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.restored, l.members[member] = l.w.now(), true
	if _, is := l.w.storage.(*bucket); !is {
		return // before a process knows that such a store was put back, it cannot append to it
	}
	newest := int32(0)
	for _, p := range l.w.processes {
		if live := p.live(); live != nil {
			newest = max(newest, live.parts.Log.LeaderEpoch())
		}
	}
	c := cut{l.restored, newest, maps.Clone(l.passed)}
	for _, n := range l.notes {
		if n.to == keptTopic && n.outcome == judge.Done {
			c.ends[n.place.Partition] = max(c.ends[n.place.Partition], int64(n.place.Offset)+1)
		}
	}
	l.cuts = append(l.cuts, c)
}

// blind lists what may have been written to a bucket after it was put back, by processes that did
// not know of that because they had not read what was lost. A group passes over such a value if it
// had handled a lost one at the same offset: docs/s3.md.
func (l *ledger) blind() map[string]bool {
	all := map[string]bool{}
	for _, n := range l.notes {
		all[n.value] = slices.ContainsFunc(l.cuts, func(c cut) bool {
			there := n.outcome != judge.Done || int64(n.place.Offset) < c.ends[n.place.Partition]
			return there && (n.ended == 0 || n.ended > c.at) && n.epoch <= c.epoch
		})
	}
	return all
}

// write writes one thing after the other, at any process.
func (l *ledger) write(ctx context.Context, random *rand.Rand, session string) {
	for i := 0; ctx.Err() == nil; i++ {
		sleep(ctx, upTo(random, paceOf/2))
		p := l.w.any(random)
		if p == nil {
			continue
		}
		n := &note{value: fmt.Sprintf("%s/%d", session, i), began: l.w.now()}
		l.mu.Lock()
		l.notes, l.values[n.value] = append(l.notes, n), true
		l.mu.Unlock()
		kind, stream := random.IntN(4), fmt.Sprintf("kept%d", random.IntN(keptStreams))
		try, cancel := asks()
		var said judge.Word
		switch kind {
		case 0:
			n.to = keptQueue
			_, err := p.log.Enqueue(try, keptQueue, weir.NewMessage{Value: []byte(n.value)})
			said = judge.OutcomeOf(err)
		case 1:
			n.to = stream
			c, err := p.log.Category(try, judge.Accounts)
			if err == nil {
				_, err = c.Append(try, stream, weir.AnyVersion, weir.NewStreamEvent{ID: n.value, Type: "kept", Data: []byte(n.value)})
			}
			said = judge.OutcomeOf(err)
		default:
			n.to = keptTopic
			said = judge.Published(p.log.Publish(try, weir.Event{Topic: keptTopic, Value: []byte(n.value)}))
		}
		cancel()
		said = p.said(said)
		l.mu.Lock()
		n.outcome, n.ended, n.epoch = said.Outcome, l.w.now(), p.parts.Log.LeaderEpoch()
		if len(said.Places) > 0 {
			n.place = said.Places[0]
		}
		l.w.history.Add(fmt.Sprintf("%s: %s to %s: %v %v (%s), epoch %d", p.name, n.value, n.to, n.outcome, n.place, said.Err, n.epoch))
		l.mu.Unlock()
	}
}

// consume keeps a member of the group in a process.
func (l *ledger) consume(p *life) {
	if l == nil {
		return
	}
	sub := weir.Subscription{
		Group: keptGroup, Topics: []string{keptTopic}, Name: p.name, Session: 3 * time.Second, CommitEvery: time.Second,
		Retry: weir.Retry{Attempts: -1, First: 100 * time.Millisecond, Max: 2 * time.Second}, DeadLetter: weir.Halt,
		Handler: func(_ context.Context, e weir.Event) error {
			if p.host.isDead() {
				return errLost
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.handled[string(e.Value)] = true
			l.passed[e.Partition] = max(l.passed[e.Partition], e.Offset+1)
			l.w.history.Add(fmt.Sprintf("%s handled %s at %d/%d", p.name, e.Value, e.Partition, e.Offset))
			return nil
		},
	}
	l.w.tries(p, "consume "+keptTopic, func(ctx context.Context) error { _, err := p.log.Consume(ctx, sub); return err })
}

// voidName finds in an error the mark by which an operator says that a commit is void.
var voidName = regexp.MustCompile(`void/[0-9]+-[0-9a-f]+`)

// help does what docs/s3.md asks the operator for, if a process cannot start and no process runs
// whose commits could show that a commit is void.
func (l *ledger) help(err error) {
	b, on := (*bucket)(nil), false
	if l != nil {
		b, on = l.w.storage.(*bucket)
	}
	mark := voidName.FindString(err.Error())
	if !on || mark == "" || l.w.first() != nil {
		return
	}
	_, _ = b.memory.Put(context.Background(), mark, nil)
	l.w.history.Add("the operator puts " + mark)
}

// judge waits until the group has got everything, and compares what each process sees with what was
// acknowledged.
func (l *ledger) judge() {
	l.awaitGroup() // the writers have ended; the lock is not held over calls, as handlers want it, and fake time would stand still
	there, ok := l.agreed()
	if !ok {
		return
	}
	l.awaitGroup() // what arrived meanwhile is for it, too
	blind := l.blind()
	for _, v := range there[keptTopic] {
		if !l.hasHandled(v) && !blind[v] {
			l.broken("G1", "%s is in %s, and the group %s, which has nothing left to do, did not handle it", v, keptTopic, keptGroup)
		}
	}
	l.drain(there[keptQueue])
}

// agreeTries is how often all processes read what is there, until they read the same.
const agreeTries = 3

// agreed returns what all processes see. They may differ for a while, because a commit whose
// outcome is unknown may arrive between two readings; each must have what was acknowledged.
func (l *ledger) agreed() (all map[string][]string, ok bool) {
	differ := ""
	for range agreeTries {
		all, differ = nil, ""
		for _, p := range l.w.processes {
			live := p.live()
			if live == nil {
				continue
			}
			read, err := l.all(live)
			if err != nil {
				l.broken("L7", "%v after the last fault %s cannot read what is there: %v", settleMax, live.name, err)
				return nil, false
			}
			l.judgeNotes(live.name, read)
			l.judgeEpochs(live)
			if all != nil && !maps.EqualFunc(read, all, slices.Equal) {
				differ = fmt.Sprintf("%s has %q, and another process %q", live.name, read, all)
			}
			all = read
		}
		if differ == "" {
			return all, true
		}
		l.w.history.Add("they differ: " + differ)
	}
	l.broken("L5", "%s, read %d times", differ, agreeTries)
	return all, true
}

func (l *ledger) hasHandled(value string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.handled[value]
}

func (l *ledger) awaitGroup() {
	late := time.Now().Add(settleMax)
	for {
		ctx, cancel := asks()
		g, err := l.w.first().log.Group(ctx, keptGroup)
		cancel()
		if err == nil && g.Lag == 0 && len(g.Offsets) > 0 {
			return
		}
		if time.Now().After(late) {
			l.broken("G8", "%v after the last fault the group is at %+v (%v)", settleMax, g, err)
			return
		}
		time.Sleep(time.Second)
	}
}

// all reads all that the ledger is about, for a while, as a process may have to enter an
// incarnation first.
func (l *ledger) all(p *life) (all map[string][]string, err error) {
	err = patiently(func(ctx context.Context) error {
		all, err = l.read(ctx, p)
		return err
	})
	return all, err
}

func (l *ledger) read(ctx context.Context, p *life) (map[string][]string, error) {
	all := map[string][]string{}
	for _, topic := range []string{keptTopic, keptQueue} {
		t, err := p.parts.Log.TopicNow(ctx, topic)
		if err != nil {
			return nil, err
		}
		for n := range t.Partitions {
			for e, err := range p.log.Read(ctx, weir.TopicPartition{Topic: topic, Partition: int32(n)}, weir.Earliest) {
				if err != nil {
					return nil, err
				}
				all[topic] = append(all[topic], string(e.Value))
			}
		}
	}
	c, err := p.log.Category(ctx, judge.Accounts)
	if err != nil {
		return nil, err
	}
	for n := range keptStreams {
		stream := fmt.Sprintf("kept%d", n)
		for e, err := range c.Events(ctx, stream, weir.StreamRange{}) {
			if err != nil {
				return nil, err
			}
			all[stream] = append(all[stream], string(e.Data))
		}
	}
	return all, nil
}

// judgeNotes: what was acknowledged to a call that began after the last copy was put back is there,
// and nothing is there that nobody wrote, or twice. by names the process that read it.
func (l *ledger) judgeNotes(by string, all map[string][]string) {
	for to, values := range all {
		seen := map[string]bool{}
		for _, v := range values {
			if !l.values[v] {
				l.broken("L2", "%s has in %s %q, which nobody wrote", by, to, v)
			}
			if seen[v] {
				l.broken("L3", "%s has in %s %s twice", by, to, v)
			}
			seen[v] = true
		}
	}
	for _, n := range l.notes {
		there := slices.Contains(all[n.to], n.value)
		switch {
		case n.outcome == judge.Done && n.began > l.restored && !there:
			l.broken("L1", "%s was acknowledged at %v (begun at %v) to %s, after the last copy was put back at %v, and %s does not have it", n.value, n.ended, n.began, n.to, l.restored, by)
		case n.outcome == judge.Refused && there:
			l.broken("L2", "%s has in %s %s, and whoever wrote it was told that it certainly is not there", by, n.to, n.value)
		}
	}
}

// judgeEpochs: nobody who has read a record that is not lost is sent back before it.
func (l *ledger) judgeEpochs(p *life) {
	for _, n := range l.notes {
		part := l.parts[n.place.Partition]
		if n.to != keptTopic || n.outcome != judge.Done || l.members[part.Shard()] && n.began <= l.restored {
			continue
		}
		if end, is := p.sendsBack(part, n.place.Offset, n.epoch); is {
			l.broken("D3", "%s was acknowledged at %v in epoch %d and is not lost, and %s says that the epoch ended at %d", n.value, n.place, n.epoch, p.name, end)
			return
		}
	}
}

// drain takes the messages out of the queue: each that is there comes.
func (l *ledger) drain(values []string) {
	got := map[string]bool{}
	for late := time.Now().Add(settleMax); len(got) < len(values) && time.Now().Before(late); {
		p := l.w.first()
		ctx, cancel := asks()
		err := p.parts.Queues.With(ctx, keptQueue, func(q *queue.Queue) error {
			list, err := q.Claim(ctx, queue.Claim{Max: 100, Lease: patience, Worker: "the last worker"})
			for _, m := range list {
				got[string(m.Value)] = true
				if _, err := q.Ack(ctx, m.Receipt); err != nil {
					return err
				}
			}
			return err
		})
		cancel()
		if err != nil {
			l.w.history.Add(fmt.Sprintf("drain: %v", err))
		}
		time.Sleep(time.Second)
	}
	for _, v := range values {
		if !got[v] {
			l.broken("Q1", "%s is in the topic of the queue, and for %v after the last fault nobody was given it; %d of %d were", v, settleMax, len(got), len(values))
			return
		}
	}
}
