// Conformance runs franz-go's own integration tests, those of its pkg/kgo, against weir on each
// store, and writes docs/conformance.md.
//
//	go run ./internal/conformance                                  all stores, and the document
//	go run ./internal/conformance --store sqlite                   one store, to the terminal
//	go run ./internal/conformance --store "postgres, two brokers"  two processes share a store
//	go run ./internal/conformance --store memory --run TestIssue   some tests
//	go run ./internal/conformance --broker 127.0.0.1:9092          any other Kafka, to compare
//
// With --kafka it runs Kafka's own integration tests instead, which Maven fetches, and writes
// docs/conformance-kafka.md. See kafka/java/weir.
//
//	go run ./internal/conformance --kafka                          all classes, and the document
//	go run ./internal/conformance --kafka --run PollTest           the classes that match
//	go run ./internal/conformance --kafka --run 'PollTest#testX'   one test of them
//
// With --streams it runs Kafka Streams' own integration tests in the same way, and writes
// docs/conformance-streams.md. They take hours: with --results DIR each class's result is kept
// there, and a class that has one is run again only if --run names it.
//
//	go run ./internal/conformance --streams --results DIR          the classes that have none, and the document
//	go run ./internal/conformance --streams --run GlobalKTable     the classes that match
//
// With --mixed it does harm to one group of Java, librdkafka, Go and HTTP members at two brokers:
// kills, stops and freezes members and brokers, as many times as its argument says, while records
// are published. All that was acknowledged must be read. It prints how long records waited.
//
//	go run ./internal/conformance --mixed 200
//	go run ./internal/conformance --mixed 20 --run broker          only harm that has such a name
//
// It fails when a test fails, or when a test skips itself that is not in needs.go, the list of
// tests for what weir does not do yet.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const document = "docs/conformance.md"

type options struct {
	store    string
	broker   string
	kafka    bool
	streams  bool
	results  string
	rounds   int
	seed     uint64
	run      string
	records  int
	parallel int
	timeout  time.Duration
}

func main() {
	if len(os.Args) == 6 && os.Args[1] == mixedMember {
		if err := runMember(os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
			fmt.Fprintln(os.Stderr, "member:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.StringVar(&o.store, "store", "all", "memory, sqlite, postgres, mysql, s3, \"postgres, two brokers\", shards, or all")
	flag.StringVar(&o.broker, "broker", "", "HOST:PORT of a running broker to test instead of weir")
	flag.BoolVar(&o.kafka, "kafka", false, "run Kafka's own integration tests, on PostgreSQL; needs Maven and a JDK")
	flag.BoolVar(&o.streams, "streams", false, "run Kafka Streams' own integration tests, as --kafka does")
	flag.StringVar(&o.results, "results", "", "with --kafka or --streams: directory that keeps the result of each class; default: none")
	flag.IntVar(&o.rounds, "mixed", 0, "do so many rounds of harm to a group of all kinds of members; needs Maven, a JDK and Python")
	flag.Uint64Var(&o.seed, "seed", 0, "of the rounds; default: a new one")
	flag.StringVar(&o.run, "run", "", "run only the tests that match, as in go test -run")
	flag.IntVar(&o.records, "records", 50_000, "number of records that go through each chain of consumer groups")
	flag.IntVar(&o.parallel, "parallel", 0, "number of tests that run at the same time; they wait most of the time; default: 8, of Kafka's classes 2")
	flag.DurationVar(&o.timeout, "timeout", 0, "time limit for the tests on one store; default: 15m; for those of one of Kafka's classes 20m")
	flag.Parse()
	if o.kafkaModule() == nil {
		o.parallel, o.timeout = cmp.Or(o.parallel, 8), cmp.Or(o.timeout, 15*time.Minute)
	} else {
		o.parallel, o.timeout = cmp.Or(o.parallel, 2), cmp.Or(o.timeout, 20*time.Minute)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

// kafkaModule is the module of Kafka's tests that is to run, or nil.
func (o options) kafkaModule() *kafkaModule {
	switch {
	case o.streams:
		return kafkaStreams
	case o.kafka:
		return kafkaClients
	}
	return nil
}

func run(ctx context.Context, o options) error {
	scratch, err := os.MkdirTemp("", "weir-conformance-")
	if err != nil {
		return err
	}
	if o.rounds > 0 {
		if err := runMixed(ctx, o, scratch); err != nil {
			return fmt.Errorf("%w; what the programs said is under %s", err, scratch)
		}
		return os.RemoveAll(scratch)
	}
	if o.kafkaModule() != nil {
		return runAndReportKafka(ctx, o, scratch)
	}
	s, err := fetchSuite(ctx, scratch)
	if err != nil {
		return err
	}
	var all []result
	if o.broker != "" {
		r, err := s.run(ctx, o, o.broker, "KGO_SEEDS="+o.broker)
		if err != nil {
			return err
		}
		all = append(all, r)
	} else {
		stores, err := chosen(o.store)
		if err != nil {
			return err
		}
		weir := filepath.Join(scratch, "weir")
		if err := command(ctx, "go", "build", "-o", weir, "./cmd/weir"); err != nil {
			return err
		}
		for _, store := range stores {
			r, err := runOnStore(ctx, s, o, weir, store)
			if err != nil {
				return fmt.Errorf("on %s: %w", store, err)
			}
			all = append(all, r)
		}
	}
	bad := summarize(os.Stdout, all)
	if o.broker == "" && o.store == "all" && o.run == "" {
		if err := writeDocument(ctx, document, s, o, all); err != nil {
			return err
		}
		fmt.Println("wrote", document)
	}
	if bad > 0 {
		return fmt.Errorf("%d tests had another result than expected; their output, and weir's, is under %s", bad, scratch)
	}
	return os.RemoveAll(scratch)
}

func runAndReportKafka(ctx context.Context, o options, scratch string) error {
	r, err := runKafka(ctx, o, scratch)
	if err != nil {
		return fmt.Errorf("%w; what there is, is under %s", err, scratch)
	}
	bad := summarizeKafka(os.Stdout, r)
	if o.run == "" || o.results != "" {
		if err := writeKafkaDocument(r.document, r); err != nil {
			return err
		}
		fmt.Println("wrote", r.document)
	}
	if bad > 0 {
		return fmt.Errorf("%d cases had another result than expected; their output, and weir's, is under %s", bad, scratch)
	}
	return os.RemoveAll(scratch)
}

var stores = []string{"memory", "sqlite", "postgres", "mysql", "s3", twoBrokers, shards}

func chosen(store string) ([]string, error) {
	if store == "all" {
		return stores, nil
	}
	if slices.Contains(stores, store) {
		return []string{store}, nil
	}
	return nil, fmt.Errorf("--store %s: it must be %s or all", store, strings.Join(stores, ", "))
}

func runOnStore(ctx context.Context, s *suite, o options, weir, store string) (_ result, err error) {
	c, err := startCluster(ctx, weir, store, s.scratch)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	return s.run(ctx, o, store, c.env()...)
}

// command runs a program to its end, and shows what it says when it fails.
func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
