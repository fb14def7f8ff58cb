package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/shard"
	"github.com/weir-log/weir/store/storecopy"
	"github.com/weir-log/weir/use/queue"
)

type shardMoveCmd struct {
	shardStore
	Topic     string `help:"Only partitions of this topic." env:"-" placeholder:"NAME"`
	Partition []int  `help:"A partition of the topic. May be given again. Default: all." env:"-" placeholder:"NUMBER" xor:"which"`
	From      *int   `help:"Only partitions that are on this shard." env:"-" placeholder:"SHARD" xor:"which"`
	To        *int   `help:"The shard that gets them." xor:"end" env:"-" placeholder:"SHARD"`
	Abandon   bool   `help:"Give up moves that were interrupted: the partitions stay where they are. Without --topic and --from: all moves, and what moves left of topics that were deleted." env:"-" xor:"end"`
}

func (shardMoveCmd) Help() string {
	return `Moves partitions with their records, their offsets and times, and the state of idempotent producers. Servers may use them meanwhile: producers get errors that they try again,
for a moment at the end. Consumers go on where they are.

Several partitions are copied first, then they are closed and placed on their new shard in groups. Each group interrupts servers twice, for a moment, however many partitions it has. A
group is small enough to be closed for about 2 s. Partitions that are not copied completely after 10 s are opened again, and tried again later.

If the command is interrupted, run it again: it continues where it ended. Or give the moves up with --abandon; by itself it also deletes what moves left of deleted topics. A partition that cannot be moved does not hold up the others.

With --from and without --topic, all partitions of a shard move, so that the shard is empty of them. Partitions of queues, of categories of streams and of weir's own topics stay where
they are: the command says which.

Examples:

  weir shard list
  weir shard move --topic orders --partition 3 --partition 5 --to 1
  weir shard move --topic orders --to 1
  weir shard move --from 2 --to 1
  weir shard move --topic orders --partition 3 --abandon`
}

// moveResult is the result of the command as JSON.
type moveResult struct {
	Partitions []movedPartition `json:"partitions"`
	Stay       []stays          `json:"stay,omitempty"` // with --from: topics with partitions that cannot move from there
	storecopy.Progress
	ClosedFor float64 `json:"closed_seconds"` // how long producers got errors, for the partition that was closed longest
}

type movedPartition struct {
	Topic     string  `json:"topic"` // "": it was deleted
	Partition int     `json:"partition"`
	Shard     int     `json:"shard"` // where it is now
	Already   bool    `json:"already,omitempty"`
	Abandoned bool    `json:"abandoned,omitempty"`
	ClosedFor float64 `json:"closed_seconds"`
	Error     string  `json:"error,omitempty"`
}

type stays struct {
	Topic string `json:"topic"`
	Why   string `json:"why"`
}

// chosen is a partition that the command moves.
type chosen struct {
	topic  string // "": it was deleted
	number int    // without a topic: id
	id     eventlog.Partition
}

func (c chosen) String() string {
	if c.topic == "" {
		return fmt.Sprintf("partition %d of a deleted topic", c.number)
	}
	return fmt.Sprintf("partition %d of topic %s", c.number, printable(c.topic))
}

func (c *shardMoveCmd) Run(ctx context.Context, t *terminal) error {
	switch {
	case !c.Abandon && c.To == nil:
		return usage(errors.New("the shard is missing"), "give it with --to; `weir shard list` shows where partitions are")
	case len(c.Partition) > 0 && c.Topic == "":
		return usage(errors.New("the topic of the partitions is missing"), "give it with --topic")
	case !c.Abandon && c.Topic == "" && c.From == nil:
		return usage(errors.New("it is not said which partitions move"), "give --topic, with --partition or for all of them, or --from for all that are on a shard")
	case c.From != nil && c.To != nil && *c.From == *c.To:
		return usage(fmt.Errorf("--from and --to are both shard %d", *c.To), "")
	}
	return c.with(ctx, t, "a partition", func(set *shard.Set, log *eventlog.Log) error {
		if c.From != nil && (*c.From < 0 || *c.From >= set.Shards()) {
			return usage(fmt.Errorf("there is no shard %d: the set has the shards 0 to %d", *c.From, set.Shards()-1), "")
		}
		if _, deleted, err := orphans(ctx, set, log); err != nil {
			return c.explain(ctx, err, "")
		} else if err := set.Unplace(ctx, deleted); err != nil {
			return c.explainMove(ctx, err)
		}
		var result moveResult
		all, err := c.choose(ctx, set, log, &result)
		if err != nil {
			return err
		}
		var moved []storecopy.Moved
		switch {
		case c.Abandon:
			moved, err = storecopy.AbandonMoves(ctx, set, ids(all), func(p eventlog.Partition) bool {
				return slices.ContainsFunc(all, func(one chosen) bool { return one.id == p && one.topic == "" })
			})
		case len(all) > 0:
			moved, err = c.move(ctx, t, set, log, ids(all), &result)
		}
		if err != nil {
			return c.explainMove(ctx, named(err, all))
		}
		placed, err := set.Placements(context.WithoutCancel(ctx))
		if err != nil && ctx.Err() == nil {
			return c.explainMove(ctx, err)
		}
		failed := c.sum(&result, all, moved, placed)
		if len(failed) == 0 || len(all) > 1 {
			if err := c.print(t, result); err != nil {
				return err
			}
		}
		switch {
		case len(failed) == 0:
			return nil
		case len(all) > 1:
			failed = append([]error{fmt.Errorf("%d of %d partitions did not move", len(failed), len(all))}, failed...)
		}
		return c.explainMove(ctx, errors.Join(failed...))
	})
}

