package postgres

import (
	"fmt"
	"sync"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/postgres/wire"
)

const (
	// rewound is the SQLSTATE of weir.still.
	rewound = "WE093"
	// commitsInProgress is the SQLSTATE of weir.wait_for_commits.
	commitsInProgress = "WE094"
)

// Incarnation is the result of weir.life. Server 0: unknown.
type Incarnation struct{ Server, Tables, Epoch int64 }

// pollIncarnation adds a row to the bounds of partitions: the incarnation that they are in.
const pollIncarnation = `
	UNION ALL
	SELECT -1, coalesce(l.server, 0), l.epoch, l.tables FROM weir.life() AS l`

// InMark returns the incarnation as a Mark has it.
func (in Incarnation) InMark() eventlog.Incarnation {
	return eventlog.Incarnation{Store: fmt.Sprintf("server since %d, tables %d", in.Server, in.Tables), Epoch: eventlog.Version(in.Epoch)}
}

// params are the parameters of weir.still: NULL before the first call of Changes.
func (in Incarnation) params() [][]byte {
	if in.Server == 0 {
		return [][]byte{nil, nil, nil}
	}
	return [][]byte{wire.Int8(in.Server), wire.Int8(in.Tables), wire.Int8(in.Epoch)}
}

// args are the same parameters, for pgx.
func (in Incarnation) args() []any {
	if in.Server == 0 {
		return []any{nil, nil, nil}
	}
	return []any{in.Server, in.Tables, in.Epoch}
}

// lastIncarnation is the incarnation that Changes returned last.
type lastIncarnation struct {
	mu   sync.Mutex // guards told
	told Incarnation
}

func (l *lastIncarnation) tell(in Incarnation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = in
}

// now returns the incarnation that Changes returned last; zero before the first call.
func (l *lastIncarnation) now() Incarnation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told
}

// Still returns the three parameters of weir.still: a statement with that condition fails with
// ErrRewound in another incarnation than Changes returned last. It is for statements whose results
// are compared with reads of the log: without the condition, a server that is still a standby, for
// example, could answer with less than the log has.
func (s *Store) Still() []any { return s.lastIncarnation.now().args() }
