package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/weir-log/weir/door/inbox"
	"github.com/weir-log/weir/door/sqlfn"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/store/storecopy"
)

type copyCmd struct {
	From      string `help:"The store to copy. Servers may go on using it until the switch." required:"" env:"-" placeholder:"URL"`
	To        string `help:"The store that gets the copy: an empty one, or an incomplete copy of the same store." required:"" env:"-" placeholder:"URL"`
	Switch    bool   `help:"When all is copied and compared, close the source for good and open the copy in its place." env:"-" xor:"end"`
	Abandon   bool   `help:"Give an incomplete copy up: the source, if it was closed, is open again, and the copy is closed for good." env:"-" xor:"end"`
	NoUpgrade bool   `help:"Refuse a store that an older weir made, instead of upgrading it." env:"-"`
	Output    format `help:"What to print: text for people, or json." enum:"text,json" default:"text" env:"-"`
}

func (copyCmd) Help() string {
	return `Copies a store to another one, of any kind: topics, records with their offsets and times, consumer groups, queues, streams, API keys. Servers may use the source meanwhile.
Repeat the command to copy what is new, or after it was interrupted: it continues where it ended. No server starts on a copy that is not complete.

With --switch it then closes the source: servers that use it write nothing more, and none starts on it again. What came last is copied, everything is compared, and the copy is open.
Start a server with the copy as its --store. Before, stop programs that publish with SQL to the source.

A set of shards (shard:URL,URL) can be the source, as a whole and while every shard answers, and not the target: docs/moving.md says how to get to one.

Examples:

  weir copy --from sqlite:weir-data/weir.db --to postgres://weir@db.internal/weir
  weir copy --from sqlite:weir-data/weir.db --to postgres://weir@db.internal/weir --switch
  weir serve --store postgres://weir@db.internal/weir`
}

// passesMost bounds the passes of one command: if producers write faster than it copies, it would
// never end.
const passesMost = 8

// A pass that copied less than passSmallBytes and passSmallKeys has caught up.
const passSmallBytes, passSmallKeys = 4 << 20, 1000

// copied is the result of the command as JSON.
type copied struct {
	storecopy.Progress
	Complete  bool    `json:"complete"`
	Abandoned bool    `json:"abandoned,omitempty"`
	ClosedFor float64 `json:"closed_seconds,omitempty"` // how long neither store could be written
}

