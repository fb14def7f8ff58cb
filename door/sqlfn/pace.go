package sqlfn

import "time"

const (
	// paceWindow is the time over which the traffic is judged.
	paceWindow = 250 * time.Millisecond
	// busyRows and busyLooks, in one window, make it worth watching the inbox closely: 300 rows a second, in transactions of their own. Without
	// notifications the looks are polls, and tell nothing of transactions.
	busyRows  = 75
	busyLooks = 3
	// calmAfter is how long the traffic must have been lower before publishers notify again.
	calmAfter = 10 * time.Second
	// lookEvery is the pause between two looks while the inbox is watched closely and few rows come. A look and a move cost about as much for
	// one row as for a hundred, so the pause grows with the traffic: by so much for each perPause rows a second, up to lookSeldom.
	lookEvery  = 2 * time.Millisecond
	lookSeldom = 25 * time.Millisecond
	perPause   = 1000
)

// pace decides whether to watch the inbox closely. Where few publish, each wakes the mover with a notification, which costs a lock
// that the whole server has once. Where many do, the mover looks so often that no one needs to.
type pace struct {
	close bool
	woken bool // by notifications

	began       time.Time // of the window
	looks, rows int       // in the window; looks that found something
	busy        time.Time // when a window was busy last
	rate        float64   // rows a second in the window before
}

// note takes in what a look found, and decides.
func (p *pace) note(now time.Time, rows int) {
	if past := now.Sub(p.began); past > paceWindow {
		p.rate = float64(p.rows) / past.Seconds()
		p.began, p.looks, p.rows = now, 0, 0
	}
	if rows > 0 {
		p.looks++
		p.rows += rows
	}
	if p.rows >= busyRows && (p.looks >= busyLooks || !p.woken) {
		p.busy = now
		p.close = true
	}
	if p.close && now.Sub(p.busy) > calmAfter {
		p.close = false
	}
}

// pause is how long to wait between the beginnings of two looks while the inbox is watched closely.
func (p *pace) pause() time.Duration {
	return min(max(lookEvery, time.Duration(p.rate/perPause*float64(lookEvery))), lookSeldom)
}
