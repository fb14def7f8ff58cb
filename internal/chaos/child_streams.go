package main

import (
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/judge"
)

// doStream does an order that is about streams.
func (c *child) doStream(ctx context.Context, o order) judge.Word {
	switch o.Do {
	case "make category":
		_, err := c.log.EnsureCategory(ctx, weir.CategorySpec{Name: o.Topic, Partitions: o.N})
		return judge.OutcomeOf(err)
	case "project":
		return judge.OutcomeOf(c.project(ctx, o))
	case "rebuild":
		return judge.OutcomeOf(c.log.RebuildProjection(ctx, o.Name))
	case "why stuck":
		return c.whyStuck(ctx)
	}
	category, err := c.log.Category(ctx, o.Topic)
	if err != nil {
		return judge.OutcomeOf(err)
	}
	switch expected := weir.ExpectedVersion(o.N); o.Do {
	case "append stream":
		var boundary weir.TagBoundary
		if o.Within != "" {
			if boundary, err = category.Boundary(o.Within); err != nil {
				return judge.OutcomeOf(err)
			}
		}
		done, err := category.AppendWithin(ctx, boundary, o.Name, expected, streamEvents(o, o.Values)...)
		said := judge.Appended(err, done)
		said.Version = max(said.Version, done.Version)
		return said
	case "append to two streams":
		var parts []weir.StreamPart
		for i, name := range o.Topics {
			parts = append(parts, weir.StreamPart{Category: category, Stream: name, Expected: expected, Events: streamEvents(o, o.Values[i:i+1])})
		}
		done, err := c.log.AppendAll(ctx, parts...)
		return judge.Appended(err, done...)
	case "delete stream":
		done, err := category.Delete(ctx, o.Name, expected)
		return judge.Appended(err, done)
	case "archive stream":
		return judge.Appended(category.Archive(ctx, o.Name, expected))
	case "unarchive stream":
		return judge.Appended(category.Unarchive(ctx, o.Name))
	case "forget":
		return judge.OutcomeOf(category.ForgetSubject(ctx, o.Subject))
	case "read stream":
		return readStream(ctx, category, o)
	case "read tag":
		return judge.ReadTag(ctx, category, o.Tag)
	case "save snapshot":
		return judge.OutcomeOf(category.SaveSnapshot(ctx, o.Name, weir.StreamSnapshot{Version: int64(o.N), Data: []byte(o.Values[0])}))
	case "load snapshot":
		s, is, err := category.Snapshot(ctx, o.Name, int64(o.N))
		said := judge.OutcomeOf(err)
		said.Exists, said.Version, said.State = is, s.Version, string(s.Data)
		return said
	}
	return judge.Word{Outcome: judge.Refused, Err: "no such order: " + o.Do}
}

func streamEvents(o order, values []string) (events []weir.NewStreamEvent) {
	for _, v := range values {
		e := weir.NewStreamEvent{ID: v, Type: eventType, Data: []byte(v), Subject: o.Subject}
		if o.Tag != "" {
			e.Tags = []string{o.Tag}
		}
		events = append(events, e)
	}
	return events
}

func readStream(ctx context.Context, category *weir.Category, o order) judge.Word {
	said := judge.Word{Outcome: judge.Done}
	for e, err := range category.Events(ctx, o.Name, weir.StreamRange{From: int64(o.N)}) {
		if err != nil {
			return judge.OutcomeOf(err)
		}
		said.Handled = append(said.Handled, judge.SightOf(e))
	}
	return said
}

// project begins to project, if this process does not do so already.
func (c *child) project(ctx context.Context, o order) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.projector != nil {
		return nil
	}
	projector, err := c.log.Project(ctx, weir.Projection{
		Name: o.Name, Categories: []string{o.Topic}, Session: 3 * time.Second,
		Retry: weir.Retry{Attempts: -1, First: 10 * time.Millisecond, Max: time.Second},
		Handler: func(ctx context.Context, e weir.ProjectedEvent) error {
			dawdle()
			if o.Once {
				err := pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
					if !e.Deleted {
						if _, err := tx.Exec(ctx, `INSERT INTO projected VALUES ($1, $2, $3, $4)`, e.Run, e.Stream, e.Version, e.ID); err != nil {
							return err
						}
					}
					return e.CommitTx(ctx, tx)
				})
				if err != nil {
					return err
				}
			}
			if !e.Deleted {
				c.say(judge.Word{Consumer: fmt.Sprintf("projection %s in process %d", o.Name, os.Getpid()), Projection: true, State: strconv.FormatInt(e.Run, 10), Handled: []judge.Sight{judge.SightOf(e.StreamEvent)}})
			}
			return nil
		},
	})
	c.projector = projector
	return err
}

// whyStuck tells where this process's projector has halted, and writes to standard error what each
// goroutine does.
func (c *child) whyStuck(ctx context.Context) judge.Word {
	_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.projector == nil {
		return judge.Word{Outcome: judge.Done, State: "no projector"}
	}
	read := 0
	bounds, err := c.log.Bounds(ctx, judge.Accounts)
	for n := range bounds {
		for range c.log.Read(ctx, weir.TopicPartition{Topic: judge.Accounts, Partition: int32(n)}, weir.Earliest) {
			read++
		}
	}
	return judge.Word{Outcome: judge.Done, State: fmt.Sprintf("assigned %+v, halted %v, bounds %v %v, %d events can be read", c.projector.Assigned(), c.projector.Halted(), bounds, err, read)}
}
