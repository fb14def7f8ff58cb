package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/queue"
)

// WorkOptions say which queue is worked and how. Queue and Handler are required; the zero value of
// every other field is a sensible default.
type WorkOptions struct {
	Queue string
	// Handler handles one message. If it returns nil the message is done. If it returns an error
	// the message comes again after the queue's pause for so many failed attempts, or that of
	// RetryAfter. After the last attempt, or Permanent, it becomes a dead letter. A panic counts as
	// an error.
	//
	// ctx ends when the claim was lost (context.Cause is ErrClaimLost) or Close does not wait for
	// the handler any longer. If the handler then returns an error that is not Permanent, the
	// attempt does not count: if this worker still has the message, it is given back and can be
	// claimed immediately.
	Handler JobHandler
	// Timeout is how long the handler may take for one message. After that its ctx ends
	// (context.Cause is an ErrHandlerTimeout), and the error that it returns counts as a failed
	// attempt. A handler that does not return then keeps its message. Default: no limit.
	Timeout time.Duration
	// Middleware wraps the handler; the first is the outermost.
	Middleware []func(JobHandler) JobHandler
	// Concurrency is how many messages are handled concurrently. Up to as many more, whose handlers
	// have returned, may wait for the store to record their result. Default 10; at most 10,000.
	Concurrency int
	// Lease is how long a claim lasts. The claim is extended while the handler runs. If the process
	// is killed, its messages can be claimed again when their leases end. Default: the queue's
	// lease.
	Lease time.Duration
	// Name is the worker's name, for people. Default: the program's name and process number.
	Name string
}

// JobHandler handles one message.
type JobHandler func(ctx context.Context, j Job) error

// Job is a message that was claimed.
type Job struct {
	Queue   string
	ID      MessageID
	Key     []byte // nil: none
	Value   []byte
	Headers []Header
	Time    time.Time // when it was enqueued; zero: unknown
	Attempt int       // from 1, over all processes

	from *Worker
	job  *job
}

// RetryAfter marks a handler's error: the message comes again after this pause instead of the
// queue's own. The attempt counts. RetryAfter(d, nil) is an error, too.
func RetryAfter(pause time.Duration, err error) error {
	return &retryAfterError{pause, cmp.Or(err, errors.New("later"))}
}

type retryAfterError struct {
	pause time.Duration
	error
}

func (e *retryAfterError) Unwrap() error { return e.error }

const (
	workersDefault = 10
	workersMax     = 10_000
	claimMost      = queue.ClaimMax
	claimWait      = time.Minute
	claimPause     = 250 * time.Millisecond // after a claim that failed, and twice as long after each, up to claimPauseMax
	claimPauseMax  = 10 * time.Second
	extendTimeout  = 10 * time.Second
)

// Worker handles a queue's messages. Its methods may be called concurrently.
type Worker struct {
	log     *Log
	opts    WorkOptions
	handler JobHandler
	slots   chan struct{} // a value for each message whose handler has not returned, or that is about to be claimed
	answers chan struct{} // a value for each message whose handler has returned and that is being acked or nacked; as many as slots
	handled chan *job     // the messages to ack, many in one call

	stopping chan struct{} // closed when no more messages are to be claimed
	stop     func()
	cut      context.CancelCauseFunc // ends the handlers' contexts
	ended    chan struct{}           // closed when all goroutines of the worker have ended

	mu      sync.Mutex // guards running
	running map[string]*job
}

// job is a message that is being handled, acked or nacked.
type job struct {
	id      MessageID
	receipt string
	cut     context.Context // ends when the worker's time is over
	until   time.Time       // the lease ends at this time or later, by this machine's clock
	over    *time.Timer     // calls lose when the time until has come
	lose    context.CancelCauseFunc
	end     func() // is called when the worker has finished with the message
	cutOff  bool   // the handler failed after its context had ended: the attempt does not count
	inTx    bool   // AckTx was called
	acked   bool   // AckTx succeeded: the message is done if its transaction commits
	done    bool   // the transaction of AckTx was committed: the queue has the message as done
}

