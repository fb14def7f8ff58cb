package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog"
)

// aheadMax bounds how many commits advance reads in parallel. It begins with one, and doubles the
// number after each round of reads.
const aheadMax = 16

// fresh returns when this process knows all commits that were there when fresh was called. If the
// process is alone, it is enough to know those that were there at some time less than verify (an
// option of the URL) ago. Callers share requests: a request that began after a call serves this
// call.
func (s *Store) fresh(ctx context.Context) error {
	if s.alone {
		s.mu.Lock()
		recent := !s.behind && time.Since(s.asked) < s.verify
		s.mu.Unlock()
		if recent {
			return nil
		}
	}
	want := s.probes.Load() + 1
	if err := s.probing.take(ctx); err != nil {
		return err
	}
	defer s.probing.give()
	if s.probed >= want {
		return nil
	}
	number := s.probes.Add(1)
	if err := s.look(ctx); err != nil {
		return failed(err)
	}
	s.probed = number
	return nil
}

// look asks for the next commit. It waits for its turn only if there is something to do, so that
// reads do not wait for a commit in progress.
func (s *Store) look(ctx context.Context) error {
	s.mu.Lock()
	st, next, due := s.st, s.st.number+1, s.verifyDue()
	s.mu.Unlock()
	if !due {
		asked := time.Now()
		_, a, err := s.bucket.get(ctx, commitKey(next), 0, frameSize)
		if err != nil && !errors.Is(err, errMissing) {
			return err
		}
		s.mu.Lock()
		quiet := err != nil && s.st == st && s.trusts(a)
		if quiet {
			s.noteSync(a.date, asked)
		}
		s.mu.Unlock()
		if quiet {
			return nil
		}
	}
	if err := s.turn.take(ctx); err != nil {
		return err
	}
	defer s.turn.give()
	if err := s.anchor(ctx); err != nil {
		return err
	}
	return s.advance(ctx)
}

// trusts reports whether an answer about the next commit can be trusted. A commit that a snapshot
// covers is deleted when the snapshot is grace old. After that, a commit that is missing may have
// been made and deleted, and one that is there may have been written too late, in the place of a
// deleted one. At synced, by the server's clock, this process's state was not older than the newest
// snapshot. So no commit after that state is deleted yet if the answer's date, also by the server's
// clock, is at most a quarter of grace away from synced. The caller holds mu.
func (s *Store) trusts(a answer) bool { return a.date.Sub(s.synced).Abs() <= s.grace/4 }

func (s *Store) noteSync(date, asked time.Time) {
	if date.After(s.synced) || s.synced.Sub(date) > s.grace/4 { // the second: the server's clock was ahead, and was set back
		s.synced = date
	}
	if asked.After(s.asked) {
		s.asked = asked
	}
}

// advance applies the commits that follow, until there is none. The caller has the turn.
func (s *Store) advance(ctx context.Context) error {
	for reloads, slow, ahead := 0, 0, 1; ; {
		first := s.st.number + 1
		asked := time.Now()
		found := make([]fetched, ahead)
		var all errgroup.Group
		for i := range found {
			all.Go(func() error { found[i] = s.fetch(ctx, first+int64(i)); return nil })
		}
		_ = all.Wait()
		if onChain, err := s.onChain(ctx, found); err != nil {
			return err
		} else if !onChain {
			if reloads++; reloads > 3 || s.behind { // behind: startAnew called advance, and must not be called by it again
				return fmt.Errorf("%w: the bucket was rewound again and again", eventlog.ErrUnavailable)
			}
			if err := s.startAnew(ctx); err != nil {
				return err
			}
			ahead = 1
			continue
		}
		for _, f := range found {
			if f.err != nil && !errors.Is(f.err, errMissing) && !errors.Is(f.err, errDamaged) {
				return f.err
			}
			s.mu.Lock()
			trusts := s.trusts(f.answer)
			s.mu.Unlock()
			if !trusts {
				if slow++; slow > 3 {
					return fmt.Errorf("%w: reading the commits takes longer than a quarter of grace (%v): raise grace", eventlog.ErrUnavailable, s.grace)
				}
				if err := s.rebase(ctx); err != nil {
					return err
				}
				break
			}
			if errors.Is(f.err, errMissing) {
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.st.number < s.floor {
					return fmt.Errorf("%w: %s is missing, and there was a snapshot of commit %d: %s", errDamaged, commitKey(s.st.number+1), s.floor, lost)
				}
				s.noteSync(f.date, asked)
				return nil
			}
			if f.err != nil {
				return fmt.Errorf("%s: %w", commitKey(s.st.number+1), f.err)
			}
			switch err := s.st.follows(f.commit); {
			case errors.Is(err, errForeign):
				s.mu.Lock()
				s.st.skip(tip{f.number, f.hash, f.head})
				s.mu.Unlock()
				continue
			case err != nil:
				return fmt.Errorf("%s: %w", commitKey(s.st.number+1), err)
			}
			if err := s.st.check(f.commit); err != nil {
				return err
			}
			s.apply(f.commit, f.hash, f.head)
			s.mu.Lock()
			s.streak, s.lost = 0, time.Now()
			s.mu.Unlock()
			slow = 0
		}
		ahead = min(2*ahead, aheadMax)
	}
}

