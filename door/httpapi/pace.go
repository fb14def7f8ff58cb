package httpapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/weir-log/weir/internal/budget"
)

// Time for a client to take a page of events. While it does the page has memory that others may be waiting for, so the time is for the
// whole page and not for each piece: a client that is slower is cut off. While others do wait it has less, see budget.Claim.Sends.
const (
	pageGrace = 15 * time.Second // and more for a large one:
	pageRate  = 256 << 10        // bytes a second
)

var errTooSlow = errors.New("the client is slow to take an answer, and others wait for the memory")

// pace writes pages to a client, each in its time.
type pace struct {
	c     *call
	claim *budget.Claim // what the page holds of Server.answers; nil: nothing
	began time.Time
	sent  int64 // bytes since then
}

// begin begins a page that holds so much memory. rest must be called before the claim is released.
func (p *pace) begin(claim *budget.Claim) {
	p.claim, p.began, p.sent = claim, time.Now(), 0
	claim.Sends(func() { p.c.answerBy(time.Unix(1, 0)) })
	p.hurry()
}

// rest ends what begin began: the client is not cut off any more for others.
func (p *pace) rest() {
	p.claim.Rests()
	p.claim = nil
}

// Write hands a piece of the page on.
func (p *pace) Write(piece []byte) (int, error) {
	p.sent += int64(len(piece))
	p.hurry()
	if p.claim.WasCut() { // hurry took the cut back
		return 0, errTooSlow
	}
	n, err := p.c.Write(piece)
	p.claim.Progress()
	return n, err
}

// end hands on what was written, to the client itself. An error means that it is gone, or too slow.
func (p *pace) end() error {
	p.hurry()
	if p.claim.WasCut() {
		return errTooSlow
	}
	err := http.NewResponseController(p.c.ResponseWriter).Flush()
	p.rest()
	p.c.answerBy(time.Time{}) // HTTP/2 cuts a stream off when the time is up, also one that has nothing to say
	return err
}

func (p *pace) hurry() {
	p.c.answerBy(p.began.Add(pageGrace + time.Duration(p.sent)*time.Second/pageRate))
}