// choose returns the partitions that the command is about.
func (c *shardMoveCmd) choose(ctx context.Context, set *shard.Set, log *eventlog.Log, result *moveResult) (all []chosen, err error) {
	topics, placed, deleted, err := c.read(ctx, set, log, c.Topic)
	if err != nil {
		return nil, err
	}
	for _, topic := range topics {
		some, err := c.chooseOf(topic, placed)
		if err != nil {
			return nil, err
		}
		if len(some) > 0 && !c.Abandon {
			why, err := immovable(ctx, log, topic)
			switch {
			case err != nil:
				return nil, c.explain(ctx, err, "")
			case why != "" && c.Topic != "":
				return nil, failed(fmt.Errorf("the partitions of topic %q cannot move: %s. Nothing was changed", topic.Name, why), "docs/shards.md says what is where")
			case why != "":
				result.Stay = append(result.Stay, stays{topic.Name, why})
				continue
			}
		}
		all = append(all, some...)
	}
	if c.Abandon && c.Topic == "" && c.From == nil {
		for _, p := range deleted {
			all = append(all, chosen{"", int(p), p})
		}
	}
	return all, nil
}

// chooseOf returns the partitions of a topic that the command is about.
func (c *shardMoveCmd) chooseOf(topic eventlog.Topic, placed eventlog.Placements) (some []chosen, err error) {
	for _, n := range c.Partition {
		if n < 0 || n >= len(topic.Partitions) {
			return nil, usage(fmt.Errorf("topic %q has no partition %d: it has the partitions 0 to %d", topic.Name, n, len(topic.Partitions)-1), "")
		}
	}
	for n, p := range topic.Partitions {
		at := placed.Of(p)
		is := true
		switch {
		case len(c.Partition) > 0:
			is = slices.Contains(c.Partition, n)
		case c.Abandon:
			is = at.Move != "" && (c.From == nil || at.Shard == *c.From)
		case c.From != nil: // also if only what is left there must be deleted
			is = at.Shard == *c.From || at.Move == eventlog.MoveLeft && at.Other == *c.From && at.Shard == *c.To
		default:
			is = at.Move != "" || at.Shard != *c.To
		}
		if is {
			some = append(some, chosen{topic.Name, n, p})
		}
	}
	return some, nil
}

func ids(all []chosen) (ids []eventlog.Partition) {
	for _, one := range all {
		ids = append(ids, one.id)
	}
	return ids
}

// named names the partition of an error as its topic does.
func named(err error, all []chosen) error {
	var of *storecopy.PartitionError
	if !errors.As(err, &of) {
		return err
	}
	for _, one := range all {
		if one.id == of.Partition && len(all) > 1 {
			return fmt.Errorf("%v: %w", one, of.Err)
		}
	}
	return of.Err
}

// immovable says why the partitions of a topic must stay with what uses them; "": they can move.
func immovable(ctx context.Context, log *eventlog.Log, topic eventlog.Topic) (why string, err error) {
	switch {
	case eventlog.InternalTopic(topic.Name):
		return "the topic is weir's own", nil
	case topic.Writer != "":
		return fmt.Sprintf("only %s append to it, and they need it on the shard of their keys", topic.Writer), nil
	}
	switch user, err := queue.Using(ctx, log, topic); {
	case err != nil:
		return "", err
	case user != "":
		return fmt.Sprintf("the queue %q uses it, and queues are on shard 0", user), nil
	case topic.Together:
		return "it was made for a queue, and queues are on shard 0", nil
	}
	return "", nil
}

