package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/postgres/wire"
)

var replaceStatement = wire.Statement{Name: "replace", SQL: `
	SELECT r FROM weir.replace($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) AS r
	WHERE weir.still_after($17, $18, $19)`}

// errNoSegment: there is no segment for replaced batches yet.
var errNoSegment = errors.New("there is no segment for replaced batches")

// commitReplaces commits one entry that replaces batches, with one statement.
func (s *Store) commitReplaces(ctx context.Context, e eventlog.Entry) ([]eventlog.Outcome, error) {
	if err := checkKeys(e); err != nil {
		return []eventlog.Outcome{{Err: err}}, nil
	}
	for _, r := range e.Replaces {
		if err := r.Check(); err != nil {
			return nil, fmt.Errorf("commit: %w", err)
		}
	}
	f, params := gatherReplaces(e)
	if err := s.layout.Usable(); err != nil {
		return nil, fmt.Errorf("replace batches: %w", err)
	}
	again := func(err error) bool { return rolledBack(err) || errors.Is(err, errNoSegment) }
	verdict, err := retry(ctx, again, func() (string, error) { return s.sendReplaces(ctx, params) })
	s.remember(err)
	if err != nil {
		return nil, fmt.Errorf("replace batches: %w", writeFailed(s.fits(ctx, err)))
	}
	outcome := eventlog.Outcome{}
	switch verdict {
	case "stale":
		outcome.Err = eventlog.ErrStale
	case "no partition":
		outcome.Err = eventlog.ErrNoPartition
	default:
		s.sweeper.wrote(int64(len(f.body)), s.opts.SegmentBytes)
		s.news.tell()
		if s.replaced.Add(int64(len(f.body))) > s.opts.SegmentBytes/32 { // the segment may be full
			s.replaced.Store(0)
			if err := s.roll(ctx, true); err != nil {
				s.opts.Logger.Warn("could not open a new segment for replaced batches; trying again later", "err", err)
			}
		}
	}
	return []eventlog.Outcome{outcome}, nil
}

// gatherReplaces returns the parameters of weir.replace.
func gatherReplaces(e eventlog.Entry) (*flush, [][]byte) {
	replaces := slices.SortedFunc(slices.Values(e.Replaces), func(a, b eventlog.Replace) int { return cmp.Compare(a.Partition, b.Partition) })
	flat := eventlog.Entry{Checks: e.Checks, Puts: e.Puts}
	var partitions []eventlog.Partition
	var froms, tos []eventlog.Offset
	for _, r := range replaces {
		partitions, froms, tos = append(partitions, r.Partition), append(froms, r.From), append(tos, r.To)
		flat.Batches = append(flat.Batches, r.Batches...)
	}
	f, _ := gather([]eventlog.Entry{flat})
	return f, [][]byte{
		wire.Int8Array(partitions), wire.Int8Array(froms), wire.Int8Array(tos),
		wire.Int4Array(f.batchNth), wire.Int4Array(f.batchRecords), wire.Int8Array(f.batchTime), wire.Int4Array(f.batchStart), wire.Int4Array(f.batchSize),
		wire.TextArray(f.keys), wire.Int4Array(f.checkNth), wire.Int8Array(f.checkVersion),
		wire.Int4Array(f.putNth), wire.Int8Array(f.putVersion), wire.Int4Array(f.putStart), wire.Int4Array(f.putSize),
		f.body,
	}
}

// sendReplaces makes one attempt. As with commits, ctx ends the wait for a connection, but not the
// wait for the answer.
func (s *Store) sendReplaces(ctx context.Context, params [][]byte) (verdict string, err error) {
	conn, err := s.commitPool.Acquire(ctx)
	if err != nil {
		return "", notSent(err)
	}
	defer conn.Release()
	ctx, cancel := s.detached(ctx)
	defer cancel()
	result := replaceStatement.Run(ctx, conn.Conn().PgConn(), s.opts.Pooled, append(slices.Clone(params), s.lastIncarnation.now().params()...)...).Read()
	if result.Err != nil {
		return "", result.Err
	}
	if len(result.Rows) != 1 {
		panic(fmt.Sprintf("postgres: weir.replace answered with %d rows", len(result.Rows)))
	}
	if verdict = string(result.Rows[0][0]); verdict == "no segment" {
		if err := s.roll(ctx, true); err != nil {
			return "", err
		}
		return "", errNoSegment
	}
	return verdict, nil
}
