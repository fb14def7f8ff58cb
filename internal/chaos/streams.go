package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/judge"
)

// projectionName is a projection of accounts.
const (
	projectionName = "balances"
	streamsCount   = 6
	subjectsCount  = 3
)

// makeStreams makes the category, and on PostgreSQL the table of its projection.
func (w *world) makeStreams(ctx context.Context) error {
	said := w.embedded[0].ask(ctx, order{Do: "make category", Topic: judge.Accounts, N: 3})
	if said.Outcome != judge.Done {
		return fmt.Errorf("make category %s: %s", judge.Accounts, said.Err)
	}
	if w.postgres() {
		_, err := w.sql.Exec(ctx, `CREATE TABLE projected (run bigint NOT NULL, stream text NOT NULL, version bigint NOT NULL, value text NOT NULL)`)
		return err
	}
	return nil
}

// runStreams lets everybody act who has to do with streams.
func (w *world) runStreams(does func(string, func(context.Context))) {
	for nth := range 3 {
		does("streams", func(ctx context.Context) { w.appendToStreams(ctx, nth) })
	}
	for nth := range 2 {
		does("streams", func(ctx context.Context) { w.decideByTags(ctx, nth) })
	}
	does("streams", w.keepSnapshots)
	does("streams", w.readStreams)
	does("streams", w.changeStreams)
	for nth := range w.embedded {
		does("streams", func(ctx context.Context) { w.project(ctx, nth) })
	}
}

func streamName(random *rand.Rand) string { return fmt.Sprintf("account%d", random.IntN(streamsCount)) }

// subjectOf is whom events are about: one of a few, or mostly nobody.
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

// appendToStreams appends to one stream or to two, through any door. Now and then two append at one
// version at the same time.
func (w *world) appendToStreams(ctx context.Context, nth int) {
	by := fmt.Sprintf("appender%d", nth)
	random := w.random(by)
	for ctx.Err() == nil {
		pause(ctx, time.Duration(random.IntN(80))*time.Millisecond)
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
		by, said := w.tryOnStream(ctx, random, calls...)
		if said.Outcome == judge.Refused && said.State == "" {
			said.Outcome = judge.Unknown // the process did not run, or could not: an earlier try may have been carried out
		}
		for i, c := range calls {
			one := said
			if said.Outcome == judge.Done {
				one.Places = said.Places[i : i+1]
			}
			w.model.StreamAnswered(by, c, one)
		}
		w.counts.add("appends to streams, " + said.Outcome.String() + " " + said.State)
		if said.Outcome != judge.Unknown || ctx.Err() != nil {
			return
		}
		pause(ctx, time.Duration(random.IntN(300))*time.Millisecond)
	}
}

// tryOnStream makes a call about one stream, or an append to two, through any door.
func (w *world) tryOnStream(ctx context.Context, random *rand.Rand, calls ...*judge.StreamCall) (by string, said judge.Word) {
	c, n := calls[0], random.IntN(4)
	if n >= 2 {
		b := w.brokers[n-2]
		by = "HTTP at " + b.name
		if len(calls) == 2 {
			w.counts.add("appends to two streams over HTTP")
			return by, b.appendToTwo(ctx, calls)
		}
		w.counts.add("calls about streams over HTTP")
		return by, b.callStream(ctx, c)
	}
	o := order{Do: c.Verb + " stream", Topic: judge.Accounts, Name: c.Stream, N: int(c.Expected), Subject: c.Subject, Values: c.Values, Tag: c.Tag, Within: c.Within}
	if len(calls) == 2 {
		o.Do, o.Topics, o.Values = "append to two streams", []string{c.Stream, calls[1].Stream}, []string{c.Values[0], calls[1].Values[0]}
	}
	e := w.embedded[n%2]
	w.counts.add("calls about streams in Go")
	return e.name, e.ask(context.WithoutCancel(ctx), o)
}

