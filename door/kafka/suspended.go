package kafka

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// pulseEvery is the time between two beats of a pulse.
	pulseEvery = 250 * time.Millisecond
	// suspendedAfter is how late a beat is if the process was suspended: more than a busy machine makes it late, less than a client waits.
	suspendedAfter = 2 * time.Second
)

// errSuspended closes a connection whose requests may be old.
var errSuspended = errors.New("this process was suspended; what was sent meanwhile may have been repeated at another broker")

// pulse notices that the process was suspended (SIGSTOP, a paused container, a frozen virtual machine). A request that waited meanwhile is not
// executed: its client may have given up, repeated it at another broker, and gone on. A topic would be deleted that was created since, for example.
type pulse struct {
	mu    sync.Mutex // guards what follows
	beat  time.Time  // the last one; zero: none yet
	awake context.Context
	end   context.CancelFunc // of awake
}

// run beats until ctx ends.
func (p *pulse) run(ctx context.Context, suspended func(lasted time.Duration)) {
	ticker := time.NewTicker(pulseEvery)
	defer ticker.Stop()
	for {
		if late := p.beats(); late >= suspendedAfter {
			suspended(late)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// beats returns how long ago the last beat was. If the process was suspended, it ends what listens to until.
func (p *pulse) beats() (late time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.beat.IsZero() {
		late = time.Since(p.beat)
	}
	if late >= suspendedAfter && p.awake != nil {
		p.end()
		p.awake = nil
	}
	p.beat = time.Now()
	return late
}

// until returns a context that ends when the process was suspended.
func (p *pulse) until() context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.awake == nil {
		p.awake, p.end = context.WithCancel(context.Background())
	}
	return p.awake
}

// skipped reports whether the process was suspended and beats did not yet find that out.
func (p *pulse) skipped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.beat.IsZero() && time.Since(p.beat) >= suspendedAfter
}

// suspended reports whether the process was suspended since the connection began.
func (c *conn) suspended() bool { return c.awake.Err() != nil || c.s.pulse.skipped() }
