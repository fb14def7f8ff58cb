package eventlog

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weir-log/weir/eventlog/batch"
)

// flush is one Commit while it is being built: a list of entries, and for each entry the tickets
// that it answers.
type flush struct {
	budget    int // bytes that still fit
	pending   []*pendingEntry
	loose     map[Partition]*pendingEntry   // the entry that collects the loose records of a partition
	producers map[producerKey]*pendingEntry // the entry that collects a producer's batches for a partition
	puts      map[string]struct{}           // keys that an entry of this flush puts
	checks    map[string]struct{}           // keys that an entry of this flush checks
	holdable  int                           // checks of this flush that are Holdable
	epoch     Version                       // the version of the key EpochKey in the log's incarnation
	loadFirst bool                          // the next ticket can only be checked once its producer's state is read from the store
	sealing   func(Partition) sealing
	span      SpanInfo // its links are the callers' spans
}

// pendingEntry is one entry of the commit that is being built.
type pendingEntry struct {
	entry    Entry
	shares   []ticketShare
	records  []batch.Record // loose records, to be sealed
	sealing  sealing        // how records are sealed
	bytes    int            // the size of records
	producer *advance       // the new state of an idempotent producer; nil: no producer
}

// ticketShare is one ticket's part of an entry: the batches [first, first+count). delta counts the
// records of other tickets that come before the ticket's own in these batches.
type ticketShare struct {
	ticket       *Ticket
	first, count int
	delta        Offset
	duplicate    bool
}

func newFlush(budget int, sealing func(Partition) sealing, epoch Version) *flush {
	return &flush{
		budget:    budget,
		epoch:     epoch,
		sealing:   sealing,
		loose:     make(map[Partition]*pendingEntry),
		producers: make(map[producerKey]*pendingEntry),
		puts:      make(map[string]struct{}),
		checks:    make(map[string]struct{}),
	}
}

func (f *flush) full() bool { return f.budget <= 0 }

// add puts the ticket into an entry of the flush. It returns fits == false if the ticket must wait
// for the next flush. If out is a duplicate, or err is not nil, that is the answer to the ticket,
// which needs no commit.
func (f *flush) add(t *Ticket, known *producers) (fits bool, out Outcome, err error) {
	switch {
	case t.shared != nil && len(t.entry.Checks)+len(t.entry.Puts)+len(t.entry.Forgets) == 0:
		if fits, out, err = t.shared.merge(f, t, known); !fits {
			return false, Outcome{}, nil
		}
	case f.otherEpoch(t.entry):
		return true, Outcome{}, fmt.Errorf("append: %w: another leader epoch has begun", ErrStale)
	case hasProducer(t.entry):
		return true, Outcome{}, errors.New("append: a batch of an idempotent producer must be the only content of its entry. Nothing happened")
	case putsTwice(t.entry) != "":
		return true, Outcome{}, fmt.Errorf("append: the entry puts key %q twice: an entry may put a key only once. Nothing happened", putsTwice(t.entry))
	case f.clashes(t.entry), len(t.entry.Forgets) > 0 && len(f.pending) > 0, f.holdable > 0 && f.holdable+holdableIn(t.entry) > holdableMax:
		return false, Outcome{}, nil
	default:
		f.addKeys(t.entry)
		f.pending = append(f.pending, &pendingEntry{entry: withoutEpoch(t.entry), shares: []ticketShare{{ticket: t, count: len(t.entry.Batches)}}})
	}
	if !out.Duplicate && err == nil {
		f.budget -= int(t.size)
	}
	if len(t.entry.Forgets) > 0 {
		f.budget = 0 // it is the only entry of its flush
	}
	f.span.Link(t.trace)
	return true, out, err
}

// mergeable is the content of a ticket that may share an entry with that of other tickets.
type mergeable interface {
	// merge adds the content of ticket t to an entry of the flush, and returns what flush.add does.
	merge(f *flush, t *Ticket, known *producers) (fits bool, out Outcome, err error)
}

// looseRecords are records that the appender seals into a batch.
type looseRecords struct {
	partition Partition
	records   []batch.Record
}

func (l looseRecords) merge(f *flush, t *Ticket, _ *producers) (fits bool, out Outcome, err error) {
	s := f.loose[l.partition]
	if s == nil || s.bytes+int(t.size) > s.sealing.bytes {
		s = &pendingEntry{entry: Entry{Batches: []Batch{{Partition: l.partition}}}, sealing: f.sealing(l.partition)}
		f.loose[l.partition] = s
		f.pending = append(f.pending, s)
	}
	s.shares = append(s.shares, ticketShare{ticket: t, count: 1, delta: Offset(len(s.records))})
	s.records = append(s.records, l.records...)
	s.bytes += int(t.size)
	return true, Outcome{}, nil
}

// producedBatch is a batch of an idempotent producer.
type producedBatch Batch

func (b *producedBatch) key() producerKey { return producerKey{b.Producer.ProducerID, b.Partition} }