// onChain reports whether the commits in found may be applied. A commit continues the chain if it
// was made on the newest commit before it that is not void; otherwise it is void itself
// (state.skip). The bucket may have been rewound while found was read. So after that, the log must
// still have the end that this process knows, and the end that the last commit in found that
// continues the chain was made on.
func (s *Store) onChain(ctx context.Context, found []fetched) (bool, error) {
	on, upTo := s.st.end, s.st.end
	n := 0
	for ; n < len(found) && found[n].err == nil; n++ {
		f := found[n]
		if at := (tip{f.number, f.hash, f.head}); f.previous == upTo.tip.hash {
			on, upTo = upTo, end{tip: at}
		} else {
			upTo.voids = append(slices.Clone(upTo.voids), at)
		}
	}
	if n == 0 {
		return true, nil
	}
	onChain, _, err := s.stands(ctx, s.st.end)
	if onChain && err == nil && (on.tip != s.st.tip || len(on.voids) > len(s.st.voids)) {
		onChain, _, err = s.stands(ctx, on)
	}
	return onChain, err
}

func (s *Store) apply(c *commit, of hash, head int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, latest := s.clock.now()
	s.st.apply(c, of, head, latest)
	if c.life != "" {
		clear(s.pending) // the bucket was rewound, perhaps to a time before these segments were written
	}
	for _, key := range c.drops {
		delete(s.pending, key)
	}
}

// fetched is a commit that was read.
type fetched struct {
	*commit
	answer
	hash hash
	head int64 // how long frame and head are
	err  error
}

func (s *Store) fetch(ctx context.Context, number int64) fetched {
	return s.fetchHead(ctx, number, headGuess)
}

// fetchHead is fetch for a head that probably fits in guess bytes.
func (s *Store) fetchHead(ctx context.Context, number, guess int64) (f fetched) {
	var object []byte
	object, f.answer, f.err = s.bucket.get(ctx, commitKey(number), 0, guess)
	if f.err != nil {
		return f
	}
	n, err := headLength(magicCommit, object)
	if err == nil && frameSize+n > len(object) && int64(len(object)) < f.size {
		if object, f.answer, f.err = s.bucket.get(ctx, commitKey(number), 0, int64(frameSize+n)); f.err != nil {
			return f
		}
	}
	f.head = int64(frameSize + n)
	if f.commit, f.hash, err = decodeCommit(object); err != nil {
		f.err = err
	}
	return f
}

// verifyDue reports whether the newest known commit should be read again. The caller holds mu.
func (s *Store) verifyDue() bool { return s.behind || time.Since(s.verified) >= s.verify }

