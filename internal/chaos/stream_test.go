package main

import (
	"testing"
	"time"
)

func TestTheModelFindsWhatAStreamDoesWrongAndNothingElse(t *testing.T) {
	const s = moment(time.Second)
	appended := func(r *rig, c *streamCall, first int64) *streamCall {
		r.m.streamAnswered("a", c, word{Outcome: done, Places: []place{at(first)}, Version: first + int64(len(c.values))})
		return c
	}
	// add appends one event, about somebody or nobody, wherever the stream "x" is.
	add := func(r *rig, subject string, first int64) *streamCall {
		return appended(r, r.m.streamAppends("x", anyVersion, subject, 1), first)
	}
	begin := func(r *rig, expected int64) *streamCall { return r.m.streamAppends("x", expected, "", 1) }
	conflict := func(r *rig, c *streamCall, actual int64, exists bool) {
		r.m.streamAnswered("a", c, word{Outcome: refused, State: "conflict", Version: actual, Exists: exists})
	}
	lost := func(r *rig, c *streamCall) *streamCall { r.m.streamAnswered("a", c, word{Outcome: unknown}); return c }
	archived := func(r *rig, c *streamCall) { r.m.streamAnswered("a", c, word{Outcome: refused, State: "archived"}) }
	change := func(r *rig, verb string, o outcome, places ...place) *streamCall {
		c := r.m.streamChanges(verb, "x", anyVersion)
		r.m.streamAnswered("a", c, word{Outcome: o, Places: places})
		return c
	}
	read := func(r *rig, reading streamReading, from int64, values ...string) {
		var seen []sight
		for i, v := range values {
			seen = append(seen, sight{"x", at(from + int64(i)), v})
		}
		r.m.streamRead("r", reading, seen)
	}
	// end judges a topic that has values, "" where the stream was deleted.
	end := func(r *rig, values ...string) {
		p := &streamPast{}
		for _, v := range values {
			if v == "" {
				p.deletions = append(p.deletions, int64(len(p.values)))
			} else {
				p.values = append(p.values, v)
			}
		}
		r.m.judgeStreams(map[string]*streamPast{"x": p})
	}
	// decide appends one event with a tag, which rests on others.
	decide := func(r *rig, stream string, first int64, saw ...*streamCall) *streamCall {
		var values []string
		for _, c := range saw {
			values = append(values, c.values...)
		}
		return appended(r, r.m.streamDecides(stream, "t", "boundary", values), first)
	}
	tagRead := func(r *rig, reading tagReading, calls ...*streamCall) []string {
		var seen []sight
		for _, c := range calls {
			seen = append(seen, sight{c.stream, at(c.first), c.values[0]})
		}
		return r.m.tagRead("r", reading, seen)
	}
	save := func(r *rig, o outcome) *snapshotSave {
		s := r.m.snapshotSaves("x", 0)
		r.m.snapshotSaved("a", s, word{Outcome: o})
		return s
	}
	// load loads a snapshot at or below a version that is so much below the stream's; nil: there is none.
	load := func(r *rig, below int64, s *snapshotSave) {
		said := word{Outcome: done}
		if s != nil {
			said.Exists, said.Version, said.State = true, s.version, s.data
		}
		r.m.snapshotRead("r", r.m.snapshotReads("x", below), said)
	}
	for name, c := range map[string]struct {
		do    func(*rig)
		finds []string
	}{
		"all is well": {do: func(r *rig) {
			a, late := add(r, "", 0), begin(r, 0)
			conflict(r, late, 1, true)
			b := appended(r, lost(r, begin(r, 1)), 1)
			read(r, r.m.streamReads("x", 9), 0, a.values[0], b.values[0])
			change(r, "delete", done, at(2))
			read(r, r.m.streamReads("x", 9), 0)
			conflict(r, begin(r, streamExists), 2, false)
			d := appended(r, begin(r, noStream), 2)
			read(r, r.m.streamReads("x", 9), 2, d.values[0])
			end(r, a.values[0], b.values[0], "", d.values[0])
		}},
		"what is unknown is there, or not": {do: func(r *rig) {
			a := lost(r, begin(r, 0))
			lost(r, begin(r, anyVersion))
			end(r, a.values[0])
		}},
		"an acknowledged append is not there": {finds: []string{"L1"}, do: func(r *rig) { add(r, "", 0); end(r) }},
		"a refused append is there": {finds: []string{"L2"}, do: func(r *rig) {
			a, b := add(r, "", 0), begin(r, 0)
			conflict(r, b, 1, true)
			end(r, a.values[0], b.values[0])
		}},
		"what nobody appended is there": {finds: []string{"L2"}, do: func(r *rig) { end(r, "out of thin air") }},
		"half of an append is there":    {finds: []string{"S3"}, do: func(r *rig) { end(r, lost(r, r.m.streamAppends("x", 0, "", 2)).values[0]) }},
		"half of an append to two is there": {finds: []string{"S3"}, do: func(r *rig) {
			a, b := lost(r, begin(r, anyVersion)), lost(r, r.m.streamAppends("y", anyVersion, "", 1))
			a.with, b.with = b, a
			end(r, a.values[0])
		}},
		"two win at one version":               {finds: []string{"S2"}, do: func(r *rig) { a, b := begin(r, 0), begin(r, 0); appended(r, a, 0); appended(r, b, 0) }},
		"an append is done at another version": {finds: []string{"S1"}, do: func(r *rig) { a, b := begin(r, 0), begin(r, 0); appended(r, a, 0); appended(r, b, 1) }},
		"an append says another version after it": {finds: []string{"S1"}, do: func(r *rig) {
			r.m.streamAnswered("a", begin(r, 0), word{Outcome: done, Places: []place{at(0)}, Version: 2})
		}},
		"an append below what was acknowledged":  {finds: []string{"S1"}, do: func(r *rig) { add(r, "", 0); add(r, "", 1); appended(r, begin(r, anyVersion), 1) }},
		"a conflict at the expected version":     {finds: []string{"S1"}, do: func(r *rig) { add(r, "", 0); conflict(r, begin(r, 1), 1, true) }},
		"a conflict by a version from memory":    {finds: []string{"S1"}, do: func(r *rig) { add(r, "", 0); add(r, "", 1); conflict(r, begin(r, 2), 1, true) }},
		"a conflict by a version that never was": {finds: []string{"S1"}, do: func(r *rig) { a := add(r, "", 0); conflict(r, begin(r, 0), 7, true); end(r, a.values[0]) }},
		"a conflict of two at once": {do: func(r *rig) {
			a, b := begin(r, 0), begin(r, 0)
			conflict(r, b, 1, true)
			appended(r, a, 0)
			end(r, a.values[0])
		}},
		"no stream is refused where there is none": {finds: []string{"S1"}, do: func(r *rig) { conflict(r, begin(r, noStream), 0, false) }},
		"no stream is taken where there is one": {finds: []string{"S1"}, do: func(r *rig) {
			a := add(r, "", 0)
			b := appended(r, begin(r, noStream), 1)
			end(r, a.values[0], b.values[0])
		}},
		"a stream that exists is taken where none does": {finds: []string{"S1"}, do: func(r *rig) {
			a := add(r, "", 0)
			change(r, "delete", done, at(1))
			b := appended(r, begin(r, streamExists), 1)
			end(r, a.values[0], "", b.values[0])
		}},
		"a conflict says that a deleted stream exists": {finds: []string{"S1"}, do: func(r *rig) {
			a := add(r, "", 0)
			change(r, "delete", done, at(1))
			conflict(r, begin(r, noStream), 1, true)
			end(r, a.values[0], "")
		}},
		"a conflict says that a stream does not exist that nobody deleted": {finds: []string{"S1"}, do: func(r *rig) {
			a := add(r, "", 0)
			conflict(r, begin(r, 0), 1, false)
			end(r, a.values[0])
		}},
		"an append that began later comes first": {finds: []string{"S1"}, do: func(r *rig) {
			b := add(r, "", 1)
			a := lost(r, begin(r, anyVersion))
			end(r, a.values[0], b.values[0])
		}},
		"an append that began later is deleted": {finds: []string{"S1"}, do: func(r *rig) {
			a := lost(r, begin(r, anyVersion))
			change(r, "delete", done, at(2))
			b := lost(r, begin(r, anyVersion))
			end(r, a.values[0], b.values[0], "")
		}},
		"what was appended before is not read": {finds: []string{"S1"}, do: func(r *rig) { add(r, "", 0); read(r, r.m.streamReads("x", 9), 0) }},
		"what a conflict told is not read":     {finds: []string{"S1"}, do: func(r *rig) { conflict(r, begin(r, 0), 1, true); read(r, r.m.streamReads("x", 9), 0) }},
		"a reader skips a version":             {finds: []string{"S2"}, do: func(r *rig) { add(r, "", 0); b := add(r, "", 1); read(r, r.m.streamReads("x", 9), 1, b.values[0]) }},
		"a reader gets another event at a version": {finds: []string{"S2"}, do: func(r *rig) {
			add(r, "", 0)
			b := lost(r, begin(r, 1))
			read(r, r.m.streamReads("x", 9), 0, b.values[0])
		}},
		"a reader gets an event of another stream": {finds: []string{"L2"}, do: func(r *rig) { c := r.m.streamAppends("y", 0, "", 1); read(r, r.m.streamReads("x", 9), 0, c.values[0]) }},
		"a reader gets an event with other data": {finds: []string{"L2"}, do: func(r *rig) {
			c := begin(r, 0)
			read(r, r.m.streamReads("x", 9), 0, seenValue(c.values[0], "?", false))
		}},
		"a deletion that was lost explains what reads lack": {do: func(r *rig) {
			a := add(r, "", 0)
			change(r, "delete", unknown)
			read(r, r.m.streamReads("x", 9), 0)
			end(r, a.values[0], "")
		}},
		"a deletion that did not happen explains nothing": {finds: []string{"S2"}, do: func(r *rig) {
			a := add(r, "", 0)
			change(r, "delete", unknown)
			read(r, r.m.streamReads("x", 9), 0)
			end(r, a.values[0])
		}},
		"a deletion explains nothing that came after it": {finds: []string{"S1"}, do: func(r *rig) {
			add(r, "", 0)
			change(r, "delete", done, at(1))
			add(r, "", 1)
			read(r, r.m.streamReads("x", 9), 0)
		}},
		"what was deleted is read": {finds: []string{"S7"}, do: func(r *rig) {
			a := add(r, "", 0)
			change(r, "delete", done)
			read(r, r.m.streamReads("x", 9), 0, a.values[0])
		}},
		"who began before a deletion may read on": {do: func(r *rig) {
			a, reading := add(r, "", 0), r.m.streamReads("x", 9)
			change(r, "delete", done)
			read(r, reading, 0, a.values[0])
		}},
		"a deletion at another version than was expected": {finds: []string{"S1"}, do: func(r *rig) {
			add(r, "", 0)
			r.m.streamAnswered("a", r.m.streamChanges("delete", "x", 0), word{Outcome: done, Places: []place{at(1)}})
		}},
		"an event is in a stream twice": {finds: []string{"L2", "S2"}, do: func(r *rig) {
			a := lost(r, begin(r, anyVersion))
			end(r, a.values[0], a.values[0])
		}},
		"a version is used again after a deletion": {finds: []string{"S1"}, do: func(r *rig) { add(r, "", 0); change(r, "delete", done, at(1)); add(r, "", 0) }},
		"a deletion that was done is not told":     {finds: []string{"S7"}, do: func(r *rig) { a := add(r, "", 0); change(r, "delete", done); end(r, a.values[0]) }},
		"nobody deleted it":                        {finds: []string{"L2"}, do: func(r *rig) { a := add(r, "", 0); end(r, a.values[0], "") }},
		"a lost append is not found once it is deleted": {do: func(r *rig) {
			a := lost(r, begin(r, 0))
			change(r, "delete", done, at(1))
			conflict(r, a, 1, false)
			end(r, a.values[0], "")
		}},
		"a lost append that is there is said to conflict": {finds: []string{"L2"}, do: func(r *rig) {
			a := lost(r, begin(r, 0))
			conflict(r, a, 1, true)
			end(r, a.values[0])
		}},
		"a lost append is carried out after another try was refused for now": {do: func(r *rig) {
			a := add(r, "", 0)
			b := lost(r, begin(r, anyVersion))
			change(r, "archive", done)
			archived(r, b)
			change(r, "unarchive", done)
			end(r, a.values[0], b.values[0])
		}},
		"an archived stream takes an append": {finds: []string{"S10"}, do: func(r *rig) { add(r, "", 0); change(r, "archive", done); add(r, "", 1) }},
		"an append began before the archiving was done": {do: func(r *rig) {
			add(r, "", 0)
			b := begin(r, anyVersion)
			change(r, "archive", done)
			appended(r, b, 1)
		}},
		"an unarchiving that was lost may have opened it": {do: func(r *rig) {
			add(r, "", 0)
			change(r, "archive", done)
			change(r, "unarchive", unknown)
			add(r, "", 1)
		}},
		"it was archived again": {finds: []string{"S10"}, do: func(r *rig) { add(r, "", 0); change(r, "unarchive", done); change(r, "archive", done); add(r, "", 1) }},
		"nobody archived it":    {finds: []string{"S10"}, do: func(r *rig) { add(r, "", 0); archived(r, begin(r, anyVersion)) }},
		"it was opened before": {finds: []string{"S10"}, do: func(r *rig) {
			add(r, "", 0)
			change(r, "archive", done)
			change(r, "unarchive", done)
			archived(r, begin(r, anyVersion))
		}},
		"a deletion opens it": {do: func(r *rig) {
			add(r, "", 0)
			change(r, "archive", done)
			change(r, "delete", done, at(1))
			add(r, "", 1)
		}},
		"what was forgotten is read": {finds: []string{"S11"}, do: func(r *rig) {
			a := add(r, "ann", 0)
			r.m.forgot("a", "ann", r.m.forgets("ann"), word{Outcome: done})
			read(r, r.m.streamReads("x", 9), 0, a.values[0])
		}},
		"what was forgotten is erased": {do: func(r *rig) {
			a := add(r, "ann", 0)
			r.m.forgot("a", "ann", r.m.forgets("ann"), word{Outcome: unknown})
			read(r, r.m.streamReads("x", 9), 0, erasedMark+a.values[0])
		}},
		"what came after the forgetting is read": {do: func(r *rig) {
			r.m.forgot("a", "ann", r.m.forgets("ann"), word{Outcome: done})
			a := add(r, "ann", 0)
			read(r, r.m.streamReads("x", 9), 0, a.values[0])
		}},
		"what came after the forgetting is erased": {finds: []string{"S11"}, do: func(r *rig) {
			r.m.forgot("a", "ann", r.m.forgets("ann"), word{Outcome: done})
			a := add(r, "ann", 0)
			read(r, r.m.streamReads("x", 9), 0, erasedMark+a.values[0])
		}},
		"what is about another is erased": {finds: []string{"S11"}, do: func(r *rig) {
			a := add(r, "bob", 0)
			r.m.forgot("a", "ann", r.m.forgets("ann"), word{Outcome: done})
			read(r, r.m.streamReads("x", 9), 0, erasedMark+a.values[0])
		}},
		"a projection leaves out a version": {finds: []string{"S8"}, do: func(r *rig) {
			a, _, c := add(r, "", 0), add(r, "", 1), add(r, "", 2)
			r.m.projected("p", 1, sight{"x", at(0), a.values[0]})
			r.m.projected("p", 1, sight{"x", at(2), c.values[0]})
		}},
		"another process goes on before the word of the one before is heard": {do: func(r *rig) {
			a, b, c := add(r, "", 0), add(r, "", 1), add(r, "", 2)
			r.m.projected("p", 1, sight{"x", at(0), a.values[0]})
			r.m.projected("q", 1, sight{"x", at(2), c.values[0]})
			r.m.projected("p", 1, sight{"x", at(1), b.values[0]})
			r.at += 9 * s
			r.m.projected("q", 1, sight{"x", at(2), c.values[0]})
		}},
		"another process goes on behind what nobody got": {finds: []string{"S8"}, do: func(r *rig) {
			a, _, c := add(r, "", 0), add(r, "", 1), add(r, "", 2)
			r.m.projected("p", 1, sight{"x", at(0), a.values[0]})
			r.m.projected("q", 1, sight{"x", at(2), c.values[0]})
			r.at += 9 * s
			r.m.projected("q", 1, sight{"x", at(2), c.values[0]})
		}},
		"at the end nobody got a version": {finds: []string{"S8"}, do: func(r *rig) {
			a, b, c := add(r, "", 0), add(r, "", 1), add(r, "", 2)
			r.m.projected("p", 1, sight{"x", at(0), a.values[0]})
			r.m.projected("q", 1, sight{"x", at(2), c.values[0]})
			r.m.judgeProjected(1, map[string]*streamPast{"x": {values: []string{a.values[0], b.values[0], c.values[0]}}})
		}},
		"a projection gets versions again": {do: func(r *rig) {
			a, b := add(r, "", 0), add(r, "", 1)
			for range 2 {
				r.m.projected("p", 1, sight{"x", at(0), a.values[0]})
				r.m.projected("p", 1, sight{"x", at(1), b.values[0]})
			}
			r.m.judgeProjected(1, map[string]*streamPast{"x": {values: []string{a.values[0], b.values[0]}}})
		}},
		"a projection does not get to the end": {finds: []string{"S8"}, do: func(r *rig) {
			a := add(r, "", 0)
			r.m.judgeProjected(1, map[string]*streamPast{"x": {values: []string{a.values[0]}}})
		}},
		"a stream lacks what its topic has": {finds: []string{"S5"}, do: func(r *rig) {
			r.m.judgeReadable("x", &streamPast{values: []string{add(r, "", 0).values[0]}}, nil, r.at)
		}},
		"a stream shows what its topic says is deleted": {finds: []string{"S2"}, do: func(r *rig) {
			a := add(r, "", 0)
			r.m.judgeReadable("x", &streamPast{values: a.values, deletions: []int64{1}}, []sight{{"x", at(0), a.values[0]}}, r.at)
		}},
		"a decision saw all that came before it": {do: func(r *rig) {
			a := decide(r, "x", 0)
			b := decide(r, "y", 0, a)
			change(r, "delete", done, at(1))
			c := decide(r, "y", 1, b)
			r.m.judgeDecisions("t", tagRead(r, r.m.tagReads("t"), b, c))
		}},
		"a decision did not see what came before it": {finds: []string{"S12"}, do: func(r *rig) {
			a := decide(r, "x", 0)
			b := decide(r, "y", 0)
			r.m.judgeDecisions("t", tagRead(r, r.m.tagReads("t"), a, b))
		}},
		"a tag lacks an event":                 {finds: []string{"S12"}, do: func(r *rig) { decide(r, "x", 0); tagRead(r, r.m.tagReads("t")) }},
		"an event came while its tag was read": {do: func(r *rig) { reading := r.m.tagReads("t"); decide(r, "x", 0); tagRead(r, reading) }},
		"a tag has an event without it":        {finds: []string{"S12"}, do: func(r *rig) { tagRead(r, r.m.tagReads("t"), add(r, "", 0)) }},
		"a tag has an event twice":             {finds: []string{"S12"}, do: func(r *rig) { a := decide(r, "x", 0); tagRead(r, r.m.tagReads("t"), a, a) }},
		"a tag has what was deleted": {finds: []string{"S7"}, do: func(r *rig) {
			a := decide(r, "x", 0)
			change(r, "delete", done, at(1))
			tagRead(r, r.m.tagReads("t"), a)
		}},
		"the newest snapshot is loaded": {do: func(r *rig) {
			add(r, "", 0)
			first := save(r, done)
			add(r, "", 1)
			second := save(r, done)
			load(r, 0, second)
			load(r, 1, first)
			load(r, 2, nil)
			again := save(r, unknown)
			load(r, 0, again)
			load(r, 0, second)
			change(r, "delete", done, at(2))
			load(r, 0, nil)
		}},
		"an older snapshot is loaded": {finds: []string{"S9"}, do: func(r *rig) {
			add(r, "", 0)
			first := save(r, done)
			add(r, "", 1)
			save(r, done)
			load(r, 0, first)
		}},
		"a snapshot that was replaced is loaded":      {finds: []string{"S9"}, do: func(r *rig) { add(r, "", 0); first := save(r, done); save(r, done); load(r, 0, first) }},
		"a snapshot that was saved is not loaded":     {finds: []string{"S9"}, do: func(r *rig) { add(r, "", 0); save(r, done); load(r, 0, nil) }},
		"a snapshot that was refused is loaded":       {finds: []string{"S9"}, do: func(r *rig) { add(r, "", 0); load(r, 0, save(r, refused)) }},
		"a snapshot above the version is loaded":      {finds: []string{"S9"}, do: func(r *rig) { add(r, "", 0); load(r, 1, save(r, done)) }},
		"a snapshot from before a deletion is loaded": {finds: []string{"S9"}, do: func(r *rig) { add(r, "", 0); s := save(r, done); change(r, "delete", done, at(1)); load(r, 0, s) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.at += s
			c.do(r)
			r.broke(c.finds...)
		})
	}
}
