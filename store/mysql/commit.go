package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storerow"
)

const (
	keyMax   = 2000      // bytes of a key: the width of weir_state.k
	pieceMax = 512 << 10 // bytes of a row of weir_piece
	textMax  = 4 << 20   // bytes of values in one text, before escaping, which may double them; fewer if max_allowed_packet is below twice that
	rowsMax  = 2000      // rows of one INSERT
)

// Commit implements eventlog.Store with one transaction for any number of entries. If the disk is
// full, a second one commits the entries that need little space.
func (s *Store) Commit(ctx context.Context, entries []eventlog.Entry) ([]eventlog.Outcome, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	if err := storerow.CheckReplaces(entries); err != nil {
		return nil, err
	}
	outcomes, err := s.commit(ctx, entries, nil)
	if errors.Is(err, eventlog.ErrNoSpace) {
		outcomes, err = s.commit(ctx, entries, err)
	}
	if errors.Is(err, eventlog.ErrNotWritable) { // callers are told at once: with an error of Commit, the log would try again until an operator helps
		outcomes = make([]eventlog.Outcome, len(entries))
		for i := range outcomes {
			outcomes[i].Err = err
		}
		return outcomes, nil
	}
	if err != nil {
		return nil, fmt.Errorf("commit %d entries: %w", len(entries), err)
	}
	return outcomes, nil
}

func (s *Store) commit(ctx context.Context, entries []eventlog.Entry, noSpace error) ([]eventlog.Outcome, error) {
	f, err := change(ctx, s.commits, func(t *transaction) (*flush, error) {
		f := &flush{transaction: t, noSpace: noSpace, packet: s.packet, entries: entries, outcomes: make([]eventlog.Outcome, len(entries)), versions: map[string]eventlog.Version{}}
		return f, f.run(&s.lastIncarnation)
	})
	if err != nil {
		return nil, err
	}
	s.durable.note(f.wrote())
	if f.forgot {
		s.sweeper.wake()
	}
	return f.outcomes, nil
}

// flush is one attempt at a Commit.
type flush struct {
	*transaction
	noSpace  error // why records are refused; nil: they are not
	packet   int
	entries  []eventlog.Entry
	outcomes []eventlog.Outcome

	partitions map[eventlog.Partition]*partition // nil: it does not exist
	versions   map[string]eventlog.Version       // of the keys that exist

	batches []batchRow
	puts    []putRow
	forgets []eventlog.Partition
	cuts    []eventlog.Replace // the spans whose old batches are deleted
	forgot  bool
}

type partition struct {
	storerow.Partition
	created, changed bool
}

type batchRow struct {
	partition eventlog.Partition
	storerow.Batch
	bytes []byte
}

type putRow struct {
	eventlog.Put
	value []byte // with the base offset; nil: the key is deleted
}

func (f *flush) run(told *lastIncarnation) error {
	if err := f.lock(told); err != nil {
		return err
	}
	for i, entry := range f.entries {
		if f.outcomes[i].Err != nil {
			continue
		}
		refusal, err := entry.Refusal(f, f.noSpace)
		if err != nil {
			return err
		}
		if refusal != nil {
			f.outcomes[i].Err = refusal
			continue
		}
		if f.outcomes[i].Base, err = f.apply(entry); err != nil {
			return err
		}
	}
	return f.write()
}

