package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/judge"
)

// child is the program with an embedded log.
type child struct {
	log  *weir.Log
	pool *pgxpool.Pool // nil unless the store is PostgreSQL
	sql  *sql.DB       // the same connections; nil unless the store is PostgreSQL

	mu        sync.Mutex // guards what follows
	out       *json.Encoder
	consumers map[string]*weir.Consumer
	projector *weir.Projector // nil until it projects
	busy      int             // orders that are being done
}

// runChild does orders until its standard input ends, which kills it, or until SIGTERM, which
// closes the log.
func runChild(address string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c := &child{out: json.NewEncoder(os.Stdout), consumers: map[string]*weir.Consumer{}}
	before := runtime.NumGoroutine()
	var err error
	if c.log, err = weir.Open(context.WithoutCancel(ctx), address, weir.Options{}); err != nil {
		return err
	}
	if address[:8] == "postgres" {
		if c.pool, err = pgxpool.New(ctx, address); err != nil {
			return err
		}
		c.sql = stdlib.OpenDBFromPool(c.pool)
	}
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			var o order
			if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
				panic(err)
			}
			c.count(1)
			go func() {
				defer c.count(-1)
				said := c.do(o)
				said.ID = o.ID
				c.say(said)
			}()
		}
		os.Exit(3) // the parent is gone
	}()
	<-ctx.Done()
	last, cancel := context.WithTimeout(context.Background(), stopMax-2*time.Second)
	defer cancel()
	err = c.log.Close(last)
	if c.pool != nil {
		err = errors.Join(err, c.sql.Close())
		c.pool.Close()
	}
	if err == nil {
		c.checkLeft(before)
	}
	return err
}

func (c *child) count(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy += n
	return c.busy
}

const (
	exitLeft = 40              // of a child whose log left something behind: none of weir's own exit codes
	leftMax  = 2 * time.Second // until a log that is closed has let go of everything
	heapLeft = 48 << 20        // what may be in use then, after a collection
)

// checkLeft ends the process with exitLeft if the log that is closed left goroutines or memory
// behind. The child itself has a goroutine that reads orders, and one for each that is being done.
func (c *child) checkLeft(before int) {
	var heap runtime.MemStats
	for late := time.Now().Add(leftMax); ; time.Sleep(20 * time.Millisecond) {
		runtime.GC()
		runtime.ReadMemStats(&heap)
		more := runtime.NumGoroutine() - before - 1 - c.count(0)
		if more <= 0 && heap.HeapInuse <= heapLeft {
			return
		}
		if time.Now().After(late) {
			fmt.Fprintf(os.Stderr, "%v after the log was closed there are %d goroutines more than before it was opened, and %d MiB of heap in use\n", leftMax, more, heap.HeapInuse>>20)
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			os.Exit(exitLeft)
		}
	}
}

func (c *child) say(said judge.Word) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.out.Encode(said) // the parent is gone, and we are about to be
}

func (c *child) do(o order) judge.Word {
	ctx, cancel := context.WithTimeout(context.Background(), clientPatience)
	defer cancel()
	switch o.Do {
	case "ready":
		return judge.Word{Outcome: judge.Done}
	case "publish":
		return judge.Published(c.log.Publish(ctx, eventsOf(o)...))
	case "publish once":
		places, _, err := c.log.PublishOnce(ctx, o.Key, eventsOf(o)...)
		return judge.Published(places, err)
	case "publish tx":
		return c.publishTx(ctx, o)
	case "consume":
		return judge.OutcomeOf(c.consume(ctx, o))
	case "unsubscribe":
		return judge.OutcomeOf(c.withConsumer(o.Name, func(w *weir.Consumer) error { return w.Close(ctx) }))
	case "seek":
		return judge.OutcomeOf(c.withConsumer(o.Name, func(w *weir.Consumer) error { return w.Seek(ctx, weir.Earliest) }))
	case "pause":
		return judge.OutcomeOf(c.withConsumer(o.Name, func(w *weir.Consumer) error { w.Pause(); return nil }))
	case "resume":
		return judge.OutcomeOf(c.withConsumer(o.Name, func(w *weir.Consumer) error { w.Resume(); return nil }))
	case "create":
		return judge.OutcomeOf(c.log.EnsureTopic(ctx, weir.Topic{Name: o.Topic, Partitions: o.N, Config: o.Config}))
	case "delete":
		return judge.OutcomeOf(c.log.DeleteTopic(ctx, o.Topic))
	case "grow":
		return judge.OutcomeOf(c.log.RaisePartitions(ctx, o.Topic, o.N))
	case "read":
		return c.read(ctx, o.Topic)
	case "topics":
		_, err := c.log.Topics(ctx)
		return judge.OutcomeOf(err)
	case "groups":
		_, err := c.log.Groups(ctx)
		return judge.OutcomeOf(err)
	case "group":
		g, err := c.log.Group(ctx, o.Group)
		said := judge.OutcomeOf(err)
		said.Members, said.State = len(g.Members), g.State
		return said
	case "reset":
		return judge.OutcomeOf(c.log.ResetGroup(ctx, o.Group, o.Topic, weir.Earliest))
	case "enqueue":
		return c.enqueue(ctx, o)
	case "work":
		return judge.OutcomeOf(c.work(ctx, o))
	case "delete group":
		return judge.OutcomeOf(c.log.DeleteGroup(ctx, o.Group))
	}
	return c.doStream(ctx, o)
}

