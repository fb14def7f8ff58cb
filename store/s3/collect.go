package s3

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
)

const (
	// removesMax bounds what one round of collect deletes.
	removesMax = 5000
	// pageSize is how many objects one list names.
	pageSize = 1000
	// removers is how many deletions run in parallel.
	removers = 8
)

// collect deletes what nobody needs any more. All times are the server's.
//
// The newest snapshot that counts stays. Of the others that count, let B be the newest that is
// older than grace. From before B, these are deleted: snapshots with their parts, the marks of void
// commits, and those commits and segments whose batches neither B nor the present state names. B's
// own commit stays, so the newest commit is always there. A process that trusts an answer has
// synced within a quarter of grace, so what it knows is newer than B: see trusts.
//
// A segment that nothing names may belong to a compaction in progress. So first a commit says that
// the segment is dropped: after that commit, no state names it any more.
func (s *Store) collect(ctx context.Context) error {
	if err := s.fresh(ctx); err != nil {
		return err
	}
	count, a, err := s.counting(ctx, 2, s.grace)
	if err != nil || len(count) < 2 {
		return err
	}
	base := count[1]
	old, err := s.objectsOf(ctx, base)
	if err != nil {
		return err
	}
	needed := func(key string) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.st.number < base.number || s.behind || old[key] != nil || s.st.objects[key] != nil || s.pending[key]
	}
	var gone, orphans []string
	for prefix, before := range map[string]string{
		"snapshot/": fmt.Sprintf("snapshot/%020d", base.number),
		"part/":     fmt.Sprintf("part/%020d", base.number),
		"void/":     voidKey(base.number, hash{}),
	} {
		if err := s.each(ctx, prefix, before, func(it item) { gone = append(gone, it.key) }); err != nil {
			return err
		}
	}
	err = s.each(ctx, "commit/", commitKey(base.number), func(it item) {
		if !needed(it.key) {
			gone = append(gone, it.key)
		}
	})
	if err != nil {
		return err
	}
	err = s.each(ctx, "segment/", fmt.Sprintf("segment/%020d", base.number), func(it item) {
		if !needed(it.key) && a.date.Sub(it.modified) > s.grace {
			orphans = append(orphans, it.key)
		}
	})
	if err != nil {
		return err
	}
	if err := s.drop(ctx, orphans); err != nil {
		return err
	}
	gone = append(gone, orphans...)
	gone = gone[:min(len(gone), removesMax)]
	var all errgroup.Group
	all.SetLimit(removers)
	for _, key := range gone {
		all.Go(func() error {
			if err := s.bucket.remove(ctx, key); err != nil && !errors.Is(err, errMissing) {
				return err
			}
			return nil
		})
	}
	return all.Wait()
}

// drop commits that no state may name these segments.
func (s *Store) drop(ctx context.Context, orphans []string) error {
	if len(orphans) == 0 {
		return nil
	}
	named := ""
	err := s.change(ctx, func(st *state) (e effects, _ [][]byte, _ error) {
		named = ""
		for _, key := range orphans {
			if st.objects[key] != nil {
				named = key
				return e, nil, nil
			}
		}
		e.drops = orphans
		return e, nil, nil
	})
	if err == nil && named != "" {
		err = fmt.Errorf("%s was taken in the meantime", named)
	}
	return err
}

// each lists the objects whose keys have a prefix and are less than before.
func (s *Store) each(ctx context.Context, prefix, before string, do func(item)) error {
	after := ""
	for {
		items, _, err := s.bucket.list(ctx, prefix, after, pageSize)
		if err != nil {
			return err
		}
		for _, it := range items {
			if it.key >= before {
				return nil
			}
			if strings.HasPrefix(it.key, prefix) {
				do(it)
			}
			after = it.key
		}
		if len(items) < pageSize {
			return nil
		}
	}
}