// lock locks and reads all rows that the entries check or change. Entries whose keys cannot be
// stored are refused.
func (f *flush) lock(told *lastIncarnation) error {
	ids := map[eventlog.Partition]bool{}
	keys, guarded := map[string]bool{}, map[int]bool{}
	beginsEpoch := false
	for i, e := range f.entries {
		if f.outcomes[i].Err = checkKeys(e, f.packet); f.outcomes[i].Err != nil {
			continue
		}
		for _, b := range e.Batches {
			ids[b.Partition] = true
		}
		for _, r := range e.Replaces {
			ids[r.Partition] = true
		}
		for _, id := range e.Forgets {
			ids[id] = true
		}
		exists := map[string]bool{} // keys that exist, unless their check fails
		for _, c := range e.Checks {
			keys[c.Key] = true
			if exists[c.Key] = c.Version != 0; c.Version == 0 {
				guarded[guardOf(c.Key)] = true
			}
		}
		for _, p := range e.Puts {
			keys[p.Key] = true
			beginsEpoch = beginsEpoch || p.Key == eventlog.EpochKey
			if !exists[p.Key] {
				guarded[guardOf(p.Key)] = true
			}
		}
	}
	f.partitions = make(map[eventlog.Partition]*partition, len(ids))
	var t text
	var now incarnation
	begin(&t, &now, beginsEpoch)
	if len(ids) > 0 {
		t.add(func(row *sql.Rows) error {
			id, p, err := scanPartition(row)
			if err == nil {
				f.partitions[id] = &partition{Partition: *p}
			}
			return err
		}, selectPartition+list(len(ids))+" ORDER BY id FOR UPDATE", arguments(slices.Sorted(maps.Keys(ids)), func(id eventlog.Partition) any { return int64(id) })...)
	}
	if len(guarded) > 0 {
		t.add(ignore, "SELECT id FROM weir_guard WHERE id IN "+list(len(guarded))+" ORDER BY id FOR UPDATE", arguments(slices.Sorted(maps.Keys(guarded)), func(id int) any { return id })...)
	}
	if len(keys) > 0 {
		t.add(func(row *sql.Rows) error {
			var key sql.RawBytes
			var version eventlog.Version
			err := row.Scan(&key, &version)
			f.versions[string(key)] = version
			return err
		}, "SELECT k, version FROM weir_state WHERE k IN "+list(len(keys))+" ORDER BY k FOR UPDATE", arguments(slices.Sorted(maps.Keys(keys)), func(key string) any { return []byte(key) })...)
	}
	if err := f.transaction.run(&t); err != nil {
		return err
	}
	return told.check(now)
}

// wrote returns what the flush left, which is durable after the commit.
func (f *flush) wrote() (saw sight) {
	for id, p := range f.partitions {
		if p.changed || p.created {
			saw.bounds = append(saw.bounds, p.Bounds(id))
		}
	}
	for _, p := range f.puts {
		saw.keys = append(saw.keys, storedAs(p.Key, p.Version, p.value))
	}
	return saw
}

func arguments[T any](of []T, as func(T) any) []any {
	args := make([]any, len(of))
	for i, v := range of {
		args[i] = as(v)
	}
	return args
}

// checkKeys returns why the keys or values of an entry cannot be stored. The server would refuse
// the whole flush.
func checkKeys(e eventlog.Entry, packet int) error {
	long := func(key string) error {
		if len(key) > keyMax {
			return fmt.Errorf("%w: key %.40q… has %d bytes, the limit is %d", eventlog.ErrTooLarge, key, len(key), keyMax)
		}
		return nil
	}
	for _, c := range e.Checks {
		if err := long(c.Key); err != nil {
			return err
		}
	}
	for _, p := range e.Puts {
		if err := long(p.Key); err != nil {
			return err
		}
		if most := packet/2 - 64<<10; len(p.Value) > most {
			return fmt.Errorf("%w: the value of key %.40q has %d bytes, the limit is %d with the server's max_allowed_packet of %d", eventlog.ErrTooLarge, p.Key, len(p.Value), most, packet)
		}
	}
	return nil
}

// Version implements eventlog.Content.
func (f *flush) Version(key string) (eventlog.Version, error) { return f.versions[key], nil }

// Exists implements eventlog.Content.
func (f *flush) Exists(id eventlog.Partition) (bool, error) { return f.partitions[id] != nil, nil }

// Holds implements eventlog.Content.
func (f *flush) Holds(r eventlog.Replace) (bool, error) {
	return f.partitions[r.Partition].Holds(index{f.transaction.run}, r)
}

// apply notes what an entry that is not refused writes.
func (f *flush) apply(entry eventlog.Entry) ([]eventlog.Offset, error) {
	base := make([]eventlog.Offset, len(entry.Batches))
	for i, b := range entry.Batches {
		p := f.partitions[b.Partition]
		if p == nil {
			p = &partition{Partition: *storerow.Empty(), created: true}
			f.partitions[b.Partition] = p
		}
		if b.Records == 0 {
			continue
		}
		row := p.Append(b)
		p.changed = true
		base[i] = row.Base
		f.batches = append(f.batches, batchRow{b.Partition, row, b.Bytes})
	}
	for _, put := range entry.Puts {
		f.puts = append(f.puts, putRow{put, put.Stored(base)})
	}
	for _, r := range entry.Replaces {
		old, err := index{f.transaction.run}.Span(r.Partition, r.From, r.To)
		if err != nil {
			return nil, err
		}
		p := f.partitions[r.Partition]
		for i, row := range p.Replace(r, old) {
			f.batches = append(f.batches, batchRow{r.Partition, row, r.Batches[i].Bytes})
		}
		p.changed = true
		f.cuts = append(f.cuts, r)
	}
	for _, id := range entry.Forgets {
		if f.partitions[id] != nil {
			f.forgets, f.forgot = append(f.forgets, id), true
		}
	}
	return base, nil
}