// merge collects a producer's batches for one partition in one entry, which succeeds or fails as a
// whole: a producer with five batches in flight needs one flush and not five.
func (b *producedBatch) merge(f *flush, t *Ticket, known *producers) (fits bool, out Outcome, err error) {
	key := b.key()
	s := f.producers[key]
	if s == nil {
		if f.clashes(Entry{Puts: []Put{{Key: key.String()}}}) {
			return false, Outcome{}, nil // an entry of this flush deletes the state of the producer, which had been silent for long
		}
		s = &pendingEntry{producer: known.begin(key)}
	}
	verdict, err := s.producer.judge(*b.Producer, t.number)
	switch {
	case errors.Is(err, errAskStore):
		f.loadFirst = true
		return false, Outcome{}, nil
	case err != nil:
		return true, Outcome{}, err
	case verdict.inFlush:
		s.shares = append(s.shares, ticketShare{ticket: t, first: verdict.batch, count: 1, duplicate: true})
		return true, Outcome{}, nil
	case verdict.duplicate:
		return true, Outcome{Base: []Offset{verdict.base}, Duplicate: true}, nil
	}
	if f.producers[key] == nil {
		f.producers[key] = s
		f.pending = append(f.pending, s)
		f.puts[key.String()] = struct{}{}
	}
	s.shares = append(s.shares, ticketShare{ticket: t, first: len(s.entry.Batches), count: 1})
	plain := Batch(*b)
	plain.Producer = nil // the tail need not keep it
	s.entry.Batches = append(s.entry.Batches, plain)
	return true, Outcome{}, nil
}

// clashes reports whether an entry must wait for the next flush: it puts a key that the flush puts
// or checks, or checks a key that the flush puts.
func (f *flush) clashes(e Entry) bool {
	for _, p := range e.Puts {
		if has(f.puts, p.Key) || has(f.checks, p.Key) {
			return true
		}
	}
	for _, c := range e.Checks {
		if has(f.puts, c.Key) {
			return true
		}
	}
	return false
}

// otherEpoch reports whether an entry has a check of another leader epoch than the log is in. The
// log can judge that without the store: if the store is in another epoch than the log, it refuses
// the whole flush (ErrRewound).
func (f *flush) otherEpoch(e Entry) bool {
	return slices.ContainsFunc(e.Checks, func(c Check) bool { return c.Key == EpochKey && c.Version != f.epoch })
}

// withoutEpoch returns an entry without its check of EpochKey, unless the entry also puts that key.
// With the check, the commits of all processes would lock the same row.
func withoutEpoch(e Entry) Entry {
	isEpoch := func(c Check) bool { return c.Key == EpochKey }
	if !slices.ContainsFunc(e.Checks, isEpoch) || slices.ContainsFunc(e.Puts, func(p Put) bool { return p.Key == EpochKey }) {
		return e
	}
	e.Checks = slices.DeleteFunc(slices.Clone(e.Checks), isEpoch)
	return e
}

func hasProducer(e Entry) bool {
	return slices.ContainsFunc(e.Batches, func(b Batch) bool { return b.Producer != nil })
}

// putsTwice returns a key that an entry puts more than once, or "". A store would refuse the whole
// flush for it, with the entries of other callers.
func putsTwice(e Entry) string {
	if len(e.Puts) < 2 {
		return ""
	}
	seen := make(map[string]struct{}, len(e.Puts))
	for _, p := range e.Puts {
		if has(seen, p.Key) {
			return p.Key
		}
		seen[p.Key] = struct{}{}
	}
	return ""
}

func has(set map[string]struct{}, key string) bool {
	_, ok := set[key]
	return ok
}

func (f *flush) addKeys(e Entry) {
	for _, p := range e.Puts {
		f.puts[p.Key] = struct{}{}
	}
	for _, c := range e.Checks {
		f.checks[c.Key] = struct{}{}
	}
	f.holdable += holdableIn(e)
}

// holdableMax bounds the Holdable checks of a flush, unless one entry alone has more: each takes a
// lock, and PostgreSQL has space for 64 locks for each of max_connections.
const holdableMax = 256

func holdableIn(e Entry) (n int) {
	for _, c := range e.Checks {
		if c.Holdable {
			n++
		}
	}
	return n
}

// entries returns the entries for Commit: loose records are sealed into batches, and the check and
// the put of producers are added.
func (f *flush) entries() []Entry {
	entries := make([]Entry, len(f.pending))
	for i, s := range f.pending {
		if s.records != nil {
			s.entry.Batches[0] = s.sealing.sealLoose(s.entry.Batches[0].Partition, s.records)
		}
		if s.producer != nil {
			s.entry.Checks, s.entry.Puts = s.producer.write(s.entry.Batches)
		}
		entries[i] = s.entry
	}
	return entries
}

func (f *flush) tickets() (all []*Ticket) {
	for _, s := range f.pending {
		all = append(all, s.tickets()...)
	}
	return all
}

func describe(entries []Entry) Flush {
	d := Flush{Entries: len(entries)}
	for _, e := range entries {
		d.Batches += len(e.Batches)
		for _, b := range e.Batches {
			d.Records += int64(b.Records)
			d.Bytes += int64(len(b.Bytes))
		}
	}
	return d
}

func (s *pendingEntry) tickets() []*Ticket {
	tickets := make([]*Ticket, len(s.shares))
	for i, share := range s.shares {
		tickets[i] = share.ticket
	}
	return tickets
}

func (s ticketShare) outcome(of Outcome) Outcome {
	if of.Err != nil {
		return Outcome{}
	}
	out := Outcome{Base: make([]Offset, s.count), Duplicate: s.duplicate}
	for i := range out.Base {
		out.Base[i] = of.Base[s.first+i] + s.delta
	}
	return out
}
