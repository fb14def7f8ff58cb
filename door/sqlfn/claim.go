package sqlfn

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/recovered"
	"github.com/weir-log/weir/use/queue"
)

const (
	// claimsMax bounds the requests of sessions that one process serves at a time; nearly all of
	// them wait.
	claimsMax = 1000
	// claimBytes bounds the messages of one answer, but the first message may be larger. answersMax
	// bounds how many answers with messages are in memory.
	claimBytes = 4 << 20
	answersMax = 8
	// keepEvery is how often a mover confirms that it serves its requests.
	// functions/take_requests.sql relies on it: after 3 s without that, another mover takes a
	// request over.
	keepEvery = time.Second
	// notePoolEvery is how often a process behind a pooler says so. functions/request_claim.sql
	// believes it for 30 s.
	notePoolEvery = 5 * time.Second
	// sweepEvery is how often requests of dead sessions are deleted, while there are any requests.
	sweepEvery = 10 * time.Second
	// answerTries bounds the attempts to write an answer while its session has the request locked.
	answerTries = 3
)

// claims serves sessions that CALL weir.claim: it takes all new requests with one statement,
// claims, and writes all answers that are ready with one statement. While there are no requests and
// the store listens for notifications, it sends no statements. Only run's goroutine uses the fields
// from open on.
type claims struct {
	door   *Door
	queues *queue.Queues
	logger *slog.Logger
	poll   time.Duration // how often to look for requests without notifications
	drain  time.Duration // Config.DrainClaims
	me     string

	rooms    chan struct{} // has a value for each answer with messages, answersMax at most
	finished chan outcome
	serving  sync.WaitGroup
	giving   sync.WaitGroup // goroutines that give back messages that no session got; each keeps its value in rooms, so there are at most answersMax

	open        map[requestID]request // requests that this process serves
	low         int64                 // requests up to this id are not looked for: there are none
	lowNext     int64                 // becomes low at the next sweep; a request up to it may not have been visible at the last sweep
	incarnation int64                 // the database incarnation that low and lowNext belong to
	remain      bool                  // there may be rows to sweep
	keptAt      time.Time
	sweptAt     time.Time
	pooledAt    time.Time // when this process last said that it is behind a pooler
	emptyAt     time.Time // when the last look that found nothing began
}

// requestID identifies a request. After a crash of the database numbers begin anew, while a claim
// for a request from before the crash may still go on.
type requestID struct {
	number int64
	asked  time.Time // in UTC, in microseconds
}

// split returns the ids as PostgreSQL's arrays.
func split(ids []requestID) (numbers []int64, asked []time.Time) {
	for _, id := range ids {
		numbers, asked = append(numbers, id.number), append(asked, id.asked)
	}
	return numbers, asked
}

// request is what a session asks for.
type request struct {
	id          requestID
	queue       string
	most        int
	lease, wait time.Duration // lease 0: the queue's own
	worker      string
	stop        chan struct{} // closed when its session is gone, or this process stops
}

// outcome is the result of a request.
type outcome struct {
	id       requestID
	answer   *string // JSON; nil: another mover is to claim
	queue    *queue.Queue
	messages []queue.Message // in the answer
	leave    func()          // to be called when the answer was written: it takes a value out of rooms
}

func newClaims(door *Door, cfg Config) *claims {
	return &claims{
		door: door, queues: cfg.Queues, logger: cfg.Logger, poll: cfg.Poll, drain: cfg.DrainClaims, me: strconv.FormatUint(rand.Uint64(), 16),
		rooms: make(chan struct{}, answersMax), finished: make(chan outcome), open: make(map[requestID]request), remain: true,
	}
}

