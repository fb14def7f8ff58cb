package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/budget"
)

const (
	streamRetry    = "1000"      // ms that a client of server-sent events waits before it reconnects
	positionBytes  = 4 << 20     // most bytes of positions in a page
	streamTroubled = time.Second // between two attempts while the store is unavailable
)

// readTopic answers with a page of a topic's events, or with its events as they come.
func (s *Server) readTopic(c *call) error {
	if follows(c.r) {
		return s.followTopic(c)
	}
	return s.topicPage(c)
}

// followTopic sends events as they are appended, as server-sent events or one per line, until the
// client disconnects or the server stops. The id of a server-sent event holds the positions in all
// partitions; a client that reconnects with the last one (Last-Event-ID) continues right after it.
func (s *Server) followTopic(c *call) error {
	if err := followsFrom(c.query, "from", "partition"); err != nil {
		return err
	}
	st, err := s.streamOf(c)
	if err != nil {
		return err
	}
	topic := st.topic
	st.page.c = c
	st.out = newEncoder(&st.page)
	from := streamDefault
	if c.query.Has("from") {
		from = c.query.Get("from")
	}
	if last := c.r.Header["Last-Event-Id"]; len(last) > 0 {
		from = last[0]
	}
	memory, err := s.beginWait(c.who, int64(len(topic.Partitions))*offsetBytes)
	if err != nil {
		return err
	}
	if err := st.begin(from); err != nil {
		memory.Release()
		return err
	}
	ctx, cancel := untilDraining(c.r)
	defer cancel()
	if st.open, err = s.streams.begin(c.who, topic, memory, cancel); err != nil {
		return err
	}
	defer s.streams.close(st.open)
	if st.only < 0 {
		st.watch = s.cfg.Log.Watch(topic.ID)
	} else {
		st.watch = s.cfg.Log.WatchPartition(topic.Partitions[st.only])
	}
	defer st.watch.Close()
	s.cfg.Observer.Streaming(+1)
	defer s.cfg.Observer.Streaming(-1)
	return st.run(ctx)
}

// streamOf finds what the client reads: a topic, or one partition of it.
func (s *Server) streamOf(c *call) (*streamed, error) {
	topic, err := s.topic(c)
	if err != nil {
		return nil, err
	}
	st := &streamed{s: s, c: c, topic: topic, only: -1, lines: wantsLines(c.r)}
	if c.query.Has("partition") {
		if st.only, _, err = partitionOf(topic, c.query.Get("partition")); err != nil {
			return nil, err
		}
	}
	return st, st.fits(topic)
}

// streamed is one stream.
type streamed struct {
	s     *Server
	c     *call
	topic eventlog.Topic
	open  *openStream
	watch *eventlog.Watch
	only  int32 // the requested partition; -1: all
	lines bool
	page  pageWriter
	out   *encoder
	next  positions
	epoch int32 // the leader epoch in which the events before next were read
	turn  int   // which partition comes first, so that none starves if not all can be served
}

// begin finds the positions to start from, and their leader epoch, with at most one store call,
// which it shares with other streams that begin at the same time.
func (st *streamed) begin(from string) (err error) {
	ctx, cancel := st.c.withTimeout()
	defer cancel()
	st.next, st.epoch = make(positions, len(st.topic.Partitions)), unknownEpoch
	if from != "earliest" && from != "latest" {
		if st.next, st.epoch, err = parsePositions(from, st.topic); err != nil {
			return err
		}
	}
	first, wanted := 0, st.topic.Partitions
	if st.only >= 0 {
		at := st.next[st.only]
		st.next = make(positions, len(st.next))
		st.next[st.only] = at
		first, wanted = int(st.only), wanted[st.only:st.only+1]
	}
	bounds, now, err := st.s.bounds.read(ctx, wanted)
	if err != nil {
		return err
	}
	var lost *problem
	for i, b := range bounds {
		n := first + i
		end := st.epochEnd(b.Bounds)
		switch {
		case b.Err != nil:
			return b.Err
		case from == "earliest":
			st.next[n] = b.Bounds.First
		case from == "latest":
			st.next[n] = b.Bounds.Stable()
		case st.next[n] > end:
			outside := &eventlog.RangeError{Partition: b.Bounds.Partition, Asked: st.next[n], First: min(b.Bounds.First, end), Next: end}
			if st.epoch < 0 || st.epoch >= now {
				return outside
			}
			if lost == nil {
				lost = lostEvents(st.topic.Name, n, outside)
			}
			st.next[n] = end
		}
	}
	st.epoch = max(st.epoch, now)
	if lost != nil {
		lost.Detail += string(st.next.appendTo(nil, st.topic, st.epoch))
		return lost
	}
	return nil
}

