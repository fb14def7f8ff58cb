// Command dev measures weir on this machine: side by side with Apache Kafka under Kafka's own perf
// tools, and alone where latency, memory, idle cost, start-up, retention and the doors beside
// Kafka's are the question. It prints Markdown, for docs/benchmarks.md.
//
//	go run ./dev                                  everything but the 20-minute retention run
//	go run ./dev -only kafka -stores sqlite -runs 1
//	go run ./dev -only kafka -against ./weir-before
//	go run ./dev -only retention
//	go run ./dev -only library,http,sql,mover,fanout
//	go run ./dev -only library,sql,mover -length 2s -rows 20000 -runs 1     does it run at all?
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// job is one part of the benchmark.
type job struct {
	name, help string
	byDefault  bool
	run        func(ctx context.Context, b *bench) error
}

var jobs = []job{
	{"kafka", "Kafka's perf tools against Apache Kafka, then against weir: throughput, ratios, processor time, memory", true, runKafka},
	{"latency", "1,000 single-record requests a second: latency of produce, and from end to end", true, runLatency},
	{"idle", "memory, processor and store queries of an idle broker", true, runIdle},
	{"length", "start-up time and cost of a fetch with a long log", true, runLength},
	{"library", "one event per call from 50 callers through the Go library, and from end to end at half that rate", true, runLibrary},
	{"http", "one event per request from 500 connections, over HTTP", true, runHTTP},
	{"sql", "weir.publish() compared with a plain insert, with and without notifications, and time from commit to delivery; PostgreSQL", true, runSQL},
	{"mover", "a backlog moved from the inbox into the log, and the lag behind a steady publisher; PostgreSQL", true, runMover},
	{"delayed", "-rows messages due over one hour: memory, and how late messages come in the first -length of the hour", false, runDelayed},
	{"fanout", "load that groups at the end of the log put on the database; PostgreSQL", true, runFanout},
	{"tls", "Kafka's perf tools with TLS: weir on the first store, without and with it, and Apache Kafka", false, runTLS},
	{"acl", "Kafka's perf tools as a super user, and as a user with 1,000 ACLs; on the first store", false, runACL},
	{"logins", "a producer beside 500 clients a second that connect, log in with SCRAM and leave; on the first store", false, runLogins},
	{"brokers", "Kafka's perf tools against one broker on a PostgreSQL, and against two", false, runBrokers},
	{"rebalance", "time until a thousand partitions are read again after members join and leave: Apache Kafka, then weir; both protocols", false, runRebalance},
	{"shards", "Kafka's perf tools against one PostgreSQL and three as shards; then 20,000 events a second into one and 60,000 into three, each a call", false, runShards},
	{"cache", "consuming -gib GiB again and again: Apache Kafka, weir on PostgreSQL, and with --cache-dir", false, runCache},
	{"s3", "an S3 server whose PUTs take 30 ms longer, linger 10 ms: throughput, many callers with one event each, reading -gib GiB with nothing cached", false, runS3},
	{"compact", "-gib GiB of records with a million keys compacted: a producer beside it, and memory", false, runCompact},
	{"console", "each page of the console, over -rows dead letters, ten times as many streams, a hundredth of groups and a thousandth of topics", false, runConsole},
	{"retention", "20 minutes of steady load on PostgreSQL with two minutes of retention", false, runRetention},
}

// bench is what the jobs share.
type bench struct {
	stores   []string
	postgres string // server to make databases on; empty: one of our own, thrown away afterwards
	runs     int
	perf     string // Kafka's tools: the program that runs them
	weir     string // the binary under test
	against  string // another one to compare it with; empty: none
	dir      string // scratch
	load     struct {
		minutes, gib int
		foreign      string
		length       time.Duration
		rows         int
	}
}

func main() {
	var (
		b      bench
		only   = flag.String("only", "", "parts to run, comma separated; default: all but retention, delayed, and from tls to console")
		stores = flag.String("stores", "sqlite,postgres", "stores to measure, comma separated: memory, sqlite, postgres, mysql, s3")
	)
	flag.IntVar(&b.runs, "runs", 3, "runs of each throughput measurement; the median counts")
	flag.StringVar(&b.postgres, "postgres", "", "URL of a PostgreSQL server to measure on, with a database of its own; default: one started for it, with default settings")
	flag.StringVar(&b.perf, "perf", "../../shared/tools/kafka-perf/kafka-perf", "program that runs Apache Kafka and its tools")
	flag.StringVar(&b.against, "against", "", "another weir binary, to compare versions: the part kafka measures both, in turns")
	flag.IntVar(&b.load.minutes, "minutes", 20, "length of the retention run")
	flag.StringVar(&b.load.foreign, "foreign", "without,with", "retention runs: without a foreign transaction, with one, or both")
	flag.DurationVar(&b.load.length, "length", 20*time.Second, "length of each measurement of the doors: library, http, sql, mover, delayed, fanout")
	flag.IntVar(&b.load.rows, "rows", 1_000_000, "rows of the mover's backlog; messages of the part delayed; dead letters of the part console")
	flag.IntVar(&b.load.gib, "gib", 10, "size of the long log, and of the topic that is compacted, in GiB")
	flag.Usage = usage
	flag.Parse()
	b.stores = strings.Split(*stores, ",")

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := b.main(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintf(os.Stderr, "usage: go run ./dev [flags]\n\n")
	for _, j := range jobs {
		fmt.Fprintf(os.Stderr, "  %-10s %s\n", j.name, j.help)
	}
	fmt.Fprintln(os.Stderr)
	flag.PrintDefaults()
}

func (b *bench) main(ctx context.Context, only string) (err error) {
	if b.dir, err = os.MkdirTemp("", "weir-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	b.weir = filepath.Join(b.dir, "weir")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", b.weir, "./cmd/weir")
	build.Dir = ".." // the program's module
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build weir: %w\n%s", err, out)
	}
	fmt.Printf("commit %s · %s · %d processors · %s\n", commit(ctx), runtime.Version(), runtime.NumCPU(), runtime.GOOS)
	for _, j := range jobs {
		if chosen := slices.Contains(strings.Split(only, ","), j.name); !chosen && (only != "" || !j.byDefault) {
			continue
		}
		fmt.Printf("\n## %s: %s\n\n", j.name, j.help)
		if err := j.run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", j.name, err)
		}
	}
	return nil
}

func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func median[T ~int64 | ~float64](all []T) T {
	sorted := slices.Clone(all)
	slices.Sort(sorted)
	return sorted[len(sorted)/2]
}
