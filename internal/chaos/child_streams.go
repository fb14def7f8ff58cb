package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir"
)

// doStream does an order that is about streams.
func (c *child) doStream(ctx context.Context, o order) word {
	switch o.Do {
	case "make category":
		_, err := c.log.EnsureCategory(ctx, weir.CategorySpec{Name: o.Topic, Partitions: o.N})
		return outcomeOf(err)
	case "append":
		category, err := c.log.Category(ctx, o.Topic)
		if err != nil {
			return outcomeOf(err)
		}
		done, err := category.Append(ctx, o.Name, weir.ExpectedVersion(o.N), streamEvents(o.Values)...)
		return appendedWord(err, done)
	case "append to two":
		category, err := c.log.Category(ctx, o.Topic)
		if err != nil {
			return outcomeOf(err)
		}
		var parts []weir.StreamPart
		for i, name := range o.Topics {
			parts = append(parts, weir.StreamPart{Category: category, Stream: name, Expected: weir.AnyVersion, Events: streamEvents(o.Values[i : i+1])})
		}
		done, err := c.log.AppendAll(ctx, parts...)
		return appendedWord(err, done...)
	case "read stream":
		return c.readStream(ctx, o)
	case "project":
		return outcomeOf(c.project(ctx, o))
	case "rebuild":
		return outcomeOf(c.log.RebuildProjection(ctx, o.Name))
	}
	return word{Outcome: refused, Err: "no such order: " + o.Do}
}

func streamEvents(values []string) (events []weir.NewStreamEvent) {
	for _, v := range values {
		events = append(events, weir.NewStreamEvent{ID: v, Type: "Changed", Data: []byte(v)})
	}
	return events
}

func appendedWord(err error, done ...weir.StreamAppended) word {
	said := outcomeOf(err)
	var conflict *weir.ConflictError
	if errors.As(err, &conflict) {
		said.State, said.Members = "conflict", int(conflict.Actual)
	}
	for _, d := range done {
		said.Places = append(said.Places, place{Offset: d.First})
		if d.Duplicate {
			said.State = "duplicate"
		}
	}
	return said
}

func (c *child) readStream(ctx context.Context, o order) word {
	category, err := c.log.Category(ctx, o.Topic)
	if err != nil {
		return outcomeOf(err)
	}
	said := word{Outcome: done}
	for e, err := range category.Events(ctx, o.Name, weir.StreamRange{From: int64(o.N)}) {
		if err != nil {
			return outcomeOf(err)
		}
		said.Handled = append(said.Handled, sight{o.Name, place{Offset: e.Version}, string(e.Data)})
	}
	return said
}

// project begins to project, if this process does not do so already.
func (c *child) project(ctx context.Context, o order) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.projects {
		return nil
	}
	_, err := c.log.Project(ctx, weir.Projection{
		Name: o.Name, Categories: []string{o.Topic}, Session: 3 * time.Second,
		Retry: weir.Retry{Attempts: -1, First: 10 * time.Millisecond, Max: time.Second},
		Handler: func(ctx context.Context, e weir.ProjectedEvent) error {
			dawdle()
			if o.Once {
				err := pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, `INSERT INTO projected VALUES ($1, $2, $3, $4)`, e.Run, e.Stream, e.Version, string(e.Data))
					if err != nil {
						return err
					}
					return e.CommitTx(ctx, tx)
				})
				if err != nil {
					return err
				}
			}
			c.say(word{
				Consumer: fmt.Sprintf("projection %s", o.Name), Projection: true, State: strconv.FormatInt(e.Run, 10),
				Handled: []sight{{e.Stream, place{Offset: e.Version}, string(e.Data)}},
			})
			return nil
		},
	})
	c.projects = err == nil
	return err
}
