package postgres

import (
	"fmt"
	"sync"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/postgres/wire"
)

// rewound is the SQLSTATE of weir.still.
const rewound = "WE093"

// Incarnation is what weir.life tells. A server of 0 is none.
type Incarnation struct{ Server, Tables, Epoch int64 }

// pollLife is a row beside the bounds of partitions, so that a poll tells in which incarnation they are.
const pollLife = `
	UNION ALL
	SELECT -1, coalesce(l.server, 0), l.epoch, l.tables FROM weir.life() AS l`

// Told is how a mark tells it.
func (in Incarnation) Told() eventlog.Incarnation {
	return eventlog.Incarnation{Store: fmt.Sprintf("server since %d, tables %d", in.Server, in.Tables), Epoch: eventlog.Version(in.Epoch)}
}

// params are what weir.still takes: NULL before anything was told.
func (in Incarnation) params() [][]byte {
	if in.Server == 0 {
		return [][]byte{nil, nil, nil}
	}
	return [][]byte{wire.Int8(in.Server), wire.Int8(in.Tables), wire.Int8(in.Epoch)}
}

// life is the incarnation that Moved told last.
type life struct {
	mu   sync.Mutex // guards told
	told Incarnation
}

func (l *life) tell(in Incarnation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = in
}

// now is what was told last; zero before anything was.
func (l *life) now() Incarnation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told
}

// args are what weir.still takes, for the driver.
func (l *life) args() []any {
	in := l.now()
	if in.Server == 0 {
		return []any{nil, nil, nil}
	}
	return []any{in.Server, in.Tables, in.Epoch}
}
