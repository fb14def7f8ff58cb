package stream_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/stream"
)

// unmarked calls before the first commit of a category's mark; that fails if before returns an
// error.
type unmarked struct {
	eventlog.Store
	once   sync.Once
	before func() error
}

func (s *unmarked) Unwrap() eventlog.Store { return s.Store }

func (u *unmarked) Commit(ctx context.Context, flush []eventlog.Entry) (done []eventlog.Outcome, err error) {
	for _, e := range flush {
		if slices.ContainsFunc(e.Puts, func(p eventlog.Put) bool { return strings.HasPrefix(p.Key, "stream/category/") }) {
			u.once.Do(func() { err = u.before() })
		}
	}
	if err != nil {
		return nil, err
	}
	return u.Store.Commit(ctx, flush)
}

func TestACategoryThatWasHalfMadeIsCompleted(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		spec := stream.Spec{Name: "orders", Retention: stream.Retention{Events: 5}}
		crashed := begin(t, &unmarked{Store: reopen(t), before: func() error { return errors.New("crashed") }})
		if _, err := crashed.CreateCategory(t.Context(), spec); err == nil {
			t.Fatal("it was made")
		}
		p := begin(t, reopen(t))
		if _, err := p.Category(t.Context(), "orders"); !errors.Is(err, stream.ErrUnknownCategory) {
			t.Fatalf("half made: %v", err)
		}
		c, err := p.EnsureCategory(t.Context(), spec)
		check(t, err)
		if r, err := c.Retention(t.Context()); err != nil || r != spec.Retention {
			t.Errorf("its retention: %v, %v", r, err)
		}
		_, err = c.Append(t.Context(), "1", stream.NoStream, plain("a")...)
		check(t, err)
		if _, err := p.CreateCategory(t.Context(), spec); !errors.Is(err, stream.ErrCategoryExists) {
			t.Errorf("made twice: %v", err)
		}
	})
}

func TestProcessesThatStartAtOnceEnsureOneCategory(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		spec := stream.Spec{Name: "orders"}
		second := begin(t, reopen(t))
		first := begin(t, &unmarked{Store: reopen(t), before: func() error { _, err := second.EnsureCategory(t.Context(), spec); return err }})
		c, err := first.EnsureCategory(t.Context(), spec)
		check(t, err)
		d, err := second.Category(t.Context(), "orders")
		check(t, err)
		if c.ID() != d.ID() {
			t.Error("they have different categories")
		}
	})
}

func TestATopicOfOthersBecomesNoCategory(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		p := begin(t, reopen(t))
		_, err := p.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 1})
		check(t, err)
		if _, err := p.EnsureCategory(t.Context(), stream.Spec{Name: "orders"}); !errors.Is(err, stream.ErrUnknownCategory) {
			t.Errorf("%v, want ErrUnknownCategory", err)
		}
	})
}
