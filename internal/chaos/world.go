package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/judge"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/use/keys"
)

// world is one run: a store, two brokers and two programs with an embedded log on it, and all that
// is done to them.
type world struct {
	opt     options
	seed    uint64
	weir    string // the program under test
	dir     string
	begin   time.Time
	history *judge.History
	model   *judge.Model
	calm    *calm

	url      string
	engines  []engine      // the stores that url names: one, or the shards of a set in their order
	sql      *pgxpool.Pool // nil unless the store is in PostgreSQL
	brokers  []*broker
	embedded []*embedded
	moved    map[eventlog.Partition]int // the shards of partitions that were moved; used by runFaults alone
	audit    *eventlog.Log              // asks the store itself, and is never harmed
	away     atomic.Pointer[process]    // cannot make or delete topics now; nil: all can

	over    atomic.Bool    // the run ends: processes may end too
	resting atomic.Bool    // the members of groups end
	members sync.WaitGroup // the members of groups, which run until resting
	counts  counts
	born    size // of a broker at its start

	schedule struct{ tried, set time.Time } // when it was first sent, and first known to be there

	mu      sync.Mutex // guards what follows
	closers []func() error
	clients []*kgo.Client
}

func (w *world) now() judge.Moment { return judge.Moment(time.Since(w.begin)) }
func (w *world) running() bool     { return !w.over.Load() }

// handling says that members of groups go on.
func (w *world) handling() bool { return w.running() && !w.resting.Load() }

// postgres says whether the doors of PostgreSQL are there. On a shard they are not.
func (w *world) postgres() bool { return w.sql != nil }

// random returns the choices of one actor: the same for a seed, whatever others do.
func (w *world) random(actor string) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, c := range []byte(actor) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return rand.New(rand.NewPCG(w.seed, h))
}

// newWorld starts everything.
func newWorld(ctx context.Context, opt options, seed uint64, weir string) (_ *world, err error) {
	w := &world{opt: opt, seed: seed, weir: weir, begin: time.Now(), moved: map[eventlog.Partition]int{}}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.dir, err = os.MkdirTemp("", "weir-chaos-"); err != nil {
		return nil, err
	}
	file, err := os.Create(filepath.Join(w.dir, "history"))
	if err != nil {
		return nil, err
	}
	w.history = judge.NewHistory(file, w.now)
	w.atEnd(w.history.Close)
	w.model = judge.NewModel(w.now, w.history)
	w.calm = newCalm(w.now)
	if err := w.openStore(ctx); err != nil {
		return nil, err
	}
	for i := range 2 {
		b, err := newBroker(w, []string{"brokerA", "brokerB"}[i])
		if err != nil {
			return nil, err
		}
		w.brokers = append(w.brokers, b)
		if err := b.start(ctx); err != nil {
			return nil, err
		}
	}
	for i := range 2 {
		e, err := newEmbedded(w, []string{"logC", "logD"}[i])
		if err != nil {
			return nil, err
		}
		w.embedded = append(w.embedded, e)
		if err := e.start(ctx); err != nil {
			return nil, err
		}
	}
	return w, w.openAudit(ctx)
}

// openSQL makes the tables of those who publish and consume in transactions, on a PostgreSQL that
// is the whole store.
func (w *world) openSQL(ctx context.Context) (err error) {
	if w.opt.store != "postgres" {
		return nil
	}
	if w.sql, err = pgxpool.New(ctx, w.url); err != nil {
		return err
	}
	w.atEnd(func() error { w.sql.Close(); return nil })
	// No unique key: it would hide what is written twice.
	_, err = w.sql.Exec(ctx, `CREATE TABLE bills (grp text NOT NULL, value text NOT NULL); CREATE TABLE markers (value text NOT NULL);
		CREATE TABLE worked (value text NOT NULL, receipt text NOT NULL); CREATE TABLE strangers (at timestamptz NOT NULL DEFAULT now())`)
	return err
}

