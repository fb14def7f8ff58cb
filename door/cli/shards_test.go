package cli

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir/internal/pgtest"
)

// `weir serve` starts while a shard is away: it is ready, serves what is on the others, and what is on that one when it comes back.
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
