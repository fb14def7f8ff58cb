package s3

import (
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// clockSpan is how long bounds of the server's clock are refined before they begin anew, so that drift cannot make them lie.
const clockSpan = 10 * time.Minute

// clock knows the server's time by the Date header of its answers (Cristian's algorithm): an answer with Date D that was asked for at t0 and came at t1 was made when
// the server's clock was in [D, D+1s), and ours in [t0, t1]. So the server is ahead of us by at least D-t1 and at most D+1s-t0. Bounds of several
// answers are intersected. The difference that is used moves only as far as these bounds force it to.
type clock struct {
	mu       sync.Mutex // guards all below
	known    bool
	low, top time.Duration
	ahead    time.Duration // what is used: of the machine's clock at the start, plus what has passed since on the monotonic clock
	began    time.Time     // when the bounds began
}

// machine is when this process started, for readings that jumps of the machine's clock do not change.
var machine = time.Now()

func steady(t time.Time) time.Time { return machine.Round(0).Add(t.Sub(machine)) }

// observe learns from an answer.
func (c *clock) observe(date, asked, came time.Time) {
	low := date.Sub(steady(came))
	top := date.Add(time.Second).Sub(steady(asked))
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || came.Sub(c.began) > clockSpan || low > c.top || top < c.low {
		c.known, c.low, c.top, c.began = true, low, top, came
	}
	c.low, c.top = max(c.low, low), min(c.top, top)
	c.ahead = min(max(c.ahead, c.low), c.top)
}

func (c *clock) now() eventlog.Timestamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	return eventlog.Timestamp(steady(time.Now()).Add(c.ahead).UnixMilli())
}
