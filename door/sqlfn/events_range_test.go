package sqlfn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/seed"
)

// offsets are the offsets of rows.
func offsets(list []row) (all []int64) {
	for _, e := range list {
		all = append(all, e.Offset)
	}
	return all
}

func span(from, to int64) (all []int64) {
	for ; from < to; from++ {
		all = append(all, from)
	}
	return all
}

func TestReadingBeginsAtTheOffsetAskedFor(t *testing.T) {
	r := startReader(t)
	p := r.topic("t", 1, nil).Partitions[0]
	for range 3 {
		r.fill(p, 1, 4, 2)
		r.exec(`SELECT weir.roll(false, 0, '0')`)
	}
	const next = 21
	read := func(first int64) {
		t.Helper()
		for from := int64(0); from <= next+1; from++ {
			if got, want := offsets(r.events("weir.events('t', $1)", from)), span(max(from, first), next); !slices.Equal(got, want) {
				t.Errorf("from %d, first %d: %d, want %d", from, first, got, want)
			}
			if got, want := offsets(r.events("weir.last_events('t', $1)", from)), span(max(next-from, first), next); !slices.Equal(got, want) {
				t.Errorf("last %d, first %d: %d, want %d", from, first, got, want)
			}
		}
	}
	read(0)
	for _, first := range []int64{2, 5, 9, 20} { // in the middle of batches, and at their edges
		if err := r.log.Trim(t.Context(), p, eventlog.Offset(first)); err != nil {
			t.Fatal(err)
		}
		read(first)
	}
	if err := r.log.Trim(t.Context(), p, next); err != nil {
		t.Fatal(err)
	}
	read(next)
}

func TestACompressedBatchCountsOnlyWhatIsHeldOfIt(t *testing.T) {
	r := startReader(t)
	p := r.topic("t", 1, nil).Partitions[0]
	raw, err := batch.Seal(make([]batch.Record, 10), batch.Zstd)
	if err != nil {
		t.Fatal(err)
	}
	r.put(p, raw)
	if err := r.log.Trim(t.Context(), p, 4); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[int]string{0: "4 6", 4: "4 6", 9: "9 1"} {
		if got := one[string](r, `SELECT string_agg("offset" || ' ' || records, ', ') FROM weir.events('t', $1)`, from); got != want {
			t.Errorf("from %d: offset and records %s, want %s", from, got, want)
		}
	}
}

func TestAllPartitionsAreReadOneAfterTheOther(t *testing.T) {
	r := startReader(t)
	topic := r.topic("t", 3, nil)
	r.fill(topic.Partitions[0], 2)
	r.fill(topic.Partitions[2], 3, 1)
	if got := one[string](r, `SELECT string_agg(partition || ':' || "offset", ' ') FROM weir.events('t')`); got != "0:0 0:1 2:0 2:1 2:2 2:3" {
		t.Error(got)
	}
	if got := one[string](r, `SELECT string_agg(partition || ':' || "offset", ' ') FROM weir.events('t', 1, max_events => 3)`); got != "0:1 2:1 2:2" {
		t.Error(got)
	}
	if got := one[string](r, `SELECT string_agg(partition || ':' || "offset", ' ') FROM weir.events('t', partition => 2)`); got != "2:0 2:1 2:2 2:3" {
		t.Error(got)
	}
	if got := one[string](r, `SELECT string_agg(partition || ':' || "offset", ' ') FROM weir.last_events('t', 1)`); got != "0:1 2:3" {
		t.Error(got)
	}
	// An argument that is a query cannot be put in place; the function is then run as it is.
	if got := one[int](r, `SELECT count(*) FROM weir.events('t', (SELECT max("offset") FROM weir.last_events('t')), 2)`); got != 1 {
		t.Errorf("%d rows from an offset that a query gives, want 1", got)
	}
}

// Promises 1 and 2 of the door: what was acknowledged is there, and what was published goes no
// further than the statement's own beginning.
func TestAnEventIsReadOnceItIsAcknowledged(t *testing.T) {
	r := startReader(t)
	p := r.topic("t", 1, nil).Partitions[0]
	for n := range 20 {
		if _, err := r.log.Publish(t.Context(), p, batch.Record{}); err != nil {
			t.Fatal(err)
		}
		if got := offsets(r.events("weir.last_events('t', 1)")); !slices.Equal(got, []int64{int64(n)}) {
			t.Fatalf("after offset %d was acknowledged the last one is %d", n, got)
		}
	}
}

