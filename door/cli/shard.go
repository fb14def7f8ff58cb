package cli

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/store/shard"
)

type shardCmd struct {
	List shardListCmd `cmd:"" help:"List on which shard each partition is, and which partitions move."`
	Move shardMoveCmd `cmd:"" help:"Move partitions to another shard, while servers use them."`
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