// mustStay says which partitions must not move, as of now: a queue may use a topic since they were
// copied.
func mustStay(ctx context.Context, log *eventlog.Log, some []eventlog.Partition) (map[eventlog.Partition]error, error) {
	if err := log.RefreshTopics(ctx); err != nil {
		return nil, err
	}
	all := map[eventlog.Partition]error{}
	for _, topic := range log.Topics() {
		if !slices.ContainsFunc(topic.Partitions, func(p eventlog.Partition) bool { return slices.Contains(some, p) }) {
			continue
		}
		why, err := immovable(ctx, log, topic)
		if err != nil {
			return nil, err
		}
		for _, p := range topic.Partitions {
			if why != "" {
				all[p] = fmt.Errorf("%w: %s. It is open where it was; --abandon deletes the copy", errStays, why)
			}
		}
	}
	return all, nil
}

// errStays: something needs the partition where it is since its move has begun.
var errStays = errors.New("the partition cannot move")

func (c *shardMoveCmd) move(ctx context.Context, t *terminal, set *shard.Set, log *eventlog.Log, all []eventlog.Partition, result *moveResult) ([]storecopy.Moved, error) {
	line := &progress{t: t}
	defer line.done()
	began := time.Now()
	job, err := storecopy.BeginMoves(ctx, set, all, *c.To, storecopy.MoveOptions{
		Report: func(p storecopy.Progress) {
			result.Progress = p
			line.say("copied %d records, %d MiB; compared %d MiB; %s", p.Records, p.Bytes>>20, p.Compared>>20, time.Since(began).Round(time.Second))
		},
		Refused: func(ctx context.Context, some []eventlog.Partition) (map[eventlog.Partition]error, error) {
			return mustStay(ctx, log, some)
		},
	})
	if err != nil {
		return nil, err
	}
	return job.Run(ctx), nil
}

// sum adds what became of each partition to the result, and returns the errors.
func (c *shardMoveCmd) sum(result *moveResult, all []chosen, moved []storecopy.Moved, placed eventlog.Placements) (failed []error) {
	result.Partitions = []movedPartition{}
	for i, m := range moved {
		one := movedPartition{Topic: all[i].topic, Partition: all[i].number, Shard: placed.Of(m.Partition).Shard, ClosedFor: m.Closed.Seconds()}
		switch {
		case errors.Is(m.Err, storecopy.ErrThere):
			one.Already = true
		case m.Err != nil:
			one.Error = m.Err.Error()
			err := m.Err
			if len(all) > 1 {
				err = fmt.Errorf("%v: %w", all[i], err)
			}
			failed = append(failed, err)
		case c.Abandon:
			one.Abandoned = true
		}
		result.ClosedFor = max(result.ClosedFor, one.ClosedFor)
		result.Partitions = append(result.Partitions, one)
	}
	return failed
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
	case errors.Is(err, eventlog.ErrUnavailable), errors.Is(err, eventlog.ErrUnsure), errors.Is(err, storecopy.ErrLate):
		return unreachable(err, again)
	case errors.Is(err, storecopy.ErrThere), errors.Is(err, storecopy.ErrNotMoving), errors.Is(err, storecopy.ErrMovesElsewhere), errors.Is(err, storecopy.ErrMoved), errors.Is(err, storecopy.ErrTooOften):
		return failed(err, "`weir shard list` shows where partitions are")
	case errors.Is(err, errStays):
		return failed(err, "docs/shards.md says what is where")
	case errors.Is(err, storecopy.ErrMoveTaken), errors.Is(err, storecopy.ErrTaken):
		return failed(err, "let it end, or stop it; then repeat the command")
	case errors.Is(err, eventlog.ErrNoPartition):
		return failed(err, "the topic was deleted")
	}
	return failed(err, again)
}

func (c *shardMoveCmd) print(t *terminal, r moveResult) error {
	if c.Output.json() {
		return printJSON(t, r)
	}
	moved := 0
	for _, p := range r.Partitions {
		text := "is on"
		switch {
		case p.Error != "":
			continue
		case p.Abandoned && p.Topic == "":
			if _, err := fmt.Fprintf(t.out, "partition %d of a deleted topic: what its move had left is deleted\n", p.Partition); err != nil {
				return err
			}
			continue
		case p.Abandoned:
			text = "stays on"
		case p.Already:
			text = "was already on"
		default:
			moved++
		}
		if _, err := fmt.Fprintf(t.out, "partition %d of topic %s %s shard %d\n", p.Partition, printable(p.Topic), text, p.Shard); err != nil {
			return err
		}
	}
	for _, s := range r.Stay {
		fmt.Fprintf(t.out, "the partitions of topic %s stay on shard %d: %s\n", printable(s.Topic), *c.From, printable(s.Why))
	}
	switch {
	case moved > 0:
		_, err := fmt.Fprintf(t.out, "  copied %d records (%d bytes), compared %d bytes: all are the same\n  for %.1f s producers got errors that they try again\n", r.Records, r.Bytes, r.Compared, r.ClosedFor)
		return err
	case len(r.Partitions) == 0:
		_, err := fmt.Fprintln(t.out, "no partition has to move")
		return err
	}
	return nil
}
