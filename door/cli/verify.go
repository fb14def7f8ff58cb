package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/node"
	"github.com/weir-log/weir/internal/verify"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/use/keys"
)

type verifyCmd struct {
	Store    string   `help:"The store to examine; as for weir serve. Default: ${default}." default:"sqlite:./weir-data/weir.db" placeholder:"URL"`
	Rate     pace     `help:"Read at most so many bytes in a second (20MiB), to leave the store to its servers; default: as fast as it goes. With --load: write so many events in a second (5000); default: 1000." placeholder:"NUMBER" env:"-"`
	CacheDir string   `help:"Also compare the files of a cache with the store: the --cache-dir of a server on this machine, which may run." name:"cache-dir" env:"-" placeholder:"DIR"`
	Storage  []string `help:"Instead of examining a store, try whether a storage is what weir needs: conditional writes that race, reads after writes, settings. Several URLs reach the same storage through several servers. It writes beside the store, and removes what it wrote." placeholder:"URL,…" env:"-"`
	loadFlags
	Output format `help:"What to print: text for people, or json." enum:"text,json" default:"text"`
}

func (verifyCmd) Help() string {
	return `Reads everything in a store, changes nothing, and says where its content contradicts itself: batches that are damaged or missing, keys that
disagree with the events, queues whose messages do not add up. Servers may use the store meanwhile. docs/verify.md says what each check proves.

The exit code is 0 if nothing was found, 1 if something was, and 2 if the store could not be examined to the end. With --storage it is that of weir doctor.

With --load it writes to a topic, a queue and a category of its own, reads them, and removes them in the end. Restart what is below meanwhile, cut it off,
fail over: it goes on, and then says whether anything was lost, doubled or out of order. The exit code is 0 if not, 1 if so, 2 if that could not be judged.

Examples:

  weir verify
  weir verify --store postgres://weir@db.internal/weir --rate 20MiB
  weir verify --store s3://events/prod --output json
  weir verify --storage 's3://events/prod?endpoint=http://s3-1:9000' --storage 's3://events/prod?endpoint=http://s3-2:9000'
  weir verify --load 10m --store postgres://weir@db.internal/weir --ledger /mnt/other/load.history
  weir verify --load 10m --harm 'podman restart db' --harm-every 1m
  weir verify --load 10m --server http://127.0.0.1:8080 --bootstrap 127.0.0.1:9092
  weir verify --load-history /mnt/other/load.history`
}

// findingsMost bounds the findings of one answer in JSON; text has all.
const findingsMost = 10_000

// verified is the result of the command as JSON.
type verified struct {
	Complete   bool             `json:"complete"`
	Error      string           `json:"error,omitempty"` // why it is not complete
	Found      int64            `json:"found"`
	Findings   []verify.Finding `json:"findings"` // the first of them
	Undecided  []string         `json:"undecided,omitempty"`
	Partitions int64            `json:"partitions"`
	Batches    int64            `json:"batches"`
	Records    int64            `json:"records"`
	Keys       int64            `json:"keys"`
	Bytes      int64            `json:"bytes"`
	Seconds    float64          `json:"seconds"`
}

