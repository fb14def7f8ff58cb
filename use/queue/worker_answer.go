package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/retry"
)

// ackers is how many calls of Ack run concurrently: while one waits for the store, the next is
// prepared. With more, each would have fewer messages.
const ackers = 2

// ackAll acks handled messages: all that are there in one call. Messages that it cannot ack are
// tried again one by one.
func (w *Worker) ackAll() {
	for j := range w.handled {
		jobs := []*Job{j}
		for more := true; more && len(jobs) < ClaimMax; {
			select {
			case next, open := <-w.handled:
				if more = open; open {
					jobs = append(jobs, next)
				}
			default:
				more = false
			}
		}
		receipts := make([]string, len(jobs))
		for i, j := range jobs {
			receipts[i] = j.Receipt
		}
		errs, err := w.callQueue(func(ctx context.Context, q *Queue) ([]error, error) { return q.Ack(ctx, receipts...) })
		for i, j := range jobs {
			if err != nil || !done(errs[i]) {
				go w.answer(j, nil)
			} else {
				w.finish(j)
			}
		}
	}
}

// done reports whether the result of an ack says that the message is done, by this ack or an
// earlier one.
func done(err error) bool {
	var stale *StaleReceiptError
	return err == nil || errors.As(err, &stale) && stale.Done
}

// finish ends the worker's part in a message: its lease is no longer extended.
func (w *Worker) finish(j *Job) {
	w.mu.Lock()
	delete(w.running, j.Receipt)
	j.over.Stop()
	w.mu.Unlock()
	j.lose(nil)
	<-w.answers
	j.end()
}

// answer acks or nacks one message, and retries while the outcome is unknown or the store
// unavailable, also after the lease has ended. A worker that is being closed retries only until the
// lease has ended, or the time of Close is over.
func (w *Worker) answer(j *Job, failed error) {
	defer w.finish(j)
	for failures := 0; ; failures++ {
		err := w.tell(j, failed)
		switch {
		case err == nil, failed == nil && done(err):
			return
		case errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrUnsure):
			if (w.left(j) > 0 || !w.isStopping()) && retry.Sleep(j.cut, min(claimPause<<min(failures, 5), time.Second)) {
				continue
			}
		}
		w.qs.logger.Warn("a message was handled, but that could not be written to its queue: the message may come again", "queue", w.opts.Queue, "message", j.ID.String(), "failed", failed, "err", err)
		return
	}
}

func (w *Worker) left(j *Job) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Until(j.until)
}

func (w *Worker) isStopping() bool {
	select {
	case <-w.stopping:
		return true
	default:
		return false
	}
}

func (w *Worker) tell(j *Job, failed error) error {
	errs, err := w.callQueue(func(ctx context.Context, q *Queue) ([]error, error) {
		if failed == nil {
			return q.Ack(ctx, j.Receipt)
		}
		n := Nack{Error: failed.Error(), Reject: retry.IsPermanent(failed)}
		if pause, is := retry.Wanted(failed); is {
			n.SetDelay, n.Delay = true, pause
		}
		if j.cutOff {
			n = Nack{Uncounted: true}
		}
		return q.Nack(ctx, n, j.Receipt)
	})
	if err == nil {
		err = errs[0]
	}
	return err
}

// callQueue calls f with the queue, within extendTimeout.
func (w *Worker) callQueue(f func(context.Context, *Queue) ([]error, error)) (errs []error, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), extendTimeout)
	defer cancel()
	err = w.qs.With(ctx, w.opts.Queue, func(q *Queue) (err error) {
		errs, err = f(ctx, q)
		return err
	})
	return errs, err
}

// AckTx acknowledges the message within the handler's own transaction: run writes the ack of a
// receipt with it. It returns ErrClaimLost if the handler has returned, otherwise what run returns.
// The handler calls it while it runs.
func (j *Job) AckTx(ctx context.Context, run func(ctx context.Context, receipt string) error) error {
	j.worker.mu.Lock()
	runs := j.worker.running[j.Receipt] == j
	j.inTx = true
	j.worker.mu.Unlock()
	if !runs {
		return fmt.Errorf("%w: its handler has returned", ErrClaimLost)
	}
	err := run(ctx, j.Receipt)
	if err == nil {
		j.worker.mu.Lock()
		j.acked = true
		j.worker.mu.Unlock()
	}
	return err
}

// errInDoubt: the handler failed, but its ack may have been committed, or may be soon. The message
// is neither acked nor nacked: the next claim, after its lease has ended, finds out.
var errInDoubt = errors.New("it is not known whether its transaction was committed")

// reconcile finds out, after a handler failed, whether its transaction, or that of another worker,
// has acked the message: then the message is done.
func (w *Worker) reconcile(j *Job, failed error) error {
	w.mu.Lock()
	inTx, mine, isDone := j.inTx, j.acked, j.done
	w.mu.Unlock()
	if isDone {
		return nil
	}
	if !inTx {
		return failed
	}
	ctx, cancel := context.WithTimeout(context.Background(), extendTimeout)
	defer cancel()
	acked := false
	err := w.qs.With(ctx, w.opts.Queue, func(q *Queue) (err error) {
		acked, err = q.Acked(ctx, j.Receipt)
		return err
	})
	switch {
	case acked:
		return nil
	case err != nil || mine:
		w.qs.logger.Warn("a handler failed after it acknowledged its message in a transaction, and it is not known whether that was committed: if not, the message comes again when its lease ends",
			"queue", w.opts.Queue, "message", j.ID.String(), "failed", failed, "err", err)
		return errInDoubt
	}
	return failed
}
