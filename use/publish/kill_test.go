package publish_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/proctest"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/use/publish"
)

func TestMain(m *testing.M) {
	proctest.Work(work)
	os.Exit(m.Run())
}

// work publishes once under the keys 0, 1, 2, … without end, and prints where the events went.
func work(url string) error {
	ctx := context.Background()
	s, err := store.Open(ctx, url, nil)
	if err != nil {
		return err
	}
	log, err := eventlog.Open(ctx, s, eventlog.Config{})
	if err != nil {
		return err
	}
	go func() { _ = log.Run(ctx) }()
	p := publish.New(log, publish.Config{})
	for i := 0; ; i++ {
		placed, _, err := p.PublishOnce(ctx, fmt.Sprint(i), numbered(i)...)
		if err != nil {
			return err
		}
		fmt.Println(i, placed)
	}
}

// numbered is two events for two partitions.
func numbered(i int) []publish.Event {
	return []publish.Event{
		{Topic: "orders", Partition: number(int32(i % 2)), Value: fmt.Append(nil, i)},
		{Topic: "orders", Partition: number(2), Value: fmt.Append(nil, i)},
	}
}

// A process that publishes under keys is killed. Who repeats all of it, and more, gets the answers
// that the dead one got, and every event is there once.
func TestKeysSurviveKill(t *testing.T) {
	for _, name := range everystore.Durable() {
		t.Run(name, func(t *testing.T) {
			everystore.RefusedOnShards(t, "an idempotency key for a topic on two shards")
			seed := seed.New(t)
			url := everystore.URL(t, name)
			s, err := store.Open(t.Context(), url, nil)
			s = opened(t, s, err)
			log := run(t, s, eventlog.Config{})
			orders := topic(t, log, "orders", 3)
			heard := killWorker(t, url, 1+rand.New(rand.NewPCG(seed, 0)).IntN(100))
			p := publish.New(log, publish.Config{})
			more := len(heard) + 3
			for i := range more {
				placed, repeated, err := p.PublishOnce(t.Context(), fmt.Sprint(i), numbered(i)...)
				check(t, err)
				if i < len(heard) && (!repeated || heard[i] != fmt.Sprint(i, " ", placed)) {
					t.Errorf("the dead one heard %q; repeated %v: %v", heard[i], repeated, placed)
				}
			}
			var counts [2]map[string]int
			for i, partitions := range [][]eventlog.Partition{orders.Partitions[:2], orders.Partitions[2:]} {
				counts[i] = make(map[string]int)
				for _, partition := range partitions {
					for _, r := range read(t, log, partition).records {
						counts[i][string(r.Value)]++
					}
				}
			}
			for i := range more {
				if counts[0][fmt.Sprint(i)] != 1 || counts[1][fmt.Sprint(i)] != 1 {
					t.Errorf("the events of key %d are there %d and %d times", i, counts[0][fmt.Sprint(i)], counts[1][fmt.Sprint(i)])
				}
			}
		})
	}
}

// killWorker runs a worker on the store, kills it after so many answers, and returns what it heard.
func killWorker(t *testing.T, url string, answers int) (heard []string) {
	t.Helper()
	worker := proctest.Start(t, url)
	for line := range worker.Lines {
		if heard = append(heard, line); len(heard) == answers {
			worker.Kill() // what it said before counts
		}
	}
	if len(heard) < answers {
		t.Fatalf("the worker ended by itself after %d answers: %v", len(heard), worker.Wait())
	}
	return heard
}
