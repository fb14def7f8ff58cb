package cli

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir/internal/pgtest"
)

// `weir serve` starts while a shard is away: it is ready, serves what is on the others, and what is
// on that one when it comes back.
func TestServeStartsWhileAShardIsAway(t *testing.T) {
	server := pgtest.Start(t)
	url := "shard:" + strings.ReplaceAll(pgtest.URL(t), ",", ",,") + "," + strings.ReplaceAll(server.URL(), ",", ",,")
	s := serve(t, "--store", url)
	weir(t, "", "topic", "create", "orders", "--partitions", "2").want(t, exitOK) // one on each shard
	weir(t, "a\n", "produce", "orders", "--partition", "0").want(t, exitOK)
	weir(t, "b\n", "produce", "orders", "--partition", "1").want(t, exitOK)
	if code := s.stop(); code != exitOK {
		t.Fatalf("Ctrl-C: exit code %d: %s", code, s.out.String())
	}
	server.KillImmediate()
	s = serve(t, "--store", url)
	s.out.waitFor(t, "a shard does not answer")
	weir(t, "c\n", "produce", "orders", "--partition", "0").want(t, exitOK)
	if got := consumed(t, s, 0, 2); got != "ac" {
		t.Errorf("the shard that is there has %q", got)
	}
	if ready, err := http.Get("http://" + s.http + "/readyz"); err != nil || ready.StatusCode != http.StatusOK {
		t.Errorf("/readyz: %+v, %v", ready, err)
	}
	server.Resume()
	s.out.waitFor(t, "the shard answers again")
	weir(t, "d\n", "produce", "orders", "--partition", "1").want(t, exitOK)
	if got := consumed(t, s, 1, 2); got != "bd" {
		t.Errorf("the shard that is back has %q", got)
	}
	if n := strings.Count(s.out.String(), "a shard does not answer"); n != 1 {
		t.Errorf("%d lines say that the shard does not answer: %s", n, s.out.String())
	}
}

// `weir consume` without a group reads the partitions whose shards answer, and says which it did
// not read. With --follow it reads these when their shard answers again.
func TestConsumeReadsThePartitionsThatAreThere(t *testing.T) {
	for _, when := range []string{"while the server runs", "before the server starts"} {
		t.Run(when, func(t *testing.T) {
			server := pgtest.Start(t)
			url := "shard:" + strings.ReplaceAll(pgtest.URL(t), ",", ",,") + "," + strings.ReplaceAll(server.URL(), ",", ",,")
			s := serve(t, "--store", url)
			weir(t, "", "topic", "create", "orders", "--partitions", "4").want(t, exitOK) // two on each shard
			for p, value := range []string{"a", "b", "c", "d"} {
				weir(t, value+"\n", "produce", "orders", "--partition", fmt.Sprint(p)).want(t, exitOK)
			}
			if when == "before the server starts" {
				s.stop()
				server.KillImmediate()
				s = serve(t, "--store", url)
			} else {
				s.stop() // and what it has in memory is gone
				s = serve(t, "--store", url)
				server.KillImmediate()
			}
			s.out.waitFor(t, "a shard does not answer")
			for _, from := range []string{"earliest", "0", "-1h"} {
				got := weir(t, "", "consume", "orders", "--from", from, "--timeout", "3s")
				got.want(t, exitUnreachable, "partitions 1, 3", "repeat the command")
				if got.out != "a\nc\n" && got.out != "c\na\n" {
					t.Errorf("from %s: %q (%s)", from, got.out, got.err)
				}
			}
			weir(t, "", "consume", "orders", "--max", "2", "--timeout", "3s").want(t, exitOK, "a", "c")
			if got := weir(t, "", "consume", "orders", "--partition", "1", "--timeout", "3s"); got.code == exitOK {
				t.Errorf("a partition that is not there: %+v", got)
			}
			printed, said := &lockedBuffer{changed: make(chan struct{}, 1)}, &lockedBuffer{changed: make(chan struct{}, 1)}
			ended := make(chan int, 1)
			go func() {
				ended <- run(t.Context(), "test", []string{"consume", "orders", "--follow", "--max", "4"}, &terminal{out: printed, err: said}, nil)
			}()
			if when == "before the server starts" { // else the client waits for the partitions, as every consumer does
				said.waitFor(t, "partitions 1, 3 of topic orders cannot be read now")
			}
			printed.waitFor(t, "c\n")
			server.Resume()
			if code := <-ended; code != exitOK {
				t.Errorf("exit code %d: %s", code, said.String())
			}
			all := strings.Fields(printed.String())
			slices.Sort(all)
			if !slices.Equal(all, []string{"a", "b", "c", "d"}) {
				t.Errorf("--follow printed %q (%s)", printed.String(), said.String())
			}
		})
	}
}

// weir doctor says what it finds of the shards that answer, and which one does not.
func TestDoctorExaminesTheShardsThatAnswer(t *testing.T) {
	file := "sqlite:" + filepath.Join(t.TempDir(), "a.db")
	serve(t, "--store", file).stop()
	url := "shard:" + file + ",postgres://weir@127.0.0.1:1/weir?sslmode=disable"
	weir(t, "", "doctor", "--store", url).want(t, exitUnreachable, "shard 0: ", "shard 1 (postgres://weir@127.0.0.1:1", "check that it is running")
}

// consumed reads so many records of a partition of the topic orders.
func consumed(t *testing.T, s *server, partition int32, records int) (values string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.kafka), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"orders": {partition: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for ; records > 0; records-- {
		fetched := client.PollRecords(ctx, 1)
		if err := fetched.Err(); err != nil {
			t.Fatal(err)
		}
		values += string(fetched.Records()[0].Value)
	}
	return values
}
