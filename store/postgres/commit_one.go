package postgres

import (
	"fmt"
	"slices"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/postgres/wire"
)

const (
	// pieceMax is how many bytes of a batch are in one row: sql/tables/001_tables.sql.
	pieceMax = 8088
	// oneKeysMax bounds the keys of an entry for weir.commit_one, which has a statement for each.
	oneKeysMax = 6
)

var commitOneStatement = wire.Statement{Name: "commit_one", SQL: `
	SELECT base, refused
	FROM weir.commit_one($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`}

// one reports whether the flush is an entry that weir.commit_one can commit.
func (f *flush) one() bool {
	switch {
	case len(f.owners) != 1, len(f.batchEntry) > 1, len(f.keys) > oneKeysMax, len(f.holdable) > 1, len(f.forgets) > 0:
		return false
	case len(f.batchEntry) == 1 && (f.batchRecords[0] == 0 || f.batchSize[0] == 0 || f.batchSize[0] > pieceMax):
		return false
	case slices.Contains(f.keys, eventlog.EpochKey):
		return false
	}
	return len(distinct(f.checkNth)) == len(f.checkNth) && len(distinct(f.putNth)) == len(f.putNth)
}

// oneParams are the parameters of weir.commit_one, except the incarnation.
func (f *flush) oneParams() [][]byte {
	params := make([][]byte, 4, 13)
	if len(f.batchEntry) == 1 {
		params = [][]byte{wire.Int8(int64(f.batchPartition[0])), wire.Int4(f.batchRecords[0]), wire.Int8(int64(f.batchTime[0])), wire.Int4(f.batchSize[0])}
	}
	n := len(f.keys)
	expected, versions := make([]eventlog.Version, n), make([]eventlog.Version, n)
	starts, sizes := make([]int32, n), make([]int32, n)
	fresh, withBase := make([]bool, n), make([]bool, n)
	for i := range n {
		expected[i], sizes[i] = -1, -2
	}
	for i, nth := range f.putNth {
		k := nth - 1
		versions[k], starts[k], sizes[k], withBase[k] = f.putVersion[i], f.putStart[i], f.putSize[i], f.putBase[i] > 0
		fresh[k] = versions[k] == 1 // a key that is put at version 1 is most likely new: an event of a stream, for example
	}
	for i, nth := range f.checkNth {
		expected[nth-1], fresh[nth-1] = f.checkVersion[i], f.checkVersion[i] == 0
	}
	holdable := int32(0)
	if len(f.holdable) == 1 {
		holdable = f.checkNth[f.holdable[0]-1]
	}
	return append(params, wire.TextArray(f.keys), wire.BoolArray(fresh), wire.Int8Array(expected), wire.Int8Array(versions),
		wire.Int4Array(starts), wire.Int4Array(sizes), wire.BoolArray(withBase), wire.Int4(holdable), f.body)
}

// oneVerdict is the answer of weir.commit_one.
func (f *flush) oneVerdict(row [][]byte) verdict {
	v := verdict{base: make([]int64, len(f.batchEntry))}
	switch refused := wire.Integer(row[1]); refused {
	case 0:
		if len(v.base) == 1 {
			v.base[0] = wire.Bigint(row[0])
		}
	case 1:
		v.stale = []int64{1}
	case 2:
		v.held = []int64{1}
	case 3:
		v.noPartition = []int64{1}
	default:
		panic(fmt.Sprintf("postgres: weir.commit_one refused an entry with %d", refused))
	}
	return v
}
