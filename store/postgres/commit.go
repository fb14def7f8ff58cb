package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/postgres/wire"
)

const (
	// keyMax is the longest key in bytes: an index row is limited to a third of a page.
	keyMax = 2000
	// flushMax is the largest flush in bytes: it is one value, and a value of PostgreSQL is limited
	// to 1 GiB.
	flushMax = 1 << 29
)

var commitStatement = wire.Statement{Name: "commit", SQL: `
	SELECT bases, stale, homeless, held
	FROM weir.commit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
	WHERE weir.still_after($20, $21, $22)`}

// commitForgetStatement commits entries, too, and then deletes the partitions that they forget
// (Entry.Forgets), except those of refused entries. weir.commit has locked these partitions.
var commitForgetStatement = wire.Statement{Name: "commit_forget", SQL: `
	SELECT c.bases, c.stale, c.homeless, c.held, forgotten.n
	FROM weir.commit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19) AS c
	CROSS JOIN LATERAL (
		SELECT count(weir.forget(f.partition)) AS n
		FROM unnest($23::int[], $24::bigint[]) AS f(entry, partition)
		WHERE f.entry <> ALL (c.stale || c.homeless || c.held)
	) AS forgotten
	WHERE weir.still_after($20, $21, $22)`}

// Commit implements eventlog.Store with one statement: one round trip, and one wait for the disk.
// weir.commit commits any entries; weir.commit_one commits one small entry in half the time.
// On a full disk a second statement commits the entries that need little space.
func (s *Store) Commit(ctx context.Context, entries []eventlog.Entry) ([]eventlog.Outcome, error) {
	if i := slices.IndexFunc(entries, func(e eventlog.Entry) bool { return len(e.Replaces) > 0 }); i >= 0 {
		if len(entries) > 1 {
			return nil, errors.New("commit: an entry that replaces batches must be the only one in its flush")
		}
		return s.commitReplaces(ctx, entries[0])
	}
	outcomes, err := s.commit(ctx, entries)
	if errors.Is(err, eventlog.ErrUpgraded) {
		return nil, err
	}
	if err != nil || slices.ContainsFunc(entries, bulky) { // a commit without records does not show that there is space for records
		s.remember(err)
	}
	if errors.Is(err, eventlog.ErrNoSpace) {
		return s.commitSmall(ctx, entries, err)
	}
	return outcomes, err
}

func (s *Store) commit(ctx context.Context, entries []eventlog.Entry) ([]eventlog.Outcome, error) {
	f, outcomes := gather(entries)
	if len(f.owners) == 0 {
		return outcomes, nil
	}
	if len(f.body) > flushMax {
		return nil, fmt.Errorf("commit: %w: the flush has %d bytes, the limit is %d", eventlog.ErrTooLarge, len(f.body), flushMax)
	}
	if err := s.layout.Usable(); err != nil {
		return nil, fmt.Errorf("commit %d entries: %w", len(entries), err)
	}
	verdict, err := retry(ctx, rolledBack, func() (verdict, error) { return s.send(ctx, f) })
	if err != nil {
		return nil, fmt.Errorf("commit %d entries: %w", len(entries), writeFailed(s.fits(ctx, err)))
	}
	f.setOutcomes(entries, outcomes, verdict)
	s.sweeper.wrote(int64(len(f.body)), s.opts.SegmentBytes)
	if len(f.forgets) > 0 {
		s.sweeper.wake()
	}
	s.news.tell()
	return outcomes, nil
}

// verdict is the answer of weir.commit.
type verdict struct{ base, stale, noPartition, held []int64 }

