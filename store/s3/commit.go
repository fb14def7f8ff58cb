package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/chance"
)

// Commit implements eventlog.Store. It costs one put, and one get to confirm it; more if other
// processes commit at the same time.
func (s *Store) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	size := 0
	for _, entry := range flush {
		for _, r := range entry.Replaces {
			if err := r.Check(); err != nil {
				return nil, fmt.Errorf("commit: %w", err)
			}
			for _, b := range r.Batches {
				size += len(b.Bytes)
			}
		}
		for _, b := range entry.Batches {
			size += len(b.Bytes)
		}
	}
	if size > commitMax {
		return nil, fmt.Errorf("commit: %w: the batches of one commit have %d bytes, the limit is %d", eventlog.ErrTooLarge, size, commitMax)
	}
	var outcomes []eventlog.Outcome
	err := s.change(ctx, func(st *state) (e effects, payload [][]byte, err error) {
		e, payload, outcomes = st.judge(flush)
		return e, payload, nil
	})
	if err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	return outcomes, nil
}

// change makes one commit of the effects that decide returns. Whenever another process committed
// first, it calls decide again, with the newer state. The last call of decide is what counts.
func (s *Store) change(ctx context.Context, decide func(*state) (effects, [][]byte, error)) error {
	return s.changeNow(ctx, s.alone, decide)
}

// changeNow is change, except that fresh tells whether the state is known to be the newest. If
// fresh is false, and decide changes nothing, changeNow reads the newest state and calls decide
// again.
func (s *Store) changeNow(ctx context.Context, fresh bool, decide func(*state) (effects, [][]byte, error)) error {
	if s.replica {
		return eventlog.ErrReadOnly
	}
	if err := alive(ctx); err != nil {
		return err
	}
	if err := s.pace(ctx); err != nil {
		return err
	}
	defer s.turn.give()
	if err := alive(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerMax)
	defer cancel()
	sent, stop := context.WithTimeout(context.WithoutCancel(ctx), answerMax) // for a request that was sent: its answer must be waited for
	defer stop()
	if err := s.anchor(ctx); err != nil {
		return failed(err)
	}
	if s.clock.old() { // the machine may have been suspended: the commit's time would be too early
		if s.askTime(ctx); s.clock.old() {
			return fmt.Errorf("%w: the server does not say what its time is", eventlog.ErrUnavailable)
		}
	}
	for range roundsMax {
		s.mu.Lock()
		if s.rewound(s.told) {
			s.mu.Unlock()
			return eventlog.ErrRewound
		}
		e, payload, err := decide(s.st)
		if err != nil {
			s.mu.Unlock()
			return err
		}
		if e.none() && fresh {
			s.mu.Unlock()
			return nil
		}
		along := s.mover
		if along != nil && e.onlyAdds() {
			e.moves = s.moves(along, s.st)
		} else {
			along = nil
		}
		c := s.compose(e)
		before := s.st.end
		began := time.Now()
		if !e.none() {
			s.nextPut = began.Add(s.linger)
		}
		s.mu.Unlock()
		if !e.none() {
			done, won, err := s.create(ctx, sent, c, payload)
			if err != nil {
				return err
			}
			if won {
				if err := s.confirm(sent, done, before); err != nil {
					return err
				}
				s.apply(c, done.hash, done.head)
				s.wins(began)
				s.took(along, len(e.moves) > 0)
				s.wakeUpkeep()
				return nil
			}
		}
		// Another process was faster, or decide changes nothing and must be called again with the
		// newest state. In both cases certainly nothing has happened, so the loop ends if the
		// caller has given up: a process that stops must not compete for the next number.
		if err := alive(ctx); err != nil {
			return err
		}
		if err := s.advance(ctx); err != nil {
			return failed(err)
		}
		fresh = true
	}
	return fmt.Errorf("%w: other processes were faster %d times", eventlog.ErrUnavailable, roundsMax)
}

// pace takes the turn once the next put may begin (nextPut), so that puts begin at least linger (an
// option of the URL) apart. The first put after a pause is made at once. Only a put takes a slot
// (changeNow): a caller that finds nothing to put, or gives up, delays nobody.
func (s *Store) pace(ctx context.Context) error {
	for {
		if wait := time.Until(s.NextCommit()); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, ctx.Err())
			}
		}
		if err := s.turn.take(ctx); err != nil {
			return err
		}
		if !s.NextCommit().After(time.Now()) {
			return nil
		}
		s.turn.give() // another caller has put meanwhile
	}
}

