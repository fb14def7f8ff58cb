package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/store/shard"
	"github.com/weir-log/weir/store/storecopy"
	"github.com/weir-log/weir/use/queue"
)

type shardCmd struct {
	List shardListCmd `cmd:"" help:"List on which shard each partition is, and which partitions move."`
	Move shardMoveCmd `cmd:"" help:"Move a partition to another shard, while servers use it."`
}

// shardStore names the set of shards. The commands work on it directly, also while servers run on it.
type shardStore struct {
	storeFlag
	Output format `help:"What to print: text for people, or json." enum:"text,json" default:"text" env:"-"`
}

// with opens the set, and the log on it, which does not run: it knows the topics.
func (c *shardStore) with(ctx context.Context, t *terminal, what string, do func(*shard.Set, *eventlog.Log) error) error {
	return c.direct(ctx, t, what, func(opened eventlog.Store, logger *slog.Logger) error {
		set, is := eventlog.As[*shard.Set](opened)
		if !is {
			return config(fmt.Errorf("the store %s is not made of shards", store.Redact(c.Store)), "give the whole set with --store shard:URL,URL,…")
		}
		log, err := eventlog.Open(ctx, opened, eventlog.Config{Logger: logger})
		if err != nil {
			return c.explain(ctx, err, "")
		}
		return do(set, log)
	})
}

type shardListCmd struct {
	shardStore
	Topic string `help:"Only this topic." env:"-" placeholder:"NAME"`
}

func (shardListCmd) Help() string {
	return `Examples:

  weir shard list --store shard:postgres://weir@db1/weir,postgres://weir@db2/weir
  weir shard list --topic orders --output json`
}

// placed is where a partition is.
type placed struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Shard     int    `json:"shard"`
	Move      string `json:"move,omitempty"` // copying, closed, left: see docs/shards.md
	To        *int   `json:"to,omitempty"`   // copying, closed
	From      *int   `json:"from,omitempty"` // left
}

func (c *shardListCmd) Run(ctx context.Context, t *terminal) error {
	return c.with(ctx, t, "a list of partitions", func(set *shard.Set, log *eventlog.Log) error {
		topics := log.Topics()
		if c.Topic != "" {
			topic, err := log.Topic(ctx, c.Topic)
			if err != nil {
				return c.answer(ctx, err, hint{eventlog.ErrUnknownTopic, "`weir shard list` lists all topics"})
			}
			topics = []eventlog.Topic{topic}
		}
		moved, err := set.Placements(ctx)
		if err != nil {
			return c.explain(ctx, err, "")
		}
		list, rows := []placed{}, [][]string{}
		for _, topic := range topics {
			for i, p := range topic.Partitions {
				at, move := placed{Topic: topic.Name, Partition: i, Shard: p.Shard()}, "-"
				if m, is := moved[p]; is {
					other := m.Other
					at.Shard, at.Move = m.Shard, string(m.Move)
					switch m.Move {
					case eventlog.MoveCopying, eventlog.MoveClosed:
						at.To, move = &other, fmt.Sprintf("%s, to shard %d", m.Move, other)
					case eventlog.MoveLeft:
						at.From, move = &other, fmt.Sprintf("done, but shard %d may still have it", other)
					}
				}
				list = append(list, at)
				rows = append(rows, []string{printable(topic.Name), strconv.Itoa(i), strconv.Itoa(at.Shard), move})
			}
		}
		if c.Output.json() {
			return printJSON(t, list)
		}
		return table(t.out, "TOPIC PARTITION SHARD MOVE", rows)
	})
}

type shardMoveCmd struct {
	shardStore
	Topic     string `help:"The topic." required:"" env:"-" placeholder:"NAME"`
	Partition int    `help:"The partition of the topic." required:"" env:"-" placeholder:"NUMBER"`
	To        *int   `help:"The shard that gets it." xor:"end" env:"-" placeholder:"SHARD"`
	Abandon   bool   `help:"Give up a move that was interrupted: the partition stays where it is." env:"-" xor:"end"`
}

func (shardMoveCmd) Help() string {
	return `Moves a partition with its records, their offsets and times, and the state of idempotent producers. Servers may use it meanwhile: producers get errors that they try again, for
a moment at the end. Consumers go on where they are.

If the command is interrupted, run it again: it continues where it ended. Or give the move up with --abandon.

Partitions of queues, of categories of streams and of weir's own topics stay where they are.

Examples:

  weir shard list
  weir shard move --topic orders --partition 3 --to 1
  weir shard move --topic orders --partition 3 --abandon`
}

// moveResult is the result of the command as JSON.
type moveResult struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Shard     int    `json:"shard"` // where it is now
	Abandoned bool   `json:"abandoned,omitempty"`
	storecopy.Progress
	ClosedFor float64 `json:"closed_seconds"` // how long producers got errors
}

