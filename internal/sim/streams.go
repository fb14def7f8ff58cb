package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/judge"
)

const (
	streamsCount   = 4
	subjectsCount  = 2
	tagsCount      = 2
	projectionName = "balances"
)

func (w *world) makeCategory() {
	w.until(func(ctx context.Context, p *life) error {
		_, err := p.log.EnsureCategory(ctx, weir.CategorySpec{Name: judge.Accounts, Partitions: 2})
		return err
	})
	w.until(func(ctx context.Context, p *life) error {
		_, err := p.log.EnsureCategory(ctx, weir.CategorySpec{Name: reactions, Partitions: 2})
		return err
	})
}

func (w *world) streams() {
	for n := range 2 {
		w.act(fmt.Sprintf("stream-appender%d", n), w.appendToStreams)
	}
	w.act("stream-tags", w.decideByTags)
	w.act("stream-snapshots", w.keepSnapshots)
	w.act("stream-reader", w.readStreams)
	w.act("stream-changer", w.changeStreams)
	w.act("stream-rebuilder", w.rebuild)
}

func streamName(random *rand.Rand) string { return fmt.Sprintf("account%d", random.IntN(streamsCount)) }

func subjectOf(random *rand.Rand) string {
	if random.IntN(4) > 0 {
		return ""
	}
	return fmt.Sprintf("subject%d", random.IntN(subjectsCount))
}

// expectedOf is what a call expects: mostly the version that is known.
func (w *world) expectedOf(random *rand.Rand, stream string) int64 {
	known := w.model.Reached(stream)
	switch random.IntN(16) {
	case 0, 1:
		return judge.AnyVersion
	case 2:
		return judge.NoStream
	case 3:
		return judge.StreamExists
	case 4, 5:
		return max(0, known-1) // a conflict
	}
	return known
}

func (w *world) appendToStreams(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		sleep(ctx, upTo(random, paceOf))
		stream, subject := streamName(random), subjectOf(random)
		switch random.IntN(12) {
		case 0, 1:
			other := streamName(random)
			if other == stream {
				continue
			}
			a, b := w.model.StreamAppends(stream, judge.AnyVersion, subject, 1), w.model.StreamAppends(other, judge.AnyVersion, subject, 1)
			a.With, b.With = b, a
			w.settleAppend(ctx, random, a, b)
		case 2:
			expected := w.model.Reached(stream)
			var both sync.WaitGroup
			for range 2 {
				c := w.model.StreamAppends(stream, expected, subject, 1+random.IntN(3))
				own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
				both.Go(func() { w.settleAppend(ctx, own, c) })
			}
			both.Wait()
		default:
			w.settleAppend(ctx, random, w.model.StreamAppends(stream, w.expectedOf(random, stream), subject, 1+random.IntN(3)))
		}
	}
}

// settleAppend tries an append, to one stream or to two, until its outcome is known.
func (w *world) settleAppend(ctx context.Context, random *rand.Rand, calls ...*judge.StreamCall) {
	for {
		by, said := w.tryOnStream(random, calls...)
		if said.Outcome == judge.Refused && said.State == "" {
			said.Outcome = judge.Unknown // the process could not: an earlier try may have been carried out
		}
		for i, c := range calls {
			one := said
			if said.Outcome == judge.Done {
				one.Places = said.Places[i : i+1]
			}
			w.model.StreamAnswered(by, c, one)
		}
		if said.Outcome != judge.Unknown || ctx.Err() != nil {
			return
		}
		sleep(ctx, upTo(random, paceOf))
	}
}

// tryOnStream makes a call about one stream, or an append to two, at any process.
func (w *world) tryOnStream(random *rand.Rand, calls ...*judge.StreamCall) (by string, said judge.Word) {
	p := w.any(random)
	if p == nil {
		return "nobody", judge.Word{Outcome: judge.Refused, Err: "the process does not run"}
	}
	ctx, cancel := asks()
	defer cancel()
	c := calls[0]
	category, err := p.log.Category(ctx, judge.Accounts)
	if err != nil {
		return p.name, p.said(judge.Word{Outcome: judge.Refused, Err: err.Error()})
	}
	expected := weir.ExpectedVersion(c.Expected)
	switch {
	case len(calls) == 2:
		var parts []weir.StreamPart
		for _, c := range calls {
			parts = append(parts, weir.StreamPart{Category: category, Stream: c.Stream, Expected: weir.ExpectedVersion(c.Expected), Events: eventsOf(c)})
		}
		done, err := p.log.AppendAll(ctx, parts...)
		said = judge.Appended(err, done...)
	case c.Verb == "append":
		var boundary weir.TagBoundary
		if c.Within != "" {
			if boundary, err = category.Boundary(c.Within); err != nil {
				return p.name, judge.OutcomeOf(err)
			}
		}
		done, err := category.AppendWithin(ctx, boundary, c.Stream, expected, eventsOf(c)...)
		said = judge.Appended(err, done)
		said.Version = max(said.Version, done.Version)
	case c.Verb == "delete":
		done, err := category.Delete(ctx, c.Stream, expected)
		said = judge.Appended(err, done)
	case c.Verb == "archive":
		said = judge.Appended(category.Archive(ctx, c.Stream, expected))
	default:
		said = judge.Appended(category.Unarchive(ctx, c.Stream))
	}
	return p.name, p.said(said)
}