// wins notes that this process made a commit, in a round (create, confirm) that began at the time
// began.
//
// A process that commits again and again without a pause would keep all others out: it knows its
// own commit at once, and they have to read it before they can try the next number. So after some
// commits in a row it leaves them the time for that, if linger does not.
func (s *Store) wins(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streak++
	inRow := streakMax
	if time.Since(s.lost) < rivalFor {
		inRow = streakRival
	}
	if s.streak < inRow || s.alone {
		return
	}
	s.streak = 0
	now := time.Now()
	if until := now.Add(min(yieldRounds*now.Sub(began), yieldMost)); until.After(s.nextPut) {
		s.nextPut = until
	}
}

// compose makes the next commit. The caller holds mu and has the turn.
func (s *Store) compose(e effects) *commit {
	_, latest := s.clock.now() // the upper bound: so no process takes a value of this commit for older than it is
	return &commit{store: s.st.store, number: s.st.number + 1, previous: s.st.tip.hash, writer: s.writer, time: max(s.st.time, latest), effects: e}
}

// create puts a commit, and reports whether the commit got its number: another process may have put
// one with the same number first. After an answer that leaves this open create reads the commit
// with that number back: the hash of its head, which has the writer and a nonce, says whose it is.
// If there is no commit with this number, create puts its own again, with another nonce. With the
// same nonce, this could happen: the first attempt is stored, and read by another process, which
// commits after it. Then an older copy of the bucket is restored, and both commits are lost. The
// second attempt brings back the same first commit, and the other process takes its own commit,
// which follows it, for a part of the log.
//
// A put may take so long that another commit with this number was there, and was deleted because a
// snapshot covers it, before the put arrived. Then the newest snapshot decides: see counts.
//
// While certainly nothing was written, the end of the context caller ends create. After that only
// the end of ctx does.
func (s *Store) create(caller, ctx context.Context, c *commit, payload [][]byte) (done tip, won bool, err error) {
	number := c.number
	sent := false // true: a put may have been done, or may still be done
	var mine []tip
	var asked time.Time
	settled := func(of tip, a answer) (tip, bool, error) {
		counts, err := s.counts(ctx, number, a, asked)
		return of, counts, err
	}
	var last error
	for attempt := 0; ; attempt++ {
		c.nonce = random()
		asked = time.Now()
		framed, of := c.encode()
		mine = append(mine, tip{number, of, int64(len(framed))})
		a, err := s.bucket.put(ctx, commitKey(number), bytes.Join(append([][]byte{framed}, payload...), nil))
		if err == nil {
			return settled(mine[attempt], a)
		}
		if errors.Is(err, errRefused) && !sent {
			return done, false, failed(fmt.Errorf("nothing was written: %w", err))
		}
		// errExists is not clear: net/http may have sent the request twice, and this may be the
		// answer to the second one, after the first wrote the object.
		clear := errors.Is(err, errBusy) || errors.Is(err, errRefused)
		sent = sent || !clear
		last = err
		f := s.fetch(ctx, number)
		switch {
		case f.commit != nil && f.err == nil:
			for _, m := range mine {
				if m.hash == f.hash {
					return settled(m, f.answer)
				}
			}
			return done, false, nil
		case errors.Is(f.err, eventlog.ErrUpgraded): // a newer weir wrote this commit, so it is not ours
			return done, false, f.err
		case f.err != nil && errors.Is(f.err, errMissing) && errors.Is(err, errExists):
			last = fmt.Errorf("the server answers that %s exists, and that there is none: %w", commitKey(number), err)
		case f.err != nil && !errors.Is(f.err, errMissing):
			last = errors.Join(last, f.err)
		}
		enough := ctx.Done()
		if !sent {
			enough = caller.Done()
		}
		select {
		case <-time.After(min(time.Second, chance.N(20*time.Millisecond<<min(attempt, 8))+time.Millisecond)):
			continue
		case <-enough:
		}
		if sent {
			s.maybe(mine...)
			return done, false, fmt.Errorf("%w: %w", eventlog.ErrUnsure, last)
		}
		return done, false, fmt.Errorf("%w: %w", eventlog.ErrUnavailable, last)
	}
}