// Work starts to claim messages of a queue and to call the handler for each. ctx bounds only the
// start; the worker works until it or the Log is closed. While the store is unavailable the worker
// waits. Any number of workers, in any number of processes, may work on one queue.
func (l *Log) Work(ctx context.Context, opts WorkOptions) (*Worker, error) {
	opts.Concurrency = cmp.Or(opts.Concurrency, workersDefault)
	switch {
	case opts.Queue == "":
		return nil, errors.New("work: the options have no Queue")
	case opts.Handler == nil:
		return nil, fmt.Errorf("work queue %q: the options have no Handler", opts.Queue)
	case opts.Concurrency < 1 || opts.Concurrency > workersMax:
		return nil, fmt.Errorf("work queue %q: Concurrency is %d: it must be 1 to %d", opts.Queue, opts.Concurrency, workersMax)
	case opts.Timeout < 0:
		return nil, fmt.Errorf("work queue %q: Timeout is %v: it must not be negative; 0 is no limit", opts.Queue, opts.Timeout)
	}
	info, err := l.Queue(ctx, opts.Queue)
	if err != nil {
		return nil, wrap(err, "work queue %q", opts.Queue)
	}
	opts.Lease = cmp.Or(opts.Lease, info.Settings.Lease)
	if opts.Lease < queue.LeaseMin || opts.Lease > queue.LeaseMax {
		return nil, fmt.Errorf("work queue %q: %w", opts.Queue, &InvalidError{What: "lease", Value: opts.Lease.String(), Why: fmt.Sprintf("%v to %v are allowed", queue.LeaseMin, queue.LeaseMax)})
	}
	if opts.Name == "" {
		opts.Name = fmt.Sprintf("%s-%d", filepath.Base(os.Args[0]), os.Getpid())
	}
	w := &Worker{
		log: l, opts: opts, handler: opts.Handler, slots: make(chan struct{}, opts.Concurrency), answers: make(chan struct{}, opts.Concurrency), handled: make(chan *job, opts.Concurrency),
		stopping: make(chan struct{}), ended: make(chan struct{}), running: make(map[string]*job),
	}
	for _, wrap := range slices.Backward(opts.Middleware) {
		w.handler = wrap(w.handler)
	}
	w.stop = sync.OnceFunc(func() { close(w.stopping) })
	work, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	w.cut = cut
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		cut(nil)
		return nil, fmt.Errorf("work queue %q: %w", opts.Queue, ErrClosed)
	}
	l.workers[w] = struct{}{}
	go w.run(work)
	return w, nil
}

// Close ends the worker in order: no more messages are claimed, running handlers finish, and their
// messages are acked or nacked. When ctx is about to end, the contexts of handlers that still run
// are cancelled. If such a handler then returns an error, its message is given back and the attempt
// does not count. A handler that does not return is left behind: its message comes again when its
// lease ends. Close returns at the latest a second after ctx ends. A handler must not call it.
func (w *Worker) Close(ctx context.Context) error {
	w.stop()
	w.log.mu.Lock()
	delete(w.log.workers, w)
	w.log.mu.Unlock()
	calls, rest, done := split(ctx)
	defer done()
	select {
	case <-w.ended:
		return nil
	case <-calls.Done():
	}
	w.cut(fmt.Errorf("the worker is being closed: %w", context.Cause(ctx)))
	select {
	case <-w.ended:
		return nil
	case <-rest.Done():
		return fmt.Errorf("close the worker of queue %q: a handler has not returned: %w", w.opts.Queue, context.Cause(ctx))
	}
}

// run claims messages until the worker is stopped, and waits for their handlers.
func (w *Worker) run(ctx context.Context) {
	defer close(w.ended)
	defer w.cut(nil)
	extend, stopExtending := context.WithCancel(ctx)
	var extending, handling, acking sync.WaitGroup
	extending.Go(func() { w.extendAll(extend) })
	for range ackers {
		acking.Go(w.ackAll)
	}
	for failures := 0; ; {
		n := w.free()
		if n == 0 {
			break
		}
		messages, asked, err := w.claim(ctx, n)
		for range n - len(messages) {
			<-w.slots
		}
		for _, m := range messages {
			handling.Add(1)
			go w.handle(ctx, m, asked, handling.Done)
		}
		if err == nil {
			failures = 0
			continue
		}
		if failures++; failures == 1 {
			w.log.logger.Warn("a worker cannot claim messages; it tries again", "queue", w.opts.Queue, "worker", w.opts.Name, "err", err)
		}
		timer := time.NewTimer(min(claimPause<<min(failures-1, 10), claimPauseMax))
		select {
		case <-timer.C:
		case <-w.stopping:
		}
		timer.Stop()
	}
	handling.Wait()
	close(w.handled)
	acking.Wait()
	stopExtending()
	extending.Wait()
}

// free waits for a free slot, takes the free slots, at most claimMost, and returns how many; 0: the
// worker is stopped.
func (w *Worker) free() (n int) {
	select {
	case <-w.stopping:
		return 0
	default:
	}
	select {
	case w.slots <- struct{}{}:
	case <-w.stopping:
		return 0
	}
	for n = 1; n < claimMost; n++ {
		select {
		case w.slots <- struct{}{}:
		default:
			return n
		}
	}
	return n
}

