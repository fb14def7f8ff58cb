package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/judge"
	"github.com/weir-log/weir/store/shard"
	"github.com/weir-log/weir/store/storecopy"
)

// movers move partitions between shards. Where copies are put back nothing moves: a backup of one
// shard from before a move does not know of it (docs/shards.md).
func (w *world) movers() {
	if s, is := w.storage.(*set); is && w.ledger == nil {
		w.act("mover", func(ctx context.Context, random *rand.Rand) { w.move(ctx, random, s) })
	}
}

// move moves partitions of topics that are never deleted, one after the other, while everybody uses
// them. Each move is made by a process of its own, which may be killed: then the move is begun
// again, until it is done.
func (w *world) move(ctx context.Context, random *rand.Rand, s *set) {
	for n := 0; ctx.Err() == nil; n++ {
		sleep(ctx, upTo(random, 8*paceOf))
		topic := names[random.IntN(len(names))]
		number, to := random.IntN(topics[topic]), random.IntN(s.members())
		p := w.partitionOf(ctx, random, topic, number)
		dies := time.Duration(0)
		if random.IntN(3) == 0 {
			dies = upTo(random, 2*time.Second)
		}
		var calm time.Time
		for try := 0; p != 0; try++ {
			err := w.moveOnce(fmt.Sprintf("mover %d.%d", n, try), s, p, to, dies)
			w.history.Add(fmt.Sprintf("%s/%d moves to shard %d: %v", topic, number, to, err), topic)
			if err == nil || errors.Is(err, storecopy.ErrThere) {
				break
			}
			if dies = 0; calm.IsZero() && ctx.Err() != nil { // from now on nothing is done to anybody
				calm = time.Now()
			}
			if !calm.IsZero() && time.Since(calm) > settleMax {
				w.model.Broken("B4", []string{topic}, "%v after the last fault %s/%d does not move to shard %d: %v", settleMax, topic, number, to, err)
				return
			}
			time.Sleep(500 * time.Millisecond)
		}
	}
}

// partitionOf returns the partition of a topic with a number; 0: no process can tell now.
func (w *world) partitionOf(ctx context.Context, random *rand.Rand, topic string, number int) (id eventlog.Partition) {
	for id == 0 && ctx.Err() == nil {
		w.aboutTopic(random, func(ctx context.Context, p *life) error {
			t, err := p.parts.Log.TopicNow(ctx, topic)
			if err == nil {
				id = t.Partitions[number]
			}
			return err
		})
		sleep(ctx, upTo(random, paceOf))
	}
	return id
}

// moveOnce moves a partition as `weir shard move` does, in a process that is killed after a while,
// or never (0).
func (w *world) moveOnce(name string, s *set, p eventlog.Partition, to int, dies time.Duration) error {
	h := w.newHost(name)
	defer h.kill()
	if dies > 0 {
		kill := time.AfterFunc(dies, h.kill)
		defer kill.Stop()
	}
	ctx, cancel := asks()
	defer cancel()
	opened, err := s.open(ctx, h, name)
	if err != nil {
		return err
	}
	defer opened.Close()
	if _, err := eventlog.Open(ctx, opened, eventlog.Config{Logger: h.logger}); err != nil {
		return err
	}
	m, err := storecopy.BeginMoves(ctx, opened.(*shard.Set), []eventlog.Partition{p}, to, storecopy.MoveOptions{})
	if err != nil {
		return err
	}
	return m.Run(ctx)[0].Err
}

// acked is a record that a process acknowledged, in a leader epoch.
type acked struct {
	topic, value string
	place        judge.Place
	epoch        int32
}

// acks notes which records a process has just acknowledged.
func (w *world) acks(p *life, topic string, records []*judge.Record, said judge.Word) {
	if said.Outcome != judge.Done || len(said.Places) != len(records) {
		return
	}
	w.ackedMu.Lock()
	defer w.ackedMu.Unlock()
	for i, r := range records {
		w.acked = append(w.acked, acked{topic, r.Value, said.Places[i], p.parts.Log.LeaderEpoch()})
	}
}

// judgeEpochs: where no store loses anything, nobody who has read a record is sent back before it.
func (w *world) judgeEpochs(p *life) {
	parts := map[string][]eventlog.Partition{}
	for _, name := range names {
		err := patiently(func(ctx context.Context) error {
			t, err := p.parts.Log.TopicNow(ctx, name)
			if err == nil { // read the bounds: what the process knows of them may be old
				parts[name] = t.Partitions
				_, err = p.parts.Log.Bounds(ctx, t.Partitions...)
			}
			return err
		})
		if err != nil {
			w.model.Broken("L7", []string{name}, "%v after the last fault %s does not say where %s ends: %v", settleMax, p.name, name, err)
			return
		}
	}
	w.ackedMu.Lock()
	defer w.ackedMu.Unlock()
	for _, a := range w.acked {
		if end, is := p.sendsBack(parts[a.topic][a.place.Partition], a.place.Offset, a.epoch); is {
			w.model.Broken("D3", []string{a.topic}, "%s was acknowledged at %v of %s in epoch %d and is not lost, and %s says that the epoch ended at %d", a.value, a.place, a.topic, a.epoch, p.name, end)
			return
		}
	}
}

// sendsBack reports whether a process tells those who have read the record at offset, of a leader
// epoch, to go back to where that epoch ended, before the record; and where that is.
func (p *life) sendsBack(part eventlog.Partition, offset int64, epoch int32) (end eventlog.Offset, is bool) {
	b, known := p.parts.Log.Known(part)
	if !known {
		return 0, false
	}
	_, end, known = p.parts.Log.EpochEnd(part, epoch, b.Next)
	return end, known && int64(end) <= offset
}
