package kafka

import (
	"bufio"
	"context"
	"crypto/tls"
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
	"github.com/weir-log/weir/use/audit"
)

// inFlightMax bounds how many requests of one connection wait between its reader and its writer.
const inFlightMax = 64

// conn is one client's connection: one reader, one writer, answers in the order of the requests.
//
//	socket ──► reader ──► calls (bounded) ──► writer ──► socket
//	             │ starts produce requests       │ executes all others, one after the other,
//	             ▼                               │ and waits for those that were started
//	        Log.Submit                           ▼
//	                                       Ticket.Wait, Log.Fetch, …
//
// So pipelined produce requests share a flush. When calls is full, or the requests of all
// connections hold too many bytes, the reader stops reading, and TCP slows the client down.
type conn struct {
	s     *Server
	at    Listener // where it was accepted
	nc    net.Conn // a *tls.Conn if the listener has TLS
	in    *bufio.Reader
	calls chan *call
	awake context.Context // ends when the process was suspended
	gone  context.Context // ends when the client has disconnected; set by serve

	justWoke bool        // the connection may have waited until a suspended process went on
	answered atomic.Bool // an answer was sent

	// waiting counts requests read but not started. While waiting is above 0, produce requests are
	// not started early either, so that requests take effect in their order.
	waiting  atomic.Int32
	inFlight atomic.Int32 // requests read but not answered
	started  atomic.Int32 // produce requests that were started and are not answered
	lastDone atomic.Int64 // when the last answer was sent and the client was not throttled any more, in Unix nanoseconds

	opened     time.Time
	mutedUntil atomic.Int64 // until when the client is throttled, in nanoseconds since opened; 0: it never was

	who   atomic.Pointer[caller] // nil until the client is known
	login login                  // before the login only the reader uses it, then only the writer

	deadline time.Time // by when the frame being read must be complete; only the reader uses it

	mu            sync.Mutex              // guards underPressure and cancelWait
	underPressure bool                    // other clients wait for memory that this connection's requests hold
	cancelWait    context.CancelCauseFunc // cancels the wait of the request being answered
}

type request struct {
	header
	clientID string // "" for none
	body     kmsg.Request
	conn     *conn
	claim    *budget.Claim // memory of Server.frames held for the request and its answer
	records  *budget.Claim // memory of Server.fetches held for the records of its answer; nil: there are none

	mayDecompress int // bytes that the unchecked batches of a produce request may still decompress to

	othersNamed int // how many of othersNamedMax are used

	usage usage // what the request used of the client's quotas

	hangUp bool // close the connection after the answer

	answerBytes int // estimated bytes of the answer, if the request's size does not bound them
	texts       int // bytes of error texts in the answer so far, at most textsMax
}

// call is a request with its handler.
type call struct {
	request
	api     *api
	finish  func(ctx context.Context) kmsg.Response // set once the call was started
	arrived time.Time
}

func newConn(s *Server, at Listener, nc net.Conn) *conn {
	if at.TLS != nil {
		nc = tls.Server(nc, at.TLS)
	}
	c := &conn{s: s, at: at, nc: nc, opened: time.Now(), in: bufio.NewReaderSize(nc, readBuffer), calls: make(chan *call, inFlightMax)}
	c.awake, c.justWoke = s.pulse.until()
	if !at.SASL && !at.Certified {
		c.who.Store(anybody)
	}
	return c
}

// serve runs the connection until it is closed. It stops reading when the server starts to drain
// (drain is done), and closes the connection when ctx is done.
func (c *conn) serve(ctx, drain context.Context) {
	defer func() {
		if drain.Err() != nil {
			c.interrupt()
		}
		c.nc.Close()
	}()
	defer context.AfterFunc(ctx, c.interrupt)()
	defer context.AfterFunc(c.awake, c.interrupt)()
	if err := c.handshake(drain); err != nil {
		if drain.Err() == nil {
			c.explain(err)
		}
		return
	}

	// Long polls end when the client has disconnected, and when the server drains.
	polls, endPolls := context.WithCancel(ctx)
	defer endPolls()
	gone, leave := context.WithCancel(ctx)
	defer leave()
	c.gone = gone
	defer context.AfterFunc(drain, func() {
		endPolls()
		c.nc.SetReadDeadline(time.Unix(1, 0)) // the reader may set a later deadline, so it checks polls after setting one
	})()

	if err := c.logIn(drain); err != nil {
		if drain.Err() == nil {
			c.explain(err)
		}
		return
	}

	c.lastDone.Store(time.Now().UnixNano())
	var writer sync.WaitGroup
	writer.Go(func() {
		c.write(ctx, polls)
		endPolls() // the reader must not start requests that it has buffered
		for call := range c.calls {
			call.claim.Release()
		}
	})
	err := c.read(ctx, polls)
	close(c.calls)
	if drain.Err() == nil {
		endPolls()
		leave()
	}
	writer.Wait()
	if drain.Err() == nil {
		c.explain(err)
	}
}

