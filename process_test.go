package weir_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir"
)

// Some tests need processes that can be killed: this test's own program, with a job in its environment.

const jobVariable = "WEIR_TEST_JOB"

type job struct{ Do, URL, Topic, Name string }

func TestMain(m *testing.M) {
	if text, is := os.LookupEnv(jobVariable); is {
		go func() { // the parent holds the other end: when it is gone there is nobody to work for
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(3)
		}()
		if err := work(text); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
	}
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

// worker is a process with a job.
type worker struct {
	cmd   *exec.Cmd
	lines chan string   // what it says
	read  chan struct{} // closed when all of that is in lines
}

func startWorker(t *testing.T, j job) *worker {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := &worker{cmd: cmd, lines: make(chan string, 100_000), read: make(chan struct{})}
	go func() {
		defer close(w.read)
		defer close(w.lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			w.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		stdin.Close()
		w.kill()
	})
	return w
}

// kill is kill -9. What the worker said before can still be read.
func (w *worker) kill() {
	_ = w.cmd.Process.Kill()
	<-w.read // Wait would close the pipe
	_ = w.cmd.Wait()
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
			if line := next(t, p.lines); line != "done" {
				t.Fatalf("the publisher says %q", line)
			}
			p.kill()
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
			case line := <-a.lines:
				read("a", line)
			case line := <-b.lines:
				read("b", line)
			case <-time.After(limit):
				t.Fatalf("%d of %d events came", len(handled), before)
			}
		}
		a.kill()
		for line := range a.lines {
			read("a", line)
		}
		for i := range after {
			publish(t, w, "orders", fmt.Sprintf("key%d=%d", i, before+i))
		}
		for len(handled) < before+after {
			select {
			case line := <-b.lines:
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