// run serves requests until ctx ends. Then it finishes the claims in progress; requests that still
// wait are left to another process.
func (c *claims) run(ctx context.Context) {
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ticks := time.NewTicker(keepEvery)
	defer ticks.Stop()
	failures := 0
	for look := true; ctx.Err() == nil; {
		err := recovered.Do(func() error { return c.step(ctx, working, look) })
		if err != nil && ctx.Err() == nil {
			if failures == 0 {
				c.logger.Log(ctx, severity(err), "cannot serve claims by SQL; retrying", append([]any{"err", err}, recovered.Logged(err)...)...)
			}
			failures++
		} else if look = false; failures > 0 {
			c.logger.Info("claims by SQL are served again", "failures", failures)
			failures = 0
		}
		var again, tick <-chan time.Time
		if failures > 0 || !c.door.store.Listening() {
			again = time.After(c.poll)
		}
		if len(c.open) > 0 || c.remain {
			tick = ticks.C
		}
		asked, rested := c.hears(c.door.asked)
		select {
		case <-ctx.Done():
		case <-asked:
			look = true
		case <-rested:
		case <-again:
			look = true
		case o := <-c.finished:
			look = look || len(c.open) == claimsMax
			c.answer(working, o) // also while this process stops
		case <-tick:
		}
	}
	for _, r := range c.open {
		close(r.stop)
	}
	defer time.AfterFunc(c.drain, cancel).Stop()
	go func() { c.serving.Wait(); close(c.finished) }()
	for o := range c.finished {
		c.answer(working, o)
	}
	c.giving.Wait()
}

// hears returns asked, the channel to wait for. For pollFast after a take that found nothing it
// returns only a timer, rested: notifications do not count in that time, because any session can
// notify in a loop.
func (c *claims) hears(asked <-chan struct{}) (_ <-chan struct{}, rested <-chan time.Time) {
	if rest := pollFast - time.Since(c.emptyAt); rest > 0 {
		return nil, time.After(rest)
	}
	return asked, nil
}

// step takes new requests if look is set, and keeps and sweeps requests when that is due.
func (c *claims) step(ctx, working context.Context, look bool) error {
	if c.door.store.Pooled() && time.Since(c.pooledAt) >= notePoolEvery {
		if err := c.notePool(ctx); err != nil {
			return err
		}
	}
	if look && len(c.open) < claimsMax {
		if err := c.take(ctx, working); err != nil {
			return err
		}
	}
	if len(c.open) > 0 && time.Since(c.keptAt) >= keepEvery/2 {
		if err := c.keep(ctx); err != nil {
			return err
		}
	}
	if c.remain && time.Since(c.sweptAt) >= sweepEvery {
		return c.sweep(ctx)
	}
	return nil
}

// notePool says that this process is behind a pooler, so that sessions of the same pool leave it
// connections.
func (c *claims) notePool(ctx context.Context) error {
	err := c.door.store.Readers().Write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, `SELECT weir.note_pool()`)
		return err
	})
	if err != nil {
		return fmt.Errorf("note the pool of connections: %w", err)
	}
	c.pooledAt = time.Now()
	return nil
}

// take takes requests, and starts to serve them.
func (c *claims) take(ctx, working context.Context) error {
	began := time.Now()
	var taken []request
	err := c.door.store.Readers().Write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, `SELECT id, asked, queue, most, coalesce(lease, 0), wait, worker FROM weir.take_requests($1, $2, $3, $4)`,
			c.me, c.low, c.incarnation, claimsMax-len(c.open))
		if err != nil {
			return err
		}
		taken, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r request, err error) {
			var lease, wait int64
			err = row.Scan(&r.id.number, &r.id.asked, &r.queue, &r.most, &lease, &wait, &r.worker)
			r.id.asked = r.id.asked.UTC()
			r.lease, r.stop = time.Duration(lease)*time.Millisecond, make(chan struct{})
			r.wait = min(time.Duration(wait)*time.Millisecond, queue.WaitMax) // by the database's clock a millisecond more may be left
			return r, err
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("take requests for claims: %w", err)
	}
	if len(taken) == 0 {
		c.emptyAt = began
	}
	if len(c.open) == 0 {
		c.keptAt = time.Now()
	}
	for _, r := range taken {
		if _, mine := c.open[r.id]; mine {
			continue // this process serves it already, but kept it too late
		}
		c.open[r.id], c.remain = r, true
		c.serving.Go(func() { c.finished <- c.serve(working, r) })
	}
	return nil
}

