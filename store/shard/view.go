package shard

import (
	"context"
	"errors"
	"slices"

	"github.com/weir-log/weir/eventlog"
)

// renumbered returns replacements with other partition numbers.
func renumbered(replaces []eventlog.Replace, id func(eventlog.Partition) eventlog.Partition) []eventlog.Replace {
	replaces = slices.Clone(replaces)
	for i := range replaces {
		r := &replaces[i]
		r.Partition = id(r.Partition)
		r.Batches = slices.Clone(r.Batches)
		for k := range r.Batches {
			r.Batches[k].Partition = r.Partition
		}
	}
	return replaces
}

// rename gives what was read of a partition the number by which everybody knows it.
func rename(s *eventlog.Slice, p eventlog.Partition) {
	s.Bounds.Partition = p
	for i := range s.Batches {
		s.Batches[i].Partition = p
	}
	if damaged := (*eventlog.DamagedError)(nil); errors.As(s.Err, &damaged) {
		other := *damaged
		other.Partition = p
		s.Err = &other
	}
}

// view is a shard of which all keys are seen, and one partition, under the number by which
// everybody knows it.
type view struct {
	shard eventlog.Store
	p, on eventlog.Partition // the number for everybody, and on the shard
}

// View returns a shard of which all keys are seen, and only the partition p, which has the number
// on there. It is for what moves the partition.
func (s *Set) View(shard int, p, on eventlog.Partition) eventlog.Store {
	return view{s.members[shard].store, p, on}
}

func (v view) id(p eventlog.Partition) eventlog.Partition {
	if p == v.p {
		return v.on
	}
	return -1 // no store has it
}

func (v view) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	flush = slices.Clone(flush)
	for i := range flush {
		e := &flush[i]
		e.Batches, e.Forgets = slices.Clone(e.Batches), slices.Clone(e.Forgets)
		for k := range e.Batches {
			e.Batches[k].Partition = v.id(e.Batches[k].Partition)
		}
		for k := range e.Forgets {
			e.Forgets[k] = v.id(e.Forgets[k])
		}
		e.Replaces = renumbered(e.Replaces, v.id)
	}
	return v.shard.Commit(ctx, flush)
}

func (v view) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	own := slices.Clone(spans)
	for i := range own {
		own[i].Partition = v.id(own[i].Partition)
	}
	read, err := v.shard.Read(ctx, own, maxBytes)
	for i := range read {
		rename(&read[i], spans[i].Partition)
	}
	return read, err
}

func (v view) Changes(ctx context.Context, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
	all, mark, err := v.shard.Changes(ctx, since)
	for _, b := range all {
		if b.Partition == v.on {
			b.Partition = v.p
			return []eventlog.Bounds{b}, mark, err
		}
	}
	return nil, mark, err
}

func (v view) Seek(ctx context.Context, goals []eventlog.Goal) ([]eventlog.Found, error) {
	own := slices.Clone(goals)
	for i := range own {
		own[i].Partition = v.id(own[i].Partition)
	}
	return v.shard.Seek(ctx, own)
}

func (v view) Trim(ctx context.Context, trims []eventlog.Trim) ([]error, error) {
	own := slices.Clone(trims)
	for i := range own {
		own[i].Partition = v.id(own[i].Partition)
	}
	return v.shard.Trim(ctx, own)
}

func (v view) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	return v.shard.List(ctx, prefix, after, limit)
}

func (v view) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	return v.shard.Get(ctx, keys, maxBytes)
}

// Close does nothing: the set closes its shards.
func (v view) Close() error { return nil }