func (c *shardMoveCmd) Run(ctx context.Context, t *terminal) error {
	if !c.Abandon && c.To == nil {
		return usage(errors.New("the shard is missing"), "give it with --to; `weir shard list` shows where partitions are")
	}
	return c.with(ctx, t, "a partition", func(set *shard.Set, log *eventlog.Log) error {
		topic, err := log.Topic(ctx, c.Topic)
		if err != nil {
			return c.answer(ctx, err, hint{eventlog.ErrUnknownTopic, "`weir shard list` lists all topics"})
		}
		if c.Partition < 0 || c.Partition >= len(topic.Partitions) {
			return usage(fmt.Errorf("topic %q has no partition %d: it has the partitions 0 to %d", c.Topic, c.Partition, len(topic.Partitions)-1), "")
		}
		p := topic.Partitions[c.Partition]
		result := moveResult{Topic: c.Topic, Partition: c.Partition}
		if c.Abandon {
			result.Abandoned = true
			err = storecopy.AbandonMove(ctx, set, p)
			result.Shard = set.ShardWith(p)
		} else if err = movable(ctx, log, topic); err == nil {
			result.Shard = *c.To
			err = c.move(ctx, t, set, p, &result)
		}
		if err != nil {
			return c.explainMove(ctx, err)
		}
		return c.print(t, result)
	})
}

// movable refuses topics whose partitions must stay with what uses them.
func movable(ctx context.Context, log *eventlog.Log, topic eventlog.Topic) error {
	refuse := func(why string) error {
		return failed(fmt.Errorf("the partitions of topic %q cannot move: %s. Nothing was changed", topic.Name, why), "docs/shards.md says what is where")
	}
	user, err := queue.Using(ctx, log, topic)
	switch {
	case err != nil:
		return err
	case eventlog.InternalTopic(topic.Name):
		return refuse("the topic is weir's own")
	case topic.Writer != "":
		return refuse(fmt.Sprintf("only %s append to it, and they need it on the shard of their keys", topic.Writer))
	case user != "":
		return refuse(fmt.Sprintf("the queue %q uses it, and queues are on shard 0", user))
	case topic.Together:
		return refuse("it was made for a queue, and queues are on shard 0")
	}
	return nil
}

func (c *shardMoveCmd) move(ctx context.Context, t *terminal, set *shard.Set, p eventlog.Partition, result *moveResult) error {
	line := &progress{t: t}
	defer line.done()
	began := time.Now()
	job, err := storecopy.BeginMove(ctx, set, p, *c.To, func(p storecopy.Progress) {
		result.Progress = p
		line.say("copied %d records, %d MiB; compared %d MiB; %s", p.Records, p.Bytes>>20, p.Compared>>20, time.Since(began).Round(time.Second))
	})
	if err != nil {
		return err
	}
	closed, err := job.Run(ctx)
	result.ClosedFor = closed.Seconds()
	return err
}

// explainMove adds an exit code and a hint to an error of a move.
func (c *shardMoveCmd) explainMove(ctx context.Context, err error) error {
	var known *problem
	var invalid *eventlog.InvalidError
	var different *storecopy.DifferentError
	const again = "repeat the command, which continues where it ended, or give the move up with --abandon"
	switch {
	case errors.As(err, &known):
		return err
	case ctx.Err() != nil:
		return errors.Join(context.Cause(ctx), err)
	case errors.As(err, &invalid):
		return usage(err, "")
	case errors.As(err, &different):
		return unsafe(err, "the partition is where it was; --abandon deletes the copy")
	case errors.Is(err, storecopy.ErrThere), errors.Is(err, storecopy.ErrNotMoving), errors.Is(err, storecopy.ErrMovesElsewhere), errors.Is(err, storecopy.ErrMoved), errors.Is(err, storecopy.ErrTooOften):
		return failed(err, "`weir shard list` shows where partitions are")
	case errors.Is(err, storecopy.ErrMoveTaken), errors.Is(err, storecopy.ErrTaken):
		return failed(err, "let it end, or stop it; then repeat the command")
	case errors.Is(err, eventlog.ErrNoPartition):
		return failed(err, "the topic was deleted")
	case errors.Is(err, eventlog.ErrUnavailable), errors.Is(err, eventlog.ErrUnsure):
		return unreachable(err, again)
	}
	return failed(err, again)
}

func (c *shardMoveCmd) print(t *terminal, r moveResult) error {
	if c.Output.json() {
		return printJSON(t, r)
	}
	if r.Abandoned {
		_, err := fmt.Fprintf(t.out, "partition %d of topic %s stays on shard %d\n", r.Partition, printable(r.Topic), r.Shard)
		return err
	}
	_, err := fmt.Fprintf(t.out, "partition %d of topic %s is on shard %d\n  copied %d records (%d bytes), compared %d bytes: all are the same\n  for %.1f s producers got errors that they try again\n",
		r.Partition, printable(r.Topic), r.Shard, r.Records, r.Bytes, r.Compared, r.ClosedFor)
	return err
}
