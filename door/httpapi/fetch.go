package httpapi

import (
	"context"
	"math"
	"net/url"
	"strconv"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

const (
	fetchBytes = 1 << 20     // most bytes of records in one answer; one event comes however large it is
	fetchScant = 64 << 10    // the same when too much is being read at once: answers get small, nobody waits
	waitMax    = time.Minute // longest that a request waits for events
)

// fetch returns what the spans hold now, or waits for it, at most until polls ends. The bytes are the log's. release must be called
// when they were sent: until then they count against Config.FetchBytes.
func (s *Server) fetch(ctx, polls context.Context, spans []eventlog.Span, wait time.Duration) (got []eventlog.Slice, release func(), err error) {
	for {
		held, most := int64(fetchBytes), fetchBytes
		if !s.events.TryAcquire(held) {
			held, most = 0, fetchScant
		}
		for i := range spans {
			spans[i].MaxBytes = most
		}
		got, err := s.cfg.Log.Fetch(ctx, eventlog.Want{Spans: spans, MaxBytes: most})
		if err != nil || wait <= 0 || tells(got) || polls.Err() != nil {
			return got, func() { s.events.Release(held) }, err
		}
		s.events.Release(held)
		// While it waits it holds nothing: what wakes it is read again above.
		for i := range spans {
			spans[i].MaxBytes = 1
		}
		if _, err := s.cfg.Log.Fetch(polls, eventlog.Want{Spans: spans, MaxBytes: 1, MaxWait: wait}); err != nil && polls.Err() == nil {
			return nil, func() {}, err
		}
		wait = 0
	}
}

// tells reports whether there is anything that a reader wants to know.
func tells(slices []eventlog.Slice) bool {
	for _, s := range slices {
		if len(s.Batches) > 0 || s.Err != nil {
			return true
		}
	}
	return false
}

// gap is a run of offsets whose events a reader does not get: retention removed them before it came to them, or they cannot be read.
type gap struct {
	from, to eventlog.Offset
	err      error // why they cannot be read; nil: retention
}

// eachRecord calls visit for the records of a slice from an offset on, until it returns false. What it gives may be kept. At a batch that
// cannot be read it ends, behind those of its records that can be: the rest of the batch is a gap, and a reader goes on behind it.
func eachRecord(slice eventlog.Slice, from eventlog.Offset, visit func(batch.Record) bool) *gap {
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
				if !visit(rec) {
					return nil
				}
			}
		}
	}
	return nil
}

// logGap tells the operator of events that cannot be read.
func (s *Server) logGap(topic string, partition int32, g *gap) {
	if g != nil && g.err != nil {
		s.cfg.Logger.Error("http: events cannot be read; readers are told of a gap and go on behind it",
			"topic", topic, "partition", partition, "from", g.from, "to", g.to, "error", g.err)
	}
}

// topic finds the topic that the path names.
func (s *Server) topic(c *call) (eventlog.Topic, error) {
	return s.cfg.Log.Topic(c.r.Context(), c.r.PathValue("topic"))
}

// partitionOf finds a topic's partition by a number as clients write it.
func partitionOf(t eventlog.Topic, text string) (number int32, p eventlog.Partition, err error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, 0, kindInvalidRequest.because("partition %s: a whole number from 0 is needed", shorten(text))
	}
	if n >= uint64(len(t.Partitions)) {
		return 0, 0, noSuchPartition(t, int64(n))
	}
	return int32(n), t.Partitions[n], nil
}

func noSuchPartition(t eventlog.Topic, n int64) error {
	return kindNoPartition.because("topic %q has the partitions 0 to %d, and %d is asked for", t.Name, len(t.Partitions)-1, n)
}

// waiting reads how long the client wants to wait for events.
func waiting(q url.Values) (time.Duration, error) {
	ms, err := number(q, "wait_ms", 0, math.MaxInt64, 0)
	return time.Duration(min(ms, waitMax.Milliseconds())) * time.Millisecond, err
}

// howMany reads how many events the client wants at most.
func howMany(q url.Values) (int, error) {
	n, err := number(q, "max", 1, math.MaxInt64, 1000)
	return int(min(n, eventsMax)), err
}
