package postgres

import (
	"fmt"
	"sync"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/postgres/wire"
)

// rewound is the SQLSTATE of weir.still.
const rewound = "WE093"

// incarnation is what weir.life tells.
type incarnation struct{ server, tables, epoch int64 }

// pollLife is a row beside the bounds of partitions, so that a poll tells in which incarnation they are.
const pollLife = `
	UNION ALL
	SELECT -1, coalesce(l.server, 0), l.epoch, l.tables FROM weir.life() AS l`

func (in incarnation) told() eventlog.Incarnation {
	return eventlog.Incarnation{Store: fmt.Sprintf("server since %d, tables %d", in.server, in.tables), Epoch: eventlog.Version(in.epoch)}
}

// life is the incarnation that Moved told last.
type life struct {
	mu   sync.Mutex // guards told
	told incarnation
}

func (l *life) tell(in incarnation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = in
}

// params are what weir.still takes: NULL before anything was told.
func (l *life) params() [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told.server == 0 {
		return [][]byte{nil, nil, nil}
	}
	return [][]byte{wire.Int8(l.told.server), wire.Int8(l.told.tables), wire.Int8(l.told.epoch)}
}

// args are the same, for the driver.
func (l *life) args() []any {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told.server == 0 {
		return []any{nil, nil, nil}
	}
	return []any{l.told.server, l.told.tables, l.told.epoch}
}
