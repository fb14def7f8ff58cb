package main

import (
	"fmt"
	"slices"
)

// What Kafka's members commit, own and go on from: G2, G3, G5 and G7. Their groups read topics that are never made anew.

// commit is one that a member asked for.
type commit struct {
	group, by  string
	life       int // how often the group may have been deleted before: then its generations begin anew
	generation int32
	at         partition
	offset     int64
	invoked    moment
	ended      moment // 0: not yet, or its outcome is unknown
}

func (c *commit) done() bool { return c.ended != 0 }

// register is all that was asked to become the committed offset of one partition.
type register struct {
	commits []*commit // in the order in which they were asked for
	reset   bool      // somebody may have set the group back, or deleted it
}

// registersKept is how many commits of a partition are remembered.
const registersKept = 2000

// ownerKey is a partition in one generation of a group. Group counts how often it may have been deleted: then its generations begin anew.
type ownerKey struct {
	group      string
	life       int
	generation int32
	at         partition
}

type registerKey struct {
	group string
	at    partition
}

func (m *model) registerOf(group string, at partition) *register {
	key := registerKey{group, at}
	r := m.registers[key]
	if r == nil {
		r = &register{reset: m.groupLives[group] > 0}
		m.registers[key] = r
	}
	return r
}

// commits notes that a member asks to commit an offset.
func (m *model) commits(group, by string, generation int32, at partition, offset int64) *commit {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &commit{group: group, by: by, life: m.groupLives[group], generation: generation, at: at, offset: offset, invoked: m.now()}
	r := m.registerOf(group, at)
	if r.commits = append(r.commits, c); len(r.commits) > registersKept {
		r.commits = slices.Delete(r.commits, 0, registersKept/2)
	}
	return c
}

// committed tells what became of commits. After any error they may have happened: the client may have tried more than once.
func (m *model) committed(commits []*commit, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range commits {
		if err == nil {
			c.ended = m.now()
		}
		m.history.add(fmt.Sprintf("%s of %s in generation %d commits %d of %s/%d: %v", c.by, c.group, c.generation, c.offset, c.at.topic, c.at.n, err), c.group)
	}
}

// setsBack notes that somebody is about to reset a group, or to delete it.
func (m *model) setsBack(group string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.groupLives[group]++
	for key, r := range m.registers {
		if key.group == group {
			r.reset = true
		}
	}
}

// possible returns the offsets that may be committed at some time between two moments. A commit that was done is over once a later one was done. One of
// unknown outcome is over once a commit of a later generation of the group's same life was done: until then it may lie in the socket of a process that
// stands still, as with Kafka.
func (r *register) possible(from, to moment) (offsets []int64) {
	begun, generation := moment(-1), map[int]int32{} // of those done before from: when the last one was asked for, and each life's newest generation
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

// resumes judges the first offset that a member got of a partition that it was given at a time.
func (m *model) resumes(group, member string, at partition, since moment, offset int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history.add(fmt.Sprintf("%s of %s begins in %s/%d at %d", member, group, at.topic, at.n, offset), group)
	m.judgeCommitted("G2", group, at, since, offset, member+" of "+group+" begins")
}

// readsCommitted judges what a group was said to have committed, by a process that was asked at a time.
func (m *model) readsCommitted(who, group string, at partition, asked moment, offset int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.judgeCommitted("G3", group, at, asked, offset, who+" says that "+group+" is")
}

// judgeCommitted: an offset is one that may be committed, or where the partition begins now if that was trimmed since.
func (m *model) judgeCommitted(invariant, group string, at partition, from moment, offset int64, what string) {
	l := m.lives[at.topic][len(m.lives[at.topic])-1]
	possible := m.registerOf(group, at).possible(from, m.now())
	if slices.Contains(possible, offset) || l.mayMiss(at.n, offset) && offset > slices.Min(possible) {
		return
	}
	m.violate(invariant, []string{group, at.topic}, "%s at offset %d of %s/%d; since %v only these can have been committed: %v", what, offset, at.topic, at.n, from, possible)
}

// owns notes that a member has a partition in a generation: nobody else has it in that one.
func (m *model) owns(group, member string, generation int32, at partition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := ownerKey{group, m.groupLives[group], generation, at}
	if other, has := m.owners[key]; has && other != member {
		m.violate("G5", []string{group}, "%s/%d is %s's and %s's in generation %d of %s", at.topic, at.n, other, member, generation, group)
	}
	m.owners[key] = member
}