// anchor reads the newest known commit again, if that is due (verifyDue). If it is gone, or another
// commit has its number, the bucket was rewound. The newest commit is never deleted. The caller has
// the turn.
func (s *Store) anchor(ctx context.Context) error {
	s.mu.Lock()
	due, behind, at := s.verifyDue(), s.behind, s.st.end
	s.mu.Unlock()
	if behind { // startAnew failed before
		return s.startAnew(ctx)
	}
	if !due {
		return nil
	}
	began := time.Now()
	same, a, err := s.stands(ctx, at)
	if err != nil {
		return err
	}
	s.mu.Lock()
	trusts := s.trusts(a)
	s.mu.Unlock()
	switch {
	case !trusts:
		err = s.rebase(ctx)
	case !same:
		err = s.startAnew(ctx)
	}
	if err == nil {
		s.mu.Lock()
		s.verified = began
		s.mu.Unlock()
	}
	return err
}

// holds reports whether a commit is there as this process knows it (same), or whether there is none
// with its number (missing).
func (s *Store) holds(ctx context.Context, at tip) (same, missing bool, a answer, err error) {
	if at.number == 0 {
		body, a, err := s.bucket.get(ctx, "format", 0, -1)
		if errors.Is(err, errMissing) {
			return false, true, a, nil
		}
		if err != nil {
			return false, false, a, err
		}
		head, _, err := unseal(magicFormat, body)
		return err == nil && (&reader{b: head}).string() == s.st.store, false, a, err
	}
	f := s.fetchHead(ctx, at.number, cmp.Or(at.head, headGuess))
	if errors.Is(f.err, errMissing) {
		return false, true, f.answer, nil
	}
	return f.err == nil && f.hash == at.hash, false, f.answer, f.err
}

// rebase is called after an answer that cannot be trusted, because its date is too far from synced
// (trusts). It makes sure that what this process knows is not older than the newest snapshot, and
// updates synced. The caller has the turn.
func (s *Store) rebase(ctx context.Context) error {
	newest, a, err := s.newestSnapshot(ctx)
	if err != nil {
		return err
	}
	if newest.number > s.st.number {
		return s.load(ctx)
	}
	s.mu.Lock()
	s.noteSync(a.date, time.Time{})
	s.mu.Unlock()
	return nil
}

// reload reads the state from the newest snapshot on. The caller has the turn.
func (s *Store) reload(ctx context.Context) error {
	if err := s.load(ctx); err != nil {
		return err
	}
	return s.advance(ctx)
}

// startAnew reads the state of a bucket that was rewound, and begins an incarnation with a commit,
// so that all processes learn of it. A replica begins one that only it knows. The caller has the
// turn.
func (s *Store) startAnew(ctx context.Context) error {
	s.logger.Error("the bucket was rewound: the newest commits that this process knows are no longer there", "store", s.name(), "commit", s.st.number)
	id, err := s.format(ctx, false)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.st, s.synced, s.behind = newState(id), time.Time{}, true
	s.mu.Unlock()
	select {
	case s.due <- struct{}{}: // upkeep goes on if the caller gives up
	default:
	}
	if err := s.markVoid(ctx); err != nil {
		return err
	}
	if err := s.reload(ctx); err != nil {
		return err
	}
	if s.replica {
		s.mu.Lock()
		s.rewinds, s.behind = "+"+random(), false
		s.mu.Unlock()
		return nil
	}
	for range roundsMax {
		s.mu.Lock()
		c := s.compose(effects{life: random()})
		before := s.st.end
		s.mu.Unlock()
		sent, stop := context.WithTimeout(ctx, answerMax)
		done, won, err := s.create(sent, sent, c, nil)
		stop()
		if err != nil {
			return err
		}
		if won {
			if there, _, err := s.stands(ctx, before); err != nil || !there {
				s.maybe(done)
				return errors.Join(err, fmt.Errorf("%w: %s is void, or it is unknown whether it is", eventlog.ErrUnavailable, commitKey(c.number)))
			}
			s.apply(c, done.hash, done.head)
			s.mu.Lock()
			s.behind = false
			s.mu.Unlock()
			return nil
		}
		if err := s.advance(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: other processes were faster %d times", eventlog.ErrUnavailable, roundsMax)
}
