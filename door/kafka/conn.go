package kafka

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/internal/budget"
)

// inFlightMax is how many requests of one connection are read ahead of the one being answered.
const inFlightMax = 64

// conn is one client's connection: one reader, one writer, answers in the order of the requests.
//
//	socket ──► reader ──► calls (bounded) ──► writer ──► socket
//	             │ starts produce requests       │ carries out all others, one after the other,
//	             ▼                               │ and waits for those that were started
//	        Log.Submit                           ▼
//	                                       Ticket.Wait, Log.Fetch, …
//
// So produce requests sent ahead share a flush. When calls is full, or the requests of all connections hold too many bytes,
// the reader stops reading, and TCP slows the client down.
type conn struct {
	s     *Server
	nc    net.Conn
	in    *bufio.Reader
	calls chan *call

	// waiting counts requests read and not begun. While there are any, a produce request waits its turn as well:
	// effects come in the order of the requests.
	waiting  atomic.Int32
	inFlight atomic.Int32 // requests read and not answered
	lastDone atomic.Int64 // when the last answer left, in Unix nanoseconds

	deadline time.Time // the reader's, for the frame being read

	mu      sync.Mutex              // guards hurried and endWait
	hurried bool                    // others wait for memory that this connection's requests hold
	endWait context.CancelCauseFunc // of a request that waits for others

	// The writer's, used again for every answer.
	out     []byte
	splices []splice
	buffers net.Buffers
}

// request is one request as it arrived.
type request struct {
	header
	clientID string // "" for none
	body     kmsg.Request
	conn     *conn
	claim    *budget.Claim // what it and its answer hold of Server.frames
	records  *budget.Claim // what the records of its answer hold of Server.fetches; nil: there are none
	expected int           // bytes of the answer, where that grows with more than the request
}

// call is a request on its way to its answer.
type call struct {
	request
	api     *api
	finish  func(ctx context.Context) kmsg.Response // set once the call was begun
	arrived time.Time
}

func newConn(s *Server, nc net.Conn) *conn {
	return &conn{s: s, nc: nc, in: bufio.NewReaderSize(nc, readBuffer), calls: make(chan *call, inFlightMax)}
}

// serve returns when the connection is closed and nothing of it runs any more. It reads until draining ends, and is cut off when
// ctx ends.
func (c *conn) serve(ctx, draining context.Context) {
	defer c.nc.Close()
	defer context.AfterFunc(ctx, func() { c.nc.Close() })()

	// Long polls end when the client is gone, and when the server drains.
	polls, endPolls := context.WithCancel(ctx)
	defer endPolls()
	defer context.AfterFunc(draining, func() {
		endPolls()
		c.nc.SetReadDeadline(time.Unix(1, 0)) // the reader, which may have set a later one, looks at draining after that
	})()

	c.lastDone.Store(time.Now().UnixNano())
	var writer sync.WaitGroup
	writer.Go(func() {
		c.write(ctx, polls)
		endPolls() // the reader does not begin what it has in its buffer
		for call := range c.calls {
			call.claim.Release()
		}
	})
	err := c.read(ctx, polls)
	close(c.calls)
	if draining.Err() == nil {
		endPolls()
	}
	writer.Wait()
	if draining.Err() == nil {
		c.explain(err)
	}
}

// read reads requests until it cannot, or until polls ends, and says why.
func (c *conn) read(ctx, polls context.Context) error {
	for {
		h, err := c.awaitHeader(polls)
		if err != nil {
			return err
		}
		call, err := c.readCall(polls, h)
		if err != nil {
			return err
		}
		c.inFlight.Add(1)
		if call.claim.Held() > 0 {
			call.claim.Moves(c.giveWay)
		}
		if call.api.start != nil && c.waiting.Load() == 0 {
			call.finish = c.start(ctx, call)
		} else {
			c.waiting.Add(1)
		}
		c.calls <- call // the writer takes until the channel is closed
	}
}

// awaitHeader waits for the next frame's first bytes. It may wait as long as requests are being answered, and Config.IdleTimeout after the
// last answer.
func (c *conn) awaitHeader(polls context.Context) (header, error) {
	for {
		idleSince := time.Unix(0, c.lastDone.Load())
		deadline := idleSince.Add(c.s.cfg.IdleTimeout)
		if c.inFlight.Load() > 0 {
			deadline = time.Now().Add(c.s.cfg.IdleTimeout)
		}
		c.nc.SetReadDeadline(deadline)
		if polls.Err() != nil {
			return header{}, polls.Err()
		}
		_, err := c.in.Peek(1)
		switch {
		case err == nil:
			c.deadline = time.Now().Add(c.s.cfg.FrameTimeout)
			c.nc.SetReadDeadline(c.deadline)
			if polls.Err() != nil {
				return header{}, polls.Err()
			}
			h, err := readHeader(c.in, c.s.cfg.HTTPAddr)
			return h, c.late(err)
		case !errors.Is(err, os.ErrDeadlineExceeded) || polls.Err() != nil:
			return header{}, err
		case c.inFlight.Load() == 0 && idleSince.UnixNano() == c.lastDone.Load():
			return header{}, refuse("idle", "nothing was asked for %v", c.s.cfg.IdleTimeout)
		}
	}
}

