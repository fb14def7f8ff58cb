package sqlfn_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-log/weir/door/sqlfn"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
)

// carrier runs queues beside a process, and movers for a while each.
type carrier struct {
	*process
	queues *queue.Queues
}

func startCarrier(t *testing.T, p *process) carrier {
	c := carrier{p, queue.New(p.log, publish.New(p.log, publish.Config{}), queue.Config{Beside: p.door})}
	c.run(t, c.queues.Run)
	return c
}

// run runs something until the test ends, or stop.
func (c carrier) run(t *testing.T, what func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = what(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

func (c carrier) move(t *testing.T) (stop func()) {
	return c.run(t, sqlfn.New(c.log, c.door, sqlfn.Config{Queues: c.queues}).Run)
}

// next claims and acknowledges n messages.
func next(t *testing.T, q *queue.Queue, n int) (values []string) {
	t.Helper()
	for range n {
		m := claim(t, q)
		errs, err := q.Ack(t.Context(), m.Receipt)
		if err != nil || errs[0] != nil {
			t.Fatal(err, errs)
		}
		values = append(values, string(m.Value))
	}
	return values
}

func TestMessagesOfAKeyAreMovedInOrderWhetherUniqueOrNot(t *testing.T) {
	address := pgtest.URL(t)
	p, q := startQueues(t, address, false)
	conn := connect(t, address)
	var want []string
	for i := range 3 {
		exec(t, conn, `BEGIN`)
		for _, key := range []string{"a", "b"} {
			exec(t, conn, `SELECT weir.enqueue('mail', $1, key => $2, unique_key => $1)`, fmt.Sprint(key, i, " unique"), key)
			exec(t, conn, `SELECT weir.enqueue('mail', $1, key => $2)`, fmt.Sprint(key, i, " plain"), key)
			want = append(want, fmt.Sprint(key, i, " unique"), fmt.Sprint(key, i, " plain"))
		}
		exec(t, conn, `COMMIT`)
	}
	startCarrier(t, p).move(t)
	got := next(t, q, len(want))
	slices.SortStableFunc(got, func(a, b string) int { return int(a[0]) - int(b[0]) })
	slices.SortStableFunc(want, func(a, b string) int { return int(a[0]) - int(b[0]) })
	if !slices.Equal(got, want) {
		t.Errorf("messages came as %q; each key's order is %q", got, want)
	}
}

// One message that its queue refuses keeps no others out that are moved with it, except those of
// its key, and the log says which one it is.
func TestAMessageThatItsQueueRefusesHoldsUpOnlyItsKey(t *testing.T) {
	address := pgtest.URL(t)
	p, q := startQueues(t, address, false)
	c := startCarrier(t, p)
	limit := func(most string) {
		t.Helper()
		if _, err := p.log.AlterTopic(t.Context(), "mail", func(config map[string]string) error { config["max.message.bytes"] = most; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	conn := connect(t, address)
	exec(t, conn, `SELECT weir.enqueue('mail', repeat('x', 10000), key => 'a', unique_key => '1')`)
	exec(t, conn, `SELECT weir.enqueue('mail', 'behind it', key => 'a', unique_key => '2')`)
	exec(t, conn, `SELECT weir.enqueue('mail', 'of another key', key => 'b', unique_key => '3')`)
	exec(t, conn, `SELECT weir.enqueue('mail', 'delayed', key => 'a', delay => '10 ms')`)
	large := pgtest.Value(t, address, `SELECT min(id) FROM weir.inbox`)
	limit("5000")
	var logged bytes.Buffer
	stop := c.run(t, sqlfn.New(c.log, c.door, sqlfn.Config{Queues: c.queues, Logger: slog.New(slog.NewTextHandler(&logged, nil))}).Run)
	got := next(t, q, 2)
	slices.Sort(got)
	if want := []string{"delayed", "of another key"}; !slices.Equal(got, want) {
		t.Errorf("%q came; want %q", got, want)
	}
	stop()
	if text := logged.String(); !strings.Contains(text, "messages=1 row="+large+" ") {
		t.Errorf("the log does not name row %s:\n%s", large, text)
	}
	limit("1000000")
	c.move(t)
	if got := next(t, q, 2); len(got[0]) != 10000 || got[1] != "behind it" {
		t.Errorf("then messages of %d and %d bytes came", len(got[0]), len(got[1]))
	}
}

func TestNoMessageOvertakesOneOfItsKeyThatItsQueueDoesNotTake(t *testing.T) {
	address := pgtest.URL(t)
	p, q := startQueues(t, address, false)
	c := startCarrier(t, p)
	setUnique := func(unique bool) {
		t.Helper()
		if _, err := c.queues.Alter(t.Context(), "mail", func(s *queue.Settings) error { s.Unique = unique; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	conn := connect(t, address)
	exec(t, conn, `SELECT weir.enqueue('mail', '1', key => 'a', unique_key => 'u')`)
	exec(t, conn, `SELECT weir.enqueue('mail', '2', key => 'a')`)
	setUnique(false)
	stop := c.move(t)
	for _, value := range []string{"3", "4"} {
		exec(t, conn, `SELECT weir.enqueue('mail', $1, key => 'a')`, value)
		exec(t, conn, `SELECT weir.enqueue('mail', $1, key => 'b')`, "b"+value)
		if got := next(t, q, 1); got[0] != "b"+value {
			t.Errorf("%q came; want the message of the other key", got)
		}
	}
	stop()
	setUnique(true)
	c.move(t)
	if got := next(t, q, 4); !slices.Equal(got, []string{"1", "2", "3", "4"}) {
		t.Errorf("%q came; want 1 to 4", got)
	}
}
