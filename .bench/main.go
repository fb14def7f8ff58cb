package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const ddl = `
DROP SCHEMA IF EXISTS b CASCADE; CREATE SCHEMA b;
CREATE TABLE b.toast(p int8, o int8, pos int8, mt int8, n int4, bytes bytea, PRIMARY KEY(p,o));
ALTER TABLE b.toast ALTER bytes SET STORAGE EXTERNAL;
CREATE TABLE b.plain(p int8, o int8, pos int8, mt int8, n int4, piece int4, bytes bytea, PRIMARY KEY(p,o,piece));
ALTER TABLE b.plain ALTER bytes SET STORAGE PLAIN;
ALTER TABLE b.toast SET (autovacuum_enabled=off, toast.autovacuum_enabled=off);
ALTER TABLE b.plain SET (autovacuum_enabled=off);
CREATE FUNCTION b.fplain(p int8[], o int8[], st int4[], ln int4[], blob bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE 'INSERT INTO b.plain SELECT p, o, 0, 0, 1, piece, substring($5 FROM st+piece*8092+1 FOR least(8092, ln-piece*8092))
    FROM unnest($1,$2,$3,$4) AS t(p,o,st,ln), generate_series(0,(ln-1)/8092) AS piece' USING p,o,st,ln,blob;
END $$;
CREATE FUNCTION b.fplainstatic(p int8[], o int8[], st int4[], ln int4[], blob bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO b.plain SELECT t.p, t.o, 0, 0, 1, piece, substring(blob FROM t.st+piece*8092+1 FOR least(8092, t.ln-piece*8092))
    FROM unnest(p,o,st,ln) AS t(p,o,st,ln), generate_series(0,(t.ln-1)/8092) AS piece;
END $$;
CREATE FUNCTION b.ftoast(p int8[], o int8[], st int4[], ln int4[], blob bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE 'INSERT INTO b.toast SELECT p, o, 0, 0, 1, substring($5 FROM st+1 FOR ln)
    FROM unnest($1,$2,$3,$4) AS t(p,o,st,ln)' USING p,o,st,ln,blob;
END $$;
`

func main() {
	url := os.Getenv("URL")
	if url == "" {
		url = "postgres://postgres@127.0.0.1:54999/postgres"
	}
	ctx := context.Background()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		panic(err)
	}
	if _, err := c.Exec(ctx, ddl); err != nil {
		panic(err)
	}
	var off int64
	const batch = 128 << 10
	const per = 12
	src := make([]byte, batch*per)
	rand.Read(src)
	type v struct {
		name string
		f    func() error
	}
	arr := func() (p, o []int64, st, ln []int32) {
		for i := 0; i < per; i++ {
			p = append(p, int64(i%4))
			off++
			o = append(o, off)
			st = append(st, int32(i*batch))
			ln = append(ln, batch)
		}
		return
	}
	ex := func(sql string) func() error {
		return func() error { p, o, st, ln := arr(); _, err := c.Exec(ctx, sql, p, o, st, ln, src); return err }
	}
	vs := []v{
		{"toast bytea[]", func() error {
			p, o, _, _ := arr()
			b := make([][]byte, per)
			for i := range b {
				b[i] = src[i*batch : (i+1)*batch]
			}
			_, err := c.Exec(ctx, "INSERT INTO b.toast SELECT p,o,0,0,1,b FROM unnest($1::int8[],$2::int8[],$3::bytea[]) t(p,o,b)", p, o, b)
			return err
		}},
		{"toast blob fn", ex("SELECT b.ftoast($1,$2,$3,$4,$5)")},
		{"plain bytea[]", func() error {
			p, o, _, _ := arr()
			var pp, oo []int64
			var pc []int32
			var b [][]byte
			for i := range p {
				x := src[i*batch : (i+1)*batch]
				for k := int32(0); len(x) > 0; k++ {
					n := min(len(x), 8092)
					pp, oo, pc, b = append(pp, p[i]), append(oo, o[i]), append(pc, k), append(b, x[:n])
					x = x[n:]
				}
			}
			_, err := c.Exec(ctx, "INSERT INTO b.plain SELECT p,o,0,0,1,k,b FROM unnest($1::int8[],$2::int8[],$3::int4[],$4::bytea[]) t(p,o,k,b)", pp, oo, pc, b)
			return err
		}},
		{"plain blob fn", ex("SELECT b.fplain($1,$2,$3,$4,$5)")},
		{"plain blob static", ex("SELECT b.fplainstatic($1,$2,$3,$4,$5)")},
		{"discard blob", ex("SELECT cardinality($1::int8[]), cardinality($2::int8[]), cardinality($3::int4[]), cardinality($4::int4[]), octet_length($5::bytea)")},
	}
	for round := 0; round < 3; round++ {
		for _, x := range vs {
			c.Exec(ctx, "TRUNCATE b.toast, b.plain")
			c.Exec(ctx, "CHECKPOINT")
			const flushes = 250
			if err := x.f(); err != nil {
				panic(fmt.Sprint(x.name, err))
			}
			s0, c0 := serverCPU(), clientCPU()
			t := time.Now()
			for i := 0; i < flushes; i++ {
				if err := x.f(); err != nil {
					panic(err)
				}
			}
			d := time.Since(t)
			fmt.Printf("%-20s %7.1f MiB/s  %v/flush  cpu/flush server %v client %v\n", x.name, float64(flushes*per*batch)/(1<<20)/d.Seconds(), d/flushes, (serverCPU()-s0)/flushes, (clientCPU()-c0)/flushes)
		}
		fmt.Println()
	}
}
func serverCPU() time.Duration {
	var total int64
	ds, _ := os.ReadDir("/proc")
	for _, d := range ds {
		cwd, err := os.Readlink("/proc/" + d.Name() + "/cwd")
		if err != nil || cwd != "/tmp/pg/data" {
			continue
		}
		b, _ := os.ReadFile("/proc/" + d.Name() + "/stat")
		f := strings.Fields(string(b[strings.LastIndex(string(b), ")")+2:]))
		u, _ := strconv.ParseInt(f[11], 10, 64)
		s, _ := strconv.ParseInt(f[12], 10, 64)
		total += u + s
	}
	return time.Duration(total) * 10 * time.Millisecond
}

func clientCPU() time.Duration {
	var r syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
