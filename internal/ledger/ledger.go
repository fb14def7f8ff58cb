// Package ledger keeps what a system promised and what it delivered, and says where they differ. It
// is for loads of millions of events, of which each says what it is (Stamp): internal/judge knows
// far more of far shorter histories.
package ledger

import (
	"fmt"
	"strings"
	"sync"
)

// Ledger is about one run. Its methods may be called concurrently. It holds a few bits for each
// event and group.
type Ledger struct {
	run     uint32
	ordered bool // the system promises order within a key; each writer has a key of its own

	mu          sync.Mutex // guards all below
	writers     map[uint32]*book
	groups      map[string]*group
	atLeastOnce bool // something happens to the system: what was not acknowledged may come again
	verdict     Verdict
}

// book has what became of a writer's events: acknowledged, refused, or of unknown outcome.
type book struct {
	acked, refused, unknown bits
	told                    versions
}

// group is who reads.
type group struct {
	announced bool // it is to get every event
	whole     bool // it got all that was there in the end
	once      bool // it gets no event twice, whatever happens to the system
	behind    int64
	reads     map[uint32]*read
}

// read has what a group got of a writer's events.
type read struct {
	got   bits
	done  bits   // those that the group acknowledged
	late  bits   // those that came after a later one of the writer
	next  uint64 // one above the highest that was delivered
	found versions
}

// Verdict says how often a promise was broken. The zero value is a clean run.
type Verdict struct {
	Acked     int64 `json:"acked"`
	Unknown   int64 `json:"unknown"`   // sent, and the outcome is not known: it may be there or not
	Failed    int64 `json:"failed"`    // certainly not done, as the system said
	Delivered int64 `json:"delivered"` // to all groups together
	Repeated  int64 `json:"repeated"`  // of these, again after a fault, before they were acknowledged: which no promise forbids

	Lost       int64  `json:"lost"`         // acknowledged, and not delivered to each group
	Again      int64  `json:"again"`        // delivered more than once
	OutOfOrder int64  `json:"out_of_order"` // acknowledged, and delivered after a later one of its key
	Refused    int64  `json:"refused"`      // delivered, although the system had said that it was certainly not done
	Vanished   int64  `json:"vanished"`     // delivered before it was committed: never acknowledged, and not there in the end
	Invented   int64  `json:"invented"`     // delivered, and never sent in this run
	Corrupt    int64  `json:"corrupt"`
	Gaps       int64  `json:"gaps"`            // versions of a stream that are missing or wrong
	Unanswered int64  `json:"unanswered"`      // calls that were not answered when everything had an end
	First      string `json:"first,omitempty"` // the first violation, in words
}

// Clean reports whether no promise was broken.
func (v Verdict) Clean() bool { return v.String() == "" }

