package httpapi

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/budget"
)

const (
	fetchBytes = 1 << 20     // most bytes of records in one answer; one event comes however large it is
	waitMax    = time.Minute // longest that a request waits for events
)

// page is what a reader gets of one partition.
type page struct {
	events []batch.Record
	next   eventlog.Offset // where to go on
	bounds eventlog.Bounds
	gap    *gap  // behind the events
	err    error // why there are none
}

// gap is a run of offsets whose events a reader does not get: retention removed them before it came to them, or they cannot be read.
type gap struct {
	from, to eventlog.Offset
	err      error // why they cannot be read; nil: retention
}

// passTrimmed makes a gap of what retention removed, for those who were on their way there.
func (p *page) passTrimmed() {
	var outside *eventlog.RangeError
	if errors.As(p.err, &outside) && outside.Asked < outside.First {
		p.gap, p.next, p.err = &gap{from: p.next, to: outside.First}, outside.First, nil
	}
}

// fetch returns what the spans hold now, a page for each and at most so many events in all, or waits for it, at most until polls ends.
// Where not all can be served the span of this turn comes first. The claim is what the pages hold; it is to be released when they were sent.
func (s *Server) fetch(ctx, polls context.Context, spans []eventlog.Span, turn, most int, wait time.Duration) (pages []page, claim *budget.Claim, err error) {
	turn %= len(spans)
	asked := slices.Concat(spans[turn:], spans[:turn])
	size := max(min(fetchBytes, int(s.answers.Share()/2)), 1) // the other half is for what the batches become
	for i := range asked {
		asked[i].MaxBytes = size
	}
	claim = s.answers.Begin()
	got, err := s.cfg.Log.Fetch(ctx, eventlog.Want{Spans: asked, MaxBytes: size, MaxWait: wait, Stop: polls.Done(), Claim: claim})
	for room := (&room{claim: claim}); err == nil; {
		pages, lacks := decode(room, got, asked, most)
		if lacks == 0 {
			room.settle()
			return slices.Concat(pages[len(pages)-turn:], pages[:len(pages)-turn]), claim, nil
		}
		if _, err = claim.Grow(ctx, lacks); err != nil {
			err = s.crowded()
		}
		room.has += lacks
	}
	claim.Release()
	return nil, nil, s.orCrowded(err)
}

// decode makes pages of what was fetched, until there are events enough or memory for no more. Where there is none for even the first
// event, lacks is how much that needs.
func decode(room *room, got []eventlog.Slice, asked []eventlog.Span, most int) (pages []page, lacks int64) {
	pages = make([]page, len(got))
	room.used = 0
	records, full := int64(0), false
	for i, slice := range got {
		p := &pages[i]
		p.next, p.bounds, p.err = asked[i].From, slice.Bounds, slice.Err
		var damaged *eventlog.DamagedError
		if errors.As(slice.Err, &damaged) && damaged.Next > p.next {
			p.gap, p.next, p.err = &gap{p.next, damaged.Next, damaged}, damaged.Next, nil
			continue
		}
		if full {
			continue
		}
		p.gap = eachRecord(slice, p.next, func(rec batch.Record) bool {
			n := weight(&rec)
			if full = !room.take(n, records == 0); full {
				if records == 0 {
					lacks = room.used + n - room.has
				}
				return false
			}
			p.events = append(p.events, rec)
			p.next = eventlog.Offset(rec.Offset) + 1
			most--
			records += n
			full = most == 0 || records >= fetchBytes
			return !full
		})
		if p.gap != nil {
			p.next = p.gap.to
		}
	}
	return pages, lacks
}

// turns lets as many be decoded at once as there are processors: what a decoder holds is not counted.
var turns = make(chan struct{}, runtime.GOMAXPROCS(0))

// eachRecord calls visit for the records of a slice from an offset on, until it returns false. What it gives may be kept; visit must not
// wait for anybody. At a batch that cannot be read it ends, behind those of its records that can be: the rest of the batch is a gap,
// and a reader goes on behind it.
func eachRecord(slice eventlog.Slice, from eventlog.Offset, visit func(batch.Record) bool) *gap {
	turns <- struct{}{}
	defer func() { <-turns }()
	for _, b := range slice.Batches {
		end := b.Base + eventlog.Offset(b.Records)
		if end <= from {
			continue
		}
		h, err := batch.Parse(b.Bytes)
		if err != nil {
			return &gap{from, end, err}
		}
		moved := int64(b.Base) - h.BaseOffset // the bytes are shared with other readers, and nobody patches them
		for rec, err := range batch.Records(b.Bytes, batch.DefaultMaxDecompressed) {
			if err != nil {
				if from < end {
					return &gap{from, end, err}
				}
				break
			}
			rec.Offset += moved
			if at := eventlog.Offset(rec.Offset); at >= from {
				from = at + 1
				if h.Attributes.Codec() != batch.None {
					rec = detached(rec)
				}
				if !visit(rec) {
					return nil
				}
			}
		}
	}
	return nil
}

// detached copies a record's bytes, so that they do not keep alive all that was decompressed around them.
func detached(rec batch.Record) batch.Record {
	rec.Key, rec.Value = bytes.Clone(rec.Key), bytes.Clone(rec.Value)
	for i := range rec.Headers {
		rec.Headers[i].Value = bytes.Clone(rec.Headers[i].Value)
	}
	return rec
}

// logGap tells the operator of events that cannot be read.
func (s *Server) logGap(topic string, partition int32, g *gap) {
	if g != nil && g.err != nil {
		s.cfg.Logger.Error("http: events cannot be read; readers are told of a gap and go on behind it",
			"topic", topic, "partition", partition, "from", g.from, "to", g.to, "error", g.err)
	}
}