// interrupt closes the connection for a reason that is not its client's. If the client got no
// answer yet, the connection is reset: a client repeats what a reset interrupted, but may take an
// end before the first answer for a refusal (franz-go's ErrFirstReadEOF: "is SASL missing?").
func (c *conn) interrupt() {
	socket := c.nc
	if t, is := socket.(*tls.Conn); is {
		socket = t.NetConn()
	}
	if !c.answered.Load() {
		reset(socket) // tls.Conn would send an alert first, which the client takes for a regular end
	}
	c.nc.Close()
}

// reset closes a connection without an end of what was sent.
func reset(nc net.Conn) {
	if tcp, is := nc.(*net.TCPConn); is {
		tcp.SetLinger(0)
	}
	nc.Close()
}

// read reads requests until an error or until polls is done, and returns the reason.
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
		if c.mayBeOld(call.api.key) {
			call.claim.Release()
			return errSuspended
		}
		c.inFlight.Add(1)
		if call.claim.Held() > 0 {
			call.claim.Moves(c.yieldMemory)
		}
		if call.api.start != nil && c.waiting.Load() == 0 {
			call.finish = c.start(ctx, call)
			c.started.Add(1)
			if call.usage.pause > 0 {
				c.mute(call.usage.pause)
			}
		} else {
			c.waiting.Add(1)
		}
		if c.started.Load() > 0 && (call.finish == nil || len(c.calls) == cap(c.calls)) {
			c.s.log.FlushNow() // this request waits for the produce requests that were started, or the next one cannot be read until they are answered: so their records must not linger
		}
		c.calls <- call // cannot block for ever: serve empties calls after the writer returned
	}
}

// awaitHeader waits for the next frame. idleTimeout counts from the last answer; it does not run
// while requests are being answered.
func (c *conn) awaitHeader(polls context.Context) (header, error) {
	for {
		idleSince := time.Unix(0, c.lastDone.Load())
		deadline := idleSince.Add(idleTimeout)
		if c.inFlight.Load() > 0 {
			deadline = time.Now().Add(idleTimeout)
		}
		c.nc.SetReadDeadline(deadline)
		if polls.Err() != nil {
			return header{}, polls.Err()
		}
		_, err := c.in.Peek(1)
		switch {
		case err == nil:
			c.awaitUnmuted(polls)
			c.deadline = time.Now().Add(frameTimeout)
			c.nc.SetReadDeadline(c.deadline)
			if polls.Err() != nil {
				return header{}, polls.Err()
			}
			h, err := readHeader(c.in, c.s.cfg.HTTPAddr, &c.at)
			return h, c.readFailed(err)
		case !errors.Is(err, os.ErrDeadlineExceeded) || polls.Err() != nil:
			return header{}, err
		case c.inFlight.Load() == 0 && idleSince.UnixNano() == c.lastDone.Load():
			return header{}, refuse("idle", "the client sent no request for %v", idleTimeout)
		}
	}
}

// readCall reads the frame whose header is h, claims the memory that it takes, and decodes it.
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
		limit = c.s.cfg.limits.FrameBytes
	}
	if h.length > limit {
		return nil, refuse("too_large", "the %s request has %d bytes; the limit is %d", api.key.Name(), h.length, limit)
	}
	// Wait for data before claiming memory: a client that sends only a header costs none.
	if _, err := c.in.Peek(min(lengthSize+h.length, readBuffer)); err != nil {
		return nil, c.readFailed(err)
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
	// One small request per connection needs no claim, so that other clients cannot block it.
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

// walked is a request whose structure was checked.
type walked struct {
	body []byte
	cost int // memory for decoding, and for an answer with one part for each element
}

// walk checks a request's structure and counts its elements, without allocating memory for it.
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
	return refuse("bad_request", "cannot decode the request (%s version %d, %d bytes, client id %q): %v", c.api.key.Name(), c.version, c.length, shorten(c.clientID), err)
}

