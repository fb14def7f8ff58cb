package httpapi

import (
	"context"
	"errors"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/budget"
)

// answerBudget is memory of Server.answers for the records of one answer. Log.Fetch claimed the
// memory of their batches before.
//
//	|--- batches ---|--- records ---|
//	                0           used ≤ claimed
type answerBudget struct {
	claim         *budget.Claim
	used, claimed int64
}

// claimStep is how many bytes are claimed in one step, so that most records need no claim of their
// own.
const claimStep = 64 << 10

// take uses n bytes, or returns false if there is no memory for them. It does not wait. Under
// memory pressure only the first record gets memory.
func (b *answerBudget) take(n int64, first bool) bool {
	if more := b.used + n - b.claimed; more > 0 {
		switch step := max(more, claimStep); {
		case b.claim.TryGrow(step, false):
			b.claimed += step
		case first && b.claim.TryGrow(more, true):
			b.claimed += more
		default:
			return false
		}
	}
	b.used += n
	return true
}

// growForEncoder claims the memory that a follower's encoder takes while it sends a page, in
// addition to the memory of the page. If the page has no claim it is small, such as a comment, and
// its encoder needs no claim either.
func growForEncoder(ctx context.Context, claim *budget.Claim) error {
	if claim.Held() == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	_, err := claim.Grow(ctx, encoderBytes)
	return err
}

// shrink gives back what is not used.
func (b *answerBudget) shrink() {
	b.claim.Shrink(b.claimed - b.used)
	b.claimed = b.used
}

// claimAnswer claims memory for an answer: want bytes if they are free, otherwise it waits for
// least bytes.
func (c *call) claimAnswer(ctx context.Context, want, least int64) (*budget.Claim, error) {
	s := c.s
	claim := s.answers.BeginFor(c.who.ID())
	if claim.TryGrow(min(want, s.answers.Share()), false) {
		return claim, nil
	}
	if _, err := claim.Grow(ctx, min(least, s.answers.Share())); err != nil {
		claim.Release()
		return nil, s.overloaded()
	}
	return claim, nil
}

// overloaded is the error when there is no memory for an answer.
func (s *Server) overloaded() error {
	return kindOverloaded.past(s.cfg.limits.FetchBytes, "answers that clients have not read yet take %d bytes of memory, the limit, or those of this client a quarter of it, the limit for one client. Nothing was read; try again", s.cfg.limits.FetchBytes)
}

// fetchError translates an error of Log.Fetch for clients.
func (s *Server) fetchError(err error) error {
	if errors.Is(err, eventlog.ErrCrowded) {
		return s.overloaded()
	}
	return err
}

// Memory of a record and of a header in Go, without their bytes; rounded up, because the slices
// that hold them grow in steps.
const (
	recordBytes = 128
	headerBytes = 64
)

// weight estimates the memory of a record.
func weight(rec *batch.Record) int64 {
	n := recordBytes + len(rec.Key) + len(rec.Value)
	for _, h := range rec.Headers {
		n += headerBytes + len(h.Key) + len(h.Value)
	}
	return int64(n)
}
