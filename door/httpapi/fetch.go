package httpapi

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/budget"
)

const (
	fetchBytes = 1 << 20     // most bytes of records in one answer; the first event is sent whatever its size
	waitMax    = time.Minute // longest that a request waits for events
)

// page is the part of an answer for one partition.
type page struct {
	events []batch.Record
	next   eventlog.Offset // the offset to continue from
	bounds eventlog.Bounds
	gap    *gap  // after the events
	err    error // why there are no events
}

// gap is a range of offsets whose events a reader does not get: retention deleted them first, or
// they are damaged.
type gap struct {
	from, to eventlog.Offset
	err      error // why they cannot be read; nil: retention
}

// passTrimmed turns an offset that retention deleted into a gap, so that a reader continues after
// it.
func (p *page) passTrimmed() {
	var outside *eventlog.RangeError
	if errors.As(p.err, &outside) && outside.Asked < outside.First {
		p.gap, p.next, p.err = &gap{from: p.next, to: outside.First}, outside.First, nil
	}
}

// fetch returns a page for each span; most bounds the events of all pages together. If there are no
// events it waits as long as wait says, or until polls ends. If not all spans fit, turn decides
// which comes first. epoch is as in eventlog.Want; after an error it may be raised although nothing
// was returned. The claim is the pages' memory: release it when they were sent.
func (s *Server) fetch(ctx, polls context.Context, who *caller, spans []eventlog.Span, turn, most int, wait time.Duration, epoch *int32) (pages []page, claim *budget.Claim, err error) {
	turn %= len(spans)
	asked := slices.Concat(spans[turn:], spans[:turn])
	size := max(min(fetchBytes, int(s.answers.Share()/2)), 1) // the other half is for the decoded records
	for i := range asked {
		asked[i].MaxBytes = size
	}
	claim = s.answers.BeginFor(who.ID())
	want := eventlog.Want{Spans: asked, MaxBytes: size, MaxWait: wait, Stop: polls.Done(), Epoch: epoch, Claim: claim}
	var before int32 // the reader's epoch
	if epoch != nil {
		before = *epoch
	}
	got, err := s.cfg.Log.Fetch(ctx, want)
	if err == nil && claim.Held() > 0 {
		slot, gave := decoding{s.decoders, who.ID()}, false
		if gave, err = slot.acquireHolding(ctx, claim, func() { got = nil }); err == nil {
			defer slot.release()
		}
		if gave { // read it again. The epoch is as before, so that a loss is reported again.
			if want.MaxWait = 0; epoch != nil {
				*epoch = before
			}
			got, err = s.cfg.Log.Fetch(ctx, want)
		}
	}
	for memory := (&answerBudget{claim: claim}); err == nil; {
		var needed int64
		if pages, needed, err = decode(ctx, memory, got, asked, most); err != nil {
			break
		}
		if needed == 0 {
			memory.shrink()
			return slices.Concat(pages[len(pages)-turn:], pages[:len(pages)-turn]), claim, nil
		}
		if _, err = claim.Grow(ctx, needed); err != nil {
			err = s.overloaded()
		}
		memory.claimed += needed
	}
	claim.Release()
	return nil, nil, s.fetchError(err)
}

// decode makes pages from fetched batches, until there are enough events or no memory for more. If
// there is none even for the first event, needed is how many bytes are missing.
func decode(ctx context.Context, memory *answerBudget, got []eventlog.Slice, asked []eventlog.Span, most int) (pages []page, needed int64, err error) {
	pages = make([]page, len(got))
	memory.used = 0
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
		var passed eventlog.Offset
		passed, p.gap, err = eachRecord(ctx, slice, p.next, func(rec batch.Record) bool {
			n := weight(&rec)
			if full = !memory.take(n, records == 0); full {
				if records == 0 {
					needed = memory.used + n - memory.claimed
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
		if err != nil {
			return nil, 0, err
		}
		if p.next = max(p.next, passed); p.gap != nil {
			p.next = p.gap.to
		}
	}
	return pages, needed, nil
}

// decoding is a client's turn to decode; the field key is the client's id. One batch per processor
// is decoded at a time, because the memory of a small decoder is not claimed (package batch bounds
// the memory of large ones).
type decoding struct {
	of  *slots
	key string
}

func (d decoding) acquire(ctx context.Context) error { return d.of.acquire(ctx, d.key) }
func (d decoding) release()                          { d.of.release(d.key) }

// acquireHolding waits for the turn while claim holds memory for an answer. If other requests wait
// for memory longer than budget.SilentMax, it drops the answer, releases the claim and continues to
// wait, because a client that waits long must not hold memory meanwhile. Then gave is true: read
// the answer again.
func (d decoding) acquireHolding(ctx context.Context, claim *budget.Claim, drop func()) (gave bool, err error) {
	waiting, give := context.WithCancel(ctx)
	defer give()
	claim.Moves(give)
	err = d.acquire(waiting)
	claim.Rests()
	if err == nil || ctx.Err() != nil {
		return false, err
	}
	drop()
	claim.Release()
	err = d.acquire(ctx)
	return err == nil, err
}

// checkBytes is how many bytes are decoded between two checks whether the request has ended.
const checkBytes = 1 << 20

// eachRecord calls visit for the records of a slice from an offset on, until visit returns false.
// visit may keep the records, and must not block. The caller holds a decoding. At a batch that
// cannot be read it stops, after the batch's readable records: the rest of the batch is a gap, and
// a reader continues after it. It ends with ctx, also in the middle of a batch. passed is the end
// of the last batch that was visited to its end, which may have no record, as a control batch.
func eachRecord(ctx context.Context, slice eventlog.Slice, from eventlog.Offset, visit func(batch.Record) bool) (passed eventlog.Offset, g *gap, err error) {
	unchecked := 0 // bytes decoded since ctx was last checked
	for _, b := range slice.Batches {
		if ctx.Err() != nil {
			return passed, nil, ctx.Err()
		}
		end := b.End()
		if end <= from {
			continue
		}
		h, err := batch.Parse(b.Bytes)
		if err != nil {
			return passed, &gap{from, end, err}, nil
		}
		for rec, err := range b.Decode() {
			if err != nil {
				if from < end {
					return passed, &gap{from, end, err}, nil
				}
				break
			}
			if unchecked += rec.DecodedSize() + len(rec.Key) + len(rec.Value); unchecked >= checkBytes {
				if unchecked = 0; ctx.Err() != nil {
					return passed, nil, ctx.Err()
				}
			}
			if at := eventlog.Offset(rec.Offset); at >= from {
				from = at + 1
				if h.Attributes.Codec() != batch.None {
					rec = detached(rec)
				}
				if !visit(rec) {
					return passed, nil, nil
				}
			}
		}
		passed = end
	}
	return passed, nil, nil
}

// detached copies a record's bytes, so that they do not keep the whole decompressed batch in
// memory.
func detached(rec batch.Record) batch.Record {
	rec.Key, rec.Value = bytes.Clone(rec.Key), bytes.Clone(rec.Value)
	for i := range rec.Headers {
		rec.Headers[i].Value = bytes.Clone(rec.Headers[i].Value)
	}
	return rec
}

// logGap logs events that cannot be read.
func (s *Server) logGap(topic string, partition int32, g *gap) {
	if g != nil && g.err != nil {
		s.cfg.Logger.Error("http: events cannot be read; the answer reports a gap, and the reader continues after it",
			"topic", topic, "partition", partition, "from", g.from, "to", g.to, "err", g.err)
	}
}