// epochEnd returns where the stream's epoch ends in a partition. If that is unknown, it is the
// partition's end.
func (st *streamed) epochEnd(b eventlog.Bounds) eventlog.Offset {
	if _, end, known := st.s.cfg.Log.EpochEnd(b.Partition, st.epoch, b.Next); known {
		return end
	}
	return b.Next
}

// lostEvents is the problem of a position past the end of its epoch. The caller appends the
// position to continue from, because a position that a user writes by hand has no epoch, so losses
// in other partitions would go unnoticed.
func lostEvents(topic string, partition int, outside *eventlog.RangeError) *problem {
	p := problemOf(outside)
	p.Detail = fmt.Sprintf("topic %s, partition %d: the store may have lost the events that this reader got from offset %d to %d, because it was restored or another server took over. "+
		"Other events may have these offsets now. To continue from where the loss began, in all partitions: from=", shorten(topic), partition, outside.Next, outside.Asked-1)
	return p
}

// fits checks that the topic's positions are short enough for a client to send back.
func (st *streamed) fits(topic eventlog.Topic) error {
	if st.lines || st.only >= 0 || len(topic.Partitions) <= streamPartitions {
		return nil
	}
	return kindTooLarge.past(streamPartitions, "topic %q has %d partitions; a stream of server-sent events may have at most %d, because a position in more does not fit into a header. "+
		"Stream one partition (partition=…), or ask for lines, which have no positions (Accept: application/x-ndjson), or read as a member of a group", topic.Name, len(topic.Partitions), streamPartitions)
}

func (st *streamed) wants(partition int32) bool { return st.only < 0 || st.only == partition }

// run sends until ctx ends, the client disconnects, is too slow or loses its access, or the topic
// is deleted.
func (st *streamed) run(ctx context.Context) error {
	h := st.c.Header()
	h["Content-Type"] = ndjsonType
	if !st.lines {
		h["Content-Type"] = sseType
		// Send positions before the first event: a client that is disconnected before it gets an
		// event resumes at the same offsets.
		st.out.string("retry: " + streamRetry + "\n")
		st.id()
		st.out.string("\n")
	}
	st.page.begin(nil)
	defer st.page.begin(nil) // starts a new deadline, for writing the end of the stream
	st.c.WriteHeader(http.StatusOK)
	if st.c.r.Method == http.MethodHead {
		return nil
	}
	for on := st.flush() == nil; on; {
		on = st.round(ctx)
	}
	return nil
}

// round sends the events that are there, or waits for some. It returns false when the stream is
// over: a client that reconnects gets the reason.
func (st *streamed) round(ctx context.Context) bool {
	topic, waiting, stop, err := st.s.streams.refresh(ctx, st.open)
	defer stop()
	if err != nil {
		return false // the topic was deleted
	}
	if more := len(topic.Partitions) - len(st.next); more > 0 {
		if st.fits(topic) != nil || st.s.growWait(st.open.memory, int64(more)*offsetBytes) != nil {
			return false
		}
		st.topic, st.next = topic, append(st.next, make(positions, more)...)
	}
	some, err := st.read(ctx, waiting)
	return err == nil && (some || st.wait(ctx, waiting))
}