// openAudit opens the log that is asked what is true.
func (w *world) openAudit(ctx context.Context) error {
	opened, err := store.Open(ctx, w.url, quiet, keys.Rules()...)
	if err != nil {
		return err
	}
	w.audit, err = eventlog.Open(ctx, opened, eventlog.Config{Logger: quiet})
	if err != nil {
		return errors.Join(err, opened.Close())
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { _ = w.audit.Run(ctx) })
	w.atEnd(func() error {
		stop()
		running.Wait()
		return opened.Close()
	})
	return nil
}

var quiet = slog.New(slog.DiscardHandler)

// atEnd adds something that close has to do, before what was added earlier.
func (w *world) atEnd(do func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closers = append(w.closers, do)
}

// close ends everything that the run started.
func (w *world) close() {
	w.over.Store(true)
	w.rest()
	for _, p := range w.processes() {
		p.leave(9)
	}
	for _, p := range w.processes() {
		if p.exited != nil {
			<-p.exited
		}
	}
	for i := len(w.closers) - 1; i >= 0; i-- {
		if err := w.closers[i](); err != nil {
			fmt.Fprintln(os.Stderr, "chaos:", err)
		}
	}
}

// rest ends the members of groups, and closes all Kafka clients.
func (w *world) rest() {
	w.resting.Store(true)
	w.mu.Lock()
	clients := w.clients
	w.clients = nil
	w.mu.Unlock()
	for _, c := range clients {
		c.CloseAllowingRebalance()
	}
	for _, b := range w.brokers {
		b.client.CloseIdleConnections()
	}
}

func (w *world) processes() (all []*process) {
	for _, b := range w.brokers {
		all = append(all, &b.process)
	}
	for _, e := range w.embedded {
		all = append(all, &e.process)
	}
	return all
}

// topicNow asks the store for a topic until it answers.
func (w *world) topicNow(ctx context.Context, name string) (t eventlog.Topic, is bool) {
	for ctx.Err() == nil {
		try, cancel := context.WithTimeout(ctx, 10*time.Second)
		t, err := w.audit.TopicNow(try, name)
		cancel()
		if err == nil {
			return t, true
		}
		if errors.Is(err, eventlog.ErrUnknownTopic) {
			return t, false
		}
		pause(ctx, 200*time.Millisecond)
	}
	return t, false
}

// pause waits, unless ctx ends before.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// calm knows when nothing was done to whom. Claims about time are made of calm times alone.
type calm struct {
	now func() judge.Moment

	mu        sync.Mutex // guards disturbed
	disturbed map[string][]interval
}

type interval struct{ from, to judge.Moment }

// recovery is how long after a fault a process, or the store, may still be busy with it.
const recovery = 3 * time.Second

func newCalm(now func() judge.Moment) *calm {
	return &calm{now: now, disturbed: map[string][]interval{}}
}

const (
	theStore   = "store"
	theMachine = "machine" // it did not let this program run, and so perhaps none of the others
)

// disturb notes that something is done to somebody until the returned function is called.
func (c *calm) disturb(whom string) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	const forever = judge.Moment(1 << 62)
	list := append(c.disturbed[whom], interval{c.now(), forever})
	c.disturbed[whom] = list
	i := len(list) - 1
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.disturbed[whom][i].to = c.now() + judge.Moment(recovery)
	}
}

// note notes a disturbance that is over.
func (c *calm) note(whom string, from judge.Moment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disturbed[whom] = append(c.disturbed[whom], interval{from, c.now() + judge.Moment(recovery)})
}

// between says that from one time to another nothing was done to any of those named, nor to the
// store, nor did the machine stand still.
func (c *calm) between(from, to judge.Moment, names ...string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range append(names, theStore, theMachine) {
		for _, d := range c.disturbed[name] {
			if d.from <= to && from <= d.to {
				return false
			}
		}
	}
	return true
}

// watchMachine notes when the machine did not let us run.
func (c *calm) watchMachine(ctx context.Context) {
	const tick, late = 100 * time.Millisecond, 700 * time.Millisecond
	for ctx.Err() == nil {
		before, at := time.Now(), c.now()
		pause(ctx, tick)
		if time.Since(before) > late {
			c.note(theMachine, at)
		}
	}
}
