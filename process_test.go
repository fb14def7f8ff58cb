package weir_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/proctest"
)

type job struct{ Do, URL, Topic, Name string }

func TestMain(m *testing.M) {
	proctest.Work(work)
	os.Exit(m.Run())
}

// work does a job, says so on standard output, and waits to be killed.
func work(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	ctx := context.Background()
	w, err := weir.Open(ctx, j.URL, weir.Options{})
	if err != nil {
		return err
	}
	switch j.Do {
	case "publish":
		_, err = w.Publish(ctx, weir.Event{Topic: j.Topic, Value: []byte("acknowledged")})
	case "publish in a transaction":
		var conn *pgx.Conn
		if conn, err = pgx.Connect(ctx, j.URL); err != nil {
			return err
		}
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			return w.PublishTx(ctx, tx, weir.Event{Topic: j.Topic, Value: []byte("acknowledged")})
		})
	case "consume":
		_, err = w.Consume(ctx, weir.Subscription{Group: "g", Name: j.Name, Topics: []string{j.Topic}, Session: 2 * time.Second,
			Handler: func(_ context.Context, e weir.Event) error {
				_, err := fmt.Printf("handled %d %d %s %s\n", e.Partition, e.Offset, e.Key, e.Value)
				return err
			}})
	case "fail":
		_, err = w.Consume(ctx, weir.Subscription{Group: "g", Topics: []string{j.Topic}, Session: 2 * time.Second, Handler: fails,
			DeadLetter: func(_ context.Context, f weir.Failure) ([]weir.Event, error) {
				_, err := fmt.Println("gave up", f.Event.Offset)
				return []weir.Event{f.DeadLetterEvent()}, err
			}})
	default:
		err = fmt.Errorf("no job %q", j.Do)
	}
	if err != nil {
		return err
	}
	fmt.Println("done")
	select {}
}

func startWorker(t *testing.T, j job) *proctest.Process {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	return proctest.Start(t, string(text))
}

func TestTrapWhatAKilledProcessPublishedArrives(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		for _, do := range []string{"publish", "publish in a transaction"} {
			if do != "publish" && s.kind != "postgres" {
				continue
			}
			topic := strings.ReplaceAll(do, " ", "-")
			w := s.open(t)
			ensure(t, w, topic, 1)
			closeLog(t, w)
			p := startWorker(t, job{Do: do, URL: s.url, Topic: topic})
			if line := next(t, p.Lines); line != "done" {
				t.Fatalf("the publisher says %q", line)
			}
			p.Kill()
			// Nobody publishes again.
			var got seen
			consume(t, s.open(t), weir.Subscription{Group: topic, Topics: []string{topic}, Handler: got.note})
			if v := values(got.wait(t, 1)); v[0] != "acknowledged" {
				t.Errorf("got %q", v)
			}
		}
	}, "sqlite", "postgres")
}

// Two processes share a group, and one is killed: the other goes on where it was. Nothing is left out, the order within a partition holds but for
// the step back to what was committed, and what comes twice is what the killed one had handled last.
func TestAKilledProcessIsTakenOverFrom(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		const partitions, before, after = 4, 400, 200
		ensure(t, w, "orders", partitions)
		a := startWorker(t, job{Do: "consume", URL: s.url, Topic: "orders", Name: "a"})
		b := startWorker(t, job{Do: "consume", URL: s.url, Topic: "orders", Name: "b"})
		eventually(t, "both are in the group", func() bool {
			g, err := w.Group(t.Context(), "g")
			return err == nil && len(g.Members) == 2
		})
		handled := map[string]int{} // by value
		last := map[string]int64{}  // offset by worker and partition
		read := func(name, line string) {
			var partition, key, value string
			var offset int64
			if line == "done" {
				return
			}
			if _, err := fmt.Sscanf(line, "handled %s %d %s %s", &partition, &offset, &key, &value); err != nil {
				t.Fatalf("worker %s says %q (%v)", name, line, err)
			}
			handled[value]++
			if at, seen := last[name+partition]; seen && offset <= at {
				t.Errorf("worker %s: offset %d of partition %s came after %d", name, offset, partition, at)
			}
			last[name+partition] = offset
		}
		for i := range before {
			publish(t, w, "orders", fmt.Sprintf("key%d=%d", i, i))
		}
		for len(handled) < before/2 {
			select {
			case line := <-a.Lines:
				read("a", line)
			case line := <-b.Lines:
				read("b", line)
			case <-time.After(limit):
				t.Fatalf("%d of %d events came", len(handled), before)
			}
		}
		a.Kill()
		for line := range a.Lines {
			read("a", line)
		}
		for i := range after {
			publish(t, w, "orders", fmt.Sprintf("key%d=%d", i, before+i))
		}
		for len(handled) < before+after {
			select {
			case line := <-b.Lines:
				read("b", line)
			case <-time.After(limit):
				t.Fatalf("%d of %d events came", len(handled), before+after)
			}
		}
		twice := 0
		for value, times := range handled {
			if times > 2 {
				t.Errorf("event %s came %d times", value, times)
			}
			twice += times - 1
		}
		t.Logf("%d of %d events came twice", twice, before+after)
	}, "sqlite", "postgres")
}
