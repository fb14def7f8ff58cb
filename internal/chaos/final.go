package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/judge"
)

// drainMax is how long a group may get no further, once nothing is done to anybody any more, while
// there are events that it has not read.
const drainMax = 60 * time.Second

// finalCheck reads all that is left with a log of its own, and compares it with what was answered.
func (w *world) finalCheck(ctx context.Context) error {
	if err := w.settleMarkers(ctx); err != nil {
		return err
	}
	w.drain(ctx)
	if err := w.finishQueues(ctx); err != nil {
		return err
	}
	log, err := weir.Open(ctx, w.url, weir.Options{Logger: quiet})
	if err != nil {
		return err
	}
	defer log.Close(ctx)
	for _, l := range w.model.Alive() {
		h, err := judge.ReadAll(ctx, log, l)
		if err != nil {
			return fmt.Errorf("read all of %s: %w", l, err)
		}
		w.model.JudgeHeld(h)
		if err := w.judgeProducers(ctx, l); err != nil {
			return fmt.Errorf("read the batches of %s: %w", l, err)
		}
		for _, g := range groups {
			if w.opt.acts(g) {
				w.judgeGroup(ctx, log, g, h)
			}
		}
	}
	if w.opt.does("streams") {
		if err := w.judgeStreams(ctx, log); err != nil {
			return fmt.Errorf("read the streams: %w", err)
		}
	}
	if w.postgres() {
		return w.judgeBills(ctx)
	}
	return nil
}

// settleMarkers finds out what became of transactions: their markers tell.
func (w *world) settleMarkers(ctx context.Context) error {
	var values []string
	var err error
	switch {
	case !w.opt.does("publishers") || !w.postgres() && len(enginesThat[withInbox](w)) == 0:
		return nil // there are no transactions
	case w.postgres():
		var rows pgx.Rows
		if rows, err = w.sql.Query(ctx, `SELECT value FROM markers`); err == nil {
			values, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
	default:
		values, err = w.rowsMoved(ctx)
	}
	if err != nil {
		return err
	}
	w.model.SettleMarkers(values)
	return nil
}

// drain waits until every group has read everything in the topics that are there.
func (w *world) drain(ctx context.Context) {
	for _, g := range groups {
		if !w.opt.acts(g) {
			continue
		}
		least, late := int64(math.MaxInt64), time.Now()
		for {
			lag, why := w.lagOf(ctx, g)
			if lag == 0 || ctx.Err() != nil {
				break
			}
			if lag < least {
				least, late = lag, time.Now().Add(drainMax)
			}
			if time.Now().After(late) {
				w.model.Broken("G8", append([]string{g.name}, g.topics...), "group %s got no further for %v after the last fault: %s", g.name, drainMax, why)
				break
			}
			pause(ctx, 200*time.Millisecond)
		}
	}
}

// lagOf asks the store how many events of the topics that are there a group has not committed.
func (w *world) lagOf(ctx context.Context, g group) (lag int64, why string) {
	said, err := w.positions(ctx, g)
	if err != nil {
		return 1, err.Error()
	}
	for _, name := range g.topics {
		l := w.model.Living(name)
		if l == nil {
			continue
		}
		t, is := w.topicNow(ctx, name)
		if !is {
			continue
		}
		bounds, err := w.audit.Bounds(ctx, t.Partitions...)
		if err != nil {
			return 1, err.Error()
		}
		for n, b := range bounds {
			at := max(said[fmt.Sprintf("%s/%d", name, n)], int64(b.Bounds.First))
			if missing := int64(b.Bounds.Next) - at; missing > 0 {
				lag += missing
				why += fmt.Sprintf(" %s/%d is at %d of %d;", l, n, at, b.Bounds.Next)
			}
		}
	}
	return lag, why
}

// positions asks a broker how far a group is, by topic/partition.
func (w *world) positions(ctx context.Context, g group) (map[string]int64, error) {
	var answer struct {
		Offsets []struct {
			Topic     string
			Partition int32
			Offset    int64
		}
	}
	if err := w.brokers[0].get(ctx, "/v1/groups/"+g.name+"/offsets", &answer); err != nil {
		return nil, err
	}
	at := map[string]int64{}
	for _, o := range answer.Offsets {
		at[fmt.Sprintf("%s/%d", o.Topic, o.Partition)] = o.Offset
	}
	return at, nil
}

// judgeGroup sees that a group has handled everything below what it committed.
func (w *world) judgeGroup(ctx context.Context, log *weir.Log, g group, h judge.Held) {
	said, err := w.positions(ctx, g)
	if err != nil {
		return
	}
	w.model.JudgeDelivered(g.name, h, said, g.bills && w.opt.store == "postgres")
}

// judgeBills sees that what groups handled in their own transactions is there once.
func (w *world) judgeBills(ctx context.Context) error {
	rows, err := w.sql.Query(ctx, `SELECT grp, value, count(*) FROM bills GROUP BY 1, 2`)
	if err != nil {
		return err
	}
	billed := map[string]map[string]int{}
	var grp, value string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&grp, &value, &n}, func() error {
		if billed[grp] == nil {
			billed[grp] = map[string]int{}
		}
		billed[grp][value] = n
		if n > 1 {
			w.model.Broken("G6", []string{grp}, "group %s handled %s %d times, in transactions that commit its offset", grp, value, n)
		}
		return nil
	}); err != nil {
		return err
	}
	log, err := weir.Open(ctx, w.url, weir.Options{Logger: quiet})
	if err != nil {
		return err
	}
	defer log.Close(ctx)
	for _, g := range groups {
		if !g.bills || !w.opt.acts(g) {
			continue
		}
		said, err := w.positions(ctx, g)
		if err != nil {
			return err
		}
		for _, name := range g.topics {
			l := w.model.Living(name)
			if l == nil {
				continue
			}
			h, err := judge.ReadAll(ctx, log, l)
			if err != nil {
				return err
			}
			for n, values := range h.Value {
				for i, value := range values {
					offset := h.First[n] + int64(i)
					if offset < said[fmt.Sprintf("%s/%d", name, n)] && billed[g.name][value] == 0 && !l.MayMiss(int32(n), offset+1) {
						w.model.Broken("G1", []string{g.name, name}, "group %s committed %d of %s/%d, and there is no bill for offset %d, %s",
							g.name, said[fmt.Sprintf("%s/%d", name, n)], l, n, offset, value)
						break
					}
				}
			}
		}
	}
	return nil
}

// judgeContent sees D5: nothing that weir verify reads contradicts itself, while processes run on
// the store.
func (w *world) judgeContent(ctx context.Context) {
	out, exit := w.program(ctx, "verify", "--store", w.url)
	if exit != 0 {
		w.model.Broken("D5", nil, "weir verify exits with %d, and says %s", exit, out)
	}
	w.history.Add("weir verify: " + out)
}
