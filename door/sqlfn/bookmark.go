package sqlfn

import "github.com/weir-log/weir/store/postgres"

// bookmark is how far the inbox was looked through. weir.look says what done and low mean. A
// bookmark may be forgotten at any time: then the next round scans all of the inbox.
type bookmark struct {
	done string
	low  int64

	of     incarnation // the incarnation in which the bookmark holds
	last   int64       // the last id that was given out, at the last look
	passed int64       // the last id given out before the mover's last transaction: transactions that begin after a later snapshot take higher ids, so it may become low
	goal   string      // the snapshot whose rows the round in progress moves; empty between rounds
	after  int64       // the id up to which the round in progress has come
	next   int64       // low, when goal becomes done
}

// incarnation identifies one life of the database: in another one, row ids and transaction numbers
// may be given out again.
type incarnation struct {
	crash int64 // changes with each start and each crash of the server, see weir.incarnation; 0: none recorded since the last crash
	store postgres.Incarnation
}

// nothingDone is a snapshot in which nothing can be seen.
const nothingDone = "3:3:"

// walks reports whether polls scan all of the inbox, as in a first round.
func (b bookmark) walks() bool { return b.done == nothingDone }

// covers reports whether the bookmark still holds: the store is the same, the server did not crash,
// and its ids did not go back.
func (b bookmark) covers(now bookmark) bool {
	return now.of.crash != 0 && b.of == now.of && b.low <= now.last
}

// begin notes what a poll returned about the inbox as a whole, and begins a round if none is in
// progress.
func (b *bookmark) begin(seen string, last int64, of incarnation) {
	b.last, b.of = last, of
	if b.goal == "" {
		b.goal, b.next = seen, b.passed
	}
}

// finish ends the round in progress, if there is one: all rows that are visible in goal were moved.
func (b *bookmark) finish() {
	if b.goal == "" {
		return
	}
	b.done, b.low = b.goal, max(b.low, b.next)
	b.goal, b.after, b.next = "", 0, 0
}

// aim returns the goal of the round in progress, or of the last round, and what low becomes when
// that round ends.
func (b *bookmark) aim() (goal string, next int64) {
	if b.goal != "" {
		return b.goal, b.next
	}
	return b.done, b.low
}
