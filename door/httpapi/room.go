package httpapi

import (
	"context"
	"errors"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/budget"
)

// room is memory of Server.answers for the records of one answer. The batches that they are in were claimed by Log.Fetch.
//
//	|--- batches ---|--- records ---|
//	                0              used ≤ has
type room struct {
	claim     *budget.Claim
	used, has int64
}

// roomStep is how much is claimed at once, so that few records need a claim of their own.
const roomStep = 64 << 10

// take reports whether there is memory for n bytes more. It does not wait. Where many answers are being sent there is some for the first record alone.
func (r *room) take(n int64, first bool) bool {
	if more := r.used + n - r.has; more > 0 {
		switch step := max(more, roomStep); {
		case r.claim.TryGrow(step, false):
			r.has += step
		case first && r.claim.TryGrow(more, true):
			r.has += more
		default:
			return false
		}
	}
	r.used += n
	return true
}

// settle gives back what is not used.
func (r *room) settle() {
	r.claim.Shrink(r.has - r.used)
	r.has = r.used
}

// claimRoom claims memory for an answer of about so many bytes: as many as wanted where few are being sent, else as many as a small one has, in line.
func (s *Server) claimRoom(ctx context.Context, want, least int64) (*budget.Claim, error) {
	claim := s.answers.Begin()
	if claim.TryGrow(min(want, s.answers.Share()), false) {
		return claim, nil
	}
	if _, err := claim.Grow(ctx, min(least, s.answers.Share())); err != nil {
		claim.Release()
		return nil, s.crowded()
	}
	return claim, nil
}

// crowded says that there is no memory for an answer.
func (s *Server) crowded() error {
	return kindOverloaded.past(s.cfg.FetchBytes, "clients are slow to take answers that have %d bytes together, the most there may be; try again", s.cfg.FetchBytes)
}

// orCrowded is an error of Log.Fetch as clients are told it.
func (s *Server) orCrowded(err error) error {
	if errors.Is(err, eventlog.ErrCrowded) {
		return s.crowded()
	}
	return err
}

// What Go takes for a record and for a header, beside their bytes, and a little more: the lists they are in grow in steps.
const (
	recordBytes = 128
	headerBytes = 64
)

// weight is what a record takes.
func weight(rec *batch.Record) int64 {
	n := recordBytes + len(rec.Key) + len(rec.Value)
	for _, h := range rec.Headers {
		n += headerBytes + len(h.Key) + len(h.Value)
	}
	return int64(n)
}
