package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/closing"
	"github.com/weir-log/weir/internal/recovered"
	"github.com/weir-log/weir/internal/retry"
)

// Work says which queue a Worker works and how. Queue and Handle are required.
type Work struct {
	Queue string
	// Handle handles one message. If it returns nil the message is done. If it returns an error the
	// message comes again after the queue's pause for so many failed attempts, or that of
	// retry.After. After the last attempt, or retry.Permanent, it becomes a dead letter. A panic
	// counts as an error. ctx ends when the claim was lost (context.Cause is ErrClaimLost) or Close
	// does not wait for the handler any longer: if it then returns an error that is not permanent,
	// the attempt does not count.
	Handle func(ctx context.Context, j *Job) error
	// Timeout is how long the handler may take for one message. After that its ctx ends
	// (context.Cause is an ErrHandlerTimeout), and the error that it returns counts as a failed
	// attempt. Default: no limit.
	Timeout     time.Duration
	Concurrency int           // how many messages are handled concurrently; default 10; at most 10,000
	Lease       time.Duration // how long a claim lasts; default: the queue's lease
	Name        string        // for people; default: the program's name and process number
}

// Errors of a worker.
var (
	// ErrClaimLost ends the context of a handler whose message another worker may have.
	ErrClaimLost = errors.New("the claim of the message was lost")
	// ErrHandlerTimeout ends the context of a handler that ran longer than Work.Timeout.
	ErrHandlerTimeout = errors.New("the handler ran longer than WorkOptions.Timeout")
)

const (
	workersDefault = 10
	workersMax     = 10_000
	claimMost      = ClaimMax
	claimWait      = time.Minute
	claimPause     = 250 * time.Millisecond // after a claim that failed, and twice as long after each, up to claimPauseMax
	claimPauseMax  = 10 * time.Second
	extendTimeout  = 10 * time.Second
)

// Worker handles a queue's messages. Its methods may be called concurrently.
type Worker struct {
	qs      *Queues
	opts    Work
	slots   chan struct{} // a value for each message whose handler has not returned, or that is about to be claimed
	answers chan struct{} // a value for each message whose handler has returned and that is being acked or nacked; as many as slots
	handled chan *Job     // the messages to ack, many in one call

	stopping chan struct{} // closed when no more messages are to be claimed
	stop     func()
	cut      context.CancelCauseFunc // ends the handlers' contexts
	ended    chan struct{}           // closed when all goroutines of the worker have ended

	mu      sync.Mutex // guards running
	running map[string]*Job
}

// Job is a message that is being handled, acked or nacked.
type Job struct {
	Message
	worker *Worker
	cut    context.Context // ends when the worker's time is over
	until  time.Time       // the lease ends at this time or later, by this machine's clock
	over   *time.Timer     // calls lose at the time in until
	lose   context.CancelCauseFunc
	end    func() // is called when the worker has finished with the message
	cutOff bool   // the handler failed after its context had ended: the attempt does not count
	inTx   bool   // AckTx was called
	acked  bool   // AckTx succeeded: the message is done if its transaction commits
	done   bool   // the transaction of AckTx was committed: the queue has the message as done
}

