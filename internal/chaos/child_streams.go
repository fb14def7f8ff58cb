package main

import (
	"context"
	"errors"
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
		return outcomeOf(err)
	case "project":
		return outcomeOf(c.project(ctx, o))
	case "rebuild":
		return outcomeOf(c.log.RebuildProjection(ctx, o.Name))
	case "why stuck":
		return c.whyStuck(ctx)
	}
	category, err := c.log.Category(ctx, o.Topic)
	if err != nil {
		return outcomeOf(err)
	}
	switch expected := weir.ExpectedVersion(o.N); o.Do {
	case "append stream":
		var boundary weir.TagBoundary
		if o.Within != "" {
			if boundary, err = category.Boundary(o.Within); err != nil {
				return outcomeOf(err)
			}
		}
		done, err := category.AppendWithin(ctx, boundary, o.Name, expected, streamEvents(o, o.Values)...)
		said := appendedWord(err, done)
		said.Version = max(said.Version, done.Version)
		return said
	case "append to two streams":
		var parts []weir.StreamPart
		for i, name := range o.Topics {
			parts = append(parts, weir.StreamPart{Category: category, Stream: name, Expected: expected, Events: streamEvents(o, o.Values[i:i+1])})
		}
		done, err := c.log.AppendAll(ctx, parts...)
		return appendedWord(err, done...)
	case "delete stream":
		done, err := category.Delete(ctx, o.Name, expected)
		return appendedWord(err, done)
	case "archive stream":
		return appendedWord(category.Archive(ctx, o.Name, expected))
	case "unarchive stream":
		return appendedWord(category.Unarchive(ctx, o.Name))
	case "forget":
		return outcomeOf(category.ForgetSubject(ctx, o.Subject))
	case "read stream":
		return readStream(ctx, category, o)
	case "read tag":
		return readTag(ctx, category, o.Tag)
	case "save snapshot":
		return outcomeOf(category.SaveSnapshot(ctx, o.Name, weir.StreamSnapshot{Version: int64(o.N), Data: []byte(o.Values[0])}))
	case "load snapshot":
		s, is, err := category.Snapshot(ctx, o.Name, int64(o.N))
		said := outcomeOf(err)
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

func appendedWord(err error, done ...weir.StreamAppended) judge.Word {
	said := outcomeOf(err)
	var conflict *weir.ConflictError
	switch {
	case errors.As(err, &conflict):
		said.State, said.Version, said.Exists = "conflict", conflict.Actual, conflict.Exists
	case errors.Is(err, weir.ErrArchived):
		said.State = "archived"
	case errors.Is(err, weir.ErrBoundary):
		said.State = "boundary"
	case err != nil:
		return said
	}
	for _, d := range done {
		said.Places = append(said.Places, judge.Place{Offset: d.First})
		if d.Duplicate {
			said.State = "duplicate"
		}
	}
	return said
}

func sightOf(e weir.StreamEvent) judge.Sight {
	return judge.Sight{Topic: e.Stream, Place: judge.Place{Offset: e.Version}, Value: judge.SeenValue(e.ID, string(e.Data), e.Erased)}
}

func readStream(ctx context.Context, category *weir.Category, o order) judge.Word {
	said := judge.Word{Outcome: judge.Done}
	for e, err := range category.Events(ctx, o.Name, weir.StreamRange{From: int64(o.N)}) {
		if err != nil {
			return outcomeOf(err)
		}
		said.Handled = append(said.Handled, sightOf(e))
	}
	return said
}

func readTag(ctx context.Context, category *weir.Category, tag string) judge.Word {
	events, boundary, err := category.Tagged(ctx, tag)
	said := outcomeOf(err)
	for _, e := range events {
		said.Handled = append(said.Handled, sightOf(e))
	}
	said.State = boundary.String()
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
				c.say(judge.Word{Consumer: fmt.Sprintf("projection %s in process %d", o.Name, os.Getpid()), Projection: true, State: strconv.FormatInt(e.Run, 10), Handled: []judge.Sight{sightOf(e.StreamEvent)}})
			}
			return nil
		},
	})
	c.projector = projector
	return err
}

// whyStuck tells where this process's projector has halted, and writes to standard error what each goroutine does.
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