// keep confirms that this process serves its requests, and stops claims whose sessions are gone.
func (c *claims) keep(ctx context.Context) error {
	c.keptAt = time.Now()
	ids := slices.Collect(maps.Keys(c.open))
	numbers, asked := split(ids)
	var waiting []int // indexes in ids, from 1
	err := c.door.store.Readers().Write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT weir.keep_requests($1, $2, $3)`, c.me, numbers, asked).Scan(&waiting)
	})
	if err != nil {
		return fmt.Errorf("keep %d requests for claims: %w", len(ids), err)
	}
	for i, id := range ids {
		if !slices.Contains(waiting, i+1) {
			close(c.open[id].stop)
			delete(c.open, id)
		}
	}
	return nil
}

// sweep deletes the requests of dead sessions.
func (c *claims) sweep(ctx context.Context) error {
	c.sweptAt = time.Now()
	var remaining, low, incarnation int64
	err := c.door.store.Readers().Write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT remaining, low, incarnation FROM weir.sweep_requests()`).Scan(&remaining, &low, &incarnation)
	})
	if err != nil {
		return fmt.Errorf("delete old requests for claims: %w", err)
	}
	if c.low = c.lowNext; incarnation != c.incarnation {
		c.low = 0
	}
	c.lowNext, c.incarnation, c.remain = low, incarnation, remaining > 0
	return nil
}

// serve claims messages for one request.
func (c *claims) serve(ctx context.Context, r request) (o outcome) {
	o = outcome{id: r.id, leave: func() {}}
	err := recovered.Do(func() error {
		return c.queues.With(ctx, r.queue, func(q *queue.Queue) (err error) {
			o.queue = q
			o.messages, err = q.Claim(ctx, queue.Claim{Max: r.most, Lease: r.lease, Wait: r.wait, Worker: r.worker, Stop: r.stop, Room: func(ctx context.Context) (int64, func(), error) {
				select {
				case c.rooms <- struct{}{}:
				case <-ctx.Done():
					return 0, nil, context.Cause(ctx)
				}
				o.leave = sync.OnceFunc(func() { <-c.rooms })
				return claimBytes, o.leave, nil
			}})
			return err
		})
	})
	stopped := false
	select {
	case <-r.stop:
		stopped = true
	default:
	}
	if len(o.messages) == 0 && stopped {
		return o
	}
	var value any = messagesOf(o.messages)
	if err != nil {
		value = refusalOf(err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("encode claimed messages: %v", err)) // they are strings and numbers
	}
	answer := string(text)
	o.answer = &answer
	return o
}

// answer writes an outcome, with all other outcomes that have come. Messages that no session gets
// are given back.
func (c *claims) answer(ctx context.Context, o outcome) {
	all := []outcome{o}
	for more := true; more && len(all) < claimsMax; {
		select {
		case o, more = <-c.finished:
			if more {
				all = append(all, o)
			}
		default:
			more = false
		}
	}
	left := all
	defer func() {
		for _, o := range all {
			delete(c.open, o.id)
			if !slices.ContainsFunc(left, func(l outcome) bool { return l.id == o.id }) {
				o.leave()
			}
		}
	}()
	for try := range answerTries {
		if try > 0 {
			time.Sleep(5 * time.Millisecond) // a session had its request locked
		}
		done, err := c.write(ctx, left)
		if err != nil {
			c.logger.Warn("cannot write the answers to claims by SQL; their messages come again when their leases end", "answers", len(left), "err", err)
			left = nil
			return
		}
		left = slices.DeleteFunc(slices.Clone(left), func(o outcome) bool { return slices.Contains(done, o.id) || len(o.messages) == 0 })
		if len(left) == 0 {
			break
		}
	}
	for _, o := range left {
		c.giving.Go(func() { // giving back may wait for the store; other claims go on meanwhile
			defer o.leave()
			if err := recovered.Do(func() error { o.queue.GiveBack(o.messages); return nil }); err != nil {
				c.logger.Error("cannot give back messages that no session got; they come again when their leases end", "err", err)
			}
		})
	}
}

