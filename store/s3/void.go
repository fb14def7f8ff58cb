package s3

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-log/weir/eventlog"
)

// A process that does not know that the bucket was rewound makes a commit on top of one that is
// gone. The new commit is void: nobody was told that it is done. It stays where it is, because only
// the collection deletes commits. A process that starts must tell it from a commit whose
// predecessors were lost:
//
//	rewound    1 2 3 · · · 7      7 is void; the next commits are 4, 5, 6, and 7 is passed over
//	lost       1 2 3 · · · 7      4, 5 and 6 were acknowledged, and are gone
//
// So the writer of a void commit marks it, with an object that has the commit's number and hash in
// its key. A process that was killed before it could do so leaves no mark. Then the commits' times
// tell: no commit has an earlier time than the one before it, so a commit with an earlier time than
// one with a smaller number does not follow that one.

// errGap: there are commits, or snapshots of commits, that nothing leads to: those before them are
// missing.
var errGap = fmt.Errorf("%w: there is a gap between commits", errDamaged)

// sentMax bounds how many commits of this process with an unknown outcome are kept in memory.
const sentMax = 100

func voidKey(number int64, of hash) string { return fmt.Sprintf("void/%020d-%x", number, of) }

// maybe remembers commits that this process wrote, or may have written, and that it did not apply.
func (s *Store) maybe(sent ...tip) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, sent...)
	s.sent = slices.Clone(s.sent[max(0, len(s.sent)-sentMax):])
}

// markVoid marks the commits of this process that are void because the bucket was rewound.
func (s *Store) markVoid(ctx context.Context) error {
	s.mu.Lock()
	sent := s.sent
	s.mu.Unlock()
	for _, at := range sent {
		if err := s.keep(ctx, voidKey(at.number, at.hash), nil); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = slices.DeleteFunc(slices.Clone(s.sent), func(at tip) bool { return slices.Contains(sent, at) })
	return nil
}

// isVoid reports whether a commit that the chain has not come to will be passed over: it is marked,
// or the chain's newest commit has a later time.
func (s *Store) isVoid(ctx context.Context, number int64, of hash, at eventlog.Timestamp) (bool, error) {
	if number > s.st.number && s.st.time > at {
		return true, nil
	}
	key := voidKey(number, of)
	found, _, err := s.bucket.list(ctx, key, "", 1)
	return len(found) > 0 && found[0].key == key, err
}

// noGap returns an error if a commit or a snapshot is there that nothing leads to, and that is not
// void. It returns how many void commits it found. The caller has the turn.
func (s *Store) noGap(ctx context.Context) (voids int, err error) {
	after := commitKey(s.st.number + 1)
	snapshots, _, err := s.snapshots(ctx)
	if err != nil {
		return 0, err
	}
	ahead := len(snapshots) > 0 && snapshots[len(snapshots)-1].number > s.st.number
	for more := true; more; {
		found, _, err := s.bucket.list(ctx, "commit/", after, pageSize)
		if err != nil {
			return 0, err
		}
		if more = len(found) == pageSize; len(found) == 0 && !ahead {
			break
		}
		if err := s.advance(ctx); err != nil { // the commits found may be new ones, not void
			return 0, err
		}
		for _, it := range found {
			after = it.key
			if it.key <= commitKey(s.st.number+1) {
				continue
			}
			f := s.fetch(ctx, numberOf(it.key, "commit/"))
			if errors.Is(f.err, errMissing) {
				continue
			}
			if f.err != nil {
				return 0, fmt.Errorf("%s: %w", it.key, f.err)
			}
			void, err := s.isVoid(ctx, f.number, f.hash, f.commit.time)
			if err != nil {
				return 0, err
			}
			if !void {
				return 0, s.gap(it.key, f.number, f.hash)
			}
			voids++
		}
	}
	for _, sn := range snapshots {
		if sn.number <= s.st.number {
			continue
		}
		o, err := s.outline(ctx, sn)
		if errors.Is(err, errMissing) {
			continue
		}
		if err != nil {
			return 0, err
		}
		void, err := s.isVoid(ctx, sn.number, o.tip.hash, o.time)
		if err != nil {
			return 0, err
		}
		if !void {
			return 0, s.gap(sn.key, sn.number, o.tip.hash)
		}
	}
	return voids, nil
}

func (s *Store) gap(key string, number int64, of hash) error {
	return fmt.Errorf("%w: %s is there, and %s is missing. If an older copy of the bucket was put back while weir ran, %s is void: say so with an empty object with the key %s%s, "+
		"and start weir again. Else %s", errGap, key, commitKey(s.st.number+1), key, s.prefix, voidKey(number, of), lost)
}
