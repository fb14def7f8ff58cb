package judge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/weir-log/weir"
)

// What the Go library answered, in the words of a Model.

// OutcomeOf says what an error means: all but ErrUnsure, and those that say that a context has
// ended, mean that certainly nothing happened.
func OutcomeOf(err error) Word {
	switch {
	case err == nil:
		return Word{Outcome: Done}
	case errors.Is(err, weir.ErrUnsure), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Word{Outcome: Unknown, Err: err.Error()}
	}
	return Word{Outcome: Refused, Err: err.Error()}
}

// Published is what a publication answered.
func Published(places []weir.Placed, err error) Word {
	said := OutcomeOf(err)
	for _, p := range places {
		said.Places = append(said.Places, Place(p))
	}
	return said
}

// SightsOf is what a reader got.
func SightsOf(events ...weir.Event) (list []Sight) {
	for _, e := range events {
		list = append(list, Sight{Topic: e.Topic, Place: Place{Partition: e.Partition, Offset: e.Offset}, Value: string(e.Value)})
	}
	return list
}

// Appended is what an append, or another call about streams, answered.
func Appended(err error, done ...weir.StreamAppended) Word {
	said := OutcomeOf(err)
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
		said.Places = append(said.Places, Place{Offset: d.First})
		if d.Duplicate {
			said.State = "duplicate"
		}
	}
	return said
}

// SightOf is an event that was read from a stream.
func SightOf(e weir.StreamEvent) Sight {
	return Sight{Topic: e.Stream, Place: Place{Offset: e.Version}, Value: SeenValue(e.ID, string(e.Data), e.Erased)}
}

// ReadTag reads all events with a tag. State is the boundary.
func ReadTag(ctx context.Context, category *weir.Category, tag string) Word {
	events, boundary, err := category.Tagged(ctx, tag)
	said := OutcomeOf(err)
	for _, e := range events {
		said.Handled = append(said.Handled, SightOf(e))
	}
	said.State = boundary.String()
	return said
}

// ReadAll reads what a topic holds: L5.
func ReadAll(ctx context.Context, log *weir.Log, l *Life) (Held, error) {
	bounds, err := log.Bounds(ctx, l.Name)
	if err != nil {
		return Held{}, err
	}
	h := Held{Life: l, First: make([]int64, len(bounds)), Value: make([][]string, len(bounds))}
	for n, b := range bounds {
		h.First[n] = b.First
		next := b.First
		for e, err := range log.Read(ctx, weir.TopicPartition{Topic: l.Name, Partition: int32(n)}, weir.AtOffset(b.First)) {
			if err != nil {
				return h, err
			}
			if e.Offset != next {
				return h, fmt.Errorf("L5: partition %d has offset %d where %d is next", n, e.Offset, next)
			}
			next++
			h.Value[n] = append(h.Value[n], string(e.Value))
		}
		if next < b.Next {
			return h, errors.New("L5: the log ends before its end")
		}
	}
	return h, nil
}

// ReadCategory reads what the category's topic has of each stream: S5. The data about subjects is
// encrypted there: S11.
func (m *Model) ReadCategory(ctx context.Context, log *weir.Log) (map[string]*StreamPast, error) {
	bounds, err := log.Bounds(ctx, Accounts)
	if err != nil {
		return nil, err
	}
	past := map[string]*StreamPast{}
	for n := range bounds {
		for e, err := range log.Read(ctx, weir.TopicPartition{Topic: Accounts, Partition: int32(n)}, weir.Earliest) {
			if err != nil {
				return nil, err
			}
			name, header := string(e.Key), map[string]string{}
			for _, h := range e.Headers {
				header[h.Key] = string(h.Value)
			}
			p := past[name]
			if p == nil {
				p = &StreamPast{}
				past[name] = p
			}
			next := int64(len(p.Values))
			if header["weir.event.type"] == "weir.deleted" {
				if e.Value != nil || next == p.Begins() {
					m.Broken("S7", []string{name}, "record %d of %s/%d deletes %s at version %d, with the value %q; it was deleted at %v", e.Offset, Accounts, n, name, next, e.Value, p.Deletions)
				}
				p.Deletions = append(p.Deletions, next)
				continue
			}
			id, secret := header["weir.event.id"], header["weir.event.subject"] != ""
			if header["weir.stream.version"] != strconv.FormatInt(next, 10) || !secret && string(e.Value) != id {
				m.Broken("S5", []string{name}, "record %d of %s/%d is %q of %s, with %v, where version %d is next", e.Offset, Accounts, n, e.Value, name, header, next)
			}
			if secret && bytes.Contains(e.Value, []byte(id)) {
				m.Broken("S11", []string{name}, "record %d of %s/%d has the data of %s as it is, which is about %s", e.Offset, Accounts, n, id, header["weir.event.subject"])
			}
			p.Values = append(p.Values, id)
		}
	}
	return past, nil
}
