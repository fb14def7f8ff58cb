package httpapi_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// slowReads is a store that takes a second for each read.
type slowReads struct{ eventlog.Store }

func (s slowReads) Unwrap() eventlog.Store { return s.Store }

func (s slowReads) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	select {
	case <-time.After(time.Second):
		return s.Store.Read(ctx, spans, maxBytes)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// openSlow opens a door on a store that counts its calls, and takes a second for each read.
func openSlow(t *testing.T) (*door, *counted) {
	store := &counted{Store: slowReads{memory.New()}, calls: make(map[string]int)}
	at := newPipes()
	return openAt(t, store, httpapi.Config{}, at, at.dial), store
}

// takeReads returns how many reads there were since the last take.
func (s *counted) takeReads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.calls["read"]
	s.calls = make(map[string]int)
	return n
}

const started = "HTTP/1.1 200"

// status reads the beginning of an answer.
func status(c net.Conn) string {
	first := make([]byte, len(started))
	n, _ := c.Read(first)
	return string(first[:n])
}

// However many streams of a topic begin together, the store is asked twice where its partitions
// end: once for the first stream, and once for all who came while it was asked.
func TestStreamsThatBeginTogetherShareTheirReads(t *testing.T) {
	const streams, partitions = 1000, 2048
	for _, asked := range []string{"?from=latest", "?from=earliest", "?from=0:0,7:0", "?partition=7"} {
		t.Run(asked, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, store := openSlow(t)
				defer d.stop()
				d.topic("wide", partitions)
				store.takeReads()
				var all sync.WaitGroup
				conns := make([]net.Conn, streams)
				for i := range conns {
					all.Go(func() {
						conns[i] = d.ask("/v1/topics/wide/events" + asked)
						if got := status(conns[i]); got != started {
							t.Errorf("stream %d: %q", i, got)
						}
					})
				}
				all.Wait()
				if n := store.takeReads(); n > 2 {
					t.Errorf("%d streams made %d reads of the store, want 2 at most", streams, n)
				}
				for _, c := range conns {
					c.Close()
				}
			})
		})
	}
}

// A stream that begins after a read began does not share it: it would get what was appended before
// the stream was asked for.
func TestAStreamSharesNoReadThatBeganBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, store := openSlow(t)
		defer d.stop()
		d.topic("orders", 1)
		first := d.ask("/v1/topics/orders/events?from=latest")
		defer first.Close()
		synctest.Wait() // it reads
		store.takeReads()
		second := d.ask("/v1/topics/orders/events?from=latest")
		defer second.Close()
		for _, c := range []net.Conn{first, second} {
			if got := status(c); got != started {
				t.Errorf("%q", got)
			}
		}
		if n := store.takeReads(); n != 1 {
			t.Errorf("the second stream made %d reads of the store, want 1", n)
		}
	})
}

// A client that leaves while others wait for its read takes nothing from them.
func TestAClientThatLeavesEndsNoReadOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := openSlow(t)
		defer d.stop()
		d.topic("orders", 1)
		var conns []net.Conn
		for range 3 {
			conns = append(conns, d.ask("/v1/topics/orders/events?from=latest"))
			synctest.Wait()
		}
		time.Sleep(1500 * time.Millisecond) // fake time: the second one's read is under way
		conns[1].Close()
		for _, i := range []int{0, 2} {
			if got := status(conns[i]); got != started {
				t.Errorf("stream %d: %q", i, got)
			}
			conns[i].Close()
		}
	})
}

// Clients that leave one after the other, each shortly before its read ends, do not delay others: a
// read goes on without the client that began it.
func TestClientsThatLeaveDelayNoReadOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, store := openSlow(t)
		defer d.stop()
		d.topic("orders", 1)
		store.takeReads()
		var leaving []net.Conn
		for range 10 {
			leaving = append(leaving, d.ask("/v1/topics/orders/events?from=latest"))
			synctest.Wait()
		}
		stays := d.ask("/v1/topics/orders/events?from=latest")
		defer stays.Close()
		var left sync.WaitGroup
		left.Go(func() {
			for _, c := range leaving {
				time.Sleep(900 * time.Millisecond)
				c.Close()
			}
		})
		began := time.Now()
		if got := status(stays); got != started || time.Since(began) > 2*time.Second {
			t.Errorf("the client that stays got %q after %v; the read that was under way and its own take 2 s", got, time.Since(began))
		}
		left.Wait()
	})
}