// readCall takes the frame behind h, within what it may cost, and decodes it.
func (c *conn) readCall(ctx context.Context, h header) (_ *call, err error) {
	api, err := c.s.find(h)
	if err != nil {
		var r *refusal
		if errors.As(err, &r) && r.lacks != "" {
			r.clientID = c.clientIDAhead(h)
		}
		return nil, err
	}
	limit := smallFrameMax
	if api.large {
		limit = c.s.cfg.FrameBytes
	}
	if h.length > limit {
		return nil, refuse("too_large", "%s request of %d bytes; the limit is %d", api.key.Name(), h.length, limit)
	}
	// A client that stays silent after a header costs no memory.
	if _, err := c.in.Peek(min(lengthSize+h.length, readBuffer)); err != nil {
		return nil, c.late(err)
	}
	call := &call{api: api, request: request{header: h, conn: c, claim: c.s.frames.Begin()}}
	defer func() {
		if c.panicked(call, recover()) {
			err = errPanicked
		}
		if err != nil {
			call.claim.Release()
		}
	}()
	// Every connection may have one small request that claims nothing: no other client can stop those.
	free := lengthSize+h.length <= readBuffer && c.inFlight.Load() == 0
	frame, err := c.readFrame(ctx, h, call.claim, free)
	if err != nil {
		return nil, err
	}
	call.arrived = time.Now()
	w, err := call.walk(frame)
	if err != nil {
		return nil, err
	}
	if !free {
		if _, err := call.claim.Grow(ctx, int64(w.cost)); err != nil {
			return nil, err
		}
	}
	return call, call.decode(w)
}

// walked is a request that may be decoded.
type walked struct {
	body []byte
	cost int // memory that decoding takes, and an answer of one part for each
}

// walk checks a request without taking memory for it.
func (c *call) walk(frame []byte) (walked, error) {
	if c.api.opaque {
		return walked{}, nil
	}
	c.body = c.api.key.Request()
	c.body.SetVersion(c.version)
	w := wire{buf: frame, flexible: c.body.IsFlexible(), budget: budgetFor(len(frame))}
	c.clientID = w.clientID()
	body := w.buf
	w.walk(c.api.shape(c.version))
	return walked{body, w.cost + w.elements*answerEach}, c.badRequest(w.err)
}

// decode reads the request's body.
func (c *call) decode(w walked) error {
	if c.api.opaque {
		return nil
	}
	return c.badRequest(c.body.ReadFrom(w.body))
}

func (c *call) badRequest(err error) error {
	if err == nil {
		return nil
	}
	return refuse("bad_request", "%s version %d, %d bytes, client id %q: %v", c.api.key.Name(), c.version, c.length, shorten(c.clientID), err)
}

