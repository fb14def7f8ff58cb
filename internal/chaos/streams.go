package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir"
)

// accounts is a category, and projectionName a projection of it.
const (
	accounts       = "accounts"
	projectionName = "balances"
	streamsCount   = 6
)

// makeStreams makes the category, and on PostgreSQL the table of its projection.
func (w *world) makeStreams(ctx context.Context) error {
	said := w.embedded[0].ask(ctx, order{Do: "make category", Topic: accounts, N: 3})
	if said.Outcome != done {
		return fmt.Errorf("make category %s: %s", accounts, said.Err)
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
	does("streams", w.readStreams)
	for nth := range w.embedded {
		does("streams", func(ctx context.Context) { w.project(ctx, nth) })
	}
}

func streamName(random *rand.Rand) string { return fmt.Sprintf("account%d", random.IntN(streamsCount)) }

// appendToStreams appends to one stream or to two, mostly at the version that is known, through either program. What became of an
// append is asked until it is known, by the same append.
func (w *world) appendToStreams(ctx context.Context, nth int) {
	by := fmt.Sprintf("appender%d", nth)
	random := w.random(by)
	for ctx.Err() == nil {
		pause(ctx, time.Duration(random.IntN(80))*time.Millisecond)
		stream := streamName(random)
		o := order{Do: "append", Topic: accounts, Name: stream}
		var both []*streamAppend
		if random.IntN(6) == 0 {
			other := streamName(random)
			if other == stream {
				continue
			}
			a, b := w.model.streamAppends(stream, -1, 1), w.model.streamAppends(other, -1, 1)
			a.with, b.with = b, a
			both = append(both, a, b)
			o.Do, o.Topics, o.Values = "append to two", []string{stream, other}, []string{a.values[0], b.values[0]}
		} else {
			expected := w.model.reached(stream)
			switch random.IntN(8) {
			case 0:
				expected = -1 // any
			case 1:
				expected = max(0, expected-1) // a conflict, unless another process lags
			}
			a := w.model.streamAppends(stream, expected, 1+random.IntN(3))
			both = append(both, a)
			o.N, o.Values = int(expected), a.values
		}
		w.settleAppend(ctx, random, by, o, both)
	}
}

// settleAppend tries an append until its outcome is known.
func (w *world) settleAppend(ctx context.Context, random *rand.Rand, by string, o order, both []*streamAppend) {
	for {
		said := w.embedded[random.IntN(2)].ask(context.WithoutCancel(ctx), o)
		if said.Outcome == refused && said.State == "" {
			said.Outcome = unknown // the process did not run, or could not: an earlier try may have been carried out
		}
		for i, a := range both {
			one := said
			if said.Outcome == done {
				one.Places = said.Places[i : i+1]
			}
			if said.State == "conflict" && len(both) > 1 {
				one.State = "" // it is of one of them
			}
			w.model.streamAppended(by, a, one)
		}
		w.counts.add("appends to streams, " + said.Outcome.String() + " " + said.State)
		if said.Outcome != unknown || ctx.Err() != nil {
			return
		}
		pause(ctx, time.Duration(random.IntN(300))*time.Millisecond)
	}
}

// readStreams reads the ends of streams.
func (w *world) readStreams(ctx context.Context) {
	random := w.random("stream reader")
	for ctx.Err() == nil {
		pause(ctx, time.Duration(random.IntN(200))*time.Millisecond)
		stream := streamName(random)
		reached := w.model.reached(stream)
		from := max(0, reached-int64(random.IntN(30)))
		e := w.embedded[random.IntN(2)]
		said := e.ask(ctx, order{Do: "read stream", Topic: accounts, Name: stream, N: int(from)})
		if said.Outcome != done {
			continue
		}
		w.model.streamRead(e.name, stream, from, reached, said.Handled)
		w.counts.addN("events read from streams", len(said.Handled))
	}
}

// project keeps a projector in one program, and rebuilds the projection now and then.
func (w *world) project(ctx context.Context, nth int) {
	random := w.random(fmt.Sprintf("projector%d", nth))
	e := w.embedded[nth]
	for ctx.Err() == nil {
		said := e.ask(ctx, order{Do: "project", Topic: accounts, Name: projectionName, Once: w.postgres()})
		w.counts.add("projectors started, " + said.Outcome.String())
		pause(ctx, time.Duration(1000+random.IntN(4000))*time.Millisecond)
		if random.IntN(6) == 0 {
			said := e.ask(ctx, order{Do: "rebuild", Name: projectionName})
			w.history.add(fmt.Sprintf("%s rebuilds: %v %s", e.name, said.Outcome, said.Err), projectionName)
			w.counts.add("rebuilds of a projection, " + said.Outcome.String())
		}
	}
}

// hearProjection notes what a projection's handler got.
func (w *world) hearProjection(said word) {
	run, err := strconv.ParseInt(said.State, 10, 64)
	if err != nil {
		panic(err)
	}
	for _, s := range said.Handled {
		if !w.postgres() { // there its transaction may have been committed by a process that was killed before it said so: the table tells
			w.model.projected(said.Consumer, run, s)
		}
	}
	w.counts.addN("events projected", len(said.Handled))
}

// judgeStreams reads all streams at the end, and what was projected.
func (w *world) judgeStreams(ctx context.Context, log *weir.Log) error {
	c, err := log.Category(ctx, accounts)
	if err != nil {
		return err
	}
	held := map[string][]string{}
	for _, name := range w.model.streamNames() {
		for e, err := range c.Events(ctx, name, weir.StreamRange{}) {
			if err != nil {
				return err
			}
			if e.Version != int64(len(held[name])) {
				w.model.broken("S2", []string{name}, "%s has version %d where %d is next", name, e.Version, len(held[name]))
			}
			held[name] = append(held[name], string(e.Data))
		}
	}
	w.model.judgeStreams(held)
	if err := w.judgeCategory(ctx, log, held); err != nil {
		return err
	}
	return w.judgeProjection(ctx, log, held)
}

// judgeCategory holds the records of the category's topic against the streams: S5.
func (w *world) judgeCategory(ctx context.Context, log *weir.Log, held map[string][]string) error {
	bounds, err := log.Bounds(ctx, accounts)
	if err != nil {
		return err
	}
	next := map[string]int{}
	for n := range bounds {
		for e, err := range log.Read(ctx, weir.TopicPartition{Topic: accounts, Partition: int32(n)}, weir.Earliest) {
			if err != nil {
				return err
			}
			name := string(e.Key)
			if at := next[name]; at >= len(held[name]) || held[name][at] != string(e.Value) {
				w.model.broken("S5", []string{name}, "record %d of %s/%d is %s of %s, whose version %d is next", e.Offset, accounts, n, e.Value, name, at)
				return nil
			}
			next[name]++
		}
	}
	for name, values := range held {
		if next[name] != len(values) {
			w.model.broken("S5", []string{name}, "%s has %d events, and its category's topic %d", name, len(values), next[name])
		}
	}
	return nil
}

// judgeProjection lets the projection finish, and holds what it wrote in its transactions against the streams: each event once, for
// the run that readers use.
func (w *world) judgeProjection(ctx context.Context, log *weir.Log, held map[string][]string) error {
	for _, e := range w.embedded {
		if said := e.ask(ctx, order{Do: "project", Topic: accounts, Name: projectionName, Once: w.postgres()}); said.Outcome != done {
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
			w.model.broken("S8", []string{projectionName}, "the projection got no further for %v after the last fault: %+v, next %+v", 2*drainMax, info, info.Next)
			return nil
		}
	}
	w.counts.addN("runs of a projection", int(info.Run.Number))
	if !w.postgres() {
		w.model.judgeProjected(info.Run.Number, held)
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
		for i, version := range versions {
			if version != int64(i) || i >= len(held[stream]) || values[i] != held[stream][i] {
				w.model.broken("S8", []string{stream}, "run %d wrote version %d of %s, %s, where %d is next", info.Run.Number, version, stream, values[i], i)
				return nil
			}
		}
		written[stream] = len(versions)
		return nil
	})
	for stream, values := range held {
		if written[stream] != len(values) {
			w.model.broken("S8", []string{stream}, "run %d wrote %d events of %s, which has %d", info.Run.Number, written[stream], stream, len(values))
		}
	}
	return err
}
