package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

const (
	streamRetry    = "1000"      // ms that a client of server-sent events waits before it comes back
	positionBytes  = 4 << 20     // most bytes of positions in a page
	streamTroubled = time.Second // between two tries while the store is away
)

// stream sends events as they come, until the client or the server goes away, as server-sent events or one a line. Each server-sent
// event's id says how far all partitions were read; a client that comes back with the last one it saw (Last-Event-ID) goes on
// right behind it.
func (s *Server) stream(c *call) error {
	topic, err := s.topic(c)
	if err != nil {
		return err
	}
	st := &streamed{s: s, c: c, topic: topic, only: -1, lines: wantsLines(c.r)}
	st.pace.c = c
	st.out = newEncoder(&st.pace)
	if c.query.Has("partition") {
		if st.only, _, err = partitionOf(topic, c.query.Get("partition")); err != nil {
			return err
		}
	}
	from := streamDefault
	if c.query.Has("from") {
		from = c.query.Get("from")
	}
	if last := c.r.Header["Last-Event-Id"]; len(last) > 0 {
		from = last[0]
	}
	if err := st.fits(topic); err != nil {
		return err
	}
	if err := st.begin(from); err != nil {
		return err
	}
	ctx, cancel := untilDraining(c.r)
	defer cancel()
	if st.open, err = s.streams.begin(c.who, topic, cancel); err != nil {
		return err
	}
	defer s.streams.close(st.open)
	s.cfg.Observer.Streaming(+1)
	defer s.cfg.Observer.Streaming(-1)
	return st.run(ctx)
}

// streamed is one stream.
type streamed struct {
	s     *Server
	c     *call
	topic eventlog.Topic
	open  *openStream
	only  int32 // the one partition that is asked for; -1 for all
	lines bool
	pace  pace
	out   *encoder
	next  positions
	turn  int // which partition comes first: where not all can be served, none is left out for ever
}

// begin finds the positions to start from: one trip to the store.
func (st *streamed) begin(from string) (err error) {
	ctx, cancel := st.c.withPatience()
	defer cancel()
	bounds, err := st.s.cfg.Log.Bounds(ctx, st.topic.Partitions...)
	if err != nil {
		return err
	}
	st.next = make(positions, len(bounds))
	if from != "earliest" && from != "latest" {
		if st.next, err = parsePositions(from, st.topic); err != nil {
			return err
		}
	}
	for n, b := range bounds {
		switch {
		case !st.wants(int32(n)):
			st.next[n] = 0
		case b.Err != nil:
			return b.Err
		case from == "earliest":
			st.next[n] = b.Bounds.First
		case from == "latest":
			st.next[n] = b.Bounds.Next
		case st.next[n] > b.Bounds.Next:
			return &eventlog.RangeError{Partition: eventlog.Partition(n), Asked: st.next[n], First: b.Bounds.First, Next: b.Bounds.Next}
		}
	}
	return nil
}

// fits sees that the positions in a topic are short enough for a client to come back with.
func (st *streamed) fits(topic eventlog.Topic) error {
	if st.lines || st.only >= 0 || len(topic.Partitions) <= streamPartitions {
		return nil
	}
	return kindTooLarge.past(streamPartitions, "topic %q has %d partitions, and a stream of server-sent events may have %d: a position in more does not fit into a header. "+
		"Stream one partition (partition=…), or take lines, which have no positions (Accept: application/x-ndjson), or read as a group", topic.Name, len(topic.Partitions), streamPartitions)
}

func (st *streamed) wants(partition int32) bool { return st.only < 0 || st.only == partition }

// run sends until ctx ends, the client is gone, too slow or not allowed any more, or the topic is no more.
func (st *streamed) run(ctx context.Context) error {
	h := st.c.Header()
	h["Content-Type"] = ndjsonType
	if !st.lines {
		h["Content-Type"] = sseType
		// The position without an event: who is cut off before the first one comes back to the same place.
		st.out.string("retry: " + streamRetry + "\n")
		st.id()
		st.out.string("\n")
	}
	st.pace.begin(nil)
	defer st.pace.begin(nil) // the end is written in its own time
	st.c.WriteHeader(http.StatusOK)
	if st.c.r.Method == http.MethodHead {
		return nil
	}
	for on := st.flush() == nil; on; {
		on = st.round(ctx)
	}
	return nil
}

