package eventlog

import (
	"errors"

	"github.com/weir-log/weir/eventlog/batch"
)

// flush is what travels to the store in one Commit, while it is being put together: a row of slots, each one entry, and in
// each slot the tickets that it answers.
type flush struct {
	room      int // bytes that still fit
	slots     []*slot
	loose     map[Partition]*slot   // where loose records of a partition are gathered
	producers map[producerKey]*slot // where a producer's batches for a partition are gathered
	puts      map[string]struct{}   // keys that an entry here puts
	checks    map[string]struct{}   // keys that an entry here checks
	ask       *producerKey          // a producer whose state must be read before the next ticket can be judged
	sealing   func(Partition) sealing
	links     []TraceContext // the spans of those who submitted, linksMax at most
}

// linksMax bounds the links of a flush's span: it is the most that OpenTelemetry keeps by default.
const linksMax = 128

// slot is one entry of a flush.
type slot struct {
	entry    Entry
	seats    []seat
	records  []batch.Record // loose, to be sealed
	sealing  sealing        // of records
	bytes    int            // of records
	producer *advance       // what the entry does to an idempotent producer
}

// seat is one ticket's part of a slot: count batches from the first, beginning delta records into them.
type seat struct {
	ticket       *Ticket
	first, count int
	delta        Offset
	duplicate    bool
}

func newFlush(room int, sealing func(Partition) sealing) *flush {
	return &flush{
		room:      room,
		sealing:   sealing,
		loose:     make(map[Partition]*slot),
		producers: make(map[producerKey]*slot),
		puts:      make(map[string]struct{}),
		checks:    make(map[string]struct{}),
	}
}

func (f *flush) full() bool { return f.room <= 0 }

// add finds the ticket a seat. It reports false when the ticket must wait for the next flush. A duplicate or an
// error needs no commit: that is the ticket's answer.
func (f *flush) add(t *Ticket, known *producers) (fits bool, out Outcome, err error) {
	switch h, sequenced := t.sequenced(); {
	case t.loose != nil:
		f.addLoose(t)
	case sequenced:
		if fits, out, err = f.addSequenced(t, h, known); !fits {
			return false, Outcome{}, nil
		}
	case f.clashes(t.entry):
		return false, Outcome{}, nil
	default:
		f.name(t.entry)
		f.slots = append(f.slots, &slot{entry: t.entry, seats: []seat{{ticket: t, count: len(t.entry.Batches)}}})
	}
	if !out.Duplicate && err == nil {
		f.room -= int(t.size)
	}
	if link, traced := TraceOf(t.trace); traced && len(f.links) < linksMax {
		f.links = append(f.links, link)
	}
	return true, out, err
}

func (f *flush) addLoose(t *Ticket) {
	s := f.loose[t.partition]
	if s == nil || s.bytes+int(t.size) > s.sealing.bytes {
		s = &slot{entry: Entry{Batches: []Batch{{Partition: t.partition}}}, sealing: f.sealing(t.partition)}
		f.loose[t.partition] = s
		f.slots = append(f.slots, s)
	}
	s.seats = append(s.seats, seat{ticket: t, count: 1, delta: Offset(len(s.records))})
	s.records = append(s.records, t.loose...)
	s.bytes += int(t.size)
}

// addSequenced gathers a producer's batches for one partition in one slot: they stand or fall together, so
// a producer with five batches under way needs one flush and not five.
func (f *flush) addSequenced(t *Ticket, h batch.Header, known *producers) (fits bool, out Outcome, err error) {
	key := producerKey{h.ProducerID, t.entry.Batches[0].Partition}
	s := f.producers[key]
	if s == nil {
		if f.clashes(Entry{Puts: []Put{{Key: key.String()}}}) {
			return false, Outcome{}, nil // an entry here forgets the producer, which was silent for long
		}
		s = &slot{producer: known.begin(key)}
	}
	verdict, err := s.producer.judge(h)
	switch {
	case errors.Is(err, errAskStore):
		f.ask = &key
		return false, Outcome{}, nil
	case err != nil:
		return true, Outcome{}, err
	case verdict.inFlush:
		s.seats = append(s.seats, seat{ticket: t, first: verdict.batch, count: 1, duplicate: true})
		return true, Outcome{}, nil
	case verdict.duplicate:
		return true, Outcome{Base: []Offset{verdict.base}, Duplicate: true}, nil
	}
	if f.producers[key] == nil {
		f.producers[key] = s
		f.slots = append(f.slots, s)
		f.puts[key.String()] = struct{}{}
	}
	s.seats = append(s.seats, seat{ticket: t, first: len(s.entry.Batches), count: 1})
	s.entry.Batches = append(s.entry.Batches, t.entry.Batches[0])
	return true, Outcome{}, nil
}

// clashes reports whether an entry may not share this flush: one of them puts a key that the other names.
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

func has(set map[string]struct{}, key string) bool {
	_, ok := set[key]
	return ok
}

func (f *flush) name(e Entry) {
	for _, p := range e.Puts {
		f.puts[p.Key] = struct{}{}
	}
	for _, c := range e.Checks {
		f.checks[c.Key] = struct{}{}
	}
}

// entries seals what is loose and writes down what producers did.
func (f *flush) entries() []Entry {
	entries := make([]Entry, len(f.slots))
	for i, s := range f.slots {
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
	for _, s := range f.slots {
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

func (s *slot) tickets() []*Ticket {
	tickets := make([]*Ticket, len(s.seats))
	for i, seat := range s.seats {
		tickets[i] = seat.ticket
	}
	return tickets
}

func (s seat) outcome(of Outcome) Outcome {
	if of.Err != nil {
		return Outcome{}
	}
	out := Outcome{Base: make([]Offset, s.count), Duplicate: s.duplicate}
	for i := range out.Base {
		out.Base[i] = of.Base[s.first+i] + s.delta
	}
	return out
}

// sequenced reports whether the ticket is one batch of an idempotent producer and nothing else.
func (t *Ticket) sequenced() (batch.Header, bool) {
	e := t.entry
	if len(e.Batches) != 1 || len(e.Checks) > 0 || len(e.Puts) > 0 || e.Batches[0].Records == 0 {
		return batch.Header{}, false
	}
	h, err := batch.Parse(e.Batches[0].Bytes)
	return h, err == nil && h.ProducerID >= 0
}
