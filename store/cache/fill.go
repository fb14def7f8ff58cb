package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/recovered"
)

const (
	// fillBytes bounds the bytes of one read of the store below.
	fillBytes = 4 << 20
	// fillsMax bounds the reads of the store below that are in progress. Beyond it the store below
	// answers readers directly, with what they asked for.
	fillsMax = 16
)

// flightKey is where a flight reads.
type flightKey struct {
	place
	version eventlog.Version
	from    eventlog.Offset
}

// flight is a read of the store below for all readers that miss the same batch. It goes on if they
// give up.
type flight struct {
	key  flightKey
	span eventlog.Span
	done chan struct{} // closed when what follows is set; nobody changes it afterwards

	slice  eventlog.Slice
	intact bool // no batch was replaced, and no incarnation entered, during the read
	err    error
}

// fill reads what is missing, and adds it to the gatherings. It reports false if the read must
// begin again.
func (s *Store) fill(ctx context.Context, told *told, lacking []missing) (ok bool, err error) {
	flights := s.join(ctx, told, lacking)
	if flights == nil {
		return false, nil
	}
	for i, m := range lacking {
		f := flights[i]
		select {
		case <-f.done:
		case <-ctx.Done():
			return false, fmt.Errorf("read partition %d from %d through the cache: %w: %w", m.span.Partition, m.at, eventlog.ErrUnavailable, ctx.Err())
		}
		if f.err != nil {
			return false, f.err
		}
		if !f.intact || errors.Is(f.slice.Err, eventlog.ErrNoPartition) {
			return false, nil
		}
		s.stats.misses.Add(1)
		if f.slice.Err != nil {
			if m.ended = true; len(m.batches) == 0 {
				m.err = f.slice.Err
			}
			continue
		}
		got := f.slice.Batches
		if len(got) > 0 && len(m.batches) > 0 && got[0].Base < m.at {
			return false, nil // the batch does not begin where the last one ended: batches were replaced
		}
		n, all := fitting(func(i int) int { return len(got[i].Bytes) }, len(got), m.room, m.first)
		mine := make([]eventlog.Placed, n)
		for i, b := range got[:n] {
			b.Bytes = bytes.Clone(b.Bytes) // other readers share the bytes of the flight
			mine[i] = b
		}
		m.add(mine, all && f.span.MaxBytes < m.room, &s.stats.missBytes) // if the flight's limit was not below room, what it left out does not fit here either
	}
	return true, nil
}

// join returns a flight for each of the missing spans: those in progress, and new ones, which are
// one read of the store below. nil: too many are in progress, or the cache is closed.
func (s *Store) join(ctx context.Context, told *told, lacking []missing) []*flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	flights := make([]*flight, len(lacking))
	var mine []*flight
	total := 0
	for i, m := range lacking {
		key := flightKey{m.place, m.version, m.at}
		if flights[i] = s.flights[key]; flights[i] != nil {
			continue
		}
		want := min(max(m.room, s.opts.BlockBytes), fillBytes)
		if total += want; total > fillBytes && len(mine) > 0 {
			total += m.room - want // no more than was asked for: the answers of many spans must not need more memory
			want = m.room
		}
		f := &flight{key: key, span: eventlog.Span{Partition: m.span.Partition, From: m.at, MaxBytes: want}, done: make(chan struct{})}
		flights[i] = f
		mine = append(mine, f)
	}
	if len(mine) == 0 {
		return flights
	}
	if s.closed || s.stats.fills.Load() >= fillsMax {
		return nil
	}
	for _, f := range mine {
		s.flights[f.key] = f
	}
	s.stats.fills.Add(1)
	s.running.Go(func() {
		defer s.stats.fills.Add(-1)
		s.fly(context.WithoutCancel(ctx), told, mine, total)
	})
	return flights
}

// fly reads the store below and keeps what it got. The readers wait for the file, so that whoever
// continues finds it, and does not read the store below again.
func (s *Store) fly(ctx context.Context, told *told, flights []*flight, total int) {
	var read []eventlog.Slice
	var versions map[eventlog.Partition]eventlog.Version
	err := recovered.Do(func() (err error) { // no request waits for this goroutine, so no door would recover
		spans := make([]eventlog.Span, len(flights))
		partitions := make([]eventlog.Partition, len(flights))
		for i, f := range flights {
			spans[i], partitions[i] = f.span, f.span.Partition
		}
		if read, err = s.Store.Read(ctx, spans, total); err != nil {
			return err
		}
		versions, err = s.versions(ctx, partitions)
		return err
	})
	for i, f := range flights {
		if f.err = err; err == nil {
			f.slice, f.intact = read[i], versions[f.span.Partition] == f.key.version && s.told.Load() == told
		}
		if f.intact && f.slice.Err == nil {
			f.err = recovered.Do(func() error {
				s.keep(f)
				return nil
			})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range flights {
		delete(s.flights, f.key)
		close(f.done)
	}
}

// keep writes what a flight read into blocks. The end of a partition is left out while it is
// shorter than half a block, because a longer block will have it.
func (s *Store) keep(f *flight) {
	batches, at := f.slice.Batches, eventlog.Offset(-1)
	begin, size := 0, 0
	write := func(end int, whole bool) {
		if begin < end {
			s.disk.write(f.key.place, f.key.version, batches[begin:end], whole)
		}
		begin, size = end, 0
	}
	for i, b := range batches {
		if at >= 0 && b.Base != at || s.opts.Check != nil && s.opts.Check(b) != nil {
			write(i, false) // a batch is missing or damaged: nothing is kept from there on
			return
		}
		at = b.End()
		if size > 0 && size+len(b.Bytes) > s.opts.BlockBytes {
			write(i, true)
		}
		size += len(b.Bytes)
	}
	write(len(batches), size >= s.opts.BlockBytes/2)
}
