package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/proctest"
)

var processTests = map[string]func(*testing.T, Harness){
	"ProcessesTakeTurnsOnOneStore":     testProcesses,
	"AcknowledgedSurvivesKillMidFlush": testKill,
}

// job is what a worker process is to do.
type job struct {
	Place      string
	Name       string
	Seed       uint64
	Flushes    int
	Increments int // of the one counter, after the flushes
	Partitions []eventlog.Partition
}

// Work belongs at the start of TestMain. In a worker process it does the job and ends the process;
// in any other it returns.
func Work(open Opener) {
	proctest.Work(func(text string) error { return work(open, text) })
}

// work prints a line for each acknowledged batch: partition, base offset, records, label.
func work(open Opener, text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return fmt.Errorf("job %s: %w", text, err)
	}
	ctx := context.Background()
	store, err := open(ctx, j.Place)
	if err != nil {
		return err
	}
	book := newLedger()
	c := committer{store: store, name: j.Name, random: rand.New(rand.NewPCG(j.Seed, 0)), known: book.known}
	c.acked = func(b eventlog.Batch, base, after eventlog.Offset) {
		book.acked(b, base, after)
		label, _, _ := strings.Cut(string(b.Bytes), "\n")
		fmt.Printf("%d %d %d %s\n", b.Partition, base, b.Records, label)
	}
	if err := c.commit(ctx, j.Partitions, j.Flushes); err != nil {
		return err
	}
	if err := count(ctx, store, j.Increments); err != nil {
		return err
	}
	if len(book.wrong) > 0 {
		return fmt.Errorf("%s", book.wrong[0])
	}
	return store.Close()
}

func startWorker(t *testing.T, j job) *proctest.Process {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	return proctest.Start(t, string(text))
}

// note enters a line of a worker in the ledger: a batch that was acknowledged.
func note(book *ledger, line string) {
	var at place
	var records eventlog.Offset
	fields := strings.SplitN(line, " ", 4)
	if _, err := fmt.Sscan(strings.Join(fields[:len(fields)-1], " "), &at.partition, &at.base, &records); err != nil || len(fields) != 4 {
		book.complain("worker wrote %q", line)
		return
	}
	book.note(fields[3], at, at.base+records)
}

func testProcesses(t *testing.T, h Harness) {
	r := newRig(t, h)
	random := chance(t)
	ids := []eventlog.Partition{1, 2, 3}
	r.openPartitions(ids...)
	book := newLedger()
	const increments = 20

	var committers, readers errgroup.Group
	for _, name := range []string{"w1", "w2"} {
		w := startWorker(t, job{Place: r.place, Name: name, Seed: random.Uint64(), Flushes: 40, Increments: increments, Partitions: ids})
		committers.Go(func() error {
			for line := range w.Lines {
				note(book, line)
			}
			if err := w.Wait(); err != nil {
				return fmt.Errorf("worker %s: %w", name, err)
			}
			return nil
		})
	}
	here := committer{store: r.store, name: "here", random: rand.New(rand.NewPCG(random.Uint64(), 0)), acked: book.acked, known: book.known}
	committers.Go(func() error { return here.commit(r.ctx, ids, 40) })
	ctx, stop := context.WithCancel(r.ctx)
	defer stop()
	readers.Go(func() error { return follow(ctx, r.store, ids, book) })
	if err := committers.Wait(); err != nil {
		t.Error(err)
	}
	stop()
	if err := readers.Wait(); err != nil {
		t.Error(err)
	}
	book.settle(r, ids...)
	if got := r.list("counter", "", 1)[0].Version; got != 2*increments {
		t.Errorf("two processes added %d each to a counter: %d", increments, got)
	}
}

// A worker is killed at a random moment, again and again, on one store. In the first two rounds
// this process has the store open, too.
func testKill(t *testing.T, h Harness) {
	r := newRig(t, h)
	random := chance(t)
	ids := []eventlog.Partition{1, 2, 3}
	r.openPartitions(ids...)
	book := newLedger()
	for round := range 4 {
		if round == 2 { // from here on nobody else has the store open when the worker dies
			if err := r.store.Close(); err != nil {
				t.Fatal(err)
			}
		}
		const endless = 1 << 30
		w := startWorker(t, job{Place: r.place, Name: fmt.Sprint("w", round), Seed: random.Uint64(), Flushes: endless, Partitions: ids})
		for range 1 + random.IntN(150) {
			line, ok := <-w.Lines
			if !ok {
				t.Fatalf("round %d: the worker ended by itself: %v", round, w.Wait())
			}
			note(book, line)
		}
		w.Kill()
		for line := range w.Lines { // what it said before it died counts
			note(book, line)
		}
		if round >= 2 {
			r.store = r.another()
		}
		book.settle(r, ids...)
		name := fmt.Sprint("after", round)
		r.do(eventlog.Entry{
			Batches: []eventlog.Batch{labeled(ids[0], name+" 1 of 1", 10)},
			Puts:    []eventlog.Put{{Key: "sent/" + name, Version: 1, Value: []byte{}, AddBase: 1}},
		})
		if round >= 2 {
			if err := r.store.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
