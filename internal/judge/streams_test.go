package judge

import (
	"testing"
	"time"
)

func TestTheModelFindsWhatAStreamDoesWrongAndNothingElse(t *testing.T) {
	const s = Moment(time.Second)
	appended := func(r *rig, c *StreamCall, first int64) *StreamCall {
		r.m.StreamAnswered("a", c, Word{Outcome: Done, Places: []Place{at(first)}, Version: first + int64(len(c.Values))})
		return c
	}
	// add appends one event, about somebody or nobody, wherever the stream "x" is.
	add := func(r *rig, subject string, first int64) *StreamCall {
		return appended(r, r.m.StreamAppends("x", AnyVersion, subject, 1), first)
	}
	begin := func(r *rig, expected int64) *StreamCall { return r.m.StreamAppends("x", expected, "", 1) }
	conflict := func(r *rig, c *StreamCall, actual int64, exists bool) {
		r.m.StreamAnswered("a", c, Word{Outcome: Refused, State: "conflict", Version: actual, Exists: exists})
	}
	lost := func(r *rig, c *StreamCall) *StreamCall { r.m.StreamAnswered("a", c, Word{Outcome: Unknown}); return c }
	archived := func(r *rig, c *StreamCall) { r.m.StreamAnswered("a", c, Word{Outcome: Refused, State: "archived"}) }
	change := func(r *rig, verb string, o Outcome, places ...Place) *StreamCall {
		c := r.m.StreamChanges(verb, "x", AnyVersion)
		r.m.StreamAnswered("a", c, Word{Outcome: o, Places: places})
		return c
	}
	read := func(r *rig, reading streamReading, from int64, values ...string) {
		var seen []Sight
		for i, v := range values {
			seen = append(seen, Sight{"x", at(from + int64(i)), v})
		}
		r.m.StreamRead("r", reading, seen)
	}
	// end judges a topic that has values, "" where the stream was deleted.
	end := func(r *rig, values ...string) {
		p := &StreamPast{}
		for _, v := range values {
			if v == "" {
				p.Deletions = append(p.Deletions, int64(len(p.Values)))
			} else {
				p.Values = append(p.Values, v)
			}
		}
		r.m.JudgeStreams(map[string]*StreamPast{"x": p})
	}
	// decide appends one event with a tag, which rests on others.
	decide := func(r *rig, stream string, first int64, saw ...*StreamCall) *StreamCall {
		var values []string
		for _, c := range saw {
			values = append(values, c.Values...)
		}
		return appended(r, r.m.StreamDecides(stream, "t", "boundary", values), first)
	}
	tagRead := func(r *rig, reading tagReading, calls ...*StreamCall) []string {
		var seen []Sight
		for _, c := range calls {
			seen = append(seen, Sight{c.Stream, at(c.first), c.Values[0]})
		}
		return r.m.TagRead("r", reading, seen)
	}
	save := func(r *rig, o Outcome) *SnapshotSave {
		s := r.m.SnapshotSaves("x", 0)
		r.m.SnapshotSaved("a", s, Word{Outcome: o})
		return s
	}
	// load loads a snapshot at or below a version that is so much below the stream's; nil: there is
	// none.
	load := func(r *rig, below int64, s *SnapshotSave) {
		said := Word{Outcome: Done}
		if s != nil {
			said.Exists, said.Version, said.State = true, s.Version, s.Data
		}
		r.m.SnapshotRead("r", r.m.SnapshotReads("x", below), said)
	}
	for name, c := range map[string]struct {
		do    func(*rig)
		finds []string
	}{
		"all is well": {do: func(r *rig) {
			a, late := add(r, "", 0), begin(r, 0)
			conflict(r, late, 1, true)
			b := appended(r, lost(r, begin(r, 1)), 1)
			read(r, r.m.StreamReads("x", 9), 0, a.Values[0], b.Values[0])
			change(r, "delete", Done, at(2))
			read(r, r.m.StreamReads("x", 9), 0)
			conflict(r, begin(r, StreamExists), 2, false)
			d := appended(r, begin(r, NoStream), 2)
			read(r, r.m.StreamReads("x", 9), 2, d.Values[0])
			end(r, a.Values[0], b.Values[0], "", d.Values[0])
		}},
		"what is unknown is there, or not": {do: func(r *rig) {
			a := lost(r, begin(r, 0))
			lost(r, begin(r, AnyVersion))
			end(r, a.Values[0])
		}},
		"an acknowledged append is not there": {finds: []string{"L1"}, do: func(r *rig) { add(r, "", 0); end(r) }},
		"a refused append is there": {finds: []string{"L2"}, do: func(r *rig) {
			a, b := add(r, "", 0), begin(r, 0)
			conflict(r, b, 1, true)
			end(r, a.Values[0], b.Values[0])
		}},
		"what nobody appended is there": {finds: []string{"L2"}, do: func(r *rig) { end(r, "out of thin air") }},
		"half of an append is there":    {finds: []string{"S3"}, do: func(r *rig) { end(r, lost(r, r.m.StreamAppends("x", 0, "", 2)).Values[0]) }},
		"half of an append to two is there": {finds: []string{"S3"}, do: func(r *rig) {
			a, b := lost(r, begin(r, AnyVersion)), lost(r, r.m.StreamAppends("y", AnyVersion, "", 1))
			a.With, b.With = b, a
			end(r, a.Values[0])
		}},
		"two win at one version":               {finds: []string{"S2"}, do: func(r *rig) { a, b := begin(r, 0), begin(r, 0); appended(r, a, 0); appended(r, b, 0) }},
		"an append is done at another version": {finds: []string{"S1"}, do: func(r *rig) { a, b := begin(r, 0), begin(r, 0); appended(r, a, 0); appended(r, b, 1) }},
		"an append says another version after it": {finds: []string{"S1"}, do: func(r *rig) {
			r.m.StreamAnswered("a", begin(r, 0), Word{Outcome: Done, Places: []Place{at(0)}, Version: 2})
		}},
		"an append below what was acknowledged":  {finds: []string{"S1"}, do: func(r *rig) { add(r, "", 0); add(r, "", 1); appended(r, begin(r, AnyVersion), 1) }},
		"a conflict at the expected version":     {finds: []string{"S1"}, do: func(r *rig) { add(r, "", 0); conflict(r, begin(r, 1), 1, true) }},
		"a conflict by a version from memory":    {finds: []string{"S1"}, do: func(r *rig) { add(r, "", 0); add(r, "", 1); conflict(r, begin(r, 2), 1, true) }},
		"a conflict by a version that never was": {finds: []string{"S1"}, do: func(r *rig) { a := add(r, "", 0); conflict(r, begin(r, 0), 7, true); end(r, a.Values[0]) }},
		"a conflict of two at once": {do: func(r *rig) {
			a, b := begin(r, 0), begin(r, 0)
			conflict(r, b, 1, true)
			appended(r, a, 0)
			end(r, a.Values[0])
		}},
		"no stream is refused where there is none": {finds: []string{"S1"}, do: func(r *rig) { conflict(r, begin(r, NoStream), 0, false) }},
		"no stream is taken where there is one": {finds: []string{"S1"}, do: func(r *rig) {
			a := add(r, "", 0)
			b := appended(r, begin(r, NoStream), 1)
			end(r, a.Values[0], b.Values[0])
		}},
		"a stream that exists is taken where none does": {finds: []string{"S1"}, do: func(r *rig) {
			a := add(r, "", 0)
			change(r, "delete", Done, at(1))
			b := appended(r, begin(r, StreamExists), 1)
			end(r, a.Values[0], "", b.Values[0])
		}},
		"a conflict says that a deleted stream exists": {finds: []string{"S1"}, do: func(r *rig) {
			a := add(r, "", 0)
			change(r, "delete", Done, at(1))
			conflict(r, begin(r, NoStream), 1, true)
			end(r, a.Values[0], "")
		}},
		"a conflict says that a stream does not exist that nobody deleted": {finds: []string{"S1"}, do: func(r *rig) {
			a := add(r, "", 0)
			conflict(r, begin(r, 0), 1, false)
			end(r, a.Values[0])
		}},
		"an append that began later comes first": {finds: []string{"S1"}, do: func(r *rig) {
			b := add(r, "", 1)
			a := lost(r, begin(r, AnyVersion))
			end(r, a.Values[0], b.Values[0])
		}},
		"an append that began later is deleted": {finds: []string{"S1"}, do: func(r *rig) {
			a := lost(r, begin(r, AnyVersion))
			change(r, "delete", Done, at(2))
			b := lost(r, begin(r, AnyVersion))
			end(r, a.Values[0], b.Values[0], "")
		}},
		"what was appended before is not read": {finds: []string{"S1"}, do: func(r *rig) { add(r, "", 0); read(r, r.m.StreamReads("x", 9), 0) }},
		"what a conflict told is not read":     {finds: []string{"S1"}, do: func(r *rig) { conflict(r, begin(r, 0), 1, true); read(r, r.m.StreamReads("x", 9), 0) }},
		"a reader skips a version":             {finds: []string{"S2"}, do: func(r *rig) { add(r, "", 0); b := add(r, "", 1); read(r, r.m.StreamReads("x", 9), 1, b.Values[0]) }},
		"a reader gets another event at a version": {finds: []string{"S2"}, do: func(r *rig) {
			add(r, "", 0)
			b := lost(r, begin(r, 1))
			read(r, r.m.StreamReads("x", 9), 0, b.Values[0])
		}},
		"a reader gets an event of another stream": {finds: []string{"L2"}, do: func(r *rig) { c := r.m.StreamAppends("y", 0, "", 1); read(r, r.m.StreamReads("x", 9), 0, c.Values[0]) }},
		"a reader gets an event with other data": {finds: []string{"L2"}, do: func(r *rig) {
			c := begin(r, 0)
			read(r, r.m.StreamReads("x", 9), 0, SeenValue(c.Values[0], "?", false))
		}},
		"a deletion that was lost explains what reads lack": {do: func(r *rig) {
			a := add(r, "", 0)
			change(r, "delete", Unknown)
			read(r, r.m.StreamReads("x", 9), 0)
			end(r, a.Values[0], "")
		}},
		"a deletion that did not happen explains nothing": {finds: []string{"S2"}, do: func(r *rig) {
			a := add(r, "", 0)
			change(r, "delete", Unknown)
			read(r, r.m.StreamReads("x", 9), 0)
			end(r, a.Values[0])
		}},
		"a deletion explains nothing that came after it": {finds: []string{"S1"}, do: func(r *rig) {
			add(r, "", 0)
			change(r, "delete", Done, at(1))
			add(r, "", 1)
			read(r, r.m.StreamReads("x", 9), 0)
		}},
		"what was deleted is read": {finds: []string{"S7"}, do: func(r *rig) {
			a := add(r, "", 0)
			change(r, "delete", Done)
			read(r, r.m.StreamReads("x", 9), 0, a.Values[0])
		}},
		"who began before a deletion may read on": {do: func(r *rig) {
			a, reading := add(r, "", 0), r.m.StreamReads("x", 9)
			change(r, "delete", Done)
			read(r, reading, 0, a.Values[0])
		}},
		"a deletion at another version than was expected": {finds: []string{"S1"}, do: func(r *rig) {
			add(r, "", 0)
			r.m.StreamAnswered("a", r.m.StreamChanges("delete", "x", 0), Word{Outcome: Done, Places: []Place{at(1)}})
		}},
		"an event is in a stream twice": {finds: []string{"L2", "S2"}, do: func(r *rig) {
			a := lost(r, begin(r, AnyVersion))
			end(r, a.Values[0], a.Values[0])
		}},
		"a version is used again after a deletion": {finds: []string{"S1"}, do: func(r *rig) { add(r, "", 0); change(r, "delete", Done, at(1)); add(r, "", 0) }},
		"a deletion that was done is not told":     {finds: []string{"S7"}, do: func(r *rig) { a := add(r, "", 0); change(r, "delete", Done); end(r, a.Values[0]) }},
		"nobody deleted it":                        {finds: []string{"L2"}, do: func(r *rig) { a := add(r, "", 0); end(r, a.Values[0], "") }},
		"a lost append is not found once it is deleted": {do: func(r *rig) {
			a := lost(r, begin(r, 0))
			change(r, "delete", Done, at(1))
			conflict(r, a, 1, false)
			end(r, a.Values[0], "")
		}},
		"a lost append that is there is said to conflict": {finds: []string{"L2"}, do: func(r *rig) {
			a := lost(r, begin(r, 0))
			conflict(r, a, 1, true)
			end(r, a.Values[0])
		}},
		"a lost append is carried out after another try was refused for now": {do: func(r *rig) {
			a := add(r, "", 0)
			b := lost(r, begin(r, AnyVersion))
			change(r, "archive", Done)
			archived(r, b)
			change(r, "unarchive", Done)
			end(r, a.Values[0], b.Values[0])
		}},
		"an archived stream takes an append": {finds: []string{"S10"}, do: func(r *rig) { add(r, "", 0); change(r, "archive", Done); add(r, "", 1) }},
		"an append began before the archiving was done": {do: func(r *rig) {
			add(r, "", 0)
			b := begin(r, AnyVersion)
			change(r, "archive", Done)
			appended(r, b, 1)
		}},
		"an unarchiving that was lost may have opened it": {do: func(r *rig) {
			add(r, "", 0)
			change(r, "archive", Done)
			change(r, "unarchive", Unknown)
			add(r, "", 1)
		}},
		"it was archived again": {finds: []string{"S10"}, do: func(r *rig) { add(r, "", 0); change(r, "unarchive", Done); change(r, "archive", Done); add(r, "", 1) }},
		"nobody archived it":    {finds: []string{"S10"}, do: func(r *rig) { add(r, "", 0); archived(r, begin(r, AnyVersion)) }},
		"it was opened before": {finds: []string{"S10"}, do: func(r *rig) {
			add(r, "", 0)
			change(r, "archive", Done)
			change(r, "unarchive", Done)
			archived(r, begin(r, AnyVersion))
		}},
		"a deletion opens it": {do: func(r *rig) {
			add(r, "", 0)
			change(r, "archive", Done)
			change(r, "delete", Done, at(1))
			add(r, "", 1)
		}},
		"what was forgotten is read": {finds: []string{"S11"}, do: func(r *rig) {
			a := add(r, "ann", 0)
			r.m.Forgot("a", "ann", r.m.Forgets("ann"), Word{Outcome: Done})
			read(r, r.m.StreamReads("x", 9), 0, a.Values[0])
		}},
		"what was forgotten is erased": {do: func(r *rig) {
			a := add(r, "ann", 0)
			r.m.Forgot("a", "ann", r.m.Forgets("ann"), Word{Outcome: Unknown})
			read(r, r.m.StreamReads("x", 9), 0, erasedMark+a.Values[0])
		}},
		"what came after the forgetting is read": {do: func(r *rig) {
			r.m.Forgot("a", "ann", r.m.Forgets("ann"), Word{Outcome: Done})
			a := add(r, "ann", 0)
			read(r, r.m.StreamReads("x", 9), 0, a.Values[0])
		}},
		"what came after the forgetting is erased": {finds: []string{"S11"}, do: func(r *rig) {
			r.m.Forgot("a", "ann", r.m.Forgets("ann"), Word{Outcome: Done})
			a := add(r, "ann", 0)
			read(r, r.m.StreamReads("x", 9), 0, erasedMark+a.Values[0])
		}},
		"what is about another is erased": {finds: []string{"S11"}, do: func(r *rig) {
			a := add(r, "bob", 0)
			r.m.Forgot("a", "ann", r.m.Forgets("ann"), Word{Outcome: Done})
			read(r, r.m.StreamReads("x", 9), 0, erasedMark+a.Values[0])
		}},
		"a projection leaves out a version": {finds: []string{"S8"}, do: func(r *rig) {
			a, _, c := add(r, "", 0), add(r, "", 1), add(r, "", 2)
			r.m.Projected("p", 1, Sight{"x", at(0), a.Values[0]})
			r.m.Projected("p", 1, Sight{"x", at(2), c.Values[0]})
		}},
		"another process goes on before the word of the one before is heard": {do: func(r *rig) {
			a, b, c := add(r, "", 0), add(r, "", 1), add(r, "", 2)
			r.m.Projected("p", 1, Sight{"x", at(0), a.Values[0]})
			r.m.Projected("q", 1, Sight{"x", at(2), c.Values[0]})
			r.m.Projected("p", 1, Sight{"x", at(1), b.Values[0]})
			r.at += 9 * s
			r.m.Projected("q", 1, Sight{"x", at(2), c.Values[0]})
		}},
		"another process goes on behind what nobody got": {finds: []string{"S8"}, do: func(r *rig) {
			a, _, c := add(r, "", 0), add(r, "", 1), add(r, "", 2)
			r.m.Projected("p", 1, Sight{"x", at(0), a.Values[0]})
			r.m.Projected("q", 1, Sight{"x", at(2), c.Values[0]})
			r.at += 9 * s
			r.m.Projected("q", 1, Sight{"x", at(2), c.Values[0]})
		}},
		"at the end nobody got a version": {finds: []string{"S8"}, do: func(r *rig) {
			a, b, c := add(r, "", 0), add(r, "", 1), add(r, "", 2)
			r.m.Projected("p", 1, Sight{"x", at(0), a.Values[0]})
			r.m.Projected("q", 1, Sight{"x", at(2), c.Values[0]})
			r.m.JudgeProjected(1, map[string]*StreamPast{"x": {Values: []string{a.Values[0], b.Values[0], c.Values[0]}}})
		}},
		"a projection gets versions again": {do: func(r *rig) {
			a, b := add(r, "", 0), add(r, "", 1)
			for range 2 {
				r.m.Projected("p", 1, Sight{"x", at(0), a.Values[0]})
				r.m.Projected("p", 1, Sight{"x", at(1), b.Values[0]})
			}
			r.m.JudgeProjected(1, map[string]*StreamPast{"x": {Values: []string{a.Values[0], b.Values[0]}}})
		}},
		"a projection does not get to the end": {finds: []string{"S8"}, do: func(r *rig) {
			a := add(r, "", 0)
			r.m.JudgeProjected(1, map[string]*StreamPast{"x": {Values: []string{a.Values[0]}}})
		}},
		"a stream lacks what its topic has": {finds: []string{"S5"}, do: func(r *rig) {
			r.m.JudgeReadable("x", &StreamPast{Values: []string{add(r, "", 0).Values[0]}}, nil, r.at)
		}},
		"a stream shows what its topic says is deleted": {finds: []string{"S2"}, do: func(r *rig) {
			a := add(r, "", 0)
			r.m.JudgeReadable("x", &StreamPast{Values: a.Values, Deletions: []int64{1}}, []Sight{{"x", at(0), a.Values[0]}}, r.at)
		}},
		"a decision saw all that came before it": {do: func(r *rig) {
			a := decide(r, "x", 0)
			b := decide(r, "y", 0, a)
			change(r, "delete", Done, at(1))
			c := decide(r, "y", 1, b)
			r.m.JudgeDecisions("t", tagRead(r, r.m.TagReads("t"), b, c))
		}},
		"a decision did not see what came before it": {finds: []string{"S12"}, do: func(r *rig) {
			a := decide(r, "x", 0)
			b := decide(r, "y", 0)
			r.m.JudgeDecisions("t", tagRead(r, r.m.TagReads("t"), a, b))
		}},
		"a tag lacks an event":                 {finds: []string{"S12"}, do: func(r *rig) { decide(r, "x", 0); tagRead(r, r.m.TagReads("t")) }},
		"an event came while its tag was read": {do: func(r *rig) { reading := r.m.TagReads("t"); decide(r, "x", 0); tagRead(r, reading) }},
		"a tag has an event without it":        {finds: []string{"S12"}, do: func(r *rig) { tagRead(r, r.m.TagReads("t"), add(r, "", 0)) }},
		"a tag has an event twice":             {finds: []string{"S12"}, do: func(r *rig) { a := decide(r, "x", 0); tagRead(r, r.m.TagReads("t"), a, a) }},
		"a tag has what was deleted": {finds: []string{"S7"}, do: func(r *rig) {
			a := decide(r, "x", 0)
			change(r, "delete", Done, at(1))
			tagRead(r, r.m.TagReads("t"), a)
		}},
		"the newest snapshot is loaded": {do: func(r *rig) {
			add(r, "", 0)
			first := save(r, Done)
			add(r, "", 1)
			second := save(r, Done)
			load(r, 0, second)
			load(r, 1, first)
			load(r, 2, nil)
			again := save(r, Unknown)
			load(r, 0, again)
			load(r, 0, second)
			change(r, "delete", Done, at(2))
			load(r, 0, nil)
		}},
		"an older snapshot is loaded": {finds: []string{"S9"}, do: func(r *rig) {
			add(r, "", 0)
			first := save(r, Done)
			add(r, "", 1)
			save(r, Done)
			load(r, 0, first)
		}},
		"a snapshot that was replaced is loaded":      {finds: []string{"S9"}, do: func(r *rig) { add(r, "", 0); first := save(r, Done); save(r, Done); load(r, 0, first) }},
		"a snapshot that was saved is not loaded":     {finds: []string{"S9"}, do: func(r *rig) { add(r, "", 0); save(r, Done); load(r, 0, nil) }},
		"a snapshot that was refused is loaded":       {finds: []string{"S9"}, do: func(r *rig) { add(r, "", 0); load(r, 0, save(r, Refused)) }},
		"a snapshot above the version is loaded":      {finds: []string{"S9"}, do: func(r *rig) { add(r, "", 0); load(r, 1, save(r, Done)) }},
		"a snapshot from before a deletion is loaded": {finds: []string{"S9"}, do: func(r *rig) { add(r, "", 0); s := save(r, Done); change(r, "delete", Done, at(1)); load(r, 0, s) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.at += s
			c.do(r)
			r.broke(c.finds...)
		})
	}
}