// readFailed turns a timeout within a frame into a refusal, and EOF into io.ErrUnexpectedEOF.
func (c *conn) readFailed(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return refuse("slow_frame", "the request was incomplete %v after its first byte, the limit", frameTimeout)
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// write executes and answers calls in order until there are no more, a call's response is nil, or a
// write fails. Produce requests that were already started then still take effect, but get no
// answer.
func (c *conn) write(ctx, polls context.Context) {
	for call := range c.calls {
		if call.finish == nil {
			c.awaitTurn(polls)
		}
		if !c.answer(ctx, polls, call) {
			c.nc.Close() // ends read
			return
		}
	}
}

// answer executes and answers one call. It reports whether the connection goes on.
func (c *conn) answer(ctx, polls context.Context, call *call) bool {
	resp := c.execute(ctx, polls, call)
	if c.s.quotas.Active() {
		c.throttle(call, resp)
	}
	out, failed := 0, false
	if resp != nil && resp != noReply {
		var err error
		out, err = c.trySend(call, resp)
		failed = err != nil
	}
	call.records.Release()
	now := time.Now()
	c.lastDone.Store(now.Add(call.usage.pause).UnixNano())
	call.claim.Release()
	if c.inFlight.Add(-1) == 0 {
		c.endPressure()
	}
	c.s.cfg.Observer.Answered(Exchange{
		Key: call.api.key.Name(), Version: call.version,
		In: lengthSize + call.length, Out: out, Took: now.Sub(call.arrived),
	})
	return resp != nil && !failed && !call.hangUp
}

// execute runs a call, or waits for it if it was started, and returns the response.
func (c *conn) execute(ctx, polls context.Context, call *call) (resp kmsg.Response) {
	defer func() {
		if c.panicked(call, recover()) {
			resp = nil
		}
	}()
	if call.finish != nil {
		defer c.started.Add(-1)
		return call.finish(ctx)
	}
	defer c.waiting.Add(-1)
	if c.suspended() || !c.admitted(ctx, call) {
		return nil
	}
	if call.api.start != nil {
		return c.begin(ctx, call)(ctx)
	}
	defer call.works()()
	if call.api.polls {
		resp = call.api.answer(c.s, countLookups(polls), &call.request)
		if !c.admitted(ctx, call) { // the call may have waited for minutes
			return nil
		}
		return resp
	}
	ctx, cancel := context.WithTimeout(audit.By(ctx, c.audited()), call.timeout())
	defer cancel()
	return call.api.answer(c.s, countLookups(ctx), &call.request)
}

// start starts a call before its turn, so that it overlaps with the calls before it (produce).
// After a panic the call's response is nil, which closes the connection.
func (c *conn) start(ctx context.Context, call *call) (finish func(context.Context) kmsg.Response) {
	defer func() {
		if c.panicked(call, recover()) {
			finish = func(context.Context) kmsg.Response { return nil }
		}
	}()
	if !c.admitted(ctx, call) {
		return func(context.Context) kmsg.Response { return nil }
	}
	return c.begin(ctx, call)
}

// begin calls a starter. The time until it returns is work, the rest is mostly a wait.
func (c *conn) begin(ctx context.Context, call *call) (finish handlerEnd) {
	defer call.works()()
	return call.api.start(c.s, countLookups(ctx), &call.request)
}

// admitted reports whether the client may still use the connection; if not, it logs why.
func (c *conn) admitted(ctx context.Context, call *call) bool {
	err := c.admit(ctx, call.api.key)
	if err != nil {
		c.explain(err)
	}
	return err == nil
}

// trySend calls send, and turns a panic into an error. The caller then closes the connection,
// because part of the answer may be written.
func (c *conn) trySend(call *call, resp kmsg.Response) (out int, err error) {
	defer func() {
		if c.panicked(call, recover()) {
			err = errPanicked
		}
	}()
	return c.send(call, resp)
}

var errPanicked = errors.New("the request panicked")

// panicked logs a panic of one request and reports whether there was one; only this connection is
// closed.
func (c *conn) panicked(call *call, v any) bool {
	if v == nil {
		return false
	}
	c.s.cfg.Logger.Error("kafka: a request panicked; its connection is closed", "request", call.api.key.Name(), "version", call.version,
		"client_id", call.clientID, "panic", v, "stack", string(debug.Stack()))
	return true
}

// Bounds of a request's timeout.
const (
	timeoutMin     = time.Second // a shorter timeout is raised to this, so that the work can be done: Kafka's broker checks the timeout only after the work
	timeoutDefault = 20 * time.Second
	timeoutMax     = 5 * time.Minute
)

// timeout returns the request's own timeout within our bounds, or the default.
func (r *request) timeout() time.Duration {
	if t, ok := r.body.(kmsg.TimeoutRequest); ok {
		return min(max(time.Duration(t.Timeout())*time.Millisecond, timeoutMin), timeoutMax)
	}
	return timeoutDefault
}

// send writes one answer:
//
//	| length | correlation | tags | body
//
// Flexible versions have tags, except the ApiVersions response: a client that gets it does not know
// our versions yet.
func (c *conn) send(call *call, resp kmsg.Response) (int, error) {
	reused := takeBuffers()
	defer reused.giveBack()
	b := append(reused.out[:0], 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(call.correlation))
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
		b = append(b, 0)
	}
	began := time.Now()
	c.answered.Store(true)
	c.setWriteDeadline(began)
	if records, ok := resp.(*fetched); ok {
		call.body = nil
		call.claim.Release() // the records have a claim of their own
		return c.sendFetched(reused, b, records, call.records, began)
	}
	b = resp.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-lengthSize))
	reused.out = b
	if len(b) <= keptBuffer {
		return c.nc.Write(b)
	}
	// A client that does not read its answer must not hold memory that other clients wait for.
	call.claim.Moves(func() { c.nc.Close() })
	defer call.claim.Rests()
	out := 0
	for out < len(b) {
		c.setWriteDeadline(began)
		n, err := c.nc.Write(b[out:min(len(b), out+keptBuffer)])
		out += n
		if err != nil {
			return out, err
		}
		call.claim.Progress()
	}
	return out, nil
}

