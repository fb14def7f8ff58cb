package judge

import (
	"fmt"
	"slices"
)

// SnapshotSave is a call that saves a snapshot.
type SnapshotSave struct {
	Stream         string
	Version        int64
	Data           string // no other has it
	invoked, ended Moment
	outcome        Outcome
}

// SnapshotSaves notes that somebody is about to save a snapshot, at a version a little below that
// which the stream has reached.
func (m *Model) SnapshotSaves(stream string, below int64) *SnapshotSave {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.streams.snapshots[stream]
	s := &SnapshotSave{Stream: stream, Version: max(1, m.streams.known[stream]-below), Data: fmt.Sprintf("snapshot %d of %s", len(all), stream), invoked: m.now(), outcome: Unknown}
	m.streams.snapshots[stream] = append(all, s)
	return s
}

// SnapshotSaved notes what became of the save.
func (m *Model) SnapshotSaved(by string, s *SnapshotSave, said Word) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history.Add(fmt.Sprintf("%s: %s is saved at version %d, since %v: %v %s", by, s.Data, s.Version, s.invoked, said.Outcome, said.Err), s.Stream)
	s.ended, s.outcome = m.now(), said.Outcome
}

// snapshotReading is what was known when somebody began to load a snapshot.
type snapshotReading struct {
	stream     string
	Most, gone int64
	began      Moment
}

// SnapshotReads notes that somebody begins to load a snapshot, at a version a little below that
// which the stream has reached.
func (m *Model) SnapshotReads(stream string, below int64) snapshotReading {
	m.mu.Lock()
	defer m.mu.Unlock()
	return snapshotReading{stream: stream, Most: max(0, m.streams.known[stream]-below), gone: m.streams.gone[stream], began: m.now()}
}

// SnapshotRead judges a snapshot that was loaded, or that there was none.
func (m *Model) SnapshotRead(by string, r snapshotReading, said Word) {
	m.mu.Lock()
	defer m.mu.Unlock()
	wrong := func(why string, args ...any) {
		m.violate("S9", []string{r.stream}, "%s loaded a snapshot of %s at or below version %d from %v on: version %d, %q (%v): %s", by, r.stream, r.Most, r.began, said.Version, said.State, said.Exists, fmt.Sprintf(why, args...))
	}
	all := m.streams.snapshots[r.stream]
	at := int64(-1)
	if said.Exists {
		at = said.Version
		i := slices.IndexFunc(all, func(s *SnapshotSave) bool { return s.Version == said.Version && s.Data == said.State })
		switch {
		case i < 0 || all[i].outcome == Refused:
			wrong("nobody saved it")
			return
		case at > r.Most:
			wrong("it is above that")
		case at <= r.gone:
			wrong("the stream had been deleted at %d before", r.gone)
		}
		for _, later := range all {
			if later.Version == at && later.outcome == Done && later.ended < r.began && all[i].outcome == Done && later.invoked > all[i].ended {
				wrong("%q had replaced it by %v", later.Data, later.ended)
			}
		}
	}
	for _, s := range all {
		if s.outcome == Done && s.ended < r.began && s.Version <= r.Most && s.Version > at &&
			!slices.ContainsFunc(m.streams.changes[r.stream], func(d *StreamCall) bool { return d.mayDelete(s.Version, true) }) {
			wrong("%q was saved at version %d by %v", s.Data, s.Version, s.ended)
		}
	}
}
