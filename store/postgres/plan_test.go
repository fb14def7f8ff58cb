package postgres_test

import (
	"testing"

	"github.com/weir-log/weir/internal/pgtest"
)

// Statistics are of the tables as they were when autoanalyze came by: empty, full, or emptied. What
// each call reads stays a few pages.
func TestStatementsReadFewPagesWhateverTheStatisticsSay(t *testing.T) {
	const (
		fill = `
			INSERT INTO weir.partition (id) SELECT generate_series(1, 5000);
			INSERT INTO weir.state (key, version, put_at, value) SELECT 'key ' || n, 1, now(), 'v' FROM generate_series(1, 20000) AS n;
			INSERT INTO weir.run SELECT n % 5000 + 1, n, n + 1, 0, 0, 0, 2 FROM generate_series(1, 40000) AS n;
		`
		// Only the newest runs lie in the segment that is emptied.
		last    = `INSERT INTO weir.run SELECT 5001, n, n + 1, 0, 0, 0, 1 FROM generate_series(1, 10) AS n;`
		first   = `INSERT INTO weir.run SELECT n, n, n + 1, 0, 0, 0, 1 FROM generate_series(1, 1000) AS n;`
		analyze = `ANALYZE weir.partition; ANALYZE weir.state; ANALYZE weir.run;`
		empty   = `DELETE FROM weir.partition; DELETE FROM weir.state; DELETE FROM weir.run;`
		most    = 100
	)
	for name, before := range map[string]string{
		"empty":           analyze + fill + last,
		"full":            fill + last + analyze,
		"emptied":         fill + last + empty + analyze + fill + last,
		"of one segment":  first + analyze + `DELETE FROM weir.run;` + fill + last,
		"of one key each": `INSERT INTO weir.partition (id) VALUES (1); INSERT INTO weir.state VALUES ('k', 0, 0, 1, now(), 'v');` + analyze + `DELETE FROM weir.partition;` + fill + last,
	} {
		t.Run(name, func(t *testing.T) {
			address := pgtest.URL(t)
			at(t, address)
			pgtest.Exec(t, address, `SELECT weir.add_segment(true)`)
			begin(t, connect(t, address), before)
			conn := connect(t, address)
			for _, statement := range []string{
				`SELECT weir.commit('{7,4000}', '{"key 1","key 9999"}', '{1,1}', '{1,2}', '{1,1}', '{1,1}', '{0,0}', '{3,3}', '{1}', '{1}', '{1}',
					'{1,1}', '{1,2}', '{2,2}', '{0,0}', '{3,3}', '{0,0}', 'abc', '{1}')`,
				`SELECT weir.commit_one(4000, 1, 1, 3, '{"key 1","key 9999","new 1"}', '{f,f,t}', '{1,-1,-1}', '{2,2,1}', '{0,0,0}', '{3,3,3}', '{f,f,f}', 1, 'abc', NULL, NULL, NULL)`,
				`SELECT weir.commit_one(NULL, NULL, NULL, NULL, '{"new 1","new 2","key 9998"}', '{t,t,f}', '{-1,0,-1}', '{1,1,1}', '{0,0,0}', '{3,3,-1}', '{f,f,f}', 0, 'abc', NULL, NULL, NULL)`,
				`SELECT weir.commit('{}', '{"new 1","new 2"}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{1,1}', '{1,2}', '{1,1}', '{0,0}', '{3,3}', '{0,0}', 'abc', '{}')`,
				`SELECT weir.commit('{6000}', '{}', '{1}', '{1}', '{0}', '{0}', '{0}', '{0}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '', '{}')`,
				`SELECT count(*) FROM weir.read('{4000}', '{0}', '{1000}', 1000)
					WHERE weir.still((SELECT server FROM weir.life()), (SELECT tables FROM weir.life()), (SELECT epoch FROM weir.life()))`,
				`SELECT count(*) FROM weir.list('key 5', 'key 6', 'key 55', 10)`,
				`SELECT count(*) FROM weir.get('{"key 1","no key","key 9999"}', 1000)`,
				`SELECT weir.seek_time(4000, 1, 0)`,
				`SELECT weir.seek_bytes(4000, 1)`,
				`SELECT weir.trim(4000, 1)`,
				`SELECT weir.forget(4000)`,
				`SELECT weir.roll(false, 1 << 30, '1h')`,
				`SELECT weir.move_run(1)`,
			} {
				n := 0
				for range 2 { // the first fills the caches of the catalog
					begin(t, conn, `BEGIN`)
					n = pagesOf(t, conn, statement)
					begin(t, conn, `ROLLBACK`)
				}
				if n > most {
					t.Errorf("%d pages, and at most %d are allowed: %s", n, most, statement)
				}
			}
		})
	}
}