// Invariants L5 and L6 for SQL: while segments are sealed, emptied and dropped all the time,
// whoever asks again and again from behind the last row gets every record once, in order.
func TestWhoAsksFromBehindTheLastRowMissesNothing(t *testing.T) {
	random := seed.Random(t)
	r := startReader(t)
	topic := r.topic("t", 2, nil)
	p, keeps := topic.Partitions[0], topic.Partitions[1] // the other lies in the same segments, and is never trimmed
	ctx, stop := context.WithCancel(t.Context())
	const records = 200
	var read atomic.Int64
	var all sync.WaitGroup
	all.Go(func() { // publishes
		defer stop()
		for n := range records {
			for _, to := range []eventlog.Partition{p, keeps} {
				if _, err := r.log.Publish(t.Context(), to, batch.Record{Timestamp: time.Now().UnixMilli(), Value: fmt.Append(nil, n)}); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	sweep := connect(t, r.url)
	all.Go(func() { // seals, trims what was read, moves and drops
		for ctx.Err() == nil {
			victim := fmt.Sprintf(`((SELECT number FROM weir.segment WHERE sealed_at IS NOT NULL ORDER BY number OFFSET %d LIMIT 1))`, random.IntN(3))
			for _, sql := range []string{
				`SELECT weir.roll(false, 0, '0')`, fmt.Sprintf(`SELECT weir.trim(%d, %d)`, p, read.Load()-random.Int64N(20)),
				`SELECT weir.roll(true, 1, '1 day')`, `SELECT weir.settle` + victim, `SELECT weir.move_run` + victim, `SELECT weir.drop_segment` + victim,
			} {
				_, err := sweep.Exec(t.Context(), sql)
				var refused *pgconn.PgError
				if errors.As(err, &refused) && (refused.Code == "55P03" || refused.Code == "42P01") {
					continue // somebody looks at it, or it is gone
				}
				if err != nil {
					t.Errorf("%s: %v", sql, err)
					return
				}
			}
		}
	})
	next := [2]int64{}
	again := 0
	defer all.Wait()
	defer stop()
	for next[0] < records || next[1] < records {
		for i := range next {
			var got [][2]int64
			rows, err := r.Query(t.Context(), `SELECT "offset", value_text::bigint FROM weir.events('t', $1, $2)`, next[i], i)
			if err == nil {
				got, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (at [2]int64, err error) { return at, row.Scan(&at[0], &at[1]) })
			}
			var refused *pgconn.PgError
			if errors.As(err, &refused) && refused.Code == "40001" {
				again++
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range got {
				if at[0] != next[i] || at[1] != next[i] {
					t.Fatalf("partition %d: offset %d with value %d, want %d", i, at[0], at[1], next[i])
				}
				next[i]++
			}
			read.Store(next[0])
		}
	}
	all.Wait()
	made, left := one[int](r, `SELECT max(number) FROM weir.segment`), one[int](r, `SELECT count(*) FROM weir.segment`)
	if t.Logf("%d segments, of which %d are left; %d reads were told to begin again", made, left, again); made-left < 5 {
		t.Error("too few segments were dropped for a test of that")
	}
}

// planNode is a step of a plan that was run.
type planNode struct {
	Kind     string     `json:"Node Type"`
	Function string     `json:"Function Name"`
	Rows     float64    `json:"Actual Rows"`
	Loops    float64    `json:"Actual Loops"`
	Spilled  int        `json:"Temp Written Blocks"`
	Plans    []planNode `json:"Plans"`
}

func (n planNode) find(function string) (planNode, bool) {
	if n.Function == function {
		return n, true
	}
	for _, p := range n.Plans {
		if found, ok := p.find(function); ok {
			return found, true
		}
	}
	return planNode{}, false
}

func (r *reader) explain(sql string) planNode {
	r.t.Helper()
	var plans []struct{ Plan planNode }
	if err := json.Unmarshal(one[[]byte](r, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+sql), &plans); err != nil {
		r.t.Fatal(err)
	}
	return plans[0].Plan
}

func TestReadingGoesNoFurtherThanItsRowsAreWanted(t *testing.T) {
	r := startReader(t)
	p := r.topic("t", 1, nil).Partitions[0]
	r.fill(p, slices.Repeat([]int{1000}, 40)...) // 4 MB
	for sql, most := range map[string]float64{
		`SELECT * FROM weir.events('t') LIMIT 5`:                         1,
		`SELECT * FROM weir.events('t', 20000, 0, 5)`:                    1,
		`SELECT * FROM weir.events('t', 30000) WHERE "offset" = 30001`:   5,
		`SELECT * FROM weir.last_events('t', 5)`:                         1,
		`SELECT count(*) FROM weir.events('t')`:                          20,
		`SELECT value_text FROM weir.events('t') OFFSET 9000 LIMIT 1000`: 5,
	} {
		plan := r.explain(sql)
		decode, ok := plan.find("decode")
		if !ok {
			t.Fatalf("%s: decode is not in the plan: the planner did not put events in place", sql)
		}
		if decode.Loops > most {
			t.Errorf("%s: %v stretches of %v records were read, want %v at most", sql, decode.Loops, decode.Rows, most)
		}
		if decode.Rows > 5000 || plan.Spilled > 0 {
			t.Errorf("%s: a stretch has %v records, %d blocks were written to disk", sql, decode.Rows, plan.Spilled)
		}
	}
}

func TestOnlySegmentsThatHoldWhatIsAskedForAreTouched(t *testing.T) {
	r := startReader(t)
	p := r.topic("t", 1, nil).Partitions[0]
	for range 4 {
		r.fill(p, 10)
		r.exec(`SELECT weir.roll(false, 0, '0')`)
	}
	touched := func(sql string) string {
		t.Helper()
		tx, err := r.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(t.Context())
		r.exec(sql)
		return one[string](r, `SELECT coalesce(string_agg(DISTINCT relation::regclass::text, ' '), '') FROM pg_locks
			WHERE pid = pg_backend_pid() AND relation::regclass::text ~ '^weir.batch_\d+$'`)
	}
	for sql, want := range map[string]string{
		`SELECT FROM weir.events('t', 30)`:              "weir.batch_4",
		`SELECT FROM weir.events('t', 12, 0, 1)`:        "weir.batch_2",
		`SELECT FROM weir.events('t', 19, 0, 2)`:        "weir.batch_2 weir.batch_3",
		`SELECT FROM weir.events('t', 40)`:              "",
		`SELECT FROM weir.last_events('t', 11)`:         "weir.batch_3 weir.batch_4",
		`SELECT FROM weir.events('t', max_events => 0)`: "",
	} {
		if got := touched(sql); got != want {
			t.Errorf("%s touches %q, want %q", sql, got, want)
		}
	}
}

func TestRecordsDroppedUnderAnOldSnapshotAreTold(t *testing.T) {
	r := startReader(t)
	p := r.topic("t", 1, nil).Partitions[0]
	for range 2 {
		r.exec(`SELECT weir.roll(false, 0, '0')`) // away from the catalog
		r.fill(p, 10)
	}
	old := connect(t, r.url)
	tx, err := old.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	var n int
	if err := tx.QueryRow(t.Context(), `SELECT count(*) FROM weir.events('t', 15)`).Scan(&n); err != nil || n != 5 {
		t.Fatal(n, err)
	}
	if err := r.log.Trim(t.Context(), p, 10); err != nil {
		t.Fatal(err)
	}
	// The store's own sweep may be faster than we are, or at it: then we are refused, and look
	// again.
	sweeper := connect(t, r.url)
	for late := time.Now().Add(20 * time.Second); one[bool](r, `SELECT to_regclass('weir.batch_2') IS NOT NULL`); {
		if _, err := sweeper.Exec(t.Context(), `SELECT weir.drop_segment(2)`); err != nil && time.Now().After(late) {
			t.Fatalf("segment 2 is still there: %v", err)
		}
	}
	err = tx.QueryRow(t.Context(), `SELECT count(*) FROM weir.events('t')`).Scan(&n)
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "40001" || !strings.Contains(refused.Hint, "new transaction") {
		t.Errorf("%d events, %v; want SQLSTATE 40001 and advice", n, err)
	}
	if got := offsets(r.events("weir.events('t')")); !slices.Equal(got, span(10, 20)) {
		t.Errorf("a new transaction reads %d", got)
	}
}