// String lists the violations: "3 lost, 1 again". It is empty for a clean run.
func (v Verdict) String() string {
	var all []string
	for _, x := range []struct {
		n    int64
		what string
	}{{v.Lost, "lost"}, {v.Again, "again"}, {v.OutOfOrder, "out of order"}, {v.Refused, "refused and there"}, {v.Vanished, "vanished"}, {v.Invented, "invented"}, {v.Corrupt, "corrupt"}, {v.Gaps, "gaps in versions"}, {v.Unanswered, "unanswered"}} {
		if x.n > 0 {
			all = append(all, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	return strings.Join(all, ", ")
}

// OnlyLost reports whether events were lost, and nothing else is wrong.
func (v Verdict) OnlyLost() bool { return v.Lost > 0 && v.Found().Clean() }

// Found is the verdict without the lost events, for a caller who knows that they are there.
func (v Verdict) Found() Verdict {
	v.Lost, v.First = 0, ""
	return v
}

// New makes a ledger for one run. If ordered is false the system promises no order, and order is
// not judged.
func New(run uint32, ordered bool) *Ledger {
	return &Ledger{run: run, ordered: ordered, writers: map[uint32]*book{}, groups: map[string]*group{}}
}

// AtLeastOnce says that something happens to the system: an event that its group has not
// acknowledged may come again, and those after it.
func (l *Ledger) AtLeastOnce() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.atLeastOnce = true
}

// Group announces a group that is to get every event.
func (l *Ledger) Group(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.group(name).announced = true
}

// Once says that a group gets no event twice, even after AtLeastOnce: it reads the log itself.
func (l *Ledger) Once(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.group(name).once = true
}

// Whole says that a group got all that was there when the writers had ended: what others got, and
// it did not, was not there.
func (l *Ledger) Whole(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.group(name).announced, l.group(name).whole = true, true
}

func (l *Ledger) book(writer uint32) *book {
	b := l.writers[writer]
	if b == nil {
		b = &book{}
		l.writers[writer] = b
	}
	return b
}

func (l *Ledger) group(name string) *group {
	g := l.groups[name]
	if g == nil {
		g = &group{behind: l.verdict.Acked, reads: map[uint32]*read{}}
		l.groups[name] = g
	}
	return g
}

func (g *group) read(writer uint32) *read {
	r := g.reads[writer]
	if r == nil {
		r = &read{}
		g.reads[writer] = r
	}
	return r
}

// Acked notes events that the system acknowledged.
func (l *Ledger) Acked(writer uint32, first uint64, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.book(writer)
	for seq := first; seq < first+uint64(n); seq++ {
		b.acked.set(seq)
		for _, g := range l.groups {
			if r := g.reads[writer]; r == nil || !r.got.has(seq) {
				g.behind++
			}
		}
	}
	l.verdict.Acked += int64(n)
}

// Told notes the versions that events were acknowledged with: each event has the version after that
// of the event before it.
func (l *Ledger) Told(writer uint32, first uint64, n int, version int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.book(writer).told.add(first, uint64(n), version)
}

// Unknown notes events whose outcome the system does not know.
func (l *Ledger) Unknown(writer uint32, first uint64, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.book(writer)
	for i := range uint64(n) {
		b.unknown.set(first + i)
	}
	l.verdict.Unknown += int64(n)
}

// Failed notes events that the system certainly did not take. They must not be delivered.
func (l *Ledger) Failed(writer uint32, first uint64, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.book(writer)
	for i := range uint64(n) {
		b.refused.set(first + i)
	}
	l.verdict.Failed += int64(n)
}

// Unanswered notes calls that were never answered.
func (l *Ledger) Unanswered(n int64) { l.mu.Lock(); defer l.mu.Unlock(); l.verdict.Unanswered += n }

// Gap notes a version that is missing or wrong.
func (l *Ledger) Gap(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verdict.Gaps++
	l.say("%s", what)
}

func (l *Ledger) say(format string, args ...any) {
	if l.verdict.First == "" {
		l.verdict.First = fmt.Sprintf(format, args...)
	}
}

// Damaged notes a payload of size bytes that a group got, and that is not what was sent.
func (l *Ledger) Damaged(group string, size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verdict.Delivered++
	l.verdict.Corrupt++
	l.say("group %s got a payload of %d bytes that is damaged", group, size)
}

// Delivered notes what a group got. It reports whether that is of this run.
func (l *Ledger) Delivered(group string, s Stamp) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verdict.Delivered++
	if s.Run != l.run {
		l.verdict.Invented++
		l.say("group %s got event %d of writer %d of another run", group, s.Seq, s.Writer)
		return false
	}
	g := l.group(group)
	r := g.read(s.Writer)
	switch {
	case r.got.has(s.Seq) && l.atLeastOnce && !g.once && !r.done.has(s.Seq):
		l.verdict.Repeated++
	case r.got.has(s.Seq) && r.done.has(s.Seq):
		l.verdict.Again++
		l.say("group %s got event %d of writer %d again, after it had acknowledged it", group, s.Seq, s.Writer)
	case r.got.has(s.Seq):
		l.verdict.Again++
		l.say("group %s got event %d of writer %d again", group, s.Seq, s.Writer)
	case l.ordered && s.Seq < r.next:
		r.late.set(s.Seq)
	}
	if !r.got.has(s.Seq) && l.book(s.Writer).acked.has(s.Seq) {
		g.behind--
	}
	r.got.set(s.Seq)
	r.next = max(r.next, s.Seq+1)
	return true
}

// Found notes the version at which a group got an event. An event that comes again has the same
// one.
func (l *Ledger) Found(group string, s Stamp, version int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := &l.group(group).read(s.Writer).found
	switch before, again := found.of(s.Seq); {
	case !again:
		found.add(s.Seq, 1, version)
	case before != version:
		l.verdict.Gaps++
		l.say("group %s got event %d of writer %d at version %d, and then at version %d", group, s.Seq, s.Writer, before, version)
	}
}

// Done notes that a group's acknowledgement of an event is durable: the event must not come again.
func (l *Ledger) Done(group string, s Stamp) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.group(group).read(s.Writer).done.set(s.Seq)
}

