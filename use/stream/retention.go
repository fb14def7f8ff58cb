package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/audit"
	"github.com/weir-log/weir/use/ledger"
)

const (
	retainedPrefix = "stream/retained/"
	// retainEvery is how often Retention is applied to a category; each time one of the processes
	// does it.
	retainEvery = 10 * time.Minute
	// retainErrors is how many streams of a category an error names, at most, if their retention
	// failed.
	retainErrors = 10
)

// Retention says which events of a stream are kept: those that are within both limits, and those
// after the newest snapshot. The zero value keeps all. It is applied about every ten minutes; then
// the other events are removed as by Category.Forget. The records of the category's topic are kept
// as its own retention.ms says.
type Retention struct {
	Events int64         `json:"events,omitempty"` // at most so many; 0: any number
	Age    time.Duration `json:"age,omitempty"`    // at most so old, by the events' times; 0: any
}

func (r Retention) check() error {
	if r.Events < 0 {
		return &eventlog.InvalidError{What: "retention", Value: fmt.Sprint(r.Events, " events"), Why: "it is negative; 0 means no limit"}
	}
	if r.Age < 0 {
		return &eventlog.InvalidError{What: "retention", Value: r.Age.String(), Why: "it is negative; 0 keeps events forever"}
	}
	return nil
}

// categoryMark is the value of the key that makes a topic a category.
type categoryMark struct {
	Retention
	Own bool `json:"own,omitempty"` // a stream has, or had, a retention of its own
}

func (m categoryMark) encode() []byte {
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err) // it holds numbers and a bool
	}
	return raw
}

func markIn(kv eventlog.KeyValue) (m categoryMark, err error) {
	if err := json.Unmarshal(kv.Value, &m); err != nil {
		return m, fmt.Errorf("key %s does not hold a category: %w; restore a backup", kv.Key, err)
	}
	return m, nil
}

// Retention returns the retention of the category's streams that have none of their own: one store
// call.
func (c *Category) Retention(ctx context.Context) (Retention, error) {
	m, err := c.readMark(ctx)
	if err != nil {
		return Retention{}, fmt.Errorf("retention of category %q: %w", c.Name(), err)
	}
	return m.Retention, nil
}

func (c *Category) markKey() string { return categoryPrefix + c.topic.ID.String() }

func (c *Category) readMark(ctx context.Context) (m categoryMark, err error) {
	if _, err := c.knownTopic(); err != nil {
		return m, err
	}
	kv, err := c.owner.log.Get(ctx, c.markKey())
	if err != nil {
		return m, err
	}
	return c.markIn(kv)
}

// markIn reads the mark in this category's key, which exists only if the topic is a category.
func (c *Category) markIn(kv eventlog.KeyValue) (categoryMark, error) {
	if kv.Version == 0 {
		return categoryMark{}, fmt.Errorf("%w: %q is a topic, not a category", ErrUnknownCategory, c.Name())
	}
	return markIn(kv)
}

// changeMark lets change edit the category's mark, see ledger.Change.
func (c *Category) changeMark(ctx context.Context, change func(*categoryMark)) error {
	if _, err := c.knownTopic(); err != nil {
		return err
	}
	_, err := ledger.Change(ctx, c.owner.log, c.markKey(), func(now eventlog.KeyValue) (value []byte, with eventlog.Entry, err error) {
		before, err := c.markIn(now)
		m := before
		if change(&m); err == nil && m == before {
			err = ledger.ErrUnchanged
		}
		if err == nil && m.Retention != before.Retention {
			err = tell(ctx, c.owner.log, &with, c.markKey(), audit.Event{Verb: audit.CategoryAlter, Object: c.Name(), Before: before.Retention, After: m.Retention})
		}
		return m.encode(), with, err
	})
	return err
}

// SetRetention sets the retention of the category's streams that have none of their own.
func (c *Category) SetRetention(ctx context.Context, r Retention) error {
	err := r.check()
	if err == nil {
		err = c.changeMark(ctx, func(m *categoryMark) { m.Retention = r })
	}
	if err != nil {
		return fmt.Errorf("set the retention of category %q: %w", c.Name(), err)
	}
	return nil
}

