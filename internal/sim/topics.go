package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/judge"
)

const (
	passing   = "passing"   // is deleted and made anew
	brief     = "brief"     // has next to no retention
	compacted = "compacted" // has many records of few keys

	passingPartitions = 3
	compactedKeys     = 4
)

// topicsThatChange are topics that do not only grow.
func (w *world) topicsThatChange() {
	w.act("topic-passes", w.passTopic)
	for n := range 2 {
		w.act(fmt.Sprintf("topic-passing%d", n), func(ctx context.Context, random *rand.Rand) { w.publishOn(ctx, random, passing) })
	}
	w.act("topic-brief", func(ctx context.Context, random *rand.Rand) { w.publishOn(ctx, random, brief) })
	w.act("topic-compacted", w.writeKeys)
}

// publishOn publishes single events to one topic.
func (w *world) publishOn(ctx context.Context, random *rand.Rand, topic string) {
	session := fmt.Sprintf("t%d", random.IntN(1e9))
	for ctx.Err() == nil {
		sleep(ctx, upTo(random, paceOf))
		p := w.any(random)
		if p == nil {
			continue
		}
		records := w.model.Invoke(session, topic, 1, false)
		said := w.publishTo(p, topic, records, "")
		w.model.End(records, said.Outcome, said.Places)
	}
}

// passTopic deletes a topic and makes it anew, over and over.
func (w *world) passTopic(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		l := w.model.Begins(passing, 0)
		for made := false; !made; {
			if ctx.Err() != nil {
				return
			}
			made = w.aboutTopic(random, func(ctx context.Context, p *life) error {
				err := p.log.EnsureTopic(ctx, weir.Topic{Name: passing, Partitions: passingPartitions})
				w.history.Add(fmt.Sprintf("%s makes %s: %v", p.name, l, err), passing)
				t, late := p.parts.Log.TopicNow(ctx, passing)
				if late == nil && !p.host.isDead() { // nobody has the answer of a dead one
					w.model.Born(l, t.ID)
				}
				return late
			})
			if !made {
				sleep(ctx, upTo(random, 2*paceOf))
			}
		}
		sleep(ctx, upTo(random, 12*paceOf))
		if ctx.Err() != nil {
			return
		}
		w.model.Dies(l)
		for gone := false; !gone; {
			gone = w.aboutTopic(random, func(ctx context.Context, p *life) error {
				err := p.log.DeleteTopic(ctx, passing)
				w.history.Add(fmt.Sprintf("%s deletes %s: %v", p.name, l, err), passing)
				t, late := p.parts.Log.TopicNow(ctx, passing)
				switch {
				case errors.Is(late, eventlog.ErrUnknownTopic):
					return nil
				case late == nil && err == nil && t.ID == l.ID && !p.host.isDead():
					w.model.Broken("L10", []string{passing}, "%s deleted %s, and it is still there", p.name, l)
				case late == nil:
					late = err
				}
				return late
			})
			if ctx.Err() != nil && !gone {
				return // it counts as being deleted
			}
			if !gone {
				sleep(ctx, upTo(random, 2*paceOf))
			}
		}
		w.model.Dead(l)
		sleep(ctx, upTo(random, 2*paceOf))
	}
}

// aboutTopic asks a process something, and reports whether it was done.
func (w *world) aboutTopic(random *rand.Rand, do func(context.Context, *life) error) bool {
	p := w.any(random)
	if p == nil {
		return false
	}
	ctx, cancel := asks()
	defer cancel()
	return do(ctx, p) == nil && !p.host.isDead()
}

// written is what a key of the compacted topic was last given.
type written struct {
	acked  int          // the newest write that was acknowledged
	absent map[int]bool // whether a write was a tombstone, of those that may be the last: acked, and all whose outcome is unknown
}

// writeKeys writes keys, and deletes them, one write after the other.
func (w *world) writeKeys(ctx context.Context, random *rand.Rand) {
	for n := 1; ctx.Err() == nil; n++ {
		sleep(ctx, upTo(random, paceOf/2))
		p := w.any(random)
		if p == nil {
			continue
		}
		k := random.IntN(compactedKeys)
		e := weir.Event{Topic: compacted, Key: fmt.Appendf(nil, "key%d", k), Headers: []weir.Header{{Key: "n", Value: strconv.AppendInt(nil, int64(n), 10)}}}
		if random.IntN(3) > 0 {
			e.Value = fmt.Appendf(nil, "value %d", n)
		}
		state := &w.keys[k]
		if state.absent == nil {
			state.absent = map[int]bool{}
		}
		try, cancel := asks()
		said := p.said(judge.Published(p.log.Publish(try, e)))
		cancel()
		switch said.Outcome {
		case judge.Done:
			delete(state.absent, state.acked)
			state.acked, state.absent[n] = n, e.Value == nil
		case judge.Unknown: // it may even come after later ones
			state.absent[n] = e.Value == nil
		}
		w.history.Add(fmt.Sprintf("%s: write %d of key%d (a tombstone: %v): %v %v", p.name, n, k, e.Value == nil, said.Outcome, said.Places), compacted)
	}
}

// judgeKeys: the last record of each key is the one that was acknowledged last, or one whose
// outcome is unknown; and nothing that was deleted comes back.
func (w *world) judgeKeys(p *life) {
	ctx, cancel := asks()
	defer cancel()
	last := map[string]int{}
	t, err := p.parts.Log.TopicNow(ctx, compacted)
	for n := range t.Partitions {
		for e, bad := range p.log.Read(ctx, weir.TopicPartition{Topic: compacted, Partition: int32(n)}, weir.Earliest) {
			if bad != nil {
				err = bad
				break
			}
			at, _ := strconv.Atoi(string(e.Headers[0].Value))
			last[string(e.Key)] = at
		}
	}
	if err != nil {
		w.model.Broken("L5", []string{compacted}, "read %s at the end: %v", compacted, err)
		return
	}
	for k := range w.keys {
		state, key := w.keys[k], fmt.Sprintf("key%d", k)
		at, is := last[key]
		_, may := state.absent[at]
		gone := state.acked == 0
		for _, tombstone := range state.absent { // it may have been deleted, with all before it
			gone = gone || tombstone
		}
		if is && may || !is && gone {
			continue
		}
		w.model.Broken("L1", []string{compacted}, "the last record of %s is write %d (%v), and write %d, which came later, was acknowledged; a tombstone: %v", key, at, is, state.acked, state.absent[state.acked])
	}
}

// briefKeeps is how long the topic with next to no retention keeps events for sure.
const briefKeeps = time.Nanosecond

// settings are those of the topics that have any.
var settings = map[string]map[string]string{
	brief: {"retention.ms": "1500"},
	compacted: {
		"cleanup.policy": "compact", "delete.retention.ms": "1000", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "1000",
	},
}