// round sends what there is, or waits for it, for the topic to change, or for the time to say that the stream is alive. It is false when the
// stream is over: who comes back is told why.
func (st *streamed) round(ctx context.Context) bool {
	topic, waiting, stop, err := st.s.streams.look(ctx, st.open)
	defer stop()
	if err != nil {
		return false // the topic is no more
	}
	if more := len(topic.Partitions) - len(st.next); more > 0 {
		if st.fits(topic) != nil {
			return false
		}
		st.topic, st.next = topic, append(st.next, make(positions, more)...)
	}
	spans, numbers := st.spans()
	st.turn++
	trip, cancel := context.WithTimeout(ctx, st.s.cfg.KeepAlive+patience)
	pages, claim, err := st.s.fetch(trip, waiting, spans, st.turn, st.most(), st.s.cfg.KeepAlive)
	cancel()
	defer claim.Release()
	st.pace.begin(claim)
	defer st.pace.rest()
	switch {
	case ctx.Err() != nil, !st.s.still(st.c, mayRead, st.topic.Name):
		return false
	case err != nil:
		err = st.holdOn(ctx)
	default:
		err = st.send(pages, numbers)
	}
	return err == nil && st.flush() == nil
}

// spans asks for all partitions behind what was sent of them.
func (st *streamed) spans() (spans []eventlog.Span, numbers []int32) {
	for n, next := range st.next {
		if st.wants(int32(n)) {
			spans = append(spans, eventlog.Span{Partition: st.topic.Partitions[n], From: next})
			numbers = append(numbers, int32(n))
		}
	}
	return spans, numbers
}

// most bounds the events of a page, so that it takes a bounded time also where the positions are longer than the events.
func (st *streamed) most() int {
	if st.lines {
		return eventsMax
	}
	return max(1, min(eventsMax, positionBytes/len(st.next.appendTo(nil, st.topic))))
}

// send writes what was fetched, or that the stream is alive.
func (st *streamed) send(pages []page, numbers []int32) error {
	told := false
	for i := range pages {
		p, n := &pages[i], numbers[i]
		p.passTrimmed()
		if p.err != nil {
			return p.err
		}
		for k := range p.events {
			if st.out.err != nil {
				return st.out.err
			}
			st.event(n, &p.events[k])
		}
		if p.gap != nil {
			st.s.logGap(st.topic.Name, n, p.gap)
			st.gap(n, *p.gap)
		}
		told = told || len(p.events) > 0 || p.gap != nil
	}
	if !told {
		st.comment()
	}
	return nil
}

// event writes one event.
func (st *streamed) event(n int32, rec *batch.Record) {
	st.next[n] = eventlog.Offset(rec.Offset) + 1
	if !st.lines {
		st.id()
		st.out.string("data: ")
	}
	st.out.event("", n, rec)
	st.out.string("\n")
	if !st.lines {
		st.out.string("\n")
	}
	st.out.spill()
}

func (st *streamed) id() {
	st.out.string("id: ")
	st.out.buf = st.next.appendTo(st.out.buf, st.topic)
	st.out.string("\n")
}

// gap says that there are events which this stream does not get, and goes on behind them.
func (st *streamed) gap(n int32, g gap) {
	st.next[n] = g.to
	if !st.lines {
		st.out.string("event: gap\n")
		st.id()
		st.out.string("data: ")
	}
	st.out.gapLine("", n, g)
	if !st.lines {
		st.out.string("\n")
	}
}

// comment says that the stream is alive: server-sent events have comments for it, and lines may be empty.
func (st *streamed) comment() {
	if !st.lines {
		st.out.string(":")
	}
	st.out.string("\n")
}

// holdOn waits while the store is away. The client need not know: nothing is lost, and it would only come back.
func (st *streamed) holdOn(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-time.After(streamTroubled):
	}
	st.pace.begin(nil)
	st.comment()
	return ctx.Err()
}

// flush hands on all that was written.
func (st *streamed) flush() error {
	st.out.flush()
	if st.out.err != nil {
		return st.out.err
	}
	return st.pace.end()
}
