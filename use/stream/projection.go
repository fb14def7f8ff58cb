package stream

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/audit"
	"github.com/weir-log/weir/use/ledger"
)

const projectionPrefix = "stream/projection/"

// projectionNameMax bounds a projection's name, in bytes: consumer groups have it in theirs.
const projectionNameMax = 100

// Run is one pass of a projection's handler over the events, from the first event on.
type Run struct {
	Number     int64    `json:"number"`               // 1 for the first, and higher by one for each
	Version    int      `json:"version,omitempty"`    // of the handler that makes it
	Categories []string `json:"categories,omitempty"` // what it reads; none: all categories
	// Group is the run's consumer group. Each run gets a new one, so that no run continues at the
	// offsets of an earlier run.
	Group string `json:"group"`
}

// Projection is what all processes know of a projection: which run readers use, and which one is
// being made beside it.
type Projection struct {
	Name    string `json:"-"`
	Run     Run    `json:"run"`            // readers use the result of this run
	Next    *Run   `json:"next,omitempty"` // the run that is being made: it takes over once it has caught up; nil: there is none
	Paused  bool   `json:"paused,omitempty"`
	Resumed int64  `json:"resumed,omitempty"` // how often it was resumed: partitions that stopped try again
	// TakingOver is Next's Group once Next is about to take over: readers may then use its result
	// already.
	TakingOver string `json:"taking_over,omitempty"`

	version eventlog.Version
}

// GroupsOf is what the names of a projection's consumer groups begin with.
func GroupsOf(projection string) string { return "projection." + projection + "." }

// newRun describes a run that is to begin.
func (p Projection) newRun(number int64, version int, categories []string) Run {
	group := GroupsOf(p.Name) + strconv.FormatInt(number, 10) + "." + strings.ToLower(rand.Text()[:10])
	return Run{Number: number, Version: version, Categories: categories, Group: group}
}

// Runs lists the runs that there are: Run and, if it is set, Next.
func (p Projection) Runs() []Run {
	if p.Next == nil {
		return []Run{p.Run}
	}
	return []Run{p.Run, *p.Next}
}

// begin begins a run beside the one that readers use.
func (p *Projection) begin(version int, categories []string) {
	number := p.Run.Number
	if p.Next != nil { // that run is given up
		number = p.Next.Number
	}
	next := p.newRun(number+1, version, categories)
	p.Next, p.TakingOver = &next, ""
}

// Reads reports whether a run reads a category.
func (r Run) Reads(category string) bool {
	return len(r.Categories) == 0 || slices.Contains(r.Categories, category)
}

// Projection reads what is known of a projection.
func (s *Streams) Projection(ctx context.Context, name string) (Projection, error) {
	p, err := s.readProjection(ctx, name)
	if err == nil && p.version == 0 {
		err = ErrUnknownProjection
	}
	if err != nil {
		return Projection{}, fmt.Errorf("projection %q: %w", shorten(name), err)
	}
	return p, nil
}