// write writes answers, and returns the requests that have them: one statement.
func (c *claims) write(ctx context.Context, all []outcome) (done []requestID, err error) {
	ids, answers := make([]requestID, len(all)), make([]*string, len(all))
	for i, o := range all {
		ids[i], answers[i] = o.id, o.answer
	}
	numbers, asked := split(ids)
	var answered []int // indexes in ids, from 1
	err = c.door.store.Readers().Write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT weir.answer_requests($1, $2, $3, $4)`, c.me, numbers, asked, answers).Scan(&answered)
	})
	for _, n := range answered {
		done = append(done, ids[n-1])
	}
	return done, err
}

// refusal is an answer that a session gets as an error.
type refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

func refusalOf(err error) refusal {
	var invalid *eventlog.InvalidError
	r := refusal{Code: "WE010", Message: text([]byte(err.Error())), Hint: "Try again. If messages were claimed, they come again when their leases end."}
	switch {
	case errors.Is(err, queue.ErrUnknownQueue):
		r.Code, r.Hint = "WE007", "The queue was deleted just now."
	case errors.Is(err, eventlog.ErrUnknownTopic):
		r.Code, r.Hint = "WE001", "Delete the queue, and create it again."
	case errors.As(err, &invalid):
		r.Code, r.Hint = "22023", ""
	}
	return r
}

// claimedMessage is a message as weir.claim returns it.
type claimedMessage struct {
	Receipt  string         `json:"receipt"`
	ID       string         `json:"id"`
	Key      *string        `json:"key"` // nil: there is none, or it is not text
	KeyB64   *string        `json:"key_b64,omitempty"`
	Value    *string        `json:"value"` // nil: there is none, or it is not text
	ValueB64 *string        `json:"value_b64,omitempty"`
	Headers  map[string]any `json:"headers"`
	Attempt  int            `json:"attempt"`
	Until    time.Time      `json:"until"`
	Time     *time.Time     `json:"time"`
}

func messagesOf(messages []queue.Message) []claimedMessage {
	list := make([]claimedMessage, len(messages))
	for i, m := range messages {
		is := claimedMessage{Receipt: m.Receipt, ID: m.ID.String(), Headers: headersOf(m.Headers), Attempt: m.Attempt, Until: m.Until.UTC()}
		is.Key, is.KeyB64 = content(m.Key)
		is.Value, is.ValueB64 = content(m.Value)
		if !m.Time.IsZero() {
			at := m.Time.UTC()
			is.Time = &at
		}
		list[i] = is
	}
	return list
}

// isText reports whether PostgreSQL's type text can hold these bytes.
func isText(b []byte) bool { return utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 }

// content returns bytes as text, or in base64 if they are not text.
func content(b []byte) (plain, base *string) {
	switch {
	case b == nil:
		return nil, nil
	case isText(b):
		s := string(b)
		return &s, nil
	}
	s := base64.StdEncoding.EncodeToString(b)
	return nil, &s
}

// text returns bytes as text, with U+FFFD in place of what PostgreSQL's type text cannot hold.
func text(b []byte) string {
	return strings.ReplaceAll(strings.ToValidUTF8(string(b), "\ufffd"), "\x00", "\ufffd")
}

// headersOf returns headers as weir.events shows them: an object, with an array for a repeated
// name. A value that is not text is shown as \x and hexadecimal digits.
func headersOf(headers []batch.RecordHeader) map[string]any {
	object := make(map[string]any, len(headers))
	for _, h := range headers {
		var value any
		switch {
		case h.Value == nil:
		case isText(h.Value) && !bytes.HasPrefix(h.Value, []byte(`\x`)):
			value = string(h.Value)
		default:
			value = `\x` + hex.EncodeToString(h.Value)
		}
		name := text([]byte(h.Key))
		switch before, there := object[name]; {
		case !there:
			object[name] = value
		default:
			if list, many := before.([]any); many {
				object[name] = append(list, value)
			} else {
				object[name] = []any{before, value}
			}
		}
	}
	return object
}