// Worker makes a worker of a queue. It does nothing before Start.
func (qs *Queues) Worker(ctx context.Context, w Work) (*Worker, error) {
	w.Concurrency = cmp.Or(w.Concurrency, workersDefault)
	switch {
	case w.Queue == "":
		return nil, errors.New("work: the options have no Queue")
	case w.Handle == nil:
		return nil, fmt.Errorf("work queue %q: the options have no Handler", w.Queue)
	case w.Concurrency < 1 || w.Concurrency > workersMax:
		return nil, fmt.Errorf("work queue %q: Concurrency is %d: it must be 1 to %d", w.Queue, w.Concurrency, workersMax)
	case w.Timeout < 0:
		return nil, fmt.Errorf("work queue %q: Timeout is %v: it must not be negative; 0 is no limit", w.Queue, w.Timeout)
	}
	var info Info
	err := qs.With(ctx, w.Queue, func(q *Queue) (err error) {
		info, err = q.Now(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("work queue %q: %w", w.Queue, err)
	}
	w.Lease = cmp.Or(w.Lease, info.Settings.Lease)
	if w.Lease < LeaseMin || w.Lease > LeaseMax {
		return nil, fmt.Errorf("work queue %q: %w", w.Queue, &eventlog.InvalidError{What: "lease", Value: w.Lease.String(), Why: fmt.Sprintf("%v to %v are allowed", LeaseMin, LeaseMax)})
	}
	if w.Name == "" {
		w.Name = fmt.Sprintf("%s-%d", filepath.Base(os.Args[0]), os.Getpid())
	}
	worker := &Worker{
		qs: qs, opts: w, slots: make(chan struct{}, w.Concurrency), answers: make(chan struct{}, w.Concurrency), handled: make(chan *Job, w.Concurrency),
		stopping: make(chan struct{}), ended: make(chan struct{}), running: make(map[string]*Job),
	}
	worker.stop = sync.OnceFunc(func() { close(worker.stopping) })
	return worker, nil
}

// Start starts to claim messages, until Close; the end of ctx means nothing, but handlers get its
// values. Call it once.
func (w *Worker) Start(ctx context.Context) {
	var work context.Context
	work, w.cut = context.WithCancelCause(context.WithoutCancel(ctx))
	go w.run(work)
}

// Close ends the worker in order: no more messages are claimed, running handlers finish, and their
// messages are acked or nacked. When ctx is about to end, the contexts of handlers that still run
// are cancelled. If such a handler then returns an error, its message is given back and the attempt
// does not count. A handler that does not return is left behind: its message comes again when its
// lease ends. Close returns at the latest a second after ctx ends. A handler must not call it.
func (w *Worker) Close(ctx context.Context) error {
	w.stop()
	calls, rest, done := closing.Split(ctx)
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
			w.qs.logger.Warn("a worker cannot claim messages; it tries again", "queue", w.opts.Queue, "worker", w.opts.Name, "err", err)
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

// claim waits for messages. asked is when the claim was sent: the leases began then or later.
func (w *Worker) claim(ctx context.Context, most int) (messages []Message, asked time.Time, err error) {
	err = w.qs.With(ctx, w.opts.Queue, func(q *Queue) error {
		messages, err = q.Claim(ctx, Claim{Max: most, Lease: w.opts.Lease, Wait: claimWait, Worker: w.opts.Name, Stop: w.stopping,
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
func (w *Worker) handle(ctx context.Context, m Message, asked time.Time, end func()) {
	j := &Job{Message: m, worker: w, cut: ctx, until: asked.Add(w.opts.Lease), end: end}
	ctx, j.lose = context.WithCancelCause(ctx)
	w.mu.Lock()
	w.running[m.Receipt] = j
	j.over = time.AfterFunc(time.Until(j.until), func() { j.lose(ErrClaimLost) })
	w.mu.Unlock()
	err := w.callInTime(ctx, j)
	if err != nil {
		j.cutOff = ctx.Err() != nil && !retry.IsPermanent(err)
		err = w.reconcile(j, err)
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
func (w *Worker) callInTime(ctx context.Context, j *Job) error {
	if w.opts.Timeout == 0 {
		return w.call(ctx, j)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, w.opts.Timeout, fmt.Errorf("%w, %v", ErrHandlerTimeout, w.opts.Timeout))
	defer cancel()
	err := w.call(ctx, j)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrHandlerTimeout) && !errors.Is(err, ErrHandlerTimeout) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// call runs the handler, and turns a panic into an error.
func (w *Worker) call(ctx context.Context, j *Job) (err error) {
	if w.qs.tracer != nil {
		info := eventlog.SpanInfo{Topic: j.Topic, Group: w.opts.Queue, Records: 1}
		info.Link(j.Headers)
		var end func(error)
		ctx, end = w.qs.tracer.Start(ctx, "work", info)
		defer func() { end(err) }()
	}
	err = recovered.Do(func() error { return w.opts.Handle(ctx, j) })
	if panicked := (*recovered.Error)(nil); errors.As(err, &panicked) && j.Attempt == 1 {
		w.qs.logger.Error("handler panicked", "queue", w.opts.Queue, "message", j.ID.String(), "panic", panicked.Value, "stack", string(panicked.Stack))
	}
	return err
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
	err := w.qs.With(ctx, w.opts.Queue, func(q *Queue) (err error) {
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
		case errors.Is(failed, ErrStaleReceipt) && !errors.Is(failed, eventlog.ErrUnsure), errors.Is(failed, ErrUnknownQueue):
			j.lose(ErrClaimLost)
		}
	}
}
