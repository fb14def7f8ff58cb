package judge

import (
	"fmt"
	"slices"
)

// What Kafka's members commit, own and go on from: G2, G3, G5 and G7. Their groups read topics that
// are never made anew.

// Commit is one that a member asked for.
type Commit struct {
	group, by  string
	life       int // how often the group may have been deleted before: then its generations begin anew
	generation int32
	at         Partition
	offset     int64
	invoked    Moment
	ended      Moment // 0: not yet, or its outcome is unknown
}

func (c *Commit) done() bool { return c.ended != 0 }

// register is all that was asked to become the committed offset of one partition.
type register struct {
	commits []*Commit // in the order in which they were asked for
	reset   bool      // somebody may have set the group back, or deleted it
}

// registersKept is how many commits of a partition are remembered.
const registersKept = 2000

// ownerKey is a partition in one generation of a group. life counts how often the group may have
// been deleted: with each deletion its generations begin anew.
type ownerKey struct {
	group      string
	life       int
	generation int32
	at         Partition
}

type registerKey struct {
	group string
	at    Partition
}

func (m *Model) registerOf(group string, at Partition) *register {
	key := registerKey{group, at}
	r := m.registers[key]
	if r == nil {
		r = &register{reset: m.groupLives[group] > 0}
		m.registers[key] = r
	}
	return r
}

// Commits notes that a member asks to commit an offset.
func (m *Model) Commits(group, by string, generation int32, at Partition, offset int64) *Commit {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &Commit{group: group, by: by, life: m.groupLives[group], generation: generation, at: at, offset: offset, invoked: m.now()}
	r := m.registerOf(group, at)
	if r.commits = append(r.commits, c); len(r.commits) > registersKept {
		r.commits = slices.Delete(r.commits, 0, registersKept/2)
	}
	return c
}

// Committed tells what became of commits. After any error they may have happened: the client may
// have tried more than once.
func (m *Model) Committed(commits []*Commit, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range commits {
		if err == nil {
			c.ended = m.now()
		}
		m.history.Add(fmt.Sprintf("%s of %s in generation %d commits %d of %s/%d: %v", c.by, c.group, c.generation, c.offset, c.at.Topic, c.at.N, err), c.group)
	}
}

// SetsBack notes that somebody is about to reset a group, or to delete it.
func (m *Model) SetsBack(group string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.groupLives[group]++
	for key, r := range m.registers {
		if key.group == group {
			r.reset = true
		}
	}
}

// possible returns the offsets that may be committed at some time between two moments. A commit
// that was done is over once a later one was done. One of unknown outcome is over once a commit of
// a later generation of the group's same life was done: until then it may lie in the socket of a
// process that stands still, as with Kafka.
func (r *register) possible(from, to Moment) (offsets []int64) {
	begun, generation := Moment(-1), map[int]int32{} // of those done before from: when the last one was asked for, and each life's newest generation
	for _, c := range r.commits {
		if c.done() && c.ended < from {
			begun, generation[c.life] = max(begun, c.invoked), max(generation[c.life], c.generation)
		}
	}
	if begun < 0 || r.reset {
		offsets = append(offsets, 0)
	}
	for _, c := range r.commits {
		over := c.done() && c.ended < begun || !c.done() && c.generation < generation[c.life]
		if c.invoked <= to && !over {
			offsets = append(offsets, c.offset)
		}
	}
	return offsets
}

// Resumes judges the first offset that a member got of a partition that it was given at a time.
func (m *Model) Resumes(group, member string, at Partition, since Moment, offset int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history.Add(fmt.Sprintf("%s of %s begins in %s/%d at %d", member, group, at.Topic, at.N, offset), group)
	m.judgeCommitted("G2", group, at, since, offset, member+" of "+group+" begins")
}

// ReadsCommitted judges what a group was said to have committed, by a process that was asked at a
// time.
func (m *Model) ReadsCommitted(who, group string, at Partition, asked Moment, offset int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.judgeCommitted("G3", group, at, asked, offset, who+" says that "+group+" is")
}

// judgeCommitted: an offset is one that may be committed, or where the partition begins now if that
// was trimmed since.
func (m *Model) judgeCommitted(invariant, group string, at Partition, from Moment, offset int64, what string) {
	l := m.lives[at.Topic][len(m.lives[at.Topic])-1]
	possible := m.registerOf(group, at).possible(from, m.now())
	if slices.Contains(possible, offset) || l.MayMiss(at.N, offset) && offset > slices.Min(possible) {
		return
	}
	m.violate(invariant, []string{group, at.Topic}, "%s at offset %d of %s/%d; since %v only these can have been committed: %v", what, offset, at.Topic, at.N, from, possible)
}

// Owns notes that a member has a partition in a generation: nobody else has it in that one.
func (m *Model) Owns(group, member string, generation int32, at Partition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := ownerKey{group, m.groupLives[group], generation, at}
	if other, has := m.owners[key]; has && other != member {
		m.violate("G5", []string{group}, "%s/%d is %s's and %s's in generation %d of %s", at.Topic, at.N, other, member, generation, group)
	}
	m.owners[key] = member
}

// Partition is a partition of a topic that is never made anew.
type Partition struct {
	Topic string
	N     int32
}