func eventsOf(c *judge.StreamCall) (events []weir.NewStreamEvent) {
	for _, v := range c.Values {
		e := weir.NewStreamEvent{ID: v, Type: "moved", Data: []byte(v), Subject: c.Subject}
		if c.Tag != "" {
			e.Tags = []string{c.Tag}
		}
		events = append(events, e)
	}
	return events
}

// inCategory asks a process something about the category.
func (w *world) inCategory(random *rand.Rand, do func(context.Context, *weir.Category) judge.Word) (by string, said judge.Word) {
	p := w.any(random)
	if p == nil {
		return "nobody", judge.Word{Outcome: judge.Refused}
	}
	ctx, cancel := asks()
	defer cancel()
	category, err := p.log.Category(ctx, judge.Accounts)
	if err != nil {
		return p.name, p.said(judge.Word{Outcome: judge.Refused, Err: err.Error()})
	}
	return p.name, p.said(do(ctx, category))
}

// decideByTags appends what rests on all events with a tag.
func (w *world) decideByTags(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		sleep(ctx, upTo(random, 3*paceOf))
		r := w.model.TagReads(fmt.Sprintf("tag%d", random.IntN(tagsCount)))
		by, said := w.inCategory(random, func(ctx context.Context, c *weir.Category) judge.Word { return judge.ReadTag(ctx, c, r.Tag) })
		if said.Outcome != judge.Done {
			continue
		}
		saw := w.model.TagRead(by, r, said.Handled)
		w.settleAppend(ctx, random, w.model.StreamDecides(streamName(random), r.Tag, said.State, saw))
	}
}

func (w *world) keepSnapshots(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		sleep(ctx, upTo(random, 3*paceOf))
		stream := streamName(random)
		if random.IntN(2) == 0 {
			s := w.model.SnapshotSaves(stream, int64(random.IntN(3)))
			by, said := w.inCategory(random, func(ctx context.Context, c *weir.Category) judge.Word {
				return judge.OutcomeOf(c.SaveSnapshot(ctx, stream, weir.StreamSnapshot{Version: s.Version, Data: []byte(s.Data)}))
			})
			w.model.SnapshotSaved(by, s, said)
			continue
		}
		r := w.model.SnapshotReads(stream, int64(random.IntN(5)))
		by, said := w.inCategory(random, func(ctx context.Context, c *weir.Category) judge.Word {
			s, is, err := c.Snapshot(ctx, stream, r.Most)
			said := judge.OutcomeOf(err)
			said.Exists, said.Version, said.State = is, s.Version, string(s.Data)
			return said
		})
		if said.Outcome == judge.Done {
			w.model.SnapshotRead(by, r, said)
		}
	}
}

func (w *world) readStreams(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		sleep(ctx, upTo(random, 2*paceOf))
		r := w.model.StreamReads(streamName(random), int64(random.IntN(30)))
		by, said := w.inCategory(random, func(ctx context.Context, c *weir.Category) judge.Word {
			return readStream(ctx, c, r.Stream, r.From)
		})
		if said.Outcome == judge.Done {
			w.model.StreamRead(by, r, said.Handled)
		}
	}
}

func readStream(ctx context.Context, c *weir.Category, stream string, from int64) judge.Word {
	said := judge.Word{Outcome: judge.Done}
	for e, err := range c.Events(ctx, stream, weir.StreamRange{From: from}) {
		if err != nil {
			return judge.OutcomeOf(err)
		}
		said.Handled = append(said.Handled, judge.SightOf(e))
	}
	return said
}