// changeStreams deletes streams, archives them for a while, and forgets subjects.
func (w *world) changeStreams(ctx context.Context) {
	random := w.random("stream changer")
	try := func(verb, stream string, expected int64) judge.Word {
		c := w.model.StreamChanges(verb, stream, expected)
		by, said := w.tryOnStream(ctx, random, c)
		w.model.StreamAnswered(by, c, said)
		w.counts.add(verb + " of streams, " + said.Outcome.String() + " " + said.State)
		return said
	}
	for ctx.Err() == nil {
		pause(ctx, time.Duration(random.IntN(1000))*time.Millisecond)
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
			pause(ctx, time.Duration(random.IntN(1500))*time.Millisecond)
			for said := (judge.Word{}); said.Outcome != judge.Done && said.State != "conflict" && ctx.Err() == nil; pause(ctx, 100*time.Millisecond) {
				said = try("unarchive", stream, judge.StreamExists)
			}
		default:
			subject := fmt.Sprintf("subject%d", random.IntN(subjectsCount))
			f := w.model.Forgets(subject)
			e := w.embedded[random.IntN(2)]
			said := e.ask(context.WithoutCancel(ctx), order{Do: "forget", Topic: judge.Accounts, Subject: subject})
			w.model.Forgot(e.name, subject, f, said)
			w.counts.add("subjects forgotten, " + said.Outcome.String())
		}
	}
}

// readStreams reads the ends of streams, over HTTP in pages.
func (w *world) readStreams(ctx context.Context) {
	random := w.random("stream reader")
	for ctx.Err() == nil {
		pause(ctx, time.Duration(random.IntN(200))*time.Millisecond)
		r := w.model.StreamReads(streamName(random), int64(random.IntN(30)))
		n := random.IntN(4)
		e, b := w.embedded[n%2], w.brokers[n%2]
		by, said := e.name, judge.Word{}
		if n >= 2 {
			by, said = "HTTP at "+b.name, b.readStream(ctx, r.Stream, r.From, 1+random.IntN(20))
			w.counts.addN("events read from streams over HTTP", len(said.Handled))
		} else {
			said = e.ask(ctx, order{Do: "read stream", Topic: judge.Accounts, Name: r.Stream, N: int(r.From)})
		}
		w.counts.add("readings of streams, " + said.Outcome.String())
		if said.Outcome != judge.Done {
			continue
		}
		w.model.StreamRead(by, r, said.Handled)
		w.counts.addN("events read from streams", len(said.Handled))
	}
}

// project keeps a projector in one program, and rebuilds the projection now and then.
func (w *world) project(ctx context.Context, nth int) {
	random := w.random(fmt.Sprintf("projector%d", nth))
	e := w.embedded[nth]
	for ctx.Err() == nil {
		said := e.ask(ctx, order{Do: "project", Topic: judge.Accounts, Name: projectionName, Once: w.postgres()})
		w.counts.add("projectors started, " + said.Outcome.String())
		pause(ctx, time.Duration(1000+random.IntN(4000))*time.Millisecond)
		if random.IntN(6) == 0 {
			said := e.ask(ctx, order{Do: "rebuild", Name: projectionName})
			w.history.Add(fmt.Sprintf("%s rebuilds: %v %s", e.name, said.Outcome, said.Err), projectionName)
			w.counts.add("rebuilds of a projection, " + said.Outcome.String())
		}
	}
}

// hearProjection notes what a projection's handler got.
func (w *world) hearProjection(said judge.Word) {
	run, err := strconv.ParseInt(said.State, 10, 64)
	if err != nil {
		panic(err)
	}
	for _, s := range said.Handled {
		if !w.postgres() { // on PostgreSQL its transaction may have been committed by a process that was killed before it said so: the table tells
			w.model.Projected(said.Consumer, run, s)
		}
	}
	w.counts.addN("events projected", len(said.Handled))
}

