// Package table keeps a table in the store: small rows, each under a key of its own, with a common
// prefix. API keys, users, ACLs and quotas are tables. A table has few rows, so all are read
// together; servers know them from their last reading (Recent).
//
// A row is changed by an entry that checks its version. What becomes of an entry that was
// overtaken, or whose answer was lost, is told in use/ledger.
package table

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/recent"
	"github.com/weir-log/weir/use/audit"
	"github.com/weir-log/weir/use/ledger"
)

// together is how many rows are changed at a time; the log puts their entries into few flushes.
const together = 256

// Log is what a table needs of an eventlog.Log.
type Log interface {
	ledger.Log
	List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error)
}

// Rules say what is in a table. R is a row as its owner reads it, V all rows as servers look at
// them.
type Rules[R, V any] struct {
	Name    string // what the rows are called in texts, in the plural
	Prefix  string // of the keys
	Counted string // the rows with this prefix count; "": all do
	Max     int    // most rows. Callers that do not know of each other may exceed it: then all rows are used
	Full    error  // the error for a row beyond Max
	Decode  func(key string, value []byte) (R, error)
	View    func(Rows[R]) V
	Repair  string // what to do about a row that cannot be read, for the log

	Deletion audit.Verb // of a row that cannot be read
	// Show returns the name of a row, and what the audit shows of it, which must have no secret.
	Show func(key string, value R) (object string, state any)
}

// Row is a row of the store.
type Row[R any] struct {
	Value   R
	Version eventlog.Version // 0: there is no such row
	Age     time.Duration    // since it was stored
	Err     error            // why it cannot be read; Value is the zero value then
}

// Exists reports whether the store has the row.
func (r Row[R]) Exists() bool { return r.Version != 0 }

// Rows are all rows, by key.
type Rows[R any] map[string]Row[R]

// Edit is a change of one row.
type Edit[R any] struct {
	Key  string
	What string     // what it does, for errors
	Verb audit.Verb // what it does, for the audit; "": it is weir's own
	// Decide returns the row's new value; nil: it is deleted. ledger.ErrUnchanged: it stays. If
	// another change comes first, Decide is called again; its last call counts.
	Decide func(old Row[R]) (value []byte, err error)
}

// Delete decides to delete a row.
func Delete[R any](old Row[R]) ([]byte, error) {
	if !old.Exists() {
		return nil, ledger.ErrUnchanged
	}
	return nil, nil
}

// Table is a table. Methods may be called concurrently.
type Table[R, V any] struct {
	log    Log
	audit  *audit.Log // nil: nobody is told who changes rows
	logger *slog.Logger
	rules  Rules[R, V]
	last   *recent.Value[V]
	logged atomic.Int64 // how many rows that cannot be read were logged last
}

// New returns a table. If log is an *audit.Log, changes are recorded. Rows that cannot be read are
// logged. zero stands for the rows before the first reading: Recent does not return it without an
// error.
func New[R, V any](log Log, logger *slog.Logger, zero V, rules Rules[R, V]) *Table[R, V] {
	t := &Table[R, V]{log: log, logger: logger, rules: rules}
	t.audit, _ = log.(*audit.Log)
	t.last = recent.New(rules.Name, zero, func(ctx context.Context) (v V, err error) {
		rows, err := t.Read(ctx)
		if err != nil {
			return v, err
		}
		return rules.View(rows), nil
	}, logger)
	return t
}

// Recent returns the rows as they were at most fresh ago. After this process has changed a row, it
// reads them again. Package recent says when the rows may be older.
func (t *Table[R, V]) Recent(ctx context.Context, fresh time.Duration) (*recent.Reading[V], error) {
	return t.last.Get(ctx, fresh)
}

// Read reads all rows from the store: one store call, and one more for each Max by which they
// exceed it.
func (t *Table[R, V]) Read(ctx context.Context) (Rows[R], error) {
	kvs, err := eventlog.AllUnder(ctx, t.log.List, t.rules.Prefix, t.rules.Max+2)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", t.rules.Name, err)
	}
	rows, damaged := make(Rows[R], len(kvs)), int64(0)
	for _, kv := range kvs {
		rows[kv.Key] = t.row(kv)
		if rows[kv.Key].Err != nil {
			damaged++
		}
	}
	if t.logged.Swap(damaged) == damaged { // rows are read often: this is logged once
		return rows, nil
	}
	for key, r := range rows {
		if r.Err != nil {
			t.logger.Error("one of the "+t.rules.Name+" cannot be read; "+t.rules.Repair, "key", key, "err", r.Err)
		}
	}
	return rows, nil
}

func (t *Table[R, V]) row(kv eventlog.KeyValue) (r Row[R]) {
	r.Version, r.Age = kv.Version, kv.Age
	if r.Exists() {
		value, err := t.rules.Decode(kv.Key, kv.Value)
		if r.Err = err; err == nil {
			r.Value = value
		}
	}
	return r
}

