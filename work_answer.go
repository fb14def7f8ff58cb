package weir

import (
	"context"
	"errors"
	"time"

	"github.com/weir-log/weir/use/queue"
)

// ackers is how many calls of Ack run concurrently: while one waits for the store, the next is
// prepared. With more, each would have fewer messages.
const ackers = 2

// ackAll acks handled messages: all that are there in one call. Messages that it cannot ack are
// tried again one by one.
func (w *Worker) ackAll() {
	for j := range w.handled {
		jobs := []*job{j}
		for more := true; more && len(jobs) < queue.ClaimMax; {
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
			receipts[i] = j.receipt
		}
		errs, err := w.callQueue(func(ctx context.Context, q *queue.Queue) ([]error, error) { return q.Ack(ctx, receipts...) })
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
	var stale *queue.StaleReceiptError
	return err == nil || errors.As(err, &stale) && stale.Done
}

// finish ends the worker's part in a message: its lease is no longer extended.
func (w *Worker) finish(j *job) {
	w.mu.Lock()
	delete(w.running, j.receipt)
	j.over.Stop()
	w.mu.Unlock()
	j.lose(nil)
	<-w.answers
	j.end()
}

// answer acks or nacks one message, and retries while the outcome is unknown or the store
// unavailable, also after the lease has ended. A worker that is being closed retries only until the
// lease has ended, or the time of Close is over.
func (w *Worker) answer(j *job, failed error) {
	defer w.finish(j)
	for failures := 0; ; failures++ {
		err := w.tell(j, failed)
		switch {
		case err == nil, failed == nil && done(err):
			return
		case errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnsure):
			if (w.left(j) > 0 || !w.isStopping()) && sleep(j.cut, min(claimPause<<min(failures, 5), time.Second)) {
				continue
			}
		}
		w.log.logger.Warn("a message was handled, but that could not be written to its queue: the message may come again", "queue", w.opts.Queue, "message", j.id.String(), "failed", failed, "err", err)
		return
	}
}

func (w *Worker) left(j *job) time.Duration {
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

func (w *Worker) tell(j *job, failed error) error {
	errs, err := w.callQueue(func(ctx context.Context, q *queue.Queue) ([]error, error) {
		if failed == nil {
			return q.Ack(ctx, j.receipt)
		}
		n := queue.Nack{Error: failed.Error(), Reject: isPermanent(failed)}
		var later *retryAfterError
		if errors.As(failed, &later) {
			n.SetDelay, n.Delay = true, max(later.pause, 0)
		}
		if j.cutOff {
			n = queue.Nack{Uncounted: true}
		}
		return q.Nack(ctx, n, j.receipt)
	})
	if err == nil {
		err = errs[0]
	}
	return err
}

// callQueue calls f with the queue, within extendTimeout.
func (w *Worker) callQueue(f func(context.Context, *queue.Queue) ([]error, error)) (errs []error, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), extendTimeout)
	defer cancel()
	err = w.log.withQueue(ctx, w.opts.Queue, func(q *queue.Queue) (err error) {
		errs, err = f(ctx, q)
		return err
	})
	return errs, err
}