func (c *copyCmd) Run(ctx context.Context, t *terminal) (err error) {
	for _, address := range []string{c.From, c.To} {
		if strings.HasPrefix(address, "memory:") {
			return usage(errors.New("the store memory: cannot be copied, because it ends with its process"), "")
		}
	}
	if strings.HasPrefix(c.To, "shard:") { // before it is opened, which makes a set of its stores
		return usage(storecopy.ErrSharded, "")
	}
	if store.Missing(c.From) {
		return config(fmt.Errorf("the store %s does not exist", c.From), "give the store that is copied with --from")
	}
	if store.Missing(c.To) && c.Abandon {
		return config(fmt.Errorf("the store %s does not exist", c.To), "give the copy with --to")
	}
	logger := slog.New(slog.NewTextHandler(t.err, nil))
	source, target := storeFlag{c.From, c.NoUpgrade}, storeFlag{c.To, c.NoUpgrade}
	from, err := source.open(ctx, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to, err := target.open(ctx, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	var result copied
	if err := c.run(ctx, t, from, to, &result); err != nil {
		return c.explain(ctx, err)
	}
	return c.print(t, result)
}

func (c *copyCmd) run(ctx context.Context, t *terminal, from, to eventlog.Store, result *copied) error {
	line := &progress{t: t}
	defer line.done()
	began := time.Now()
	job, err := storecopy.Begin(ctx, from, to, store.Redact(c.From), store.Redact(c.To), func(p storecopy.Progress) {
		result.Progress = p
		line.say("copied %d records, %d MiB, %d keys; compared %d MiB; %s", p.Records, p.Bytes>>20, p.Keys, p.Compared>>20, time.Since(began).Round(time.Second))
	})
	if err != nil {
		return err
	}
	if c.Abandon {
		result.Abandoned = true
		return job.Abandon(ctx)
	}
	for range passesMost {
		pass, err := job.Pass(ctx)
		if err != nil {
			return err
		}
		if pass.Bytes < passSmallBytes && pass.Keys < passSmallKeys {
			break
		}
	}
	if err := job.Compare(ctx); err != nil || !c.Switch {
		return err
	}
	if err := c.moved(ctx, from); err != nil {
		return err
	}
	if _, err := job.Pass(ctx); err != nil { // what came while the rest was compared
		return err
	}
	closed := time.Now()
	if err := job.Switch(ctx, func() error { return c.moved(ctx, from) }); err != nil {
		return err
	}
	result.Complete, result.ClosedFor = true, time.Since(closed).Seconds()
	return nil
}

// moved returns an error if SQL sessions published something to the source that is not moved into
// its log.
func (c *copyCmd) moved(ctx context.Context, from eventlog.Store) error {
	for table, waiting := range map[string]func(context.Context, eventlog.Store) (int64, error){"weir.inbox": sqlfn.Waiting, "weir_inbox": inbox.Waiting} {
		rows, err := waiting(ctx, from)
		if err != nil {
			return err
		}
		if rows > 0 {
			return failed(fmt.Errorf("%d rows that SQL sessions committed wait in %s of the source; nothing was switched", rows, table),
				"stop the programs that publish with SQL to the source, let `weir serve` run on it until `SELECT count(*) FROM "+table+"` is 0, and repeat the command")
		}
	}
	return nil
}

// explain adds an exit code and a hint to an error of a copy.
func (c *copyCmd) explain(ctx context.Context, err error) error {
	var different *storecopy.DifferentError
	var known *problem
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &known):
		return err
	case errors.Is(err, storecopy.ErrComplete):
		return failed(err, "start a server with --store "+store.Redact(c.To))
	case errors.Is(err, storecopy.ErrOneShard):
		return config(err, "give all shards, in their order: --from shard:URL,URL,…")
	case errors.Is(err, storecopy.ErrSame), errors.Is(err, storecopy.ErrNotEmpty):
		return config(err, "give an empty store with --to")
	case errors.Is(err, storecopy.ErrTaken):
		return failed(err, "let it end, or stop it; then repeat the command")
	case errors.Is(err, eventlog.ErrStoreClosed):
		return config(err, "")
	case errors.As(err, &different):
		return unsafe(err, "the source is as it was; if it was closed, --abandon opens it again")
	case errors.Is(err, eventlog.ErrUnavailable), errors.Is(err, eventlog.ErrUnsure):
		return unreachable(err, "repeat the command: it continues where it ended")
	}
	return failed(err, "repeat the command: it continues where it ended")
}

func (c *copyCmd) print(t *terminal, r copied) error {
	if c.Output.json() {
		return printJSON(t, r)
	}
	from, to := store.Redact(c.From), store.Redact(c.To)
	if r.Abandoned {
		_, err := fmt.Fprintf(t.out, "abandoned the copy\n  %s is open and holds everything\n  %s is closed for good: delete it\n", from, to)
		return err
	}
	fmt.Fprintf(t.out, "copied %d records (%d bytes) and %d keys; compared %d bytes: all are the same\n", r.Records, r.Bytes, r.Keys, r.Compared)
	if !r.Complete {
		_, err := fmt.Fprintf(t.out, "the copy is not complete: servers go on using %s; repeat the command to copy what is new, then with --switch\n", from)
		return err
	}
	_, err := fmt.Fprintf(t.out, "the copy is complete; for %.1f s neither store could be written\n  %s is closed\n  start servers with --store %s\n", r.ClosedFor, from, to)
	return err
}
