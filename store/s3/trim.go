package s3

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-log/weir/eventlog"
)

// trimming is a call of Trim that has not returned yet. Store.mu guards taken, done and err.
type trimming struct {
	trims []eventlog.Trim
	taken bool  // another call is making a commit of it
	done  bool  // that call has ended, and err is the answer to this one, too
	err   error // nil or ErrUnsure
}

// Trim implements eventlog.Store. Calls that wait share one commit: however many there are, they
// delay other commits by one.
func (s *Store) Trim(ctx context.Context, trims []eventlog.Trim) ([]error, error) {
	mine := &trimming{trims: trims}
	s.mu.Lock()
	s.trimmings[mine] = true
	s.mu.Unlock()
	err := s.trimAll(ctx, mine)
	s.mu.Lock()
	delete(s.trimmings, mine)
	switch {
	case mine.done:
		err = mine.err
	case mine.taken:
		err = fmt.Errorf("%w: gave up while another call made it (%v)", eventlog.ErrUnsure, err)
	}
	s.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("trim %d partitions: %w", len(trims), err)
	}
	return make([]error, len(trims)), nil
}

// trimAll makes one commit of all calls that wait for one, unless another call has done that for
// mine. If it certainly did not happen, only mine is told: the others try themselves.
func (s *Store) trimAll(ctx context.Context, mine *trimming) error {
	if err := s.trimTurn.take(ctx); err != nil {
		return err
	}
	defer s.trimTurn.give()
	s.mu.Lock()
	done := mine.done
	s.mu.Unlock()
	if done {
		return nil
	}
	var all []*trimming
	err := s.change(ctx, func(st *state) (e effects, _ [][]byte, _ error) {
		all = slices.Collect(maps.Keys(s.trimmings))
		below := make(map[eventlog.Partition]eventlog.Offset)
		for _, each := range all {
			each.taken = each != mine
			for _, t := range each.trims {
				if p := st.partitions[t.Partition]; p != nil {
					below[t.Partition] = max(p.first, below[t.Partition], min(t.Before, p.next))
				}
			}
		}
		for _, id := range slices.Sorted(maps.Keys(below)) {
			if first := below[id]; first > st.partitions[id].first {
				e.trims = append(e.trims, trim{id, first})
			}
		}
		return e, nil, nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, each := range all {
		each.taken, each.done, each.err = false, err == nil || errors.Is(err, eventlog.ErrUnsure), err
	}
	return err
}