// judgeStreams reads all streams at the end, their category's topic, and what was projected.
func (w *world) judgeStreams(ctx context.Context, log *weir.Log) error {
	c, err := log.Category(ctx, judge.Accounts)
	if err != nil {
		return err
	}
	past, err := w.model.ReadCategory(ctx, log)
	if err != nil {
		return err
	}
	for _, name := range w.model.StreamNames() {
		began := w.now()
		var seen []judge.Sight
		for e, err := range c.Events(ctx, name, weir.StreamRange{}) {
			if err != nil {
				return err
			}
			seen = append(seen, judge.SightOf(e))
		}
		p := past[name]
		if p == nil {
			p = &judge.StreamPast{}
		}
		w.model.JudgeReadable(name, p, seen, began)
	}
	w.model.JudgeStreams(past)
	if err := w.judgeTags(ctx, c); err != nil {
		return err
	}
	return w.judgeProjection(ctx, log, past)
}

// judgeProjection lets the projection finish, and compares what it wrote in its transactions with
// the streams: each event once, for the run that readers use.
func (w *world) judgeProjection(ctx context.Context, log *weir.Log, past map[string]*judge.StreamPast) error {
	for _, e := range w.embedded {
		if said := e.ask(ctx, order{Do: "project", Topic: judge.Accounts, Name: projectionName, Once: w.postgres()}); said.Outcome != judge.Done {
			return fmt.Errorf("project at the end: %s", said.Err)
		}
	}
	var info weir.ProjectionInfo
	for end, behind := time.Now().Add(2*drainMax), int64(-1); ; pause(ctx, 200*time.Millisecond) {
		var err error
		if info, err = log.Projection(ctx, projectionName); err != nil {
			return err
		}
		if info.Run.Lag == 0 && info.Next == nil {
			break
		}
		lag := info.Run.Lag
		if info.Next != nil {
			lag += info.Next.Lag
		}
		if lag != behind { // a machine with much to do gets on slowly
			end, behind = time.Now().Add(2*drainMax), lag
		}
		if time.Now().After(end) || ctx.Err() != nil {
			w.model.Broken("S8", []string{projectionName}, "the projection got no further for %v after the last fault: %+v, next %+v%s", 2*drainMax, info, info.Next, w.whyStuck(ctx, log, info))
			return nil
		}
	}
	w.counts.addN("runs of a projection", int(info.Run.Number))
	if !w.postgres() {
		w.model.JudgeProjected(info.Run.Number, past)
		return nil
	}
	written := map[string]int{}
	rows, err := w.sql.Query(ctx, `SELECT stream, array_agg(value ORDER BY version), array_agg(version ORDER BY version) FROM projected WHERE run = $1 GROUP BY stream`, info.Run.Number)
	if err != nil {
		return err
	}
	var stream string
	var values []string
	var versions []int64
	_, err = pgx.ForEachRow(rows, []any{&stream, &values, &versions}, func() error {
		p := past[stream]
		for i, version := range versions {
			if version != int64(i) || p == nil || i >= len(p.Values) || values[i] != p.Values[i] {
				w.model.Broken("S8", []string{stream}, "run %d wrote version %d of %s, %s, where %d is next", info.Run.Number, version, stream, values[i], i)
				return nil
			}
		}
		written[stream] = len(versions)
		return nil
	})
	for stream, p := range past {
		if written[stream] != len(p.Values) {
			w.model.Broken("S8", []string{stream}, "run %d wrote %d events of %s, which has had %d", info.Run.Number, written[stream], stream, len(p.Values))
		}
	}
	return err
}

// whyStuck tells what is known of a projection that gets no further. The output of the processes
// then has their goroutines.
func (w *world) whyStuck(ctx context.Context, log *weir.Log, info weir.ProjectionInfo) string {
	var text strings.Builder
	runs := []weir.ProjectionRun{info.Run}
	if info.Next != nil {
		runs = append(runs, *info.Next)
	}
	for _, run := range runs {
		g, err := log.Group(ctx, run.Group)
		fmt.Fprintf(&text, "; run %d: %+v %v", run.Number, g, err)
	}
	for _, e := range w.embedded {
		said := e.ask(ctx, order{Do: "why stuck"})
		fmt.Fprintf(&text, "; %s: %s %s", e.name, said.State, said.Err)
	}
	return text.String()
}
