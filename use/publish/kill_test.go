package publish_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/use/publish"
)

// workVariable tells a process that it is a worker, and on which store.
const workVariable = "WEIR_PUBLISHTEST_STORE"

func TestMain(m *testing.M) {
	url, is := os.LookupEnv(workVariable)
	if !is {
		os.Exit(m.Run())
	}
	go func() { // the parent holds the other end: when it is gone there is nobody to work for
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	if err := work(url); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
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

// A process that publishes under keys is killed. Who repeats all of it, and more, gets the answers that the dead one got, and
// every event is there once.
func TestKeysSurviveKill(t *testing.T) {
	for name, url := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "weir.db") },
		"postgres": func(t *testing.T) string { return pgtest.URL(t) },
	} {
		t.Run(name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			url := url(t)
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
				if i < len(heard) && (!repeated || heard[i] != fmt.Sprintln(i, placed)) {
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
	self, err := os.Executable()
	check(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), workVariable+"="+url)
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	check(t, err)
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadString('\n')
		if err != nil || !strings.HasSuffix(line, "\n") {
			break // it is dead; what it said before counts
		}
		if heard = append(heard, line); len(heard) == answers {
			check(t, cmd.Process.Kill())
		}
	}
	_ = cmd.Wait()
	if len(heard) < answers {
		t.Fatalf("the worker ended by itself after %d answers", len(heard))
	}
	return heard
}