// Projections lists all projections, by the byte order of their escaped names (url.PathEscape).
func (s *Streams) Projections(ctx context.Context) (list []Projection, err error) {
	err = s.log.ListAll(ctx, projectionPrefix, func(kv eventlog.KeyValue) error {
		p, err := projectionIn(kv)
		list = append(list, p)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list projections: %w", err)
	}
	return list, nil
}

// EnsureProjection creates a projection with a version and categories. If it exists with a lower
// version, a run of this version begins beside the run that readers use. A projection with a higher
// version stays as it is.
func (s *Streams) EnsureProjection(ctx context.Context, name string, version int, categories []string) (Projection, error) {
	return s.changeProjection(ctx, "", name, func(p *Projection) error {
		newest := p.Run
		if p.Next != nil {
			newest = *p.Next
		}
		switch {
		case p.version == 0:
			p.Run = p.newRun(1, version, categories)
		case newest.Version < version:
			p.begin(version, categories)
		case newest.Version == version && !slices.Equal(newest.Categories, categories):
			return &eventlog.InvalidError{What: "categories", Value: describe(categories),
				Why: fmt.Sprintf("version %d of the projection reads %s: to read other categories, give the projection a higher version", version, describe(newest.Categories))}
		default:
			return ledger.ErrUnchanged
		}
		return nil
	})
}

func describe(categories []string) string {
	if len(categories) == 0 {
		return "all categories"
	}
	return strings.Join(categories, ", ")
}

// RebuildProjection begins a run beside the run that readers use, with the same version of the
// handler. If a run is being made already, nothing changes.
func (s *Streams) RebuildProjection(ctx context.Context, name string) (Projection, error) {
	return s.changeKnown(ctx, audit.ProjectionRebuild, name, func(p *Projection) error {
		if p.Next != nil {
			return ledger.ErrUnchanged
		}
		p.begin(p.Run.Version, p.Run.Categories)
		return nil
	})
}

// PauseProjection stops all runs of a projection until ResumeProjection.
func (s *Streams) PauseProjection(ctx context.Context, name string) (Projection, error) {
	return s.changeKnown(ctx, audit.ProjectionPause, name, func(p *Projection) error {
		if p.Paused {
			return ledger.ErrUnchanged
		}
		p.Paused = true
		return nil
	})
}

// ResumeProjection ends a pause, and lets partitions that stopped at an event try again.
func (s *Streams) ResumeProjection(ctx context.Context, name string) (Projection, error) {
	return s.changeKnown(ctx, audit.ProjectionResume, name, func(p *Projection) error {
		p.Paused = false
		p.Resumed++
		return nil
	})
}

// AnnounceTakeOver notes that a run is about to take over, if it is still being made.
func (s *Streams) AnnounceTakeOver(ctx context.Context, name string, run int64) (Projection, error) {
	return s.changeKnown(ctx, "", name, func(p *Projection) error {
		if p.Next == nil || p.Next.Number != run || p.TakingOver == p.Next.Group {
			return ledger.ErrUnchanged
		}
		p.TakingOver = p.Next.Group
		return nil
	})
}

// TakeOver makes a run the one that readers use, if it is still being made.
func (s *Streams) TakeOver(ctx context.Context, name string, run int64) (Projection, error) {
	return s.changeKnown(ctx, "", name, func(p *Projection) error {
		if p.Next == nil || p.Next.Number != run {
			return ledger.ErrUnchanged
		}
		p.Run, p.Next, p.TakingOver = *p.Next, nil, ""
		return nil
	})
}

// DeleteProjection deletes what the store has of a projection, unless mayGo returns an error for
// it. Its consumer groups and its results stay.
func (s *Streams) DeleteProjection(ctx context.Context, name string, mayGo func(Projection) error) error {
	_, err := s.changeKnown(ctx, audit.ProjectionDelete, name, func(p *Projection) error {
		if err := mayGo(*p); err != nil {
			return err
		}
		*p = Projection{Name: name, version: p.version}
		return nil
	})
	return err
}

func (s *Streams) changeKnown(ctx context.Context, verb audit.Verb, name string, change func(*Projection) error) (Projection, error) {
	return s.changeProjection(ctx, verb, name, func(p *Projection) error {
		if p.version == 0 {
			return ErrUnknownProjection
		}
		return change(p)
	})
}

// changeProjection lets change edit a projection (version 0: there is none); see ledger.Change. A
// projection without a run is deleted.
func (s *Streams) changeProjection(ctx context.Context, verb audit.Verb, name string, change func(*Projection) error) (p Projection, err error) {
	if err = checkProjectionName(name); err == nil {
		var kv eventlog.KeyValue
		kv, err = ledger.Change(ctx, s.log, projectionKey(name), func(now eventlog.KeyValue) (value []byte, with eventlog.Entry, err error) {
			if p = (Projection{Name: name}); now.Version > 0 {
				p, err = projectionIn(now)
			}
			if err == nil {
				err = change(&p)
			}
			if err == nil && p.Run.Number > 0 {
				value, err = json.Marshal(p)
			}
			if err == nil && verb != "" {
				err = tell(ctx, s.log, &with, projectionKey(name), audit.Event{Verb: verb, Object: name, Before: shownIn(now.Value), After: shownIn(value)})
			}
			return value, with, err
		})
		p.version = kv.Version
	}
	if err != nil {
		return Projection{}, fmt.Errorf("change projection %q: %w", shorten(name), err)
	}
	return p, nil
}

// tell adds an audit event to the entry that changes a key.
func tell(ctx context.Context, log *eventlog.Log, e *eventlog.Entry, key string, event audit.Event) error {
	b, has, err := audit.Of(log).Batch(ctx, key, event)
	if err == nil && has {
		e.Batches = append(e.Batches, b)
	}
	return err
}

// shownIn is what the audit shows of a value that is JSON; nil: there is none.
func shownIn(value []byte) any {
	if value == nil {
		return nil
	}
	return json.RawMessage(value)
}

func (s *Streams) readProjection(ctx context.Context, name string) (Projection, error) {
	kv, err := s.log.Get(ctx, projectionKey(name))
	if err != nil || kv.Version == 0 {
		return Projection{Name: name}, err
	}
	return projectionIn(kv)
}

func projectionIn(kv eventlog.KeyValue) (p Projection, err error) {
	if err = json.Unmarshal(kv.Value, &p); err == nil {
		p.Name, err = url.PathUnescape(strings.TrimPrefix(kv.Key, projectionPrefix))
	}
	if err != nil {
		return p, fmt.Errorf("key %s does not hold a projection: %w; restore a backup", kv.Key, err)
	}
	p.version = kv.Version
	return p, nil
}

func projectionKey(name string) string { return projectionPrefix + url.PathEscape(name) }

func checkProjectionName(name string) error {
	invalid := func(why string) error {
		return &eventlog.InvalidError{What: "projection name", Value: shorten(name), Why: why}
	}
	switch {
	case name == "":
		return invalid("it is empty")
	case len(name) > projectionNameMax:
		return invalid(fmt.Sprintf("it has %d bytes; at most %d are allowed", len(name), projectionNameMax))
	case !isText(name):
		return invalid("it is not UTF-8, or has control characters")
	}
	return nil
}