// Edit reads the table and makes changes, durably, each as a whole or not at all. It returns an
// error, or nil, for each. Changes of one row must be the same change. It costs a few store calls,
// however many changes there are. The next Recent reads the store again.
//
// eventlog.ErrUnsure: the change may have been made.
func (t *Table[R, V]) Edit(ctx context.Context, edits ...Edit[R]) []error {
	rows, err := t.Read(ctx)
	if err != nil {
		return failed(edits, err)
	}
	return t.EditFrom(ctx, rows, edits...)
}

// Try returns what Edit would return, as far as it can be known without making a change.
func (t *Table[R, V]) Try(ctx context.Context, edits ...Edit[R]) []error {
	rows, err := t.Read(ctx)
	if err != nil {
		return failed(edits, err)
	}
	errs := t.judge(rows, edits)
	for i, e := range edits {
		errs[i] = e.explain(errs[i])
	}
	return errs
}

// EditFrom is Edit of a table that the caller has read.
func (t *Table[R, V]) EditFrom(ctx context.Context, rows Rows[R], edits ...Edit[R]) []error {
	if err := t.audit.Prepare(ctx); err != nil {
		return failed(edits, err)
	}
	errs := t.judge(rows, edits)
	made := make(map[string]int, len(edits)) // by key, the first of those that are made
	finish := make(map[int]func() (eventlog.KeyValue, error), together)
	end := func() {
		for i := range finish {
			_, errs[i] = finish[i]()
		}
		clear(finish)
	}
	for i, e := range edits {
		if _, twice := made[e.Key]; twice || errs[i] != nil {
			continue
		}
		made[e.Key] = i
		old := rows[e.Key]
		finish[i] = ledger.Begin(ctx, t.log, eventlog.KeyValue{Key: e.Key, Version: old.Version}, func(now eventlog.KeyValue) ([]byte, eventlog.Entry, error) {
			if now.Version != old.Version {
				old = t.row(now)
			}
			value, err := e.Decide(old)
			if err != nil {
				return nil, eventlog.Entry{}, err
			}
			with, err := t.record(ctx, e, old, value)
			return value, with, err
		})
		if len(finish) == together {
			end()
		}
	}
	end()
	if len(made) > 0 {
		t.last.Expire()
	}
	for i, e := range edits {
		if at, is := made[e.Key]; is && errs[i] == nil {
			errs[i] = errs[at]
		}
		errs[i] = e.explain(errs[i])
	}
	return errs
}

// record returns the audit event of a change.
func (t *Table[R, V]) record(ctx context.Context, e Edit[R], old Row[R], value []byte) (with eventlog.Entry, err error) {
	if e.Verb == "" {
		return with, nil
	}
	next := t.row(eventlog.KeyValue{Key: e.Key, Version: 1, Value: value})
	event := audit.Event{Verb: e.Verb}
	if value != nil {
		event.Object, event.After = t.rules.Show(e.Key, next.Value)
	}
	switch {
	case old.Err != nil:
		event.Object, event.Before = strings.TrimPrefix(e.Key, t.rules.Prefix), map[string]bool{"damaged": true}
	case old.Exists():
		event.Object, event.Before = t.rules.Show(e.Key, old.Value)
	}
	err = t.audit.Add(ctx, &with, e.Key, event)
	return with, err
}

// judge returns why edits are not made, ErrUnchanged among that. Edits of one row count once.
func (t *Table[R, V]) judge(rows Rows[R], edits []Edit[R]) []error {
	errs, count, seen := make([]error, len(edits)), 0, make(map[string]bool, len(edits))
	for key := range rows {
		if strings.HasPrefix(key, t.rules.Counted) {
			count++
		}
	}
	for i, e := range edits {
		old := rows[e.Key]
		value, err := e.Decide(old)
		switch {
		case err != nil || seen[e.Key] || !strings.HasPrefix(e.Key, t.rules.Counted):
		case value == nil:
			count--
		case !old.Exists() && count >= t.rules.Max:
			err = t.rules.Full
		case !old.Exists():
			count++
		}
		errs[i] = err
		seen[e.Key] = seen[e.Key] || err == nil
	}
	return errs
}

func (e Edit[R]) explain(err error) error {
	if err == nil || errors.Is(err, ledger.ErrUnchanged) {
		return nil
	}
	return fmt.Errorf("%s: %w", e.What, err)
}

func failed[R any](edits []Edit[R], err error) []error {
	errs := make([]error, len(edits))
	for i, e := range edits {
		errs[i] = e.explain(err)
	}
	return errs
}

// DeleteDamaged deletes the rows that cannot be read, and returns how many.
func (t *Table[R, V]) DeleteDamaged(ctx context.Context) (n int, err error) {
	rows, err := t.Read(ctx)
	if err != nil {
		return 0, err
	}
	var edits []Edit[R]
	for key, r := range rows {
		if r.Err != nil {
			edits = append(edits, Edit[R]{Key: key, Verb: t.rules.Deletion, What: "delete one of the " + t.rules.Name + " that cannot be read", Decide: func(old Row[R]) ([]byte, error) {
				if old.Err == nil { // another caller was first
					return nil, ledger.ErrUnchanged
				}
				return nil, nil
			}})
		}
	}
	for _, failed := range t.EditFrom(ctx, rows, edits...) {
		if failed == nil {
			n++
		}
		err = errors.Join(err, failed)
	}
	return n, err
}
