package httpapi

import (
	"bytes"
	"time"

	"github.com/weir-log/weir/internal/budget"
)

// Memory of a batch: its events or messages while they are handled, and the outcome of each while
// the client reads it.
const (
	itemBytes    = 1 << 10 // an event and its problem, without the bytes of the body
	placedBytes  = 64
	problemBytes = 512
)

// claimItems claims memory for the most events or messages that a body may hold. Call parsed with
// their number: it gives back the memory that they do not need, and claims more if they have many
// headers.
func (c *call) claimItems(body []byte) (parsed func(items, headers int) error, err error) {
	between := []byte(",")
	if c.mediaType() != "application/json" {
		between = []byte("\n")
	}
	most := int64(min(bytes.Count(body, between)+1, eventsMax)) * itemBytes
	if most > bodyFree {
		if _, err := c.claimMemory(most); err != nil {
			return nil, err
		}
	} else {
		most = 0
	}
	return func(items, headers int) error {
		needed := int64(items)*itemBytes + int64(headers)*headerBytes
		switch {
		case needed < most:
			c.shrinkBody(most - needed)
		case needed > max(most, bodyFree):
			_, err := c.claimMemory(needed - most)
			return err
		}
		return nil
	}, nil
}

// claimEntry claims n bytes of memory for the entry of the log that a request becomes: each tag of
// its events makes keys, so it may be far larger than the body. A small entry needs no claim.
func (c *call) claimEntry(n int64) error {
	if n <= bodyFree {
		return nil
	}
	began := time.Now()
	n = min(n, c.s.keyBodies.most-c.memory.Held()) // at most what one client may hold: a request that is alone always gets that
	_, err := c.claimMemory(n)
	if time.Since(began) > time.Second {
		c.restartTimeout()
	}
	return err
}

// claimOutcomes claims memory for the answer to n events or messages, before anything happens to
// them. So a client that is refused because there is no memory can try again. The claim is nil if
// the answer is small.
func (c *call) claimOutcomes(n int, each int64) (*budget.Claim, error) {
	size := int64(n) * each
	if size <= answerFree {
		return nil, nil
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	claim := c.s.answers.BeginFor(c.who.ID())
	if _, err := claim.Grow(ctx, size); err != nil {
		claim.Release()
		return nil, c.s.overloaded()
	}
	return claim, nil
}

// sendOutcomes answers with the outcome of each event or message, under a name. The answer is sent
// in pieces. It releases the body first: nothing of it is needed any more.
func (c *call) sendOutcomes(status int, name string, n int, claim *budget.Claim, each func(b []byte, i int) []byte) {
	c.releaseBody()
	c.Header()["Content-Type"] = jsonType
	c.WriteHeader(status)
	e, end := pageEncoder(c, claim)
	defer end()
	e.string(`{"` + name + `":[`)
	for i := range n {
		if i > 0 {
			e.string(",")
		}
		e.buf = each(e.buf, i)
		e.spill()
	}
	e.string("]}\n")
}