// claim waits for messages. Their leases began at asked or later.
func (w *Worker) claim(ctx context.Context, most int) (messages []queue.Message, asked time.Time, err error) {
	err = w.log.withQueue(ctx, w.opts.Queue, func(q *queue.Queue) error {
		messages, err = q.Claim(ctx, queue.Claim{Max: most, Lease: w.opts.Lease, Wait: claimWait, Worker: w.opts.Name, Stop: w.stopping,
			Room: func(context.Context) (int64, func(), error) { asked = time.Now(); return claimRoom, func() {}, nil }})
		return err
	})
	return messages, asked, err
}

// claimRoom bounds the bytes of messages of one claim.
const claimRoom = 16 << 20

// handle calls the handler for one message, then acks or nacks the message. The slot is free as
// soon as the handler has returned: so the next message is claimed while the ack is on its way,
// often in the same commit.
func (w *Worker) handle(ctx context.Context, m queue.Message, asked time.Time, end func()) {
	j := &job{id: m.ID, receipt: m.Receipt, cut: ctx, until: asked.Add(w.opts.Lease), end: end}
	ctx, j.lose = context.WithCancelCause(ctx)
	w.mu.Lock()
	w.running[m.Receipt] = j
	j.over = time.AfterFunc(time.Until(j.until), func() { j.lose(ErrClaimLost) })
	w.mu.Unlock()
	err := w.callInTime(ctx, j, m)
	if err != nil {
		j.cutOff = ctx.Err() != nil && !isPermanent(err)
		err = w.reconcile(j, m, err)
	}
	w.answers <- struct{}{}
	<-w.slots
	switch {
	case err == nil:
		w.handled <- j
	case errors.Is(err, errInDoubt):
		w.finish(j)
	default:
		w.answer(j, err)
	}
}

// callInTime runs the handler with the limit Timeout, if it is set. If the handler took longer and
// failed, the error says so.
func (w *Worker) callInTime(ctx context.Context, j *job, m queue.Message) error {
	if w.opts.Timeout == 0 {
		return w.call(ctx, j, m)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, w.opts.Timeout, fmt.Errorf("%w, %v", ErrHandlerTimeout, w.opts.Timeout))
	defer cancel()
	err := w.call(ctx, j, m)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrHandlerTimeout) && !errors.Is(err, ErrHandlerTimeout) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// call runs the handler, and turns a panic into an error.
func (w *Worker) call(ctx context.Context, j *job, m queue.Message) (err error) {
	if tracer := w.log.opts.Tracer; tracer != nil {
		info := eventlog.SpanInfo{Topic: m.Topic, Group: w.opts.Queue, Records: 1}
		info.Link(m.Headers)
		var end func(error)
		ctx, end = tracer.Start(ctx, "work", info)
		defer func() { end(err) }()
	}
	defer func() {
		if v := recover(); v != nil {
			panicked := &PanicError{Value: v, Stack: debug.Stack()}
			if err = panicked; m.Attempt == 1 {
				w.log.logger.Error("handler panicked", "queue", w.opts.Queue, "message", m.ID.String(), "panic", v, "stack", string(panicked.Stack))
			}
		}
	}()
	return w.handler(ctx, Job{Queue: w.opts.Queue, ID: m.ID, Key: m.Key, Value: m.Value, Headers: m.Headers, Time: m.Time, Attempt: m.Attempt, from: w, job: j})
}

// extendAll extends the leases of all messages that are being handled, three times in each lease.
func (w *Worker) extendAll(ctx context.Context) {
	ticker := time.NewTicker(w.opts.Lease / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			w.extend(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// extend extends all leases in one call. If a claim was lost, the context of its handler is
// cancelled. If a lease cannot be extended in time, job.over cancels the context.
func (w *Worker) extend(ctx context.Context) {
	w.mu.Lock()
	jobs := maps.Clone(w.running)
	w.mu.Unlock()
	if len(jobs) == 0 {
		return
	}
	receipts := slices.Collect(maps.Keys(jobs))
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, min(extendTimeout, w.opts.Lease))
	defer cancel()
	var errs []error
	err := w.log.withQueue(ctx, w.opts.Queue, func(q *queue.Queue) (err error) {
		errs, err = q.Extend(ctx, w.opts.Lease, receipts...)
		return err
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, receipt := range receipts {
		j, failed := jobs[receipt], err
		if w.running[receipt] != j {
			continue // the worker is done with it
		}
		if failed == nil {
			failed = errs[i]
		}
		switch {
		case failed == nil:
			j.until = asked.Add(w.opts.Lease)
			j.over.Reset(time.Until(j.until))
		case j.inTx && done(failed): // by the handler's own transaction: if another worker had handled the message, AckTx would have failed
			j.done = true
			j.over.Stop()
		case errors.Is(failed, queue.ErrStaleReceipt) && !errors.Is(failed, ErrUnsure), errors.Is(failed, ErrUnknownQueue):
			j.lose(ErrClaimLost)
		}
	}
}
