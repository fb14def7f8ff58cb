package s3

import (
	"context"
	"fmt"

	"github.com/weir-log/weir/internal/verify"
)

const (
	restoreObject = "restore the object from a version or a copy of the bucket; without it, these events are lost"
	// orphanAges is after how many times grace a segment that nothing names should be gone: a
	// server looks every quarter of grace.
	orphanAges = 3
)

// Verify checks that each object that holds batches of the log is in the bucket, and long enough,
// and that segments which nothing names are deleted.
func (s *Store) Verify(ctx context.Context, x *verify.Exam) error {
	wants, err := s.wanted(ctx)
	if err != nil {
		return err
	}
	var orphans []string
	for _, prefix := range []string{"commit/", "segment/"} {
		err := s.each(ctx, prefix, prefix+"~", func(it item) { // no key has a tilde there
			if size, named := wants[it.key]; named && it.size >= size {
				delete(wants, it.key)
			} else if !named && prefix == "segment/" {
				orphans = append(orphans, it.key)
			}
		})
		if err != nil {
			return failed(err)
		}
	}
	for key := range wants {
		if err := x.Confirm(ctx, func(v *verify.View) error { return s.lookFor(ctx, v, key) }); err != nil {
			return err
		}
	}
	return s.verifyOrphans(ctx, x, orphans)
}

// wanted returns the objects that the state names, and how many bytes each must have.
func (s *Store) wanted(ctx context.Context) (map[string]int64, error) {
	if err := s.fresh(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	wants := make(map[string]int64, len(s.st.objects))
	for key := range s.st.objects {
		wants[key] = 1
	}
	for _, p := range s.st.partitions {
		for _, h := range p.held {
			wants[h.object.key] = max(wants[h.object.key], h.at+int64(h.size))
		}
	}
	return wants, nil
}

// lookFor sees whether an object that the state names is missing, or too short.
func (s *Store) lookFor(ctx context.Context, v *verify.View, key string) error {
	wants, err := s.wanted(ctx)
	if err != nil {
		return err
	}
	want, named := wants[key]
	if !named {
		return nil // compaction has moved its batches
	}
	items, _, err := s.bucket.list(ctx, key, "", 1)
	switch {
	case err != nil:
		return failed(err)
	case len(items) == 0 || items[0].key != key:
		v.Find(verify.AtKey(key), restoreObject, "the log has batches in this object of the bucket, and it is missing")
	case items[0].size < want:
		v.Find(verify.AtKey(key), restoreObject, "the log has batches in the first %d bytes of this object of the bucket, which has %d", want, items[0].size)
	}
	return nil
}

// verifyOrphans sees which segments that the state does not name should have been deleted: those
// that are older than a snapshot that is old itself (collect).
func (s *Store) verifyOrphans(ctx context.Context, x *verify.Exam, orphans []string) error {
	if len(orphans) == 0 {
		return nil
	}
	count, a, err := s.counting(ctx, 2, orphanAges*s.grace)
	if err != nil {
		return failed(err)
	}
	if len(count) < 2 || a.date.Sub(count[0].modified) > s.grace { // no server has worked lately, so nobody has deleted them
		return nil
	}
	old, err := s.objectsOf(ctx, count[1])
	if err != nil {
		return failed(err)
	}
	before := fmt.Sprintf("segment/%020d", count[1].number)
	for _, key := range orphans {
		if old[key] != nil || key >= before {
			continue
		}
		err := x.Confirm(ctx, func(v *verify.View) error {
			wants, err := s.wanted(ctx)
			if err != nil {
				return err
			}
			items, now, err := s.bucket.list(ctx, key, "", 1)
			if err != nil {
				return failed(err)
			}
			if _, named := wants[key]; !named && len(items) > 0 && items[0].key == key && now.date.Sub(items[0].modified) > orphanAges*s.grace {
				v.Find(verify.AtKey(key), "it only takes space: a server deletes it, unless it may not delete objects of the bucket; see what its log says", "nothing has named this object of the bucket for longer than %v", orphanAges*s.grace)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