// SetStreamRetention gives a stream that exists a retention of its own; nil: that of its category.
func (c *Category) SetStreamRetention(ctx context.Context, stream string, r *Retention) error {
	const verb = "set the retention of"
	if r != nil {
		own := *r
		r = &own
		err := r.check()
		if err == nil {
			err = c.changeMark(ctx, func(m *categoryMark) { m.Own = true })
		}
		if err != nil {
			return fmt.Errorf("%s stream %q of category %q: %w", verb, shorten(stream), c.Name(), err)
		}
	}
	return c.edit(ctx, verb, stream, Exists, streamTold{Retention: r}, func(h head) head { h.Retention = r; return h })
}

// retain applies retention to all categories whose turn it is.
func (s *Streams) retain(ctx context.Context) error {
	var errs []error
	err := s.eachCategory(ctx, func(c *Category, mark eventlog.KeyValue) error {
		m, err := markIn(mark)
		if err != nil || m == (categoryMark{}) {
			return err
		}
		errs = append(errs, c.retain(ctx, m.Retention))
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// retain applies retention to a category, unless a process has done so within retainEvery. It reads
// the heads of all its streams and, if the age is limited, the oldest event of each stream.
func (c *Category) retain(ctx context.Context, r Retention) error {
	due := func(now eventlog.KeyValue) bool { return now.Age >= retainEvery }
	mine, err := ledger.Turn(ctx, c.owner.log, retainedPrefix+c.topic.ID.String(), []byte("{}"), due)
	if !mine {
		return err
	}
	var errs []error // errors of single streams, which do not stop the other streams
	failed := 0
	fail := func(err error) {
		if failed++; failed <= retainErrors {
			errs = append(errs, err)
		}
	}
	err = c.owner.log.ListAll(ctx, c.key(headPrefix, ""), func(kv eventlog.KeyValue) error {
		h, err := headIn(kv)
		if err != nil {
			fail(err)
			return nil
		}
		if !h.exists() {
			return nil
		}
		own := r
		if h.Retention != nil {
			own = *h.Retention
		}
		stream, err := url.PathUnescape(kv.Key[strings.LastIndexByte(kv.Key, '/')+1:])
		if err != nil {
			return fmt.Errorf("key %s does not end in a name: %w", kv.Key, err)
		}
		if err := c.retainStream(ctx, stream, h, own, kv.Past()); err != nil {
			fail(fmt.Errorf("retention of stream %q of category %q: %w", shorten(stream), c.Name(), err))
		}
		return ctx.Err()
	})
	if more := failed - len(errs); more > 0 {
		errs = append(errs, fmt.Errorf("and %s more of category %q", plural(more, "stream"), c.Name()))
	}
	return errors.Join(append(errs, err)...)
}

// retainStream forgets the events of a stream that its retention does not keep; now is the time
// that counts for their age.
func (c *Category) retainStream(ctx context.Context, stream string, h head, r Retention, now time.Time) error {
	keep := h.First
	if r.Events > 0 {
		keep = max(keep, h.Next-r.Events)
	}
	if r.Age > 0 {
		oldest := now.Add(-r.Age)
		isOld := func(e Event) bool {
			old := e.Time.Before(oldest)
			if old {
				keep = e.Version + 1
			}
			return old
		}
		first, err := c.page(ctx, stream, keep, min(keep+1, h.Next))
		if err == nil && len(first) > 0 && isOld(first[0]) {
			err = c.visitFrom(ctx, stream, h, Range{From: keep}, isOld)
		}
		if errors.Is(err, ErrChanged) {
			return nil // another call removes events just now
		}
		if err != nil {
			return err
		}
	}
	if keep == h.First {
		return nil
	}
	// An aggregate needs its newest snapshot, and the events from there on.
	if s, is, err := c.snapshotOf(ctx, stream, h, h.Next); err != nil {
		return err
	} else if is {
		keep = min(keep, s.Version)
	}
	m, err := c.readMark(ctx)
	if err != nil || h.Retention == nil && m.Retention != r {
		return err // the retention was changed meanwhile: it is applied the next time
	}
	changed := func(now head) bool {
		return (now.Retention == nil) != (h.Retention == nil) || now.Retention != nil && *now.Retention != r || now.Born != h.Born
	}
	_, err = c.remove(ctx, "forget events of", &op{stream: stream, expected: Any, keep: keep, unless: changed})
	return err
}