func (c *verifyCmd) Run(ctx context.Context, t *terminal) error {
	switch {
	case c.LoadHistory != "":
		return c.judgeHistory(t)
	case c.Load != 0:
		return c.underLoad(ctx, t)
	case c.Ledger != "" || c.Harm != "" || c.Rate.events != 0:
		return usage(errors.New("--ledger, --harm and a --rate without a unit are for --load"), "give --load DURATION, too, or leave them out")
	}
	if len(c.Storage) > 0 {
		return c.tryStorage(ctx, t)
	}
	began := time.Now()
	answer := verified{Findings: []verify.Finding{}}
	line := &progress{t: t}
	opts := verify.Options{
		Rate: int64(c.Rate.bytes), Checks: append(node.Checks(), store.Verify()),
		Found: func(f verify.Finding) {
			if len(answer.Findings) < findingsMost {
				answer.Findings = append(answer.Findings, f)
			}
			if !c.Output.json() {
				line.done()
				fmt.Fprintf(t.out, "%s\n  %s\n", printable(f.String()), printable(f.Do))
			}
		},
		Undecided: func(check string, place verify.Place) {
			if len(answer.Undecided) < findingsMost {
				answer.Undecided = append(answer.Undecided, check+": "+place.String())
			}
		},
		Progress: func(p verify.Progress) { line.say("%s", progressOf(p, time.Since(began))) },
	}
	result, err := c.examine(ctx, t, opts)
	line.done()
	answer.Found, answer.Partitions, answer.Batches, answer.Records = result.Found, result.Partitions, result.Batches, result.Records
	answer.Keys, answer.Bytes, answer.Seconds = result.Keys, result.Bytes, time.Since(began).Seconds()
	if err == nil && result.Undecided > 0 {
		err = fmt.Errorf("%d places changed each time they were read, and could not be judged, such as %s", result.Undecided, answer.Undecided[0])
	}
	if answer.Complete = err == nil; err != nil {
		answer.Error = err.Error()
	}
	if printed := c.print(t, answer); printed != nil {
		return printed
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return &problem{exitUnfinished, err, c.hint(err)}
	case result.Found > 0:
		return failed(fmt.Errorf("the content of the store contradicts itself in %s", plural(result.Found, "place")), "keep the store as it is, or a copy of it, until you know why: docs/verify.md says what each finding means")
	}
	return nil
}

func (c *verifyCmd) examine(ctx context.Context, t *terminal, opts verify.Options) (result verify.Result, err error) {
	if store.Missing(c.Store) {
		return result, fmt.Errorf("the store %s does not exist", c.Store)
	}
	if c.CacheDir != "" {
		check, err := store.VerifyCache(c.Store, c.CacheDir)
		if err != nil {
			return result, err
		}
		opts.Checks = append(opts.Checks, check)
	}
	address := c.Store
	if only, err := store.ReadOnly(address); err == nil {
		address = only
	}
	logger := slog.New(slog.NewTextHandler(t.err, nil))
	opened, err := store.OpenWith(ctx, address, store.Options{Logger: logger, Rules: keys.Rules(), NoUpgrade: true})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	return verify.Run(ctx, opened, opts)
}

func (c *verifyCmd) hint(err error) string {
	f := storeFlag{Store: c.Store}
	switch {
	case errors.Is(err, eventlog.ErrUpgradeDue), errors.Is(err, eventlog.ErrUpgraded):
		return "examine it with the weir that serves it"
	case errors.Is(err, eventlog.ErrUnavailable):
		return f.reach()
	case errors.Is(err, eventlog.ErrRewound):
		return "the store was put back, or failed over, meanwhile: run it again"
	}
	return "run it again; `weir doctor --store URL` examines the store's settings"
}

// progressOf says how far an exam has come, and how long the log still takes.
func progressOf(p verify.Progress, took time.Duration) string {
	text := fmt.Sprintf("%s: read %d of %d MiB of events, %d keys; found %d", p.Check, p.Read>>20, p.Held>>20, p.Keys, p.Found)
	if p.Check == "log" && p.Read > 0 {
		left := time.Duration(float64(took) * float64(p.Held-p.Read) / float64(p.Read))
		text += fmt.Sprintf("; %s left for the events", left.Round(time.Second))
	}
	return text
}

func (c *verifyCmd) print(t *terminal, a verified) error {
	if c.Output.json() {
		return printJSON(t, a)
	}
	if a.Error != "" && a.Keys == 0 {
		return nil // it did not begin
	}
	_, err := fmt.Fprintf(t.out, "examined %d partitions, %d batches with %d records, %d keys: %d MiB in %.1f s; %s\n",
		a.Partitions, a.Batches, a.Records, a.Keys, a.Bytes>>20, a.Seconds, plural(a.Found, "finding"))
	return err
}
