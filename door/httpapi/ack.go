package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/weir-log/weir/use/queue"
)

// errorTextMax bounds the error text of a nack, in bytes. The queue stores less.
const errorTextMax = 64 << 10

// answers is the body of an ack, a nack or an extension.
type answers struct {
	receipts []string
	lease    time.Duration
	nack     queue.Nack
}

// ackMessages acknowledges messages, and answers with the outcome of each receipt.
func (s *Server) ackMessages(c *call) error {
	return s.answerFor(c, (*answers).ackMember, func(ctx context.Context, q *queue.Queue, a *answers) ([]error, error) {
		return q.Ack(ctx, a.receipts...)
	})
}

// nackMessages gives messages back: they are retried, or become dead letters.
func (s *Server) nackMessages(c *call) error {
	return s.answerFor(c, (*answers).nackMember, func(ctx context.Context, q *queue.Queue, a *answers) ([]error, error) {
		return q.Nack(ctx, a.nack, a.receipts...)
	})
}

// extendLeases extends leases.
func (s *Server) extendLeases(c *call) error {
	return s.answerFor(c, (*answers).extendMember, func(ctx context.Context, q *queue.Queue, a *answers) ([]error, error) {
		lease := a.lease
		if lease == 0 {
			lease = q.Info().Settings.Lease
		}
		return q.Extend(ctx, lease, a.receipts...)
	})
}

// answerFor reads a body of receipts, calls do with them, and answers with the outcome of each. If
// there is one receipt and it is refused, the answer is its problem: many clients look at the
// status alone.
func (s *Server) answerFor(c *call, member func(*answers, *jsonReader, string) error, do func(context.Context, *queue.Queue, *answers) ([]error, error)) error {
	body, err := s.jsonBody(c)
	if err != nil {
		return err
	}
	var a answers
	err = readJSON(body, 0, func(r *jsonReader) error {
		return r.object(func(name string) (err error) {
			if name == "receipts" {
				a.receipts, err = readReceipts(r)
				return err
			}
			return member(&a, r, name)
		})
	})
	if err == nil && len(a.receipts) == 0 {
		err = kindInvalidJSON.because(`"receipts" is missing or empty`)
	}
	if err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	var errs []error
	err = s.withQueue(ctx, c, func(q *queue.Queue) (err error) {
		errs, err = do(ctx, q, &a)
		return err
	})
	if err == nil && len(errs) == 1 {
		err = errs[0]
	}
	if err != nil {
		return unknownReceipts(err)
	}
	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
		}
	}
	c.Header()["Content-Type"] = jsonType
	c.WriteHeader(http.StatusMultiStatus)
	e, end := pageEncoder(c, nil)
	defer end()
	e.string(`{"failed":`)
	e.int(int64(failed))
	e.string(`,"results":`)
	e.results(c, errs)
	e.string("}\n")
	return nil
}

func (a *answers) ackMember(r *jsonReader, name string) error { return r.unknown(name, "receipts") }

func (a *answers) extendMember(r *jsonReader, name string) error {
	if name != "lease_ms" {
		return r.unknown(name, "receipts", "lease_ms")
	}
	ms, err := r.integer(leaseMin, leaseMax)
	a.lease = time.Duration(ms) * time.Millisecond
	return err
}

func (a *answers) nackMember(r *jsonReader, name string) (err error) {
	switch name {
	case "error":
		if a.nack.Error, err = r.string(); len(a.nack.Error) > errorTextMax {
			return r.fail("the error has %d bytes; the limit is %d", len(a.nack.Error), errorTextMax)
		}
	case "delay_ms":
		var ms int64
		if r.null() {
			return nil
		}
		ms, err = r.integer(0, pauseMax)
		a.nack.SetDelay, a.nack.Delay = true, time.Duration(ms)*time.Millisecond
	case "reject":
		a.nack.Reject, err = r.boolean()
	case "uncounted":
		a.nack.Uncounted, err = r.boolean()
	default:
		err = r.unknown(name, "receipts", "error", "delay_ms", "reject", "uncounted")
	}
	return err
}

// readReceipts reads a list of receipts.
func readReceipts(r *jsonReader) (receipts []string, err error) {
	err = r.array(func(i int) error {
		if i == eventsMax {
			return kindTooLarge.past(eventsMax, "the request has more than %d receipts, the limit. Nothing happened", eventsMax)
		}
		receipt, err := r.string()
		receipts = append(receipts, receipt)
		return err
	})
	return receipts, err
}

// unknownReceipts returns, for an error that leaves open whether something happened, a problem that
// says to send the same receipts again. Other errors it returns as they are.
func unknownReceipts(err error) error {
	if !toldUnknown(err) {
		return err
	}
	return kindUnknown.because("the change was sent to the store, but no answer came. Send the same receipts again: this is safe, nothing is done twice. If a result is then `stale_receipt` with `done`, the message is done").causedBy(err)
}

// results writes the outcome of each receipt.
func (e *encoder) results(c *call, errs []error) {
	e.string(`[`)
	for i, err := range errs {
		if i > 0 {
			e.string(",")
		}
		if err == nil {
			e.string(`{"status":204}`)
		} else {
			e.string(`{"status":`)
			e.int(int64(problemOf(err).Status))
			e.string(`,"problem":`)
			e.string(string(c.problem(unknownReceipts(err))))
			e.string(`}`)
		}
		e.spill()
	}
	e.string(`]`)
}
