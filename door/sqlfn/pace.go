package sqlfn

import "time"

const (
	// paceWindow is the time over which traffic is measured.
	paceWindow = 250 * time.Millisecond
	// busyRows rows, found by busyPolls polls of one window, start close polling: 300 rows a
	// second, in separate transactions. Without notifications the number of polls says nothing
	// about transactions.
	busyRows  = 75
	busyPolls = 3
	// calmAfter: publishers notify again after so long without a busy window.
	calmAfter = 10 * time.Second
	// pollFast is the pause between two polls while polling closely and few rows come. A poll and a
	// move cost about as much for one row as for a hundred, so the pause grows with the traffic: by
	// pollFast for each perPause rows a second, up to pollFastMax.
	pollFast    = 2 * time.Millisecond
	pollFastMax = 25 * time.Millisecond
	perPause    = 1000
)

// pace decides whether to poll closely, which is many times a second. If few sessions publish, each
// wakes the mover with NOTIFY, which takes a lock of the whole server. If many do, the mover polls
// so often that none needs to.
type pace struct {
	polling bool
	woken   bool // notifications wake the mover

	began       time.Time // of the window
	polls, rows int       // in the window; polls counts those that found rows
	busy        time.Time // when a window was busy last
	rate        float64   // rows a second in the window before
}

// note counts what a poll found, and decides.
func (p *pace) note(now time.Time, rows int) {
	if past := now.Sub(p.began); past > paceWindow {
		p.rate = float64(p.rows) / past.Seconds()
		p.began, p.polls, p.rows = now, 0, 0
	}
	if rows > 0 {
		p.polls++
		p.rows += rows
	}
	if p.rows >= busyRows && (p.polls >= busyPolls || !p.woken) {
		p.busy = now
		p.polling = true
	}
	if p.polling && now.Sub(p.busy) > calmAfter {
		p.polling = false
	}
}

// pause returns the time between the starts of two polls while polling closely.
func (p *pace) pause() time.Duration {
	return min(max(pollFast, time.Duration(p.rate/perPause*float64(pollFast))), pollFastMax)
}
