package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/use/audit"
	"github.com/weir-log/weir/use/keys"
)

// storeFlag names the store of the log.
type storeFlag struct {
	Store     string `help:"Where the log is stored: sqlite:PATH, postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE, s3://BUCKET/PREFIX, several of them as shard:URL,URL, or memory: (lost when the process ends). Default: ${default}." default:"sqlite:./weir-data/weir.db" placeholder:"URL"`
	NoUpgrade bool   `help:"Refuse a store that an older weir made. Without it, a newer weir upgrades the store when it opens it, and older ones cannot use it afterwards."`
}

func (f *storeFlag) open(ctx context.Context, logger *slog.Logger) (eventlog.Store, error) {
	opened, err := store.OpenWith(ctx, f.Store, store.Options{Logger: logger, Rules: keys.Rules(), NoUpgrade: f.NoUpgrade})
	return opened, f.explain(ctx, err, "`weir doctor --store URL` examines a store and changes nothing")
}

// explain adds an exit code and a hint to an error of the store.
func (f *storeFlag) explain(ctx context.Context, err error, hint string) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, store.ErrAddress):
		return config(err, "")
	case errors.Is(err, eventlog.ErrStoreClosed):
		return config(err, "")
	case errors.Is(err, eventlog.ErrUpgraded), errors.Is(err, eventlog.ErrUpgradeDue):
		return config(err, "docs/operations.md says how to upgrade, with and without downtime")
	case errors.Is(err, eventlog.ErrUnavailable):
		return unreachable(err, f.reach())
	}
	return refused(err, hint)
}

// reach says what to check if the store does not answer.
func (f *storeFlag) reach() string {
	if strings.HasPrefix(f.Store, "sqlite:") { // a file: nothing runs, and there is no address
		return "check that no other program has locked the file, such as a sqlite3 shell or a backup, and that the path in --store " + f.Store + " is right"
	}
	return "check that it is running, and that the address in --store " + store.Redact(f.Store) + " is right"
}

// direct opens the store, which must exist, for a command that works on it without a server. The
// parameter what names what the command writes, for an error.
func (f *storeFlag) direct(ctx context.Context, t *terminal, what string, do func(eventlog.Store, *slog.Logger) error) error {
	if store.Missing(f.Store) {
		return config(fmt.Errorf("the store %s does not exist", f.Store), "give the store of the server with --store")
	}
	return f.directNew(ctx, t, what, do)
}

// directNew is direct for a command that may create the store.
func (f *storeFlag) directNew(ctx context.Context, t *terminal, what string, do func(eventlog.Store, *slog.Logger) error) (err error) {
	if strings.HasPrefix(f.Store, "memory:") {
		return config(fmt.Errorf("%s in the store memory: would be lost when this command ends", what), "give the store of the server with --store")
	}
	logger := slog.New(slog.NewTextHandler(t.err, nil))
	opened, err := f.open(ctx, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	if err := eventlog.CheckOpen(ctx, opened); err != nil {
		return f.explain(ctx, err, "")
	}
	return do(opened, logger)
}

// accessStore names the store that has API keys, users, rules and quotas. The commands write to it
// directly, also while a server runs on it.
type accessStore struct {
	storeFlag
	Output format `help:"What to print: text for people, or json." enum:"text,json" default:"text"`
}

// onLog opens a log on the store, which must exist, and does something with it. The audit records
// changes as made at the command line. The parameter what names what the command writes, for an
// error.
func (c *accessStore) onLog(ctx context.Context, t *terminal, what string, do func(context.Context, *audit.Log, *slog.Logger) error, hints ...hint) error {
	return c.direct(ctx, t, what, c.running(ctx, do, hints))
}

// running runs a log while something is done with it.
func (c *accessStore) running(ctx context.Context, do func(context.Context, *audit.Log, *slog.Logger) error, hints []hint) func(eventlog.Store, *slog.Logger) error {
	return func(opened eventlog.Store, logger *slog.Logger) error {
		log, err := eventlog.Open(ctx, opened, eventlog.Config{Logger: logger})
		if err != nil {
			return c.explain(ctx, err, "")
		}
		recorded := audit.New(log, false, logger)
		until, stop := context.WithCancel(context.WithoutCancel(ctx))
		ran := make(chan error, 1)
		go func() { ran <- log.Run(until) }()
		err = c.answer(ctx, do(audit.By(ctx, audit.AtTheCommandLine()), recorded, logger), hints...)
		stop()
		return errors.Join(err, <-ran)
	}
}

// removeDamaged removes the rows of a table that cannot be read, after somebody confirmed it. many
// names the rows in the question, and few in the answer.
func (c *accessStore) removeDamaged(ctx context.Context, t *terminal, asked consent, many, few string,
	of func(*audit.Log, *slog.Logger) repairable) error {
	if err := asked.obtain(t, "remove the "+many+" that cannot be read", "yes"); err != nil {
		return err
	}
	return c.onLog(ctx, t, many, func(ctx context.Context, log *audit.Log, logger *slog.Logger) error {
		n, err := of(log, logger).DeleteDamaged(ctx)
		if c.Output.json() {
			return errors.Join(err, printJSON(t, map[string]int{"removed": n}))
		}
		fmt.Fprintf(t.out, "removed %d %s that could not be read\n", n, few)
		return err
	})
}

// repairable are rows of which some may be unreadable.
type repairable interface {
	DeleteDamaged(ctx context.Context) (int, error)
}

// hint says what to do after an error.
type hint struct {
	after error
	do    string // "": there is nothing to say
}

// answer adds an exit code and a hint to an error about what a store keeps beside the log: API
// keys, users, rules. The errors of hints mean that what was asked could not be done;
// eventlog.ErrUnsure has a hint of its own unless it is among them.
func (f *storeFlag) answer(ctx context.Context, err error, hints ...hint) error {
	var invalid *eventlog.InvalidError
	if errors.As(err, &invalid) {
		return usage(err, "")
	}
	unsure := hint{eventlog.ErrUnsure, "the change may have been made; run the command again"}
	for _, h := range append(hints, unsure) {
		switch {
		case !errors.Is(err, h.after):
		case h.after == eventlog.ErrUnsure:
			return unreachable(err, h.do)
		default:
			return failed(err, h.do)
		}
	}
	return f.explain(ctx, err, "")
}
