package postgres

import (
	"context"
	"time"
)

// Restless makes a store sweep all the time.
func Restless(o Options) Options {
	o.sweepPause = 20 * time.Millisecond
	return o
}

// Tidy makes one sweep, now.
func (s *Store) Tidy(ctx context.Context) (done bool, err error) { return s.sweepOnce(ctx) }

// ByArrays makes a store commit one entry as it commits several.
func ByArrays(o Options) Options {
	o.arraysOnly = true
	return o
}

// Hasty makes a store wait for answers for a moment only.
func Hasty(o Options) Options {
	o.answerMax = 300 * time.Millisecond
	return o
}

// ReadSQL is the statement of Read.
var ReadSQL = readStatement.SQL

// Scripts is how many files of the log's run once.
func Scripts() int { return len(logPart.tables()) }
