package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// Commit implements eventlog.Store. It costs one put; more if other processes commit at the same time.
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

// Trim implements eventlog.Store.
func (s *Store) Trim(ctx context.Context, id eventlog.Partition, before eventlog.Offset) error {
	err := s.change(ctx, func(st *state) (e effects, _ [][]byte, _ error) {
		if p := st.partitions[id]; p != nil {
			if first := min(before, p.next); first > p.first {
				e.trims = []trim{{id, first}}
			}
		}
		return e, nil, nil
	})
	if err != nil {
		return fmt.Errorf("trim partition %d below %d: %w", id, before, err)
	}
	return nil
}

// change makes one commit of what decide says. It calls decide again whenever another process committed before; decide's last call is what counts.
func (s *Store) change(ctx context.Context, decide func(*state) (effects, [][]byte, error)) error {
	if s.replica {
		return eventlog.ErrReadOnly
	}
	if err := alive(ctx); err != nil {
		return err
	}
	if err := s.pace(ctx); err != nil {
		return err
	}
	if err := s.turn.take(ctx); err != nil {
		return err
	}
	defer s.turn.give()
	if err := alive(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerMax)
	defer cancel()
	sent, stop := context.WithTimeout(context.WithoutCancel(ctx), answerMax) // what is sent must be waited for
	defer stop()
	if err := s.anchor(ctx); err != nil {
		return failed(err)
	}
	fresh := s.alone
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
		c, framed, of := s.compose(e)
		before := s.st.tip
		s.mu.Unlock()
		if !e.none() {
			won, err := s.create(ctx, sent, c.number, bytes.Join(append([][]byte{framed}, payload...), nil), of)
			if err != nil {
				return err
			}
			if won {
				if err := s.confirm(sent, c.number, before); err != nil {
					return err
				}
				s.apply(c, of, int64(len(framed)))
				s.took(along, len(e.moves) > 0)
				s.wakeUpkeep()
				return nil
			}
		}
		// Another process was faster; or nothing is to be changed, which must be judged by what is there now. Certainly nothing has happened, so a caller who has given up is not
		// kept waiting: a process that stops must not compete for the next number.
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

// pace waits so that puts begin at least linger apart. A put after a pause is made at once.
func (s *Store) pace(ctx context.Context) error {
	s.mu.Lock()
	wait := time.Until(s.nextPut)
	s.nextPut = time.Now().Add(max(wait, 0) + s.linger)
	s.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, ctx.Err())
	}
}

// compose makes the next commit. The caller holds mu and has the turn.
func (s *Store) compose(e effects) (*commit, []byte, hash) {
	_, latest := s.clock.now() // so that no process takes what is put for older than it is
	c := &commit{store: s.st.store, number: s.st.number + 1, previous: s.st.tip.hash, writer: s.writer, nonce: random(), time: max(s.st.time, latest), effects: e}
	framed, of := c.encode()
	return c, framed, of
}

// create writes a commit, and reports whether it is the one with its number. After an answer that leaves this open it reads the commit back: the hash of its head, which
// has the writer and a nonce, says whose it is. If there is none, the same bytes are put again: that cannot do harm.
//
// If the put took so long that the commit of this number may have been there, and been deleted because a snapshot covers it, the newest snapshot decides.
//
// It ends with caller as long as certainly nothing was done, and else with ctx.
func (s *Store) create(caller, ctx context.Context, number int64, object []byte, of hash) (won bool, err error) {
	sent := false // a put may have been done, or may still be
	var last error
	for attempt := 0; ; attempt++ {
		a, err := s.bucket.put(ctx, commitKey(number), object)
		if err == nil {
			return s.counts(ctx, number, a)
		}
		if errors.Is(err, errRefused) && !sent {
			return false, fmt.Errorf("nothing was written: %w", err)
		}
		// Not errExists: net/http may have sent the request twice, and this is the answer to the second time.
		clear := errors.Is(err, errBusy) || errors.Is(err, errRefused)
		sent = sent || !clear
		last = err
		f := s.fetch(ctx, number)
		switch {
		case f.commit != nil && f.err == nil && f.hash == of:
			return s.counts(ctx, number, f.answer)
		case f.commit != nil && f.err == nil:
			return false, nil
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
		case <-time.After(min(time.Second, rand.N(20*time.Millisecond<<min(attempt, 8))+time.Millisecond)):
			continue
		case <-enough:
		}
		if sent {
			return false, fmt.Errorf("%w: %w", eventlog.ErrUnsure, last)
		}
		return false, fmt.Errorf("%w: %w", eventlog.ErrUnavailable, last)
	}
}

// confirm returns nil if the commit that this one was made on is still there, after this one was written: so the bucket was not rewound before. Else this commit is void,
// and the state is read anew.
func (s *Store) confirm(ctx context.Context, number int64, before tip) error {
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
			// It may lie beyond a gap, where a process that starts takes it for a sign of lost commits. Only we remove it, and once.
			removed := s.bucket.remove(ctx, commitKey(number))
			if err := s.startAnew(ctx); err != nil {
				s.logger.Warn("the state of a bucket that was rewound cannot be read yet; it is tried again", "store", s.name(), "err", errors.Join(err, removed))
			}
			return eventlog.ErrRewound
		}
		select {
		case <-time.After(min(time.Second, rand.N(20*time.Millisecond<<min(attempt, 8))+time.Millisecond)):
			continue
		case <-ctx.Done():
		}
		s.mu.Lock()
		s.verified = time.Time{} // before anything else is done
		s.mu.Unlock()
		return fmt.Errorf("%w: %s was written, and whether %s is still there is unknown: %w", eventlog.ErrUnsure, commitKey(number), commitKey(before.number), err)
	}
}

// stands reports whether a commit that this process knows is still part of the log: it is there, or was deleted because a snapshot covers it.
func (s *Store) stands(ctx context.Context, at tip) (bool, answer, error) {
	same, missing, a, err := s.holds(ctx, at)
	if err != nil || same || !missing || at.number == 0 {
		return same, a, err
	}
	snapshots, a, err := s.snapshots(ctx)
	return err == nil && len(snapshots) > 0 && snapshots[len(snapshots)-1].number >= at.number, a, err
}

// counts reports whether a commit that was written counts.
func (s *Store) counts(ctx context.Context, number int64, a answer) (bool, error) {
	s.mu.Lock()
	trusts := s.trusts(a)
	if trusts {
		s.noteSync(a.date, time.Time{})
	}
	s.mu.Unlock()
	if trusts {
		return true, nil
	}
	snapshots, listed, err := s.snapshots(ctx)
	if err != nil {
		return false, fmt.Errorf("%w: %s was written late, and the snapshots cannot be listed: %w", eventlog.ErrUnsure, commitKey(number), err)
	}
	if len(snapshots) > 0 && snapshots[len(snapshots)-1].number >= number {
		err := fmt.Errorf("%w: %s was written more than a quarter of grace (%v) after this process last read the log, and a snapshot covers its number", eventlog.ErrUnsure, commitKey(number), s.grace)
		return false, errors.Join(err, s.load(ctx, snapshots, listed))
	}
	s.mu.Lock()
	s.noteSync(listed.date, time.Time{})
	s.mu.Unlock()
	return true, nil
}
