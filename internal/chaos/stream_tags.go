package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/judge"
)

// tagsCount is how many tags decisions rest on.
const tagsCount = 3

func tagName(n int) string { return fmt.Sprintf("tag%d", n) }

// decideByTags reads the events with a tag, and appends another one somewhere if no other came
// meanwhile.
func (w *world) decideByTags(ctx context.Context, nth int) {
	random := w.random(fmt.Sprintf("decider%d", nth))
	for ctx.Err() == nil {
		pause(ctx, time.Duration(random.IntN(200))*time.Millisecond)
		r := w.model.TagReads(tagName(random.IntN(tagsCount)))
		n := random.IntN(4)
		e, b := w.embedded[n%2], w.brokers[n%2]
		by, said := e.name, judge.Word{}
		if n >= 2 {
			by, said = "HTTP at "+b.name, b.readTag(ctx, r.Tag)
		} else {
			said = e.ask(ctx, order{Do: "read tag", Topic: judge.Accounts, Tag: r.Tag})
		}
		w.counts.add("readings of tags, " + said.Outcome.String())
		if said.Outcome != judge.Done {
			continue
		}
		saw := w.model.TagRead(by, r, said.Handled)
		pause(ctx, time.Duration(random.IntN(30))*time.Millisecond)
		w.settleAppend(ctx, random, w.model.StreamDecides(streamName(random), r.Tag, said.State, saw))
	}
}

// judgeTags reads the events with each tag at the end.
func (w *world) judgeTags(ctx context.Context, c *weir.Category) error {
	for n := range tagsCount {
		r := w.model.TagReads(tagName(n))
		said := judge.ReadTag(ctx, c, r.Tag)
		if said.Outcome != judge.Done {
			return fmt.Errorf("read the tag %s: %s", r.Tag, said.Err)
		}
		w.model.JudgeDecisions(r.Tag, w.model.TagRead("the end", r, said.Handled))
		w.counts.addN("events with tags at the end", len(said.Handled))
	}
	return nil
}