// yieldMemory is called when other clients wait for memory that this connection has held for
// budget.SilentMax. It ends the wait of the current request. Until all its requests are answered,
// none of them waits again, and the client must read each piece of an answer within SilentMax.
func (c *conn) yieldMemory() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.underPressure = true
	c.nc.SetWriteDeadline(time.Now().Add(budget.SilentMax))
	if c.cancelWait != nil {
		c.cancelWait(errYielded)
	}
}

// errYielded is the cause when yieldMemory ends a wait.
var errYielded = errors.New("the request was ended before its wait was over, because other clients need the memory that this connection holds; send it again")

// endPressure allows waits again; called when all requests are answered.
func (c *conn) endPressure() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.underPressure = false
}

// interruptible returns a context that yieldMemory can cancel. Call done after the wait.
func (c *conn) interruptible(ctx context.Context) (wait context.Context, done func()) {
	wait, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancelWait = cancel
	if c.underPressure {
		cancel(errYielded)
	}
	return wait, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.cancelWait = nil
		cancel(nil)
	}
}

// setWriteDeadline sets the deadline for writing the next piece of an answer.
func (c *conn) setWriteDeadline(began time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	deadline := began.Add(writeTimeout)
	if sooner := time.Now().Add(budget.SilentMax); c.underPressure && sooner.Before(deadline) {
		deadline = sooner
	}
	c.nc.SetWriteDeadline(deadline)
}

// sendBuffers hold an answer while it is built. Connections share them: a connection that waits for
// a request holds none.
type sendBuffers struct {
	out     []byte
	splices []splice
	buffers net.Buffers
	joined  []byte // a piece of an encrypted answer
}

var sendBuffersPool = sync.Pool{New: func() any { return new(sendBuffers) }}

// Larger buffers are not kept for the next answer: keptBuffer counts bytes, keptSplices batches of
// a Fetch.
const (
	keptBuffer  = 64 << 10
	keptSplices = 1024
)

func takeBuffers() *sendBuffers { return sendBuffersPool.Get().(*sendBuffers) }

// giveBack returns s to the pool, without references to the log's memory and without buffers that
// are too large to keep.
func (s *sendBuffers) giveBack() {
	clear(s.splices)
	clear(s.buffers)
	if cap(s.out) > keptBuffer {
		s.out = nil
	}
	if cap(s.splices) > keptSplices {
		s.splices, s.buffers = nil, nil
	}
	sendBuffersPool.Put(s)
}

// explain logs why a connection was closed, unless it was idle, and answers clients of another
// protocol with a hint.
func (c *conn) explain(err error) {
	var r *refusal
	if !errors.As(err, &r) {
		c.s.cfg.Logger.Debug("kafka: connection ended", "client", c.nc.RemoteAddr().String(), "err", err)
		return
	}
	c.s.cfg.Observer.Refused(r.reason)
	if r.reason == "idle" {
		return
	}
	if r.lacks != "" {
		c.s.logLack(c, r.clientID, r.lacks, r.lacks, r)
		return
	}
	c.s.cfg.Logger.Warn("kafka: closed the connection of a client", "client", c.nc.RemoteAddr().String(), "reason", r.reason, "err", r.text)
	if r.answer != "" {
		c.nc.SetWriteDeadline(time.Now().Add(time.Second))
		io.WriteString(c.nc, r.answer)
	}
}