// read reads all of partition 0 of a topic.
func (c *child) read(ctx context.Context, topic string) judge.Word {
	var events []weir.Event
	for e, err := range c.log.Read(ctx, weir.TopicPartition{Topic: topic}, weir.Earliest) {
		if err != nil {
			return judge.OutcomeOf(err)
		}
		events = append(events, e)
	}
	return judge.Word{Outcome: judge.Done, Handled: judge.SightsOf(events...)}
}

func eventsOf(o order) (events []weir.Event) {
	for _, v := range o.Values {
		e := weir.Event{Topic: o.Topic, Value: []byte(v)}
		if o.Old {
			e.Time = longAgo
		}
		events = append(events, e)
	}
	return events
}

// errUndo rolls a transaction back.
var errUndo = errors.New("rolled back on purpose")

// publishTx publishes in a transaction that writes a marker for each event, too: the markers tell
// what was committed.
func (c *child) publishTx(ctx context.Context, o order) judge.Word {
	err := pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		if err := c.log.PublishTx(ctx, tx, eventsOf(o)...); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO markers SELECT unnest($1::text[])`, o.Values); err != nil {
			return err
		}
		if o.Undone {
			return errUndo
		}
		return nil
	})
	if err == nil || errors.Is(err, errUndo) {
		return judge.OutcomeOf(err)
	}
	return judge.Word{Outcome: judge.Unknown, Err: err.Error()} // the markers will tell
}

func (c *child) withConsumer(name string, do func(*weir.Consumer) error) error {
	c.mu.Lock()
	w := c.consumers[name]
	c.mu.Unlock()
	if w == nil {
		return fmt.Errorf("there is no consumer %q", name)
	}
	return do(w)
}

func (c *child) consume(ctx context.Context, o order) error {
	sub := weir.Subscription{
		Group: o.Group, Topics: o.Topics, Name: o.Name, Session: o.Session,
		Retry:      weir.Retry{Attempts: -1, First: 10 * time.Millisecond, Max: time.Second},
		DeadLetter: weir.Halt,
	}
	switch o.Mode {
	case "single":
		sub.Handler = func(_ context.Context, e weir.Event) error {
			dawdle()
			c.say(judge.Word{Consumer: o.Name, Group: o.Group, Handled: judge.SightsOf(e)})
			return nil
		}
	case "batch":
		sub.BatchHandler = func(_ context.Context, events []weir.Event) error {
			dawdle()
			n := len(events)
			if n > 1 && rand.IntN(10) == 0 { // the rest comes again
				n = rand.IntN(n)
				c.say(judge.Word{Consumer: o.Name, Group: o.Group, Handled: judge.SightsOf(events[:n]...)})
				return weir.FailedAt(n, errors.New("it fails now and then"))
			}
			c.say(judge.Word{Consumer: o.Name, Group: o.Group, Handled: judge.SightsOf(events...)})
			return nil
		}
	case "tx":
		sub.Handler = func(ctx context.Context, e weir.Event) error { return c.bill(ctx, o, e) }
	}
	w, err := c.log.Consume(ctx, sub)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.consumers[o.Name] = w
	return nil
}

// bill writes a bill in the transaction that commits the offset. Now and then it holds the event
// for long first, and does not care whether its context ends.
func (c *child) bill(ctx context.Context, o order, e weir.Event) error {
	if dawdle() {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, clientPatience)
	defer cancel()
	err := pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO bills VALUES ($1, $2)`, o.Group, string(e.Value)); err != nil {
			return err
		}
		return e.CommitTx(ctx, tx)
	})
	if err == nil {
		c.say(judge.Word{Consumer: o.Name, Group: o.Group, Once: true, Handled: judge.SightsOf(e)})
	}
	return err
}

// dawdle takes some time, now and then seconds.
func dawdle() (long bool) {
	switch n := rand.IntN(200); {
	case n < 2:
		time.Sleep(rand.N(3 * time.Second))
		return true
	case n < 40:
		time.Sleep(rand.N(3 * time.Millisecond))
	}
	return false
}

// longAgo is the time of events that are back-filled: past every retention that topics have by
// default.
var longAgo = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
