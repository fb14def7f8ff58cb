package kafka

import "context"

// answerFree is how many bytes of answer a request may have without a claim: most have less, and no other client can stop those.
const answerFree = 64 << 10

// expect claims memory for so many bytes more of a request's answer, before they are made. An error is the end of the request's time: then the
// connection is closed, for to say less would be an answer that is not true. Below 0 it gives back what was not needed.
func (r *request) claimAnswer(ctx context.Context, n int) error {
	before := max(r.answerBytes-answerFree, 0)
	r.answerBytes += n
	after := max(r.answerBytes-answerFree, 0)
	r.claim.Shrink(int64(before - after))
	_, err := r.claim.Grow(ctx, int64(after-before))
	return err
}
