package cli

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/store/shard"
)

type shardCmd struct {
	List shardListCmd `cmd:"" help:"List on which shard each partition is, and which partitions move."`
	Move shardMoveCmd `cmd:"" help:"Move partitions to another shard, while servers use them."`
}

// shardStore names the set of shards. The commands work on it directly, also while servers run on
// it.
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

// read returns the topics, or the one with a name, and where partitions are. deleted are the
// partitions of deleted topics of which moves have left something on a shard.
func (c *shardStore) read(ctx context.Context, set *shard.Set, log *eventlog.Log, name string) (topics []eventlog.Topic, placed eventlog.Placements, deleted []eventlog.Partition, err error) {
	placed, deleted, err = orphans(ctx, set, log)
	if err != nil {
		return nil, nil, nil, c.explain(ctx, err, "")
	}
	topics = log.Topics()
	deleted = slices.DeleteFunc(deleted, func(p eventlog.Partition) bool { return placed[p].Move == "" })
	if name != "" {
		topic, err := log.Topic(ctx, name)
		if err != nil {
			return nil, nil, nil, c.answer(ctx, err, hint{eventlog.ErrUnknownTopic, "`weir shard list` lists all topics"})
		}
		topics, deleted = []eventlog.Topic{topic}, nil
	}
	return topics, placed, deleted, nil
}

// orphans returns where partitions are, and those of them whose topics were deleted.
func orphans(ctx context.Context, set *shard.Set, log *eventlog.Log) (placed eventlog.Placements, deleted []eventlog.Partition, err error) {
	if placed, err = set.Placements(ctx); err == nil {
		err = log.RefreshTopics(ctx) // after that: a topic that is not there was deleted
	}
	if err != nil {
		return nil, nil, err
	}
	there := map[eventlog.Partition]bool{}
	for _, topic := range log.Topics() {
		for _, p := range topic.Partitions {
			there[p] = true
		}
	}
	for p := range placed {
		if !there[p] {
			deleted = append(deleted, p)
		}
	}
	slices.Sort(deleted)
	return placed, deleted, nil
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
	Topic     string `json:"topic"`     // "": it was deleted
	Partition int    `json:"partition"` // without a topic: the number that the set gave it
	Shard     int    `json:"shard"`
	Move      string `json:"move,omitempty"` // copying, closed, left: see docs/shards.md
	To        *int   `json:"to,omitempty"`   // copying, closed
	From      *int   `json:"from,omitempty"` // left
	Deleted   bool   `json:"deleted,omitempty"`
	Left      *int   `json:"left,omitempty"` // deleted: the shard that may still have it
}

func (c *shardListCmd) Run(ctx context.Context, t *terminal) error {
	return c.with(ctx, t, "a list of partitions", func(set *shard.Set, log *eventlog.Log) error {
		topics, moved, deleted, err := c.read(ctx, set, log, c.Topic)
		if err != nil {
			return err
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
		for _, p := range deleted {
			other := moved[p].Other
			list = append(list, placed{Partition: int(p), Shard: moved[p].Shard, Move: string(moved[p].Move), Deleted: true, Left: &other})
			rows = append(rows, []string{"-", strconv.Itoa(int(p)), strconv.Itoa(moved[p].Shard), fmt.Sprintf("its topic was deleted, but shard %d may still have it", other)})
		}
		if c.Output.json() {
			return printJSON(t, list)
		}
		return table(t.out, "TOPIC PARTITION SHARD MOVE", rows)
	})
}
