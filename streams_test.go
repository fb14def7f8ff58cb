package weir_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-log/weir"
)

// category makes a category.
func category(t *testing.T, w *weir.Log, name string, partitions int) *weir.Category {
	t.Helper()
	c, err := w.EnsureCategory(t.Context(), weir.CategorySpec{Name: name, Partitions: partitions})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// appendTo appends an event of each type to a stream, wherever it is.
func appendTo(t *testing.T, c *weir.Category, stream string, types ...string) weir.StreamAppended {
	t.Helper()
	var events []weir.NewStreamEvent
	for _, kind := range types {
		events = append(events, weir.NewStreamEvent{Type: kind, Data: []byte(kind + " of " + stream)})
	}
	done, err := c.Append(t.Context(), stream, weir.AnyVersion, events...)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func TestStreamsAreAppendedToAtTheirVersions(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		c := category(t, w, "account", 2)
		if again, err := w.EnsureCategory(t.Context(), weir.CategorySpec{Name: "account"}); err != nil || again.Name() != "account" {
			t.Errorf("ensured twice: %v, %v", again, err)
		}
		if _, err := w.CreateCategory(t.Context(), weir.CategorySpec{Name: "account"}); !errors.Is(err, weir.ErrCategoryExists) {
			t.Errorf("created twice: %v, want ErrCategoryExists", err)
		}
		if _, err := w.Category(t.Context(), "nothing"); !errors.Is(err, weir.ErrUnknownCategory) {
			t.Errorf("unknown: %v, want ErrUnknownCategory", err)
		}
		if names, err := w.Categories(t.Context()); err != nil || !slices.Equal(names, []string{"account"}) {
			t.Errorf("categories: %q, %v", names, err)
		}
		opened := weir.NewStreamEvent{Type: "Opened"}
		if done, err := c.Append(t.Context(), "1", weir.NoStream, opened); err != nil || done.Version != 1 {
			t.Fatalf("%+v, %v", done, err)
		}
		var conflict *weir.ConflictError
		if _, err := c.Append(t.Context(), "1", weir.NoStream, opened); !errors.Is(err, weir.ErrConflict) || !errors.As(err, &conflict) || conflict.Actual != 1 {
			t.Errorf("%v, want a *ConflictError at version 1", err)
		}
		parts := []weir.StreamPart{
			{Category: c, Stream: "1", Expected: 1, Events: []weir.NewStreamEvent{{Type: "Sent", Data: []byte("30")}}},
			{Category: c, Stream: "2", Expected: weir.NoStream, Events: []weir.NewStreamEvent{{Type: "Opened"}, {Type: "Received", Data: []byte("30")}}},
		}
		if done, err := w.AppendAll(t.Context(), parts...); err != nil || done[0].Version != 2 || done[1].Version != 2 {
			t.Fatalf("%+v, %v", done, err)
		}
		if _, err := w.AppendAll(t.Context(), parts[0]); err == nil || !strings.HasPrefix(err.Error(), "append to 1 stream: ") {
			t.Errorf("one part: %v", err)
		}
		if _, err := w.AppendAll(t.Context(), parts...); !errors.As(err, &conflict) || conflict.Stream != "1" {
			t.Errorf("%v, want a *ConflictError of stream 1", err)
		}
		balance := weir.Aggregate[int]{Category: c, Apply: func(sum int, e weir.StreamEvent) (int, error) {
			n, _ := strconv.Atoi(string(e.Data))
			if e.Type == "Sent" {
				n = -n
			}
			return sum + n, nil
		}}
		done, err := balance.Do(t.Context(), "2", func(sum int) ([]weir.NewStreamEvent, error) {
			return []weir.NewStreamEvent{{Type: "Received", Data: []byte(strconv.Itoa(2 * sum))}}, nil
		})
		if err != nil || done.State != 90 || done.Version != 3 {
			t.Errorf("%+v, %v", done, err)
		}
		var types []string
		for e, err := range c.Events(t.Context(), "2", weir.StreamRange{}) {
			if err != nil {
				t.Fatal(err)
			}
			types = append(types, fmt.Sprintf("%d %s", e.Version, e.Type))
		}
		if !slices.Equal(types, []string{"0 Opened", "1 Received", "2 Received"}) {
			t.Errorf("%q", types)
		}
	})
}
