package kafka

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// pulseEvery is the time between two beats of a pulse.
	pulseEvery = 250 * time.Millisecond
	// suspendedAfter is how late a beat is if the process was suspended: more than a busy machine
	// makes it late, less than a client waits.
	suspendedAfter = 2 * time.Second
)

// errSuspended closes a connection whose requests may be old.
var errSuspended = errors.New("this process was suspended; what was sent meanwhile may have been repeated at another broker")

// pulse notices that the process was suspended (SIGSTOP, a paused container, a frozen virtual
// machine). A request that waited meanwhile is not executed: its client may have given up, repeated
// it at another broker, and gone on. If the request were executed, it might delete a topic that was
// created since, for example.
type pulse struct {
	mu     sync.Mutex    // guards what follows
	beat   time.Time     // the last one; zero: none yet
	woke   time.Time     // when the process was last found to have been suspended
	missed time.Duration // how long it was suspended, if run has not reported that yet
	awake  context.Context
	end    context.CancelFunc // ends awake
}

// run beats until ctx ends, and reports suspensions.
func (p *pulse) run(ctx context.Context, suspended func(lasted time.Duration)) {
	ticker := time.NewTicker(pulseEvery)
	defer ticker.Stop()
	for {
		if missed := p.beats(); missed > 0 {
			suspended(missed)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// beats returns how long the process was suspended since the last beat; 0: it was not.
func (p *pulse) beats() (missed time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.detect()
	p.beat = time.Now()
	missed, p.missed = p.missed, 0
	return missed
}

// If the process was suspended, detect ends the contexts that until returned. The caller holds mu.
func (p *pulse) detect() {
	now := time.Now()
	late := now.Sub(p.beat)
	if p.beat.IsZero() || late < suspendedAfter {
		return
	}
	p.beat, p.woke, p.missed = now, now, late
	if p.awake != nil {
		p.end()
		p.awake = nil
	}
}

// until returns a context that ends when the process was suspended. justWoke reports whether what
// begins now may have waited for the process to go on.
func (p *pulse) until() (awake context.Context, justWoke bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.detect()
	if p.awake == nil {
		p.awake, p.end = context.WithCancel(context.Background())
	}
	return p.awake, time.Since(p.woke) < suspendedAfter
}

// suspended reports whether the process was suspended since the connection began.
func (c *conn) suspended() bool {
	c.s.pulse.mu.Lock()
	c.s.pulse.detect()
	c.s.pulse.mu.Unlock()
	return c.awake.Err() != nil
}

// mayBeOld reports whether a request may have waited while the process was suspended. The kernel
// accepts connections for a suspended process, with what their clients send. Clients begin with
// ApiVersions or a login and wait for the answer, so what follows an answer is new.
func (c *conn) mayBeOld(key kmsg.Key) bool {
	return c.suspended() || c.justWoke && !c.answered.Load() && key != kmsg.ApiVersions
}