// confirm is called after a commit was written. It returns nil if what the commit was made on
// (before) is still there: then the bucket was not rewound before the commit was written. Otherwise
// the commit is void, and confirm reads the state anew. Even then it returns ErrUnsure: what is
// missing may have been deleted by mistake, and if somebody undoes that, the commit follows what it
// was made on, and counts. The void commit is not deleted, because others may have passed over it:
// if it were deleted, a process that has not yet read up to its number would use the number again.
func (s *Store) confirm(ctx context.Context, done tip, before end) error {
	for attempt := 0; ; attempt++ {
		began := time.Now()
		there, _, err := s.stands(ctx, before)
		switch {
		case err == nil && there:
			s.mu.Lock()
			s.verified = began
			s.mu.Unlock()
			return nil
		case err == nil:
			s.maybe(done)
			if err := s.startAnew(ctx); err != nil {
				s.logger.Warn("the state of a bucket that was rewound cannot be read yet; it is tried again", "store", s.name(), "err", err)
			}
			return fmt.Errorf("%w: %s was written, and %s, which it follows, is gone: the bucket was rewound, or objects were deleted. It counts only if they come back", eventlog.ErrUnsure, commitKey(done.number), commitKey(before.tip.number))
		}
		select {
		case <-time.After(min(time.Second, chance.N(20*time.Millisecond<<min(attempt, 8))+time.Millisecond)):
			continue
		case <-ctx.Done():
		}
		s.maybe(done)
		s.mu.Lock()
		s.verified = time.Time{} // so that the newest commit is read again (anchor) before anything else is done
		s.mu.Unlock()
		return fmt.Errorf("%w: %s was written, and whether %s is still there is unknown: %w", eventlog.ErrUnsure, commitKey(done.number), commitKey(before.tip.number), err)
	}
}

// stands reports whether the end of the log that this process knows is still part of the log: each
// commit of that end is there, or was deleted because a snapshot covers it. It costs one get, and
// one more for each void commit.
func (s *Store) stands(ctx context.Context, e end) (there bool, last answer, err error) {
	for _, at := range append([]tip{e.tip}, e.voids...) {
		same, missing, a, err := s.holds(ctx, at)
		if err == nil && !same && missing && at.number > 0 {
			same, a, err = s.collected(ctx, at.number)
		}
		if err != nil || !same {
			return false, a, err
		}
		last = a
	}
	return true, last, nil
}

// collected reports whether a commit that is missing may have been deleted by a collection: a
// snapshot of a later commit is there, and is older than half of grace. A younger one proves
// nothing: after the bucket was rewound, others may have written it since this process asked for
// the commit.
func (s *Store) collected(ctx context.Context, number int64) (bool, answer, error) {
	all, a, err := s.snapshots(ctx)
	for _, sn := range slices.Backward(all) {
		if sn.number <= number || a.date.Sub(sn.modified) <= s.grace/2 {
			continue
		}
		_, counts, err := s.counted(ctx, sn)
		if err != nil && !errors.Is(err, errDamaged) && !errors.Is(err, errMissing) || err == nil && counts {
			return counts, a, err
		}
	}
	return false, a, err
}

// counts returns true if a commit that was put is part of the log, and ErrUnsure if a snapshot may
// have covered its number before the put arrived. a is the server's answer that the commit is
// there, asked is when the last put of it began.
func (s *Store) counts(ctx context.Context, number int64, a answer, asked time.Time) (bool, error) {
	s.mu.Lock()
	trusts := s.trusts(a)
	if trusts {
		s.noteSync(a.date, asked)
	}
	s.mu.Unlock()
	if trusts {
		return true, nil
	}
	newest, listed, err := s.newestSnapshot(ctx)
	if err != nil {
		return false, fmt.Errorf("%w: %s was written late, and the snapshots cannot be listed: %w", eventlog.ErrUnsure, commitKey(number), err)
	}
	if newest.number >= number {
		err := fmt.Errorf("%w: %s was written more than a quarter of grace (%v) after this process last read the log, and a snapshot covers its number", eventlog.ErrUnsure, commitKey(number), s.grace)
		return false, errors.Join(err, s.load(ctx))
	}
	s.mu.Lock()
	s.noteSync(listed.date, time.Time{})
	s.mu.Unlock()
	return true, nil
}
