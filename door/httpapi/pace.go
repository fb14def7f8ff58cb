package httpapi

import (
	"net/http"
	"time"
)

// Time for a client to take a page of events. While it does the page has room that others may be waiting for, so the time is for the
// whole page and not for each piece: a client that is slower is cut off.
const (
	pageGrace = 15 * time.Second // and more for a large one:
	pageRate  = 256 << 10        // bytes a second
)

// pace writes pages to a client, each in its time.
type pace struct {
	c     *call
	began time.Time
	sent  int64 // bytes since then
}

// begin begins a page.
func (p *pace) begin() {
	p.began, p.sent = time.Now(), 0
	p.hurry()
}

// Write hands a piece of the page on.
func (p *pace) Write(piece []byte) (int, error) {
	p.sent += int64(len(piece))
	p.hurry()
	return p.c.Write(piece)
}

// end hands on what was written, to the client itself. An error means that it is gone, or too slow.
func (p *pace) end() error {
	p.hurry()
	err := http.NewResponseController(p.c.ResponseWriter).Flush()
	p.c.answerBy(time.Time{}) // HTTP/2 cuts a stream off when the time is up, also one that has nothing to say
	return err
}

func (p *pace) hurry() {
	p.c.answerBy(p.began.Add(pageGrace + time.Duration(p.sent)*time.Second/pageRate))
}
