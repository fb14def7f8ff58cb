package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
)

// answerFree is how many bytes an answer may have without a claim. Most answers are smaller, so
// other clients cannot block them.
const answerFree = 64 << 10

// claimAnswer claims memory for n more bytes of a request's answer, before they are allocated. A
// negative n gives memory back. It fails when the request's time is over. Most callers then close
// the connection, because a shortened answer would be wrong; nameOthers leaves out details instead.
func (r *request) claimAnswer(ctx context.Context, n int) error {
	before := max(r.answerBytes-answerFree, 0)
	r.answerBytes += n
	after := max(r.answerBytes-answerFree, 0)
	r.claim.Shrink(int64(before - after))
	_, err := r.claim.Grow(ctx, int64(after-before))
	return err
}

// checkAnswer refuses n more bytes of an answer that grows with the names in its request, if the
// answer would then take more than half of the memory for requests in progress. The other half
// stays free for other requests: without it they would all wait for this answer. Clients do not
// retry POLICY_VIOLATION.
func (r *request) checkAnswer(n, asked int) error {
	if most := r.conn.s.cfg.limits.InFlightBytes / 2; int64(r.answerBytes+n) > most {
		return deny(kerr.PolicyViolation, "the request has %d topics or resources, and the settings in its answer would take more than %d bytes of memory, the limit: send several requests", asked, most)
	}
	return nil
}