// read sends the events that are there. some: there were some, or it could not read. An error ends
// the stream.
func (st *streamed) read(ctx, polls context.Context) (some bool, err error) {
	wide, err := st.s.claimSpans(ctx, st.c.who.ID(), len(st.next))
	defer func() { wide.Release() }()
	var claim *budget.Claim
	defer func() { claim.Release() }()
	var pages []page
	var numbers []int32
	epoch := st.epoch
	if err == nil {
		var spans []eventlog.Span
		spans, numbers = st.spans()
		st.turn++
		fetchCtx, cancel := context.WithTimeout(ctx, storeTimeout)
		pages, claim, err = st.s.fetch(fetchCtx, polls, st.c.who, spans, st.turn, st.most(), 0, &epoch)
		cancel()
	}
	if err == nil && epoch == st.epoch && !slices.ContainsFunc(pages, page.says) {
		return false, ctx.Err()
	}
	if err == nil && growForEncoder(ctx, claim) != nil {
		return true, ctx.Err() // nothing was sent: the events are fetched again
	}
	st.page.begin(claim)
	defer st.page.finish()
	switch {
	case ctx.Err() != nil, !st.s.still(st.c, toRead, st.topic.Name):
		return false, context.Canceled
	case err != nil:
		err = st.holdOn(ctx)
	default:
		err = st.send(pages, numbers, epoch)
	}
	if err == nil {
		err = st.flush()
	}
	return true, err
}

// says reports whether a page has something to tell a reader.
func (p page) says() bool { return len(p.events) > 0 || p.gap != nil || p.err != nil }

// wait waits for records or a change of the topic, or until a keep-alive is due, and sends that. It
// returns false when the stream is over.
func (st *streamed) wait(ctx, waiting context.Context) bool {
	select {
	case <-st.watch.Moved():
	case <-waiting.Done():
	case <-time.After(st.s.cfg.limits.KeepAlive):
		if !st.s.still(st.c, toRead, st.topic.Name) {
			return false
		}
		st.page.begin(nil)
		st.comment()
		return st.flush() == nil
	}
	return ctx.Err() == nil
}

// spans returns the spans to fetch: each partition from its next offset on.
func (st *streamed) spans() (spans []eventlog.Span, numbers []int32) {
	for n, next := range st.next {
		if st.wants(int32(n)) {
			spans = append(spans, eventlog.Span{Partition: st.topic.Partitions[n], From: next})
			numbers = append(numbers, int32(n))
		}
	}
	return spans, numbers
}

// most returns how many events a page may have. Each is sent with its id, so this bounds the size
// of a page even if ids are longer than events.
func (st *streamed) most() int {
	if st.lines {
		return eventsMax
	}
	return max(1, min(eventsMax, positionBytes/len(st.next.appendTo(nil, st.topic, st.epoch))))
}

// send writes the fetched events, which are of this epoch, or a keep-alive if there are none. If
// the epoch changed and a partition has an error, it writes nothing: the position in that partition
// may be past events that were lost. An id with the new epoch would hide the loss from a client
// that reconnects.
func (st *streamed) send(pages []page, numbers []int32, epoch int32) error {
	changed, sent := epoch != st.epoch, false
	for i := range pages {
		pages[i].passTrimmed()
		if changed && pages[i].err != nil {
			return pages[i].err
		}
	}
	st.epoch = epoch
	for i := range pages {
		p, n := &pages[i], numbers[i]
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
		sent = sent || len(p.events) > 0 || p.gap != nil
	}
	switch {
	case sent:
	case changed && !st.lines: // the log forgets old epochs, and may refuse an id with a forgotten epoch
		st.id()
		st.out.string("\n")
	default:
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
	st.out.buf = st.next.appendTo(st.out.buf, st.topic, st.epoch)
	st.out.string("\n")
}

// gap reports events that the stream does not get, and continues after them.
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

// comment writes a keep-alive: a comment in server-sent events, otherwise an empty line.
func (st *streamed) comment() {
	if !st.lines {
		st.out.string(":")
	}
	st.out.string("\n")
}

// holdOn waits while the store is unavailable. The client is not disconnected: nothing is lost, and
// it would only reconnect.
func (st *streamed) holdOn(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-time.After(streamTroubled):
	}
	st.page.begin(nil)
	st.comment()
	return ctx.Err()
}

// flush sends what was written to the client.
func (st *streamed) flush() error {
	st.out.flush()
	st.out.rest()
	if st.out.err != nil {
		return st.out.err
	}
	return st.page.flush()
}
