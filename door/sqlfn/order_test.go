package sqlfn_test

import (
	"context"
	"fmt"
	"slices"
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