// Noted is what was noted so far; what only Close can judge is missing.
func (l *Ledger) Noted() Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.verdict
}

// Sent is how many events may be there: those acknowledged, and those of unknown outcome.
func (l *Ledger) Sent() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.verdict.Acked + l.verdict.Unknown
}

// Missing is how many acknowledged events were not delivered to all groups yet.
func (l *Ledger) Missing() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, _ := l.missing()
	return n
}

// Behind is how many acknowledged events a group has not got yet. It costs nothing.
func (l *Ledger) Behind(group string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.group(group).behind
}

// missing counts the events that some announced group lacks, each once.
func (l *Ledger) missing() (n int64, first string) {
	for w, b := range l.writers {
		for seq := range b.acked.all() {
			for name, g := range l.groups {
				if r := g.reads[w]; g.announced && (r == nil || !r.got.has(seq)) {
					if n++; first == "" {
						first = fmt.Sprintf("event %d of writer %d was acknowledged, and group %s did not get it", seq, w, name)
					}
					break
				}
			}
		}
	}
	return n, first
}

// Close judges the run. What was delivered must have been sent: acknowledged, or of unknown
// outcome. It changes nothing, so more may be noted afterwards.
func (l *Ledger) Close() Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	noted := l.verdict
	defer func() { l.verdict = noted }()
	v := &l.verdict
	n, first := l.missing()
	if v.Lost = n; n > 0 {
		l.say("%s", first)
	}
	for name, g := range l.groups {
		for w, r := range g.reads {
			b := l.writers[w]
			if b == nil {
				b = &book{}
			}
			l.judge(name, w, b, r)
			l.judgeVersions(name, w, b, r)
		}
	}
	return *v
}

// judge compares what a group got of a writer's events with what became of them.
func (l *Ledger) judge(name string, w uint32, b *book, r *read) {
	v := &l.verdict
	for seq := range r.got.all() {
		switch {
		case b.acked.has(seq):
			if r.late.has(seq) { // one of unknown outcome may come at any time
				v.OutOfOrder++
				l.say("group %s got event %d of writer %d after a later one", name, seq, w)
			}
			continue
		case b.refused.has(seq):
			v.Refused++
			l.say("group %s got event %d of writer %d, which the system had refused", name, seq, w)
		case !b.unknown.has(seq):
			v.Invented++
			l.say("group %s got event %d of writer %d, which nobody had sent", name, seq, w)
		}
		for other, whole := range l.groups {
			if all := whole.reads[w]; whole.whole && (all == nil || !all.got.has(seq)) {
				v.Vanished++
				l.say("group %s got event %d of writer %d, which was never acknowledged, and which %s did not find", name, seq, w, other)
			}
		}
	}
}

// judgeVersions: events have the versions that they were acknowledged with, and versions have no
// gap.
func (l *Ledger) judgeVersions(name string, w uint32, b *book, r *read) {
	next := int64(0)
	for _, run := range r.found.runs {
		if run.version != next {
			l.verdict.Gaps++
			l.say("group %s got event %d of writer %d at version %d, and version %d was next", name, run.first, w, run.version, next)
		}
		next = run.version + int64(run.n)
	}
	for _, run := range b.told.runs {
		for seq := run.first; seq < run.first+run.n; seq++ {
			version, found := r.found.of(seq)
			if told := run.version + int64(seq-run.first); found && version != told {
				l.verdict.Gaps++
				l.say("event %d of writer %d was acknowledged at version %d, and group %s got it at version %d", seq, w, told, name, version)
			}
		}
	}
}
