package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/weir-log/weir/internal/budget"
	"github.com/weir-log/weir/use/queue"
)

const (
	lettersDefault = 100
	lettersMax     = 1000
	lettersBytes   = 8 << 20 // memory for a page of messages or dead letters, and for the batches that hold them
	// sweepMost bounds how long one request redrives or discards. The client continues with another
	// request.
	sweepMost = 10 * time.Second
	// searchesMax bounds concurrent searches for a message: one search may read a large part of the
	// queue.
	searchesMax = 4
	// pagesMax bounds the pages of messages or dead letters that are being built, sent, redriven or
	// discarded: each holds lettersBytes or more of the memory for answers, however slowly its
	// client reads it.
	pagesMax = 4
)

// findMessage returns a message's state. A number is an id of weir.enqueue_id (docs/sql.md).
func (s *Server) findMessage(c *call) error {
	asked := c.r.PathValue("message")
	var id queue.MessageID
	sent, err := strconv.ParseInt(asked, 10, 64)
	isSent := err == nil && sent > 0
	if !isSent {
		if id, err = queue.ParseID(asked); err != nil {
			return err
		}
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	if s.searches.acquire(ctx, c.who.ID()) != nil {
		return kindOverloaded.past(searchesMax, "weir is already looking for %d messages, the limit, or a quarter of them for this client, the limit for one client; try again", searchesMax)
	}
	defer s.searches.release(c.who.ID())
	return s.withQueue(ctx, c, func(q *queue.Queue) error {
		var found queue.Condition
		if isSent {
			found, err = q.FindEnqueued(ctx, sent)
		} else {
			found, err = q.Find(ctx, id)
		}
		if err != nil {
			return err
		}
		if found.State == queue.Unknown {
			return kindUnknownMessage.because("queue %s has no message %s", shorten(c.r.PathValue("queue")), shorten(asked))
		}
		v := conditionView{ID: found.ID.String(), State: found.State, Worker: found.Worker, Attempt: found.Attempt, Error: found.Error}
		if found.State == queue.Sent {
			v.ID = asked
		}
		if !found.Until.IsZero() {
			v.Until = found.Until.UnixMilli()
		}
		if !found.Done.IsZero() {
			v.DoneAt = found.Done.UnixMilli()
		}
		if found.State == queue.Dead {
			v.Letter = found.Letter.String()
		}
		return c.json(http.StatusOK, v)
	})
}

// peekMessages lists messages in a state without claiming them.
func (s *Server) peekMessages(c *call) error {
	n, err := number(c.query, "max", 1, 1<<62, lettersDefault)
	if err != nil {
		return err
	}
	if c.query.Has("state") && c.query.Get("state") == "" {
		return kindInvalidRequest.because("state is empty; leave it out to see messages that are ready, claimed or waiting")
	}
	asked := queue.Browse{State: c.query.Get("state"), Limit: int(min(n, lettersMax))}
	if c.query.Has("from") {
		if asked.From, err = queue.ParseID(c.query.Get("from")); err != nil {
			return err
		}
	}
	return s.queuePage(c, "messages", func(ctx context.Context, q *queue.Queue) (queueAnswer, error) {
		page, err := q.Browse(ctx, asked)
		return queueAnswer{n: len(page.Messages), write: func(e *encoder, i int) { e.peeked(&page.Messages[i]) }, next: page.Next}, err
	})
}

// queueAnswer is a page of messages or dead letters for an answer.
type queueAnswer struct {
	n     int
	write func(e *encoder, i int) // writes one of the n
	next  queue.MessageID         // where the next page begins; zero: this is the last page, or the client continues after the last letter (after=…)
}

// queuePage answers with a page under a name.
func (s *Server) queuePage(c *call, name string, read func(context.Context, *queue.Queue) (queueAnswer, error)) error {
	ctx, cancel := c.withTimeout()
	defer cancel()
	claim, release, err := c.claimPage(ctx, lettersBytes)
	if err != nil {
		return err
	}
	defer release()
	return s.withQueue(ctx, c, func(q *queue.Queue) error {
		page, err := read(ctx, q)
		if err != nil {
			return err
		}
		c.Header()["Content-Type"] = jsonType
		e, end := pageEncoder(c, claim)
		defer end()
		e.string(`{"` + name + `":[`)
		for i := range page.n {
			if i > 0 {
				e.string(",\n")
			}
			page.write(e, i)
			e.spill()
		}
		e.string("]")
		if page.next != (queue.MessageID{}) {
			e.string(`,"next":"` + page.next.String() + `"`)
		}
		e.string("}\n")
		return nil
	})
}

// claimPage waits until the call may have a page (pagesMax), and then for the page's memory. Call
// release when the page is done.
func (c *call) claimPage(ctx context.Context, size int64) (claim *budget.Claim, release func(), err error) {
	pages, id := c.s.pages, c.who.ID()
	if pages.acquire(ctx, id) != nil {
		return nil, nil, kindOverloaded.past(pagesMax, "weir is already reading or sending %d pages of messages, the limit, or a quarter of them for this client, the limit for one client; try again", pagesMax)
	}
	if claim, err = c.claimAnswer(ctx, size, size); err != nil {
		pages.release(id)
		return nil, nil, err
	}
	return claim, func() { claim.Release(); pages.release(id) }, nil
}

// peeked writes a message and its state.
func (e *encoder) peeked(m *queue.Peeked) {
	e.string(`{"id":"` + m.ID.String() + `","state":"` + m.State + `","attempt":`)
	e.int(int64(m.Attempt))
	if !m.Until.IsZero() {
		e.string(`,"until":`)
		e.int(m.Until.UnixMilli())
	}
	if !m.Done.IsZero() {
		e.string(`,"done_at":`)
		e.int(m.Done.UnixMilli())
	}
	for _, has := range []struct{ name, text string }{{"worker", m.Worker}, {"error", m.Error}} {
		if has.text != "" {
			e.string(`,`)
			e.field(has.name, []byte(has.text))
		}
	}
	if !m.Time.IsZero() {
		e.string(`,"timestamp":`)
		e.int(m.Time.UnixMilli())
	}
	e.content(m.Key, m.Value, m.Headers)
	e.string(`}`)
}

// conditionView is a message's state in an answer.
type conditionView struct {
	ID      string `json:"id"`
	State   string `json:"state"`
	Attempt int    `json:"attempt,omitempty"`
	Until   int64  `json:"until,omitempty"`
	DoneAt  int64  `json:"done_at,omitempty"`
	Worker  string `json:"worker,omitempty"`
	Error   string `json:"error,omitempty"`
	Letter  string `json:"letter,omitempty"`
}

// listDead lists dead letters.
func (s *Server) listDead(c *call) error {
	n, err := number(c.query, "max", 1, 1<<62, lettersDefault)
	if err != nil {
		return err
	}
	var after queue.MessageID
	if c.query.Has("after") {
		if after, err = queue.ParseID(c.query.Get("after")); err != nil {
			return err
		}
	}
	return s.queuePage(c, "letters", func(ctx context.Context, q *queue.Queue) (queueAnswer, error) {
		letters, err := q.DeadLetters(ctx, after, int(min(n, lettersMax)))
		return queueAnswer{n: len(letters), write: func(e *encoder, i int) { e.letter(&letters[i]) }}, err
	})
}

// letter writes a dead letter.
func (e *encoder) letter(l *queue.DeadLetter) {
	e.string(`{"letter":"` + l.Letter.String() + `","id":"` + l.ID.String() + `",`)
	e.field("reason", []byte(l.Reason))
	e.string(`,`)
	e.field("error", []byte(l.Error))
	if l.Worker != "" {
		e.string(`,`)
		e.field("worker", []byte(l.Worker))
	}
	if n, err := strconv.Atoi(l.Attempts); err == nil {
		e.string(`,"attempts":`)
		e.int(int64(n))
	}
	if !l.Enqueued.IsZero() {
		e.string(`,"enqueued":`)
		e.int(l.Enqueued.UnixMilli())
	}
	e.string(`,"died":`)
	e.int(l.Died.UnixMilli())
	e.content(l.Key, l.Value, l.Headers)
	e.string(`}`)
}

// sweepBody selects dead letters.
type sweepBody struct {
	letters    []queue.MessageID
	all        bool
	replacedBy queue.MessageID // zero: the letters are dropped, or redriven as they are
	queue.Sweep
}

func (s *Server) redriveDead(c *call) error { return s.sweepDead(c, false) }
func (s *Server) discardDead(c *call) error { return s.sweepDead(c, true) }

// sweepDead redrives or discards dead letters: those in the body, or all.
func (s *Server) sweepDead(c *call, discard bool) error {
	body, err := s.jsonBody(c)
	if err != nil {
		return err
	}
	asked := sweepBody{Sweep: queue.Sweep{Discard: discard, For: sweepMost}}
	if err := readJSON(body, 0, asked.read); err != nil {
		return err
	}
	switch {
	case asked.all == (len(asked.letters) > 0):
		return kindInvalidJSON.because(`say which dead letters: give either "letters": […] or "all": true`)
	case !asked.all && (asked.PerSecond > 0 || asked.Until != queue.MessageID{}):
		return kindInvalidJSON.because(`"per_second" and "until" can only be given with "all": true`)
	}
	if asked.replacedBy != (queue.MessageID{}) && (!discard || len(asked.letters) != 1) {
		return kindInvalidJSON.because(`"replaced_by" can only be given to discard a single dead letter`)
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	return s.withQueue(ctx, c, func(q *queue.Queue) error {
		done, err := asked.do(ctx, c, q)
		if toldUnknown(err) {
			err = kindUnknown.because("the change was sent to the store, but no answer came. Send the request again: this is safe, no dead letter is taken twice. It counts only those that it takes itself").causedBy(err)
		}
		if err != nil && done.Taken == 0 {
			return err
		}
		v := sweptView{Taken: done.Taken}
		if err != nil {
			v.Problem = c.problem(err)
		}
		if done.Until != (queue.MessageID{}) {
			v.Until = done.Until.String()
		}
		return c.json(http.StatusOK, v)
	})
}

// sweptView is the number of dead letters redriven or discarded. Until is set if there are more:
// the next request continues with it.
type sweptView struct {
	Taken   int             `json:"taken"`
	Until   string          `json:"until,omitempty"`
	Problem json.RawMessage `json:"problem,omitempty"` // why not all
}

// do redrives or discards the letters a page at a time: 1,000 letters can have 1 GiB.
func (b *sweepBody) do(ctx context.Context, c *call, q *queue.Queue) (done queue.Swept, err error) {
	if b.all {
		b.Turn = func(ctx context.Context) (func(), error) {
			_, release, err := c.claimPage(ctx, lettersBytes)
			return release, err
		}
		return q.Sweep(ctx, b.Sweep)
	}
	for left := b.letters; len(left) > 0 && err == nil; {
		left, err = b.takePage(ctx, c, q, left, &done)
	}
	return done, err
}

// takePage redrives or discards as many of the letters as fit into one page, and returns the
// remaining ones.
func (b *sweepBody) takePage(ctx context.Context, c *call, q *queue.Queue, ids []queue.MessageID, done *queue.Swept) (left []queue.MessageID, err error) {
	_, release, err := c.claimPage(ctx, lettersBytes)
	if err != nil {
		return nil, err
	}
	defer release()
	letters, err := q.Letters(ctx, ids...)
	if err != nil || len(letters) == 0 {
		return nil, err
	}
	take := q.Redrive
	switch {
	case b.replacedBy != (queue.MessageID{}):
		take = func(ctx context.Context, letters ...queue.DeadLetter) (int, error) {
			return q.Replace(ctx, letters[0], b.replacedBy)
		}
	case b.Discard:
		take = q.Discard
	}
	taken, err := take(ctx, letters...)
	done.Taken += taken
	return ids[slices.Index(ids, letters[len(letters)-1].Letter)+1:], err
}

func (b *sweepBody) read(r *jsonReader) error {
	return r.object(func(name string) (err error) {
		switch name {
		case "letters":
			err = r.array(func(i int) error {
				if i == lettersMax {
					return kindTooLarge.past(lettersMax, "the request has more than %d letters, the limit. Nothing happened", lettersMax)
				}
				id, err := readID(r)
				b.letters = append(b.letters, id)
				return err
			})
		case "all":
			b.all, err = r.boolean()
		case "per_second":
			b.PerSecond, err = r.positive(rateMax)
		case "until":
			b.Until, err = readID(r)
		case "replaced_by":
			if b.replacedBy, err = readID(r); err == nil && b.replacedBy == (queue.MessageID{}) {
				err = kindInvalidJSON.because(`"replaced_by" is the id of no message`)
			}
		default:
			err = r.unknown(name, "letters", "all", "per_second", "until", "replaced_by")
		}
		return err
	})
}

func readID(r *jsonReader) (id queue.MessageID, err error) {
	r.space()
	start := *r
	text, err := r.string()
	if err != nil {
		return id, err
	}
	if id, err = queue.ParseID(text); err != nil {
		*r = start
		err = r.fail("%v", err)
	}
	return id, err
}
