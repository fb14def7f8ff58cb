package kafka

import "context"

// answerFree is how many bytes an answer may have without a claim. Most answers are smaller, so other clients cannot block them.
const answerFree = 64 << 10

// claimAnswer claims memory for n more bytes of a request's answer, before they are allocated. A negative n gives memory back.
// It fails when the request's time is over. Then the connection is closed, because a shortened answer would be wrong.
func (r *request) claimAnswer(ctx context.Context, n int) error {
	before := max(r.answerBytes-answerFree, 0)
	r.answerBytes += n
	after := max(r.answerBytes-answerFree, 0)
	r.claim.Shrink(int64(before - after))
	_, err := r.claim.Grow(ctx, int64(after-before))
	return err
}
