package httpapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/weir-log/weir/internal/budget"
)

// Time for a client to read a page of events. The page holds memory meanwhile, so the deadline is
// for the whole page and not for each piece: a slower client is disconnected. While other requests
// wait for memory the time is shorter, see budget.Claim.Sends.
const (
	pageGrace = 15 * time.Second // time to read any page
	pageRate  = 256 << 10        // bytes a second: the time that the page's bytes take at this rate is added to pageGrace
)

var errTooSlow = errors.New("the client reads its answer too slowly, and other clients wait for the memory")

// pageWriter writes pages to a client, each with a deadline.
type pageWriter struct {
	c     *call
	claim *budget.Claim // memory of Server.answers that the page holds; nil: none
	began time.Time
	sent  int64 // bytes since then
}

// begin starts a page that holds the claim's memory. Call finish before the claim is released.
func (p *pageWriter) begin(claim *budget.Claim) {
	p.claim, p.began, p.sent = claim, time.Now(), 0
	claim.Sends(func() { p.c.setWriteDeadline(time.Unix(1, 0)) })
	p.setDeadline()
}

// finish ends the page: from now on the client is not disconnected because other requests wait for
// memory.
func (p *pageWriter) finish() {
	p.claim.Rests()
	p.claim = nil
}

// Write writes a piece of the page.
func (p *pageWriter) Write(piece []byte) (int, error) {
	p.sent += int64(len(piece))
	p.setDeadline()
	if p.claim.WasCut() { // setDeadline has overwritten the deadline that cut the client off
		return 0, errTooSlow
	}
	n, err := p.c.Write(piece)
	p.claim.Progress()
	return n, err
}

// flush sends what was written to the client, and ends the page. An error means that the client has
// disconnected or is too slow.
func (p *pageWriter) flush() error {
	p.setDeadline()
	if p.claim.WasCut() {
		return errTooSlow
	}
	err := http.NewResponseController(p.c.ResponseWriter).Flush()
	p.finish()
	p.c.setWriteDeadline(time.Time{}) // HTTP/2 resets a stream at its write deadline, also an idle one
	return err
}

func (p *pageWriter) setDeadline() {
	p.c.setWriteDeadline(p.began.Add(pageGrace + time.Duration(p.sent)*time.Second/pageRate))
}