// changeStreams deletes streams, archives them for a while, and forgets subjects.
func (w *world) changeStreams(ctx context.Context, random *rand.Rand) {
	try := func(verb, stream string, expected int64) judge.Word {
		c := w.model.StreamChanges(verb, stream, expected)
		by, said := w.tryOnStream(random, c)
		w.model.StreamAnswered(by, c, said)
		return said
	}
	for ctx.Err() == nil {
		sleep(ctx, upTo(random, 8*paceOf))
		stream := streamName(random)
		expected := w.expectedOf(random, stream)
		if expected == judge.NoStream {
			expected = judge.StreamExists
		}
		switch random.IntN(3) {
		case 0:
			try("delete", stream, expected)
		case 1:
			if try("archive", stream, expected).Outcome == judge.Refused {
				continue
			}
			sleep(ctx, upTo(random, 3*time.Second))
			for said := (judge.Word{}); said.Outcome != judge.Done && said.State != "conflict" && ctx.Err() == nil; sleep(ctx, 300*time.Millisecond) {
				said = try("unarchive", stream, judge.StreamExists)
			}
		default:
			subject := fmt.Sprintf("subject%d", random.IntN(subjectsCount))
			f := w.model.Forgets(subject)
			by, said := w.inCategory(random, func(ctx context.Context, c *weir.Category) judge.Word {
				return judge.OutcomeOf(c.ForgetSubject(ctx, subject))
			})
			w.model.Forgot(by, subject, f, said)
		}
	}
}

// project keeps a projector in a process.
func (w *world) project(p *life) {
	if !w.acts("stream") {
		return
	}
	w.tries(p, "project", func(ctx context.Context) error {
		_, err := p.log.Project(ctx, weir.Projection{
			Name: projectionName, Categories: []string{judge.Accounts}, Session: 3 * time.Second, CommitEvery: time.Second,
			Retry: weir.Retry{Attempts: -1, First: 100 * time.Millisecond, Max: time.Second},
			Handler: func(_ context.Context, e weir.ProjectedEvent) error {
				if p.host.isDead() {
					return errLost
				}
				if !e.Deleted {
					w.model.Projected("the projection in "+p.name, e.Run, judge.SightOf(e.StreamEvent))
				}
				return nil
			},
		})
		return err
	})
}

// rebuild rebuilds the projection now and then.
func (w *world) rebuild(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		sleep(ctx, upTo(random, 60*time.Second))
		p := w.any(random)
		if p == nil || ctx.Err() != nil {
			continue
		}
		try, cancel := asks()
		err := p.log.RebuildProjection(try, projectionName)
		cancel()
		w.history.Add(fmt.Sprintf("%s rebuilds the projection: %v", p.name, err))
	}
}

// judgeStreams reads all streams at the end, their category's topic, and lets the projection
// finish.
func (w *world) judgeStreams() {
	if !w.acts("stream") {
		return
	}
	p := w.first()
	ctx, cancel := context.WithTimeout(context.Background(), 2*settleMax)
	defer cancel()
	fail := func(err error) { w.model.Broken("L5", nil, "read the streams at the end: %v", err) }
	c, err := p.log.Category(ctx, judge.Accounts)
	if err != nil {
		fail(err)
		return
	}
	past, err := w.model.ReadCategory(ctx, p.log)
	if err != nil {
		fail(err)
		return
	}
	for _, name := range w.model.StreamNames() {
		began := w.now()
		said := readStream(ctx, c, name, 0)
		if said.Outcome != judge.Done {
			fail(fmt.Errorf("%s: %s", name, said.Err))
			continue
		}
		of := past[name]
		if of == nil {
			of = &judge.StreamPast{}
		}
		w.model.JudgeReadable(name, of, said.Handled, began)
	}
	w.model.JudgeStreams(past)
	for n := range tagsCount {
		r := w.model.TagReads(fmt.Sprintf("tag%d", n))
		said := judge.ReadTag(ctx, c, r.Tag)
		if said.Outcome != judge.Done {
			fail(fmt.Errorf("tag %s: %s", r.Tag, said.Err))
			continue
		}
		w.model.JudgeDecisions(r.Tag, w.model.TagRead("the end", r, said.Handled))
	}
	w.judgeProjection(p, past)
	w.judgeReactions(p, past)
}

// judgeProjection waits until the projection has got everything.
func (w *world) judgeProjection(p *life, past map[string]*judge.StreamPast) {
	if len(past) == 0 {
		return
	}
	late := time.Now().Add(settleMax)
	for {
		ctx, cancel := asks()
		info, err := p.log.Projection(ctx, projectionName)
		cancel()
		if err == nil && info.Run.Lag == 0 && info.Next == nil {
			w.model.JudgeProjected(info.Run.Number, past)
			return
		}
		if time.Now().After(late) {
			w.model.Broken("S8", []string{projectionName}, "the projection is not done %v after the last fault: %+v %v", settleMax, info, err)
			return
		}
		time.Sleep(time.Second)
	}
}
