package httpapi

import (
	"context"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/budget"
)

// Memory of a request that waits for something to happen, so that the answer may take long:
// streams, followers, long polls, claims. It is claimed before the request waits.
const (
	// waitBytes is what each of them takes: buffers of its connection, its goroutines, its headers.
	waitBytes = 48 << 10
	// spanBytes is what a read of a partition takes, besides its records: span, slice, page, and
	// the registration of a reader that waits.
	spanBytes = 512
	// offsetBytes is what a stream takes for each partition while it waits.
	offsetBytes = 8
	// spansFree is how many partitions a request reads without a claim for them.
	spansFree = 64
)

// beginWait claims n bytes for a request that waits, besides waitBytes. It refuses the request at
// once if they are not free: what waits may hold its memory for hours.
func (s *Server) beginWait(who *caller, n int64) (*budget.Claim, error) {
	claim := s.waits.BeginFor(who.ID())
	return claim, s.growWait(claim, waitBytes+n)
}

// growWait claims n bytes more for a request that waits.
func (s *Server) growWait(claim *budget.Claim, n int64) error {
	if claim.TryGrow(n, true) {
		return nil
	}
	return kindOverloaded.past(s.cfg.limits.WaitBytes, "requests that wait for events or messages take %d bytes of memory, the limit, or those of this client a quarter of it, the limit for one client: this one would take %d more, %d for each partition of a stream, %d for each partition of a member; "+
		"try again, let fewer requests wait, or ask another weir process", s.cfg.limits.WaitBytes, n, offsetBytes, spanBytes)
}

// claimSpans claims what a read of n partitions takes besides their records, for the client with an
// id, or "" for what clients share; nil: it is little.
func (s *Server) claimSpans(ctx context.Context, client string, n int) (*budget.Claim, error) {
	if n <= spansFree {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	claim := s.answers.BeginFor(client)
	if _, err := claim.Grow(ctx, int64(n)*spanBytes); err != nil {
		claim.Release()
		return nil, s.overloaded()
	}
	return claim, nil
}

// askBounds reads where partitions begin and end, with one store call.
func (s *Server) askBounds(ctx context.Context, ps []eventlog.Partition) ([]eventlog.Slice, error) {
	claim, err := s.claimSpans(ctx, "", len(ps))
	if err != nil {
		return nil, err
	}
	defer claim.Release()
	return s.cfg.Log.Bounds(ctx, ps...)
}
