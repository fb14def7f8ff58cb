package weir_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/proctest"
)

// queueConcurrency is how many messages a process that works a queue handles at once. Up to as many
// more are on their way to be acknowledged.
const queueConcurrency = 4

// Two processes work a queue, and one is killed. What was acknowledged before does not come again;
// what the killed one had comes once more, after its lease; nothing is lost.
func TestAKilledWorkersMessagesComeBackOnceAndNoneThatWasAcked(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		if err := w.CreateQueue(t.Context(), weir.Queue{Name: "mail", Partitions: 4, Settings: weir.QueueSettings{Lease: 3 * time.Second}}); err != nil {
			t.Fatal(err)
		}
		a := startWorker(t, job{Do: "work a queue", URL: s.url, Topic: "mail"})
		b := startWorker(t, job{Do: "work a queue", URL: s.url, Topic: "mail"})
		handled := map[string]int{}
		read := func(line string) {
			var value string
			var attempt int
			if line == "done" {
				return
			}
			if _, err := fmt.Sscanf(line, "handled %s %d", &value, &attempt); err != nil {
				t.Fatalf("a worker says %q (%v)", line, err)
			}
			handled[value]++
		}
		until := func(n int) {
			t.Helper()
			for late := time.After(limit); len(handled) < n; {
				select {
				case line := <-a.Lines:
					read(line)
				case line := <-b.Lines:
					read(line)
				case <-late:
					t.Fatalf("%d of %d messages were handled", len(handled), n)
				}
			}
		}
		var ids []weir.MessageID
		send := func(n int) {
			var messages []weir.NewMessage
			for i := range n {
				messages = append(messages, weir.NewMessage{Value: fmt.Append(nil, len(ids)+i), Key: fmt.Append(nil, i)})
			}
			sent, err := w.Enqueue(t.Context(), "mail", messages...)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range sent {
				ids = append(ids, m.ID)
			}
		}
		const before, during, after = 100, 200, 100
		send(before)
		until(before)
		acked := map[string]bool{}
		for i, id := range ids {
			if c, err := w.FindMessage(t.Context(), "mail", id); err != nil {
				t.Fatal(err)
			} else if c.State == "done" {
				acked[fmt.Sprint(i)] = true
			}
		}
		send(during)
		until(before + during/2)
		a.Kill()
		for line := range a.Lines {
			read(line)
		}
		a = &proctest.Process{} // it says nothing more
		send(after)
		until(before + during + after)
		eventually(t, "all is acknowledged", func() bool {
			select {
			case line := <-b.Lines:
				read(line)
			default:
			}
			stats, err := w.QueueStats(t.Context(), "mail")
			return err == nil && stats == weir.QueueStats{}
		})
		twice := 0
		for value, n := range handled {
			if n > 2 || n == 2 && acked[value] {
				t.Errorf("message %s was handled %d times; it was acknowledged before the kill: %v", value, n, acked[value])
			}
			twice += n - 1
		}
		if twice > 2*queueConcurrency {
			t.Errorf("%d messages were handled twice; the killed process had %d at most", twice, 2*queueConcurrency)
		}
		t.Logf("%d of %d were acknowledged before the kill, and %d were handled twice", len(acked), len(ids), twice)
	}, "sqlite", "postgres")
}
