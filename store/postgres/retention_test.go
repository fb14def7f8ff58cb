package postgres_test

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
)

const (
	segment = 1 << 20
	// small is a store with segments of 1 MiB. It sweeps when a test says so, and hardly ever by
	// itself.
	small = "&weir_segment_bytes=1048576"
)

// onDisk is how much the segments take.
func onDisk(t *testing.T, address string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(pgtest.Value(t, address, `
		SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
		WHERE relnamespace = 'weir'::regnamespace AND relkind = 'r' AND relname ~ '^batch_'`), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func sweepOnce(t *testing.T, s *postgres.Store) (done bool) {
	t.Helper()
	done, err := s.Tidy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// finish sweeps until nothing is left undone. One sweep may leave something: a trim has the store
// sweep by itself as well, and whoever of the two comes second to a segment leaves it.
func finish(t *testing.T, s *postgres.Store) {
	t.Helper()
	for late := time.Now().Add(30 * time.Second); !sweepOnce(t, s); {
		if time.Now().After(late) {
			t.Error("for 30 seconds each sweep left something undone")
			return
		}
	}
}

// fill publishes 4 MiB to partition 1, over several segments.
func fill(t *testing.T, s *postgres.Store) {
	t.Helper()
	for range 16 {
		publish(t, s, batch(1, segment/4))
		sweepOnce(t, s)
	}
}

func TestTrimFreesTheDiskThoughSomebodyHoldsASnapshot(t *testing.T) {
	address := pgtest.URL(t)
	s := at(t, address+small)
	openPartitions(t, s, 1)
	pgtest.Exec(t, address, `CREATE TABLE theirs AS SELECT 1 AS n`)
	begin(t, connect(t, address), `BEGIN ISOLATION LEVEL REPEATABLE READ; UPDATE theirs SET n = 2`)
	fill(t, s)
	if got := onDisk(t, address); got < 4*segment {
		t.Fatalf("4 MiB of batches take %d bytes: the test tests nothing", got)
	}
	trim(t, s, 1, 14)
	finish(t, s)
	if got := onDisk(t, address); got > 2*segment {
		t.Errorf("with half a segment wanted, %d bytes are on disk", got)
	}
	if got := len(held(t, s, 1)); got != 2 {
		t.Errorf("%d batches are left, want 2", got)
	}
	if got := pgtest.Value(t, address, `
		SELECT coalesce(string_agg(coalesce(s.number::text, '-') || '/' || coalesce(p.proname, '-'), ' '), '')
		FROM weir.segment s
		FULL JOIN (SELECT * FROM pg_proc WHERE pronamespace = 'weir'::regnamespace AND proname ~ '^write_') AS p ON p.proname = 'write_' || s.number
		WHERE s.number IS NULL OR p.oid IS NULL OR has_function_privilege('public', p.oid, 'execute')`); got != "" {
		t.Errorf("segments without their function, functions without a segment, and functions that everybody may call: %s", got)
	}
	if got := pgtest.Value(t, address, `SELECT p.prosrc LIKE '%batch_' || s.number || ' VALUES%' AND NOT has_function_privilege('public', p.oid, 'execute')
		FROM weir.segment s, pg_proc p WHERE s.sealed_at IS NULL AND NOT s.survivors AND p.proname = 'insert_piece'`); got != "true" {
		t.Errorf("insert_piece is made for the open segment, and nobody else may call it: %s", got)
	}
}

func TestSomebodyWhoReadsOurTablesStallsNobody(t *testing.T) {
	address := pgtest.URL(t)
	s := at(t, address+small)
	openPartitions(t, s, 1)
	fill(t, s)
	foreign := connect(t, address)
	begin(t, foreign, `BEGIN; SELECT count(*) FROM weir.batch; SELECT FROM weir.partition; SELECT FROM weir.state; SELECT FROM weir.run; SELECT FROM weir.segment`)
	// Whatever we do while they look, we do not wait for them. A wait would end in this error.
	impatient := at(t, strings.Replace(address, "?", "?options=-cdeadlock_timeout%3D1h&", 1)+small)
	trim(t, impatient, 1, bounds(t, s, 1).Next)
	if sweepOnce(t, impatient) {
		t.Error("the sweep dropped what somebody was looking at")
	}
	fill(t, impatient)
	waiting := pgtest.Value(t, address, `SELECT count(*) FROM pg_locks WHERE NOT granted`)
	if waiting != "0" {
		t.Errorf("%s locks are waited for", waiting)
	}
	if got := len(held(t, impatient, 1)); got != 16 {
		t.Errorf("%d batches are held, want 16", got)
	}
	begin(t, foreign, `ROLLBACK`)
	finish(t, impatient)
	if got := onDisk(t, address); got > 5*segment+segment/2 {
		t.Errorf("with 4 MiB wanted, %d bytes are on disk", got)
	}
}

// A snapshot that somebody holds keeps every version that our hot rows ever had. Finding the newest
// must not mean passing them.
func TestOldVersionsDoNotSlowLookups(t *testing.T) {
	address := pgtest.URL(t)
	s := at(t, address)
	openPartitions(t, s, 1)
	foreign := connect(t, address)
	begin(t, foreign, `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1`)
	const versions = 1500
	for v := range eventlog.Version(versions) {
		commit(t, s, eventlog.Entry{
			Batches: []eventlog.Batch{batch(1, 10)},
			Checks:  []eventlog.Check{{Key: "k", Version: v}},
			Puts:    []eventlog.Put{{Key: "k", Version: v + 1, Value: []byte("v")}},
		})
	}
	conn := connect(t, address)
	for what, query := range map[string]string{
		"partition": `SELECT next_offset FROM weir.partition WHERE id = 1 ORDER BY turn DESC LIMIT 1`,
		"key":       `SELECT version FROM weir.state WHERE key = 'k' ORDER BY turn DESC LIMIT 1`,
	} {
		if pages := pagesOf(t, conn, query); pages > 10 {
			t.Errorf("after %d versions, finding the newest of a %s reads %d pages", versions, what, pages)
		}
	}
}

// A commit must find its rows by their key, too: a plan that joins them all walks through every old
// version.
func TestOldVersionsDoNotMakeCommitsDearer(t *testing.T) {
	address := pgtest.URL(t)
	s := at(t, address)
	const partitions, versions = 4, 3000
	openPartitions(t, s, partitions)
	write := func(v eventlog.Version) {
		e := eventlog.Entry{Checks: []eventlog.Check{{Key: "a", Version: v}}}
		for p := range eventlog.Partition(partitions) {
			e.Batches = append(e.Batches, batch(p+1, 10))
		}
		for _, key := range []string{"a", "b", "c"} {
			e.Puts = append(e.Puts, eventlog.Put{Key: key, Version: v + 1, Value: []byte("v")})
		}
		commit(t, s, e)
	}
	for v := range eventlog.Version(2 * 64) { // as many versions as a turn may hold, and vacuum has nothing to take
		write(v)
	}
	before := commitPages(t, address)
	begin(t, connect(t, address), `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1`)
	for v := range eventlog.Version(versions) {
		write(2*64 + v)
	}
	// What the planner knows, it knows from this: few rows.
	pgtest.Exec(t, address, `ANALYZE weir.partition`)
	pgtest.Exec(t, address, `ANALYZE weir.state`)
	after := commitPages(t, address)
	t.Logf("a commit touches %d pages before, and %d after %d more", before, after, versions)
	if after > 4*before { // the trees grow a little; walking would cost a thousand
		t.Errorf("a commit touched %d pages, and after %d more, whose old versions a snapshot keeps, it touches %d", before, versions, after)
	}
}

// commitPages counts the pages that a commit to four partitions and three keys touches, in a
// session of its own, the plans made. It is undone.
func commitPages(t *testing.T, address string) int {
	t.Helper()
	conn := connect(t, address)
	begin(t, conn, `BEGIN`)
	pages := 0
	for range 2 { // the first fills the caches of the catalog
		pages = pagesOf(t, conn, `SELECT weir.commit('{1,2,3,4}', '{a,b,c}',
			'{1,1,1,1}', '{1,2,3,4}', '{1,1,1,1}', '{1,1,1,1}', '{0,0,0,0}', '{3,3,3,3}', '{}', '{}', '{}',
			'{1,1,1}', '{1,2,3}', '{9999999,9999999,9999999}', '{0,0,0}', '{3,3,3}', '{0,0,0}', 'abc', '{}')`)
	}
	begin(t, conn, `ROLLBACK`)
	return pages
}

// pagesOf counts the pages that a query touches, those of the functions it calls included.
func pagesOf(t *testing.T, conn *pgx.Conn, query string) int {
	t.Helper()
	rows, err := conn.Query(t.Context(), `EXPLAIN (ANALYZE, BUFFERS) `+query)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	plan := strings.Join(lines, "\n")
	said := regexp.MustCompile(`Buffers: shared hit=(\d+)(?: read=(\d+))?`).FindStringSubmatch(plan)
	if said == nil {
		t.Fatalf("no buffers in the plan:\n%s", plan)
	}
	hit, _ := strconv.Atoi(said[1])
	read, _ := strconv.Atoi(said[2])
	return hit + read
}

// The same once more for the poll, which looks at all partitions.
func TestOldVersionsDoNotHidePartitionsFromThePoll(t *testing.T) {
	address := pgtest.URL(t)
	s := at(t, address)
	const partitions = 30
	openPartitions(t, s, partitions)
	begin(t, connect(t, address), `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1`)
	pgtest.Exec(t, address, `DO $$ BEGIN
		FOR i IN 1..500 LOOP
			UPDATE weir.partition SET writes = writes + 1, turn = (writes + 1) / 64;
		END LOOP; END $$`)
	if got := pgtest.Value(t, address, `SELECT pg_relation_size('weir.partition') > 1048576`); got != "true" {
		t.Fatal("the table did not swell: the test tests nothing")
	}
	if _, err := s.Commit(t.Context(), []eventlog.Entry{{Forgets: []eventlog.Partition{7}}}); err != nil {
		t.Fatal(err)
	}
	publish(t, s, batch(5, 10))
	moved, _, err := s.Changes(t.Context(), eventlog.Mark{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[eventlog.Partition]eventlog.Offset{}
	for _, b := range moved {
		seen[b.Partition] = b.Next
	}
	if len(moved) != partitions-1 || len(seen) != partitions-1 || seen[5] != 1 {
		t.Errorf("of %d partitions, one forgotten, the poll sees %d, and %d of them once; partition 5 ends at %d, want 1",
			partitions, len(moved), len(seen), seen[5])
	}
}

func TestTopicsKeptLongAndBrieflyShareTheDisk(t *testing.T) {
	address := pgtest.URL(t)
	s := at(t, address+small)
	openPartitions(t, s, 3)
	var kept []eventlog.Batch
	publish(t, s, batch(3, 5000)) // and then it is idle for ever
	for range 40 {
		long := batch(1, 20_000)
		kept = append(kept, long)
		publish(t, s, long, batch(2, 180_000))
		trim(t, s, 2, bounds(t, s, 2).Next)
		sweepOnce(t, s)
		live := int64(len(kept))*20_000 + 5000
		const indexes = 10 * 32 << 10 // a table and its index are at least this large, however little is in them
		if got := onDisk(t, address); got > 2*live+segment+indexes {
			t.Fatalf("with %d bytes wanted, %d are on disk: more than twice that and a segment", live, got)
		}
	}
	all := held(t, s, 1)
	if len(all) != len(kept) {
		t.Fatalf("%d batches are left, want %d", len(all), len(kept))
	}
	for i, b := range all {
		if b.Base != eventlog.Offset(i) || !bytes.Equal(b.Bytes, kept[i].Bytes) {
			t.Fatalf("batch %d came back changed, or at %d", i, b.Base)
		}
	}
	if got := len(held(t, s, 3)); got != 1 {
		t.Errorf("of the idle partition %d batches are left, want 1", got)
	}
	publish(t, s, batch(3, 10))
	if got := held(t, s, 3); len(got) != 2 || got[1].Base != 1 {
		t.Errorf("the idle partition goes on with %+v", got)
	}
}

func TestSeveralProcessesMaySweepAtOnce(t *testing.T) {
	address := pgtest.URL(t)
	s := at(t, address+small)
	openPartitions(t, s, 2)
	var sweeping, publishing sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		other := at(t, address+small)
		sweeping.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := other.Tidy(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for p := range eventlog.Partition(2) {
		publishing.Go(func() {
			for range 30 {
				publish(t, s, batch(p+1, 60_000))
				if p == 1 {
					trim(t, s, 2, bounds(t, s, 2).Next)
				}
				if got := held(t, s, 1); len(got) > 0 && got[0].Base != 0 {
					t.Errorf("partition 1 starts at %d", got[0].Base)
				}
			}
		})
	}
	publishing.Wait()
	close(stop)
	sweeping.Wait()
	if got := len(held(t, s, 1)); got != 30 {
		t.Errorf("%d batches are held, want 30", got)
	}
}

// Between looking for what nobody wants and dropping it, a commit may have written there.
func TestASegmentThatIsWantedIsNotDropped(t *testing.T) {
	address := pgtest.URL(t)
	patient := at(t, address)
	openPartitions(t, patient, 1)
	publish(t, patient, batch(1, 10))
	trim(t, patient, 1, 1)
	// A commit that has seen segment 1 open, and is not done.
	slow := connect(t, address)
	begin(t, slow, `BEGIN; SELECT weir.commit('{1}', '{}', '{1}', '{1}', '{1}', '{1}', '{0}', '{3}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', 'abc', '{}')`)
	s := at(t, address+"&weir_segment_age=1us") // only now is there somebody who seals
	for late := time.Now().Add(30 * time.Second); pgtest.Value(t, address, `SELECT sealed_at IS NOT NULL FROM weir.segment WHERE number = 1`) != "true"; {
		if time.Now().After(late) {
			t.Fatal("segment 1 was not sealed: the test tests nothing")
		}
		sweepOnce(t, s) // it leaves the segment if the trim has the other store sweep at this moment
	}
	begin(t, slow, `COMMIT`)
	if got := pgtest.Value(t, address, `SELECT weir.drop_segment(1)`); got != "false" {
		t.Error("a segment was dropped, and a commit had written there")
	}
	if got := held(t, s, 1); len(got) != 1 || string(got[0].Bytes) != "abc" {
		t.Errorf("after the sweep partition 1 holds %+v", got)
	}
}

func TestASegmentIsSealedByAge(t *testing.T) {
	address := pgtest.URL(t)
	s := at(t, address+"&weir_segment_age=1us")
	openPartitions(t, s, 1)
	publish(t, s, batch(1, 10))
	trim(t, s, 1, 1)
	late := time.Now().Add(time.Minute)
	for sweepOnce(t, s); pgtest.Value(t, address, `SELECT count(*) FROM weir.segment`) != "1" || onDisk(t, address) > 20<<10; sweepOnce(t, s) {
		if time.Now().After(late) {
			t.Fatalf("a segment past its age, with nothing wanted in it, takes %d bytes", onDisk(t, address))
		}
	}
}

// Its snapshot would be from before the lock, and not show what a commit wrote meanwhile.
func TestASegmentIsNotDroppedWithAnOldSnapshot(t *testing.T) {
	address := pgtest.URL(t)
	at(t, address)
	for _, level := range []string{"repeatable read", "serializable"} {
		conn := connect(t, address)
		begin(t, conn, `BEGIN ISOLATION LEVEL `+level)
		_, err := conn.Exec(t.Context(), `SELECT weir.drop_segment(1)`)
		if err == nil || !strings.Contains(err.Error(), "read committed") {
			t.Errorf("a segment dropped in a transaction that is %s: %v", level, err)
		}
	}
}

// A segment may go between the look for its number and the write into it.
func TestACommitWhoseSegmentWasDroppedIsTriedAgain(t *testing.T) {
	address := pgtest.URL(t)
	s := at(t, address)
	openPartitions(t, s, 1)
	pgtest.Exec(t, address, `CREATE SEQUENCE weir.tries`)
	for function, parameters := range map[string]string{
		"write_1":      "a bigint[], b bigint[], c bigint[], d bigint[], e int[], f int[], g int[], h bytea",
		"insert_piece": "a int, b bigint, c bigint, d bigint, e bigint, f int, g int, h bytea",
	} {
		pgtest.Exec(t, address, `ALTER FUNCTION weir.`+function+` RENAME TO renamed_`+function)
		pgtest.Exec(t, address, `
			CREATE FUNCTION weir.`+function+`(`+parameters+`) RETURNS void LANGUAGE plpgsql AS $$
			BEGIN
				IF nextval('weir.tries') < 3 THEN
					RAISE 'there is no such function' USING ERRCODE = 'undefined_function';
				END IF;
				PERFORM weir.renamed_`+function+`(a, b, c, d, e, f, g, h);
			END $$`)
	}
	publish(t, s, batch(1, 10))
	pgtest.Exec(t, address, `SELECT setval('weir.tries', 1)`)
	commit(t, s, eventlog.Entry{Batches: []eventlog.Batch{batch(1, 10), batch(1, 10)}})
	if got := held(t, s, 1); len(got) != 3 || got[2].Base != 2 {
		t.Errorf("afterwards the log holds %+v, want batches at 0, 1 and 2", got)
	}
}