// send makes one attempt. ctx ends the wait for a connection, but not the wait for the answer.
func (s *Store) send(ctx context.Context, f *flush) (verdict, error) {
	conn, err := s.commitPool.Acquire(ctx)
	if err != nil {
		return verdict{}, notSent(err)
	}
	defer conn.Release()
	ctx, cancel := s.detached(ctx)
	defer cancel()
	incarnation := s.lastIncarnation.now().params()
	one := f.one() && !s.opts.arraysOnly
	var statement wire.Statement
	var params [][]byte
	switch {
	case one:
		statement, params = commitOneStatement, slices.Concat(f.oneParams(), incarnation)
	case len(f.forgets) > 0:
		statement, params = commitForgetStatement, slices.Concat(f.params(), [][]byte{wire.Int4Array(f.holdable)}, incarnation, [][]byte{wire.Int4Array(f.forgetEntry), wire.Int8Array(f.forgets)})
	default:
		statement, params = commitStatement, slices.Concat(f.params(), [][]byte{wire.Int4Array(f.holdable)}, incarnation)
	}
	result := statement.Run(ctx, conn.Conn().PgConn(), s.opts.Pooled, params...).Read()
	if result.Err != nil {
		return verdict{}, result.Err
	}
	if len(result.Rows) != 1 {
		panic(fmt.Sprintf("postgres: %s answered with %d rows", statement.Name, len(result.Rows)))
	}
	row := result.Rows[0]
	if one {
		return f.oneVerdict(row), nil
	}
	return verdict{wire.Numbers(row[0]), wire.Numbers(row[1]), wire.Numbers(row[2]), wire.Numbers(row[3])}, nil
}

// flush holds entries as the columns that weir.commit takes.
type flush struct {
	owners []int // entries are numbered from 1; owners[number-1] is the index of an entry in entries

	partitions []eventlog.Partition // rows to lock, sorted
	keys       []string

	batchEntry     []int32
	batchPartition []eventlog.Partition
	batchNth       []int32 // index in partitions, from 1
	batchRecords   []int32
	batchTime      []eventlog.Timestamp
	batchStart     []int32
	batchSize      []int32

	checkEntry   []int32
	checkKey     []string
	checkNth     []int32 // index in keys, from 1
	checkVersion []eventlog.Version
	holdable     []int32 // indexes of checks, from 1

	putEntry   []int32
	putKey     []string
	putNth     []int32 // index in keys, from 1
	putVersion []eventlog.Version
	putStart   []int32
	putSize    []int32
	putBase    []int32

	forgetEntry []int32
	forgets     []eventlog.Partition

	body []byte
}

// gather converts entries into columns. An entry that PostgreSQL cannot store gets its outcome
// immediately.
func gather(entries []eventlog.Entry) (*flush, []eventlog.Outcome) {
	outcomes := make([]eventlog.Outcome, len(entries))
	f := &flush{body: make([]byte, 0, payload(entries))}
	for i, e := range entries {
		if err := checkKeys(e); err != nil {
			outcomes[i].Err = err
			continue
		}
		f.add(i, e)
	}
	f.partitions, f.keys = distinct(f.batchPartition, f.forgets), distinct(f.checkKey, f.putKey)
	f.batchNth, f.checkNth, f.putNth = nth(f.partitions, f.batchPartition), nth(f.keys, f.checkKey), nth(f.keys, f.putKey)
	return f, outcomes
}

// distinct returns the elements of lists, sorted and without duplicates.
func distinct[T cmp.Ordered](lists ...[]T) []T {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}

// nth returns, for each element of some, its index in all (sorted), from 1.
func nth[T cmp.Ordered](all, some []T) []int32 {
	places := make([]int32, len(some))
	for i, v := range some {
		n, _ := slices.BinarySearch(all, v)
		places[i] = int32(n + 1)
	}
	return places
}

func payload(entries []eventlog.Entry) int {
	size := 0
	for _, e := range entries {
		for _, b := range e.Batches {
			size += len(b.Bytes)
		}
		for _, p := range e.Puts {
			size += len(p.Value)
		}
	}
	return size
}

// checkKeys returns why a key cannot be stored. The server would refuse the whole flush for one
// such key.
func checkKeys(e eventlog.Entry) error {
	for _, c := range e.Checks {
		if err := checkKey(c.Key); err != nil {
			return err
		}
	}
	for _, p := range e.Puts {
		if err := checkKey(p.Key); err != nil {
			return err
		}
	}
	return nil
}

