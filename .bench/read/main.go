package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const ddl = `
SET work_mem='64MB';
CREATE OR REPLACE FUNCTION b.rloop(pp int8, o0 int8, mx int8) RETURNS TABLE(o int8, piece int4, bytes bytea) STABLE LANGUAGE plpgsql AS $$
DECLARE n int8 := 0; first bool := true;
BEGIN
  FOR o, piece, bytes IN EXECUTE 'SELECT o, piece, bytes FROM b.plain WHERE p=$1 AND o>=$2 ORDER BY o, piece' USING pp, o0 LOOP
    n := n + octet_length(bytes);
    EXIT WHEN n > mx;
    RETURN NEXT;
  END LOOP;
END $$;
CREATE OR REPLACE FUNCTION b.rquery(pp int8, o0 int8, k int8) RETURNS TABLE(o int8, piece int4, bytes bytea) STABLE LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY EXECUTE 'SELECT o, piece, bytes FROM b.plain WHERE p=$1 AND o>=$2 ORDER BY o, piece LIMIT $3' USING pp, o0, k;
END $$;
`

func main() {
	ctx := context.Background()
	c, _ := pgx.Connect(ctx, "postgres://postgres@127.0.0.1:54999/postgres")
	if _, err := c.Exec(ctx, ddl); err != nil {
		panic(err)
	}
	var np, nt int
	c.Exec(ctx, "TRUNCATE b.plain, b.toast")
	src := make([]byte, 12*128<<10)
	c.Exec(ctx, "SET synchronous_commit=off")
	for i := 0; i < 400; i++ {
		var p, o []int64
		var st, ln []int32
		for k := 0; k < 12; k++ {
			p, o, st, ln = append(p, int64(k%4)), append(o, int64(i*12+k)), append(st, int32(k*128<<10)), append(ln, 128<<10)
		}
		if _, err := c.Exec(ctx, "SELECT b.fplain($1,$2,$3,$4,$5)", p, o, st, ln, src); err != nil {
			panic(err)
		}
		if _, err := c.Exec(ctx, "SELECT b.ftoast($1,$2,$3,$4,$5)", p, o, st, ln, src); err != nil {
			panic(err)
		}
	}
	c.Exec(ctx, "CHECKPOINT")
	_ = np
	_ = nt
	qs := []struct{ name, sql string }{
		{"toast rows", "SELECT o, n, bytes FROM b.toast WHERE p=$1 AND o>=$2 ORDER BY o LIMIT 8+0*$3::int8"},
		{"plain rows", "SELECT o, piece, bytes FROM b.plain WHERE p=$1 AND o>=$2 ORDER BY o,piece LIMIT 8*17+0*$3::int8"},
		{"plain agg", "SELECT o, 0, string_agg(bytes, '' ORDER BY piece) FROM (SELECT o, piece, bytes FROM b.plain WHERE p=$1 AND o>=$2 ORDER BY o,piece LIMIT 8*17+0*$3::int8) x GROUP BY o"},
		{"plain agg pre", "SELECT o, 0, string_agg(bytes, '') FROM (SELECT o, piece, bytes FROM b.plain WHERE p=$1 AND o>=$2 ORDER BY o,piece LIMIT 8*17+0*$3::int8) x GROUP BY o"},
		{"fn loop", "SELECT o, piece, bytes FROM b.rloop($1,$2,$3)"},
		{"fn query", "SELECT o, piece, bytes FROM b.rquery($1,$2,8*17+0*$3)"},
	}
	for r := 0; r < 3; r++ {
		for _, q := range qs {
			t := time.Now()
			total := 0
			buf := make([]byte, 0, 2<<20)
			for i := 0; i < 400; i++ {
				rows, err := c.Query(ctx, q.sql, int64(i%4), int64((i*12)%4700), int64(1<<20))
				if err != nil {
					panic(err)
				}
				buf = buf[:0]
				for rows.Next() {
					b := rows.RawValues()[2]
					buf = append(buf, b...)
					total += len(b)
				}
				if rows.Err() != nil {
					panic(rows.Err())
				}
			}
			d := time.Since(t)
			fmt.Printf("%-14s %8.1f MiB/s (%d MiB)\n", q.name, float64(total)/(1<<20)/d.Seconds(), total>>20)
		}
		fmt.Println()
	}
}
