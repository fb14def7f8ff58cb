package eventlog

import (
	"context"
	"time"

	"github.com/weir-log/weir/internal/chance"
)

// Pause waits before the next try of a call of the store: 20 ms, doubled with each failure up to
// 1 s. At random it is 0.5 to 1.5 times as long, so that processes that lost the same store do not
// try in step. It ends with ctx.
func Pause(ctx context.Context, failures int) {
	const first, longest = 20 * time.Millisecond, time.Second
	d := min(first<<min(failures-1, 10), longest)
	select {
	case <-time.After(d/2 + chance.N(d)):
	case <-ctx.Done():
	}
}