func checkKey(key string) error {
	switch {
	case len(key) > keyMax:
		return fmt.Errorf("%w: key %.40q… has %d bytes, the limit is %d", eventlog.ErrTooLarge, key, len(key), keyMax)
	case !utf8.ValidString(key), strings.ContainsRune(key, 0):
		return fmt.Errorf("key %q: PostgreSQL stores keys as text: a key must be UTF-8 without zero bytes", key)
	}
	return nil
}

func (f *flush) add(owner int, e eventlog.Entry) {
	f.owners = append(f.owners, owner)
	number := int32(len(f.owners))
	before := int32(len(f.batchEntry))
	for _, b := range e.Batches {
		f.batchEntry = append(f.batchEntry, number)
		f.batchPartition = append(f.batchPartition, b.Partition)
		f.batchRecords = append(f.batchRecords, b.Records)
		f.batchTime = append(f.batchTime, b.MaxTime)
		f.batchStart = append(f.batchStart, int32(len(f.body)))
		f.batchSize = append(f.batchSize, int32(len(b.Bytes)))
		f.body = append(f.body, b.Bytes...)
	}
	for _, c := range e.Checks {
		f.checkEntry = append(f.checkEntry, number)
		f.checkKey = append(f.checkKey, c.Key)
		f.checkVersion = append(f.checkVersion, c.Version)
		if c.Holdable {
			f.holdable = append(f.holdable, int32(len(f.checkEntry)))
		}
	}
	for _, p := range e.Puts {
		f.putEntry = append(f.putEntry, number)
		f.putKey = append(f.putKey, p.Key)
		f.putVersion = append(f.putVersion, p.Version)
		f.putStart = append(f.putStart, int32(len(f.body)))
		base, size := int32(0), int32(-1)
		if p.Value != nil {
			size = int32(len(p.Value))
			if p.AddBase > 0 {
				base = before + int32(p.AddBase)
			}
		}
		f.putBase = append(f.putBase, base)
		f.putSize = append(f.putSize, size)
		f.body = append(f.body, p.Value...)
	}
	for _, p := range e.Forgets {
		f.forgetEntry, f.forgets = append(f.forgetEntry, number), append(f.forgets, p)
	}
}

// params are the parameters of weir.commit, except holdable.
func (f *flush) params() [][]byte {
	return [][]byte{
		wire.Int8Array(f.partitions), wire.TextArray(f.keys),
		wire.Int4Array(f.batchEntry), wire.Int4Array(f.batchNth), wire.Int4Array(f.batchRecords), wire.Int8Array(f.batchTime),
		wire.Int4Array(f.batchStart), wire.Int4Array(f.batchSize),
		wire.Int4Array(f.checkEntry), wire.Int4Array(f.checkNth), wire.Int8Array(f.checkVersion),
		wire.Int4Array(f.putEntry), wire.Int4Array(f.putNth), wire.Int8Array(f.putVersion),
		wire.Int4Array(f.putStart), wire.Int4Array(f.putSize), wire.Int4Array(f.putBase),
		f.body,
	}
}

// setOutcomes turns the verdict into outcomes.
func (f *flush) setOutcomes(entries []eventlog.Entry, outcomes []eventlog.Outcome, v verdict) {
	for _, number := range v.stale {
		outcomes[f.owners[number-1]].Err = eventlog.ErrStale
	}
	for _, number := range v.held {
		outcomes[f.owners[number-1]].Err = eventlog.ErrHeld
	}
	for _, number := range v.noPartition {
		outcomes[f.owners[number-1]].Err = eventlog.ErrNoPartition
	}
	if len(v.base) != len(f.batchEntry) {
		panic(fmt.Sprintf("postgres: %d offsets came back for %d batches", len(v.base), len(f.batchEntry)))
	}
	base := v.base
	for _, owner := range f.owners {
		mine := base[:len(entries[owner].Batches)]
		base = base[len(mine):]
		if outcomes[owner].Err != nil {
			continue
		}
		outcomes[owner].Base = make([]eventlog.Offset, len(mine))
		for i, at := range mine {
			outcomes[owner].Base[i] = eventlog.Offset(at)
		}
	}
}
