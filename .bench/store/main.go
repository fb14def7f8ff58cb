package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/postgres"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	prof := flag.String("prof", "", "")
	what := flag.String("what", "big,small,one,read", "")
	conns := flag.Int("conns", 1, "")
	flag.Parse()
	ctx := context.Background()
	admin := "postgres://postgres@127.0.0.1:54999/postgres?sslmode=disable"
	c, err := pgx.Connect(ctx, admin)
	must(err)
	c.Exec(ctx, "DROP DATABASE IF EXISTS bench WITH (FORCE)")
	_, err = c.Exec(ctx, "CREATE DATABASE bench")
	must(err)
	s, err := postgres.Open(ctx, "postgres://postgres@127.0.0.1:54999/bench?sslmode=disable", postgres.Options{})
	must(err)
	defer s.Close()
	if *prof != "" {
		f, _ := os.Create(*prof)
		pprof.StartCPUProfile(f)
		defer pprof.StopCPUProfile()
	}
	var open eventlog.Entry
	for i := range 100 {
		open.Batches = append(open.Batches, eventlog.Batch{Partition: eventlog.Partition(i)})
	}
	_, err = s.Commit(ctx, []eventlog.Entry{open})
	must(err)
	run := map[string]func(){
		"big": func() {
			const size, per, n = 128 << 10, 12, 400
			src := make([]byte, size*per)
			rand.Read(src)
			t := time.Now()
			var wg sync.WaitGroup
			for k := range *conns {
				wg.Go(func() {
					for range n / *conns {
						var fl []eventlog.Entry
						for i := range per {
							fl = append(fl, eventlog.Entry{Batches: []eventlog.Batch{{Partition: eventlog.Partition(k*4 + i%4), Records: 100, MaxTime: 1, Bytes: src[i*size : (i+1)*size]}}})
						}
						_, err := s.Commit(ctx, fl)
						must(err)
					}
				})
			}
			wg.Wait()
			d := time.Since(t)
			fmt.Printf("big: %.0f MiB/s, %v/flush\n", float64(n*per*size)/(1<<20)/d.Seconds(), d/n)
		},
		"small": func() {
			const n = 1000
			b := make([]byte, 300)
			rand.Read(b)
			var lat []time.Duration
			for r := range n {
				var fl []eventlog.Entry
				for i := range 40 {
					fl = append(fl, eventlog.Entry{Batches: []eventlog.Batch{{Partition: eventlog.Partition(i), Records: 1, MaxTime: 1, Bytes: b}},
						Checks: []eventlog.Check{{Key: fmt.Sprint("producer/", i), Version: eventlog.Version(r)}},
						Puts: []eventlog.Put{{Key: fmt.Sprint("producer/", i), Version: eventlog.Version(r + 1), Value: []byte("{some json value of some length, with base}"), AddBase: 1}}})
				}
				t := time.Now()
				o, err := s.Commit(ctx, fl)
				must(err)
				must(o[39].Err)
				lat = append(lat, time.Since(t))
			}
			report("small 40+40", lat)
		},
		"one": func() {
			b := make([]byte, 300)
			var lat []time.Duration
			for range 2000 {
				t := time.Now()
				_, err := s.Commit(ctx, []eventlog.Entry{{Batches: []eventlog.Batch{{Partition: 1, Records: 1, MaxTime: 1, Bytes: b}}}})
				must(err)
				lat = append(lat, time.Since(t))
			}
			report("one", lat)
		},
		"read": func() {
			for _, p := range []eventlog.Partition{0, 1, 2, 3} {
				t := time.Now()
				at, total, n := eventlog.Offset(0), 0, 0
				for {
					sl, err := s.Read(ctx, []eventlog.Span{{Partition: p, From: at, MaxBytes: 1 << 20}})
					must(err)
					if len(sl[0].Batches) == 0 {
						break
					}
					for _, b := range sl[0].Batches {
						total += len(b.Bytes)
						at = b.Base + eventlog.Offset(b.Records)
					}
					n++
				}
				d := time.Since(t)
				fmt.Printf("read: %.0f MiB/s (%d MiB in %d trips)\n", float64(total)/(1<<20)/d.Seconds(), total>>20, n)
			}
		},
	}
	for _, w := range []string{"big", "read", "small", "one"} {
		for _, x := range splits(*what) {
			if x == w {
				s0, c0 := serverCPU(), clientCPU()
				run[w]()
				fmt.Printf("    %s cpu: server %v client %v\n", w, serverCPU()-s0, clientCPU()-c0)
			}
		}
	}
}

func splits(s string) (out []string) {
	cur := ""
	for _, r := range s + "," {
		if r == ',' {
			out = append(out, cur)
			cur = ""
		} else {
			cur += string(r)
		}
	}
	return
}

func report(name string, lat []time.Duration) {
	var sum time.Duration
	for _, l := range lat {
		sum += l
	}
	// insertion into sorted copy
	s := append([]time.Duration(nil), lat...)
	for i := 1; i < len(s); i++ {
		for j := i; j > 0 && s[j] < s[j-1]; j-- {
			s[j], s[j-1] = s[j-1], s[j]
		}
	}
	fmt.Printf("%s: mean %v p50 %v p99 %v max %v\n", name, sum/time.Duration(len(s)), s[len(s)/2], s[len(s)*99/100], s[len(s)-1])
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
