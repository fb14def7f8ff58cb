package httpapi

import (
	"context"
	"math"
	"time"

	"github.com/weir-log/weir/internal/budget"
	"github.com/weir-log/weir/use/queue"
)

const (
	claimDefault = 1
	claimMax     = queue.ClaimMax
)

// claimBody is the body of a claim.
type claimBody struct {
	claim queue.Claim
	acks  []string // receipts to acknowledge before the claim
}

// claimMessages claims messages for the client, and waits for some if the client asked for it. It
// first acknowledges the receipts in the body.
func (s *Server) claimMessages(c *call) error {
	asked := claimBody{claim: queue.Claim{Max: claimDefault}}
	if c.r.ContentLength != 0 {
		body, err := s.jsonBody(c)
		if err != nil {
			return err
		}
		if err := readJSON(body, 0, asked.read); err != nil {
			return err
		}
	}
	wait := asked.claim.Wait
	if wait > 0 {
		if err := s.claims.begin(c.who); err != nil {
			return err
		}
		defer s.claims.end(c.who)
		memory, err := s.beginWait(c.who, 0)
		if err != nil {
			return err
		}
		defer memory.Release()
	}
	c.waits(wait)
	ctx, cancel := c.withTimeout()
	defer cancel()
	polls, stop := untilDraining(c.r)
	defer stop()
	asked.claim.Stop = polls.Done()
	var memory *budget.Claim
	defer func() { memory.Release() }()
	asked.claim.Room = func(ctx context.Context) (int64, func(), error) {
		if err := s.stillQueue(c, toRead, c.r.PathValue("queue")); err != nil { // the request may have waited for long
			return 0, func() {}, err
		}
		claim, err := c.claimAnswer(ctx, 2*fetchBytes, 2*claimStep)
		if err != nil {
			return 0, func() {}, err
		}
		memory = claim
		return max(claim.Held()/2, 1), claim.Release, nil // the other half is for the messages' batches
	}
	var acked []error // kept if the queue is opened again for the claim
	var messages []queue.Message
	err := s.withQueue(ctx, c, func(q *queue.Queue) error {
		if len(asked.acks) > 0 {
			errs, err := q.Ack(ctx, asked.acks...)
			if err != nil {
				return unknownReceipts(err)
			}
			acked, asked.acks = errs, nil
		}
		c.releaseBody() // the body is not needed while the request waits
		var err error
		messages, err = q.Claim(ctx, asked.claim)
		if toldUnknown(err) {
			err = unknownClaim(err, asked.claim.ID)
		}
		return err
	})
	if err != nil && acked == nil {
		return err
	}
	answerClaim(c, messages, acked, err, memory)
	return nil
}

// unknownClaim says how to get the messages that were perhaps claimed.
func unknownClaim(err error, id string) error {
	p := kindUnknown.because("the claim was sent to the store, but no answer came. Claim again with the same id: if messages were claimed, the answer has them")
	if id == "" {
		p = kindUnknown.because("the claim was sent to the store, but no answer came. Claim again: messages that were claimed come again when their leases end. If you give each claim an `id`, a repeated claim gets them immediately")
	}
	return p.causedBy(err)
}

func (b *claimBody) read(r *jsonReader) error {
	return r.object(func(name string) (err error) {
		var n int64
		switch name {
		case "max":
			n, err = r.integer(1, math.MaxInt64)
			b.claim.Max = int(min(n, claimMax))
		case "wait_ms":
			n, err = r.integer(0, math.MaxInt64)
			b.claim.Wait = time.Duration(min(n, waitMax.Milliseconds())) * time.Millisecond
		case "lease_ms":
			n, err = r.integer(leaseMin, leaseMax)
			b.claim.Lease = time.Duration(n) * time.Millisecond
		case "worker":
			b.claim.Worker, err = r.string()
		case "id":
			b.claim.ID, err = r.string()
		case "ack":
			b.acks, err = readReceipts(r)
		default:
			err = r.unknown(name, "max", "wait_ms", "lease_ms", "worker", "id", "ack")
		}
		return err
	})
}

// answerClaim writes the claimed messages, and the outcome of each receipt in the body. If failed
// is set there are no messages, and the problem says whether some may have been claimed.
func answerClaim(c *call, messages []queue.Message, acked []error, failed error, memory *budget.Claim) {
	c.Header()["Content-Type"] = jsonType
	e, end := pageEncoder(c, memory)
	defer end()
	e.string(`{"messages":[`)
	for i := range messages {
		if i > 0 {
			e.string(",\n")
		}
		e.message(&messages[i])
		e.spill()
	}
	e.string(`]`)
	if acked != nil {
		e.string(`,"acks":`)
		e.results(c, acked)
	}
	if failed != nil {
		e.string(`,"problem":`)
		e.string(string(c.problem(failed)))
	}
	e.string("}\n")
}

// message writes a claimed message.
func (e *encoder) message(m *queue.Message) {
	e.string(`{"id":"` + m.ID.String() + `","receipt":"` + m.Receipt + `","attempt":`)
	e.int(int64(m.Attempt))
	e.string(`,"until":`)
	e.int(m.Until.UnixMilli())
	if !m.Time.IsZero() {
		e.string(`,"timestamp":`)
		e.int(m.Time.UnixMilli())
	}
	e.content(m.Key, m.Value, m.Headers)
	e.string(`}`)
}
