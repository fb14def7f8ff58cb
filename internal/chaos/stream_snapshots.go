package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// snapshotSave is a call that saves a snapshot.
type snapshotSave struct {
	stream         string
	version        int64
	data           string // no other has it
	invoked, ended moment
	outcome        outcome
}

// keepSnapshots saves snapshots of streams at versions that they have reached, and loads them.
func (w *world) keepSnapshots(ctx context.Context) {
	random := w.random("snapshots")
	for ctx.Err() == nil {
		pause(ctx, time.Duration(random.IntN(150))*time.Millisecond)
		stream, n := streamName(random), random.IntN(4)
		e, b := w.embedded[n%2], w.brokers[n%2]
		by := e.name
		if n >= 2 {
			by = "HTTP at " + b.name
		}
		if random.IntN(2) == 0 {
			s := w.model.snapshotSaves(stream, int64(random.IntN(3)))
			var said word
			if n >= 2 {
				said = b.saveSnapshot(context.WithoutCancel(ctx), s)
			} else {
				said = e.ask(context.WithoutCancel(ctx), order{Do: "save snapshot", Topic: accounts, Name: stream, N: int(s.version), Values: []string{s.data}})
			}
			w.model.snapshotSaved(by, s, said)
			w.counts.add("snapshots saved, " + said.Outcome.String())
			continue
		}
		r := w.model.snapshotReads(stream, int64(random.IntN(5)))
		var said word
		if n >= 2 {
			said = b.loadSnapshot(ctx, stream, r.most)
		} else {
			said = e.ask(ctx, order{Do: "load snapshot", Topic: accounts, Name: stream, N: int(r.most)})
		}
		if said.Outcome != done {
			continue
		}
		w.model.snapshotRead(by, r, said)
		w.counts.add(fmt.Sprintf("snapshots loaded, there was one: %v", said.Exists))
	}
}

// snapshotSaves notes that somebody is about to save a snapshot, at a version a little below that which the stream has reached.
func (m *model) snapshotSaves(stream string, below int64) *snapshotSave {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.streams.snapshots[stream]
	s := &snapshotSave{stream: stream, version: max(1, m.streams.known[stream]-below), data: fmt.Sprintf("snapshot %d of %s", len(all), stream), invoked: m.now(), outcome: unknown}
	m.streams.snapshots[stream] = append(all, s)
	return s
}

// snapshotSaved notes what became of that.
func (m *model) snapshotSaved(by string, s *snapshotSave, said word) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history.add(fmt.Sprintf("%s: %s is saved at version %d, since %v: %v %s", by, s.data, s.version, s.invoked, said.Outcome, said.Err), s.stream)
	s.ended, s.outcome = m.now(), said.Outcome
}

// snapshotReading is what was known when somebody began to load a snapshot.
type snapshotReading struct {
	stream     string
	most, gone int64
	began      moment
}

// snapshotReads notes that somebody begins to load a snapshot, at a version a little below that which the stream has reached.
func (m *model) snapshotReads(stream string, below int64) snapshotReading {
	m.mu.Lock()
	defer m.mu.Unlock()
	return snapshotReading{stream: stream, most: max(0, m.streams.known[stream]-below), gone: m.streams.gone[stream], began: m.now()}
}

// snapshotRead judges a snapshot that was loaded, or that there was none.
func (m *model) snapshotRead(by string, r snapshotReading, said word) {
	m.mu.Lock()
	defer m.mu.Unlock()
	wrong := func(why string, args ...any) {
		m.violate("S9", []string{r.stream}, "%s loaded a snapshot of %s at or below version %d from %v on: version %d, %q (%v): %s", by, r.stream, r.most, r.began, said.Version, said.State, said.Exists, fmt.Sprintf(why, args...))
	}
	all := m.streams.snapshots[r.stream]
	at := int64(-1)
	if said.Exists {
		at = said.Version
		i := slices.IndexFunc(all, func(s *snapshotSave) bool { return s.version == said.Version && s.data == said.State })
		switch {
		case i < 0 || all[i].outcome == refused:
			wrong("nobody saved it")
			return
		case at > r.most:
			wrong("it is above that")
		case at <= r.gone:
			wrong("the stream had been deleted at %d before", r.gone)
		}
		for _, later := range all {
			if later.version == at && later.outcome == done && later.ended < r.began && all[i].outcome == done && later.invoked > all[i].ended {
				wrong("%q had replaced it by %v", later.data, later.ended)
			}
		}
	}
	for _, s := range all {
		if s.outcome == done && s.ended < r.began && s.version <= r.most && s.version > at &&
			!slices.ContainsFunc(m.streams.changes[r.stream], func(d *streamCall) bool { return d.mayDelete(s.version, true) }) {
			wrong("%q was saved at version %d by %v", s.data, s.version, s.ended)
		}
	}
}