// late turns a timeout within a frame into a refusal.
func (c *conn) late(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return refuse("slow_frame", "a request did not arrive whole within %v of its first byte", c.s.cfg.FrameTimeout)
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// write carries out the calls and answers them until there are no more, one asks for the connection to be closed, or the client does not take
// its answer. What was begun before is done.
func (c *conn) write(ctx, polls context.Context) {
	for call := range c.calls {
		resp := c.carryOut(ctx, polls, call)
		out, gone := 0, false
		if resp != nil && resp != noReply {
			var err error
			out, err = c.trySend(call, resp)
			gone = err != nil
		}
		call.records.Release()
		now := time.Now()
		c.lastDone.Store(now.UnixNano())
		call.claim.Release()
		if c.inFlight.Add(-1) == 0 {
			c.rest()
		}
		c.s.cfg.Observer.Answered(Exchange{
			Key: call.api.key.Name(), Version: call.version,
			In: lengthSize + call.length, Out: out, Took: now.Sub(call.arrived),
		})
		if resp == nil || gone {
			c.nc.Close() // and so the reader returns
			return
		}
	}
}

// carryOut returns the answer to a call whose turn has come.
func (c *conn) carryOut(ctx, polls context.Context, call *call) (resp kmsg.Response) {
	defer func() {
		if c.panicked(call, recover()) {
			resp = nil
		}
	}()
	if call.finish != nil {
		return call.finish(ctx)
	}
	defer c.waiting.Add(-1)
	if call.api.start != nil {
		return call.api.start(c.s, ctx, &call.request)(ctx)
	}
	if call.api.polls {
		return call.api.answer(c.s, polls, &call.request)
	}
	ctx, cancel := context.WithTimeout(ctx, call.patience())
	defer cancel()
	return call.api.answer(c.s, ctx, &call.request)
}

// start begins a call that others may be sent behind. A panic becomes no answer.
func (c *conn) start(ctx context.Context, call *call) (finish func(context.Context) kmsg.Response) {
	defer func() {
		if c.panicked(call, recover()) {
			finish = func(context.Context) kmsg.Response { return nil }
		}
	}()
	return call.api.start(c.s, ctx, &call.request)
}

// trySend is send. After a panic the connection is closed: a part of the answer may have gone out.
func (c *conn) trySend(call *call, resp kmsg.Response) (out int, err error) {
	defer func() {
		if c.panicked(call, recover()) {
			err = errPanicked
		}
	}()
	return c.send(call, resp)
}

var errPanicked = errors.New("the request panicked")

// panicked tells the operator of a panic in one request, which ends that request's connection and nothing else.
func (c *conn) panicked(call *call, v any) bool {
	if v == nil {
		return false
	}
	c.s.cfg.Logger.Error("kafka: a request panicked; its connection is closed", "request", call.api.key.Name(), "version", call.version,
		"client_id", call.clientID, "panic", v, "stack", string(debug.Stack()))
	return true
}

// How long a request may wait for the store.
const (
	patienceLeast   = time.Second // Kafka, too, does its work before it looks at the time
	patienceDefault = 20 * time.Second
	patienceMost    = 5 * time.Minute
)

// patience is how long the client waits for an answer, or what we assume.
func (r *request) patience() time.Duration {
	if t, ok := r.body.(kmsg.TimeoutRequest); ok {
		return min(max(time.Duration(t.Timeout())*time.Millisecond, patienceLeast), patienceMost)
	}
	return patienceDefault
}

// send writes one answer:
//
//	| length | correlation | tags | body
//
// Tags are there in flexible versions, except before ApiVersions: its client does not know yet what we speak.
func (c *conn) send(call *call, resp kmsg.Response) (int, error) {
	b := append(c.out[:0], 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(call.correlation))
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
		b = append(b, 0)
	}
	began := time.Now()
	c.answerBy(began)
	if records, ok := resp.(*fetched); ok {
		call.body = nil
		call.claim.Release() // the records are counted by themselves
		return c.sendFetched(b, records, call.records, began)
	}
	b = resp.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-lengthSize))
	if cap(b) <= keptBuffer {
		c.out = b
	}
	if len(b) <= keptBuffer {
		return c.nc.Write(b)
	}
	// A client that does not take its answer must not hold the memory that others wait for.
	call.claim.Moves(func() { c.nc.Close() })
	defer call.claim.Rests()
	out := 0
	for out < len(b) {
		c.answerBy(began)
		n, err := c.nc.Write(b[out:min(len(b), out+keptBuffer)])
		out += n
		if err != nil {
			return out, err
		}
		call.claim.Progress()
	}
	return out, nil
}

// giveWay is called when others wait for memory that requests of this connection have held for budget.SilentMax: the one whose turn it is may be
// waiting for records, for members of its group or for the client to take its answer, and the others for their turn. Until all are answered
// none waits for others, and the client has budget.SilentMax to take a piece of an answer.
func (c *conn) giveWay() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hurried = true
	c.nc.SetWriteDeadline(time.Now().Add(budget.SilentMax))
	if c.endWait != nil {
		c.endWait(errGaveWay)
	}
}

// errGaveWay is why a request does not wait any longer.
var errGaveWay = errors.New("other clients wait for the memory that this connection's requests hold; send it again")

// rest ends what giveWay began.
func (c *conn) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hurried = false
}

// givesWay is a context for a wait for others. done must be called after it.
func (c *conn) givesWay(ctx context.Context) (waiting context.Context, done func()) {
	waiting, end := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endWait = end
	if c.hurried {
		end(errGaveWay)
	}
	return waiting, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.endWait = nil
		end(nil)
	}
}

// answerBy sets the time by which the client must take the next piece of an answer.
func (c *conn) answerBy(began time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	deadline := began.Add(c.s.cfg.WriteTimeout)
	if hurried := time.Now().Add(budget.SilentMax); c.hurried && hurried.Before(deadline) {
		deadline = hurried
	}
	c.nc.SetWriteDeadline(deadline)
}

// keptBuffer is the largest answer whose memory the connection keeps for the next.
const keptBuffer = 64 << 10

// explain logs why a client is turned away, once, and tells clients of other protocols where they are.
func (c *conn) explain(err error) {
	var r *refusal
	if !errors.As(err, &r) {
		c.s.cfg.Logger.Debug("kafka: connection ended", "client", c.nc.RemoteAddr().String(), "error", err)
		return
	}
	c.s.cfg.Observer.Refused(r.reason)
	if r.reason == "idle" {
		return
	}
	if r.lacks != "" {
		c.s.tellLack(c, r.clientID, r.lacks, r.lacks, r)
		return
	}
	c.s.cfg.Logger.Warn("kafka: connection closed on a client", "client", c.nc.RemoteAddr().String(), "reason", r.reason, "error", r.text)
	if r.answer != "" {
		c.nc.SetWriteDeadline(time.Now().Add(time.Second))
		io.WriteString(c.nc, r.answer)
	}
}
