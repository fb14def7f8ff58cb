package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

var historyTests = map[string]func(*testing.T, Harness){
	"ARandomHistoryGoesAsInMemory": testHistory,
}

// History runs one history of random operations on a store and on the model. A store can run it
// under faults; WEIR_SEED chooses the history.
func History(t *testing.T, h Harness) { testHistory(t, h) }

// One history of random operations runs on the store and on the model, in lock step, with equal
// answers.
func testHistory(t *testing.T, h Harness) {
	r := newRig(t, h)
	p := &pair{rig: r, random: chance(t), model: memory.New(), versions: map[string]eventlog.Version{}}
	for step := range 400 {
		var what string
		switch n := p.random.IntN(20); {
		case n < 9:
			what = p.commit()
		case n < 13:
			what = p.read()
		case n < 15:
			if what = p.seek(); p.random.IntN(2) == 0 {
				what = p.get()
			}
		case n < 17:
			what = p.trim()
		case n < 18:
			what = p.replace()
			if p.random.IntN(2) == 0 {
				what = p.list()
			}
		case n < 19:
			what = p.moved()
		default:
			what = "reopen"
			r.reopen()
			p.mark, p.modelMark = eventlog.Mark{}, eventlog.Mark{}
		}
		if t.Failed() {
			t.Fatalf("at step %d: %s", step, what)
		}
	}
}

// pair is a store and the model. Each operation returns what it did, in words.
type pair struct {
	*rig
	random          *rand.Rand
	model           *memory.Store
	mark, modelMark eventlog.Mark
	versions        map[string]eventlog.Version // the versions last seen by List
	forgotten       []eventlog.Partition
}

const historyPartitions = 8

func (p *pair) partition() eventlog.Partition {
	return eventlog.Partition(p.random.IntN(historyPartitions))
}

func (p *pair) key() string {
	return fmt.Sprintf("%c/%d", 'a'+p.random.IntN(3), p.random.IntN(6))
}

func (p *pair) commit() string {
	flush := make([]eventlog.Entry, 1+p.random.IntN(5)*p.random.IntN(2))
	var forgets []eventlog.Partition
	if p.random.IntN(20) == 0 {
		flush = flush[:1]
		forgets = []eventlog.Partition{p.partition(), p.partition()}
	}
	named := map[string]bool{} // keys of the flush: those of one entry are in no other entry
	for i := range flush {
		flush[i] = p.entry(named, len(flush) == 1 && forgets == nil)
	}
	if forgets != nil {
		of := func(b eventlog.Batch) bool { return slices.Contains(forgets, b.Partition) }
		flush[0].Batches, flush[0].Puts = slices.DeleteFunc(flush[0].Batches, of), nil // Puts name batches by number
		flush[0].Forgets = forgets
		p.forgotten = append(p.forgotten, forgets...) // even if it is refused
	}
	got, err := p.store.Commit(p.ctx, flush)
	want, _ := p.model.Commit(p.ctx, flush)
	what := fmt.Sprintf("commit %.3000s", fmt.Sprint(flush))
	if err != nil {
		p.Errorf("%s: %v", what, err)
		return what
	}
	p.same(what, want, got)
	return what
}

// entry makes an entry that uses no key in named, and adds its keys to named. It creates partitions
// only with mayOpen: a store need not show a new partition to other entries of the flush.
func (p *pair) entry(named map[string]bool, mayOpen bool) eventlog.Entry {
	var entry eventlog.Entry
	for range p.random.IntN(4) {
		b := eventlog.Batch{Partition: p.partition()}
		if p.random.IntN(4) > 0 {
			b.Records = 1 + p.random.Int32N(10)
			b.MaxTime = eventlog.Timestamp(p.random.IntN(1000)) - 1
			b.Bytes = bytes.Repeat([]byte{byte(p.random.IntN(256))}, 1+p.random.IntN(3000))
		} else if !mayOpen || slices.Contains(p.forgotten, b.Partition) {
			continue // a partition's number is never used again
		}
		entry.Batches = append(entry.Batches, b)
	}
	mine := map[string]bool{}
	for range p.random.IntN(3) {
		key := p.key()
		if named[key] {
			continue
		}
		mine[key] = true
		check := eventlog.Check{Key: key, Version: p.versions[key]}
		if p.random.IntN(5) == 0 {
			check.Version = eventlog.Version(p.random.IntN(4))
		}
		entry.Checks = append(entry.Checks, check)
	}
	put := map[string]bool{}
	for range p.random.IntN(3) {
		key := p.key()
		if named[key] || put[key] {
			continue
		}
		mine[key], put[key] = true, true
		change := eventlog.Put{Key: key, Version: p.versions[key] + 1}
		if p.random.IntN(4) > 0 {
			change.Value = bytes.Repeat([]byte{byte(p.random.IntN(256))}, p.random.IntN(100))
			change.AddBase = p.random.IntN(len(entry.Batches) + 1)
		}
		entry.Puts = append(entry.Puts, change)
	}
	for key := range mine {
		named[key] = true
	}
	return entry
}

func (p *pair) read() string {
	spans := make([]eventlog.Span, 1+p.random.IntN(5))
	for i := range spans {
		spans[i] = eventlog.Span{Partition: p.partition(), From: eventlog.Offset(p.random.IntN(300)) - 1, MaxBytes: p.random.IntN(20_000)}
	}
	budget := p.random.IntN(40_000)
	got, err := p.store.Read(p.ctx, spans, budget)
	want, _ := p.model.Read(p.ctx, spans, budget)
	what := fmt.Sprintf("read %+v within %d", spans, budget)
	if err != nil {
		p.Errorf("%s: %v", what, err)
		return what
	}
	fewer := false
	for i := range want {
		// A store may hold more bytes than the model, for a while, and may give fewer batches in
		// one read.
		if got[i].Bounds.Bytes < want[i].Bounds.Bytes {
			p.Errorf("%s: %d bytes in partition %d, want at least %d", what, got[i].Bounds.Bytes, spans[i].Partition, want[i].Bounds.Bytes)
		}
		want[i].Bounds.Bytes = got[i].Bounds.Bytes
		n, most := len(got[i].Batches), len(want[i].Batches)
		if n > 0 && n < most {
			want[i].Batches, fewer = want[i].Batches[:n], true
		} else if fewer { // the bytes that an earlier span did not use may go to later spans
			n = min(n, most)
			want[i].Batches, got[i].Batches = want[i].Batches[:n:n], got[i].Batches[:n:n]
		}
	}
	p.same(what, want, got)
	return what
}

func (p *pair) seek() string {
	id, goal := p.partition(), eventlog.Goal{At: eventlog.Timestamp(p.random.IntN(1050)), From: eventlog.Offset(p.random.IntN(300)) - 1}
	if p.random.IntN(2) == 0 {
		goal = eventlog.Goal{Bytes: 1 + p.random.Int64N(60_000)}
	}
	got, gotErr := seekOne(p.ctx, p.store, id, goal)
	want, wantErr := seekOne(p.ctx, p.model, id, goal)
	what := fmt.Sprintf("seek %+v in partition %d", goal, id)
	if got != want || errors.Is(gotErr, eventlog.ErrNoPartition) != (wantErr != nil) || wantErr == nil && gotErr != nil {
		p.Errorf("%s: %d, %v; the model says %d, %v", what, got, gotErr, want, wantErr)
	}
	return what
}

func (p *pair) trim() string {
	trims := make([]eventlog.Trim, 1+p.random.IntN(4))
	for i := range trims {
		trims[i] = eventlog.Trim{Partition: p.partition(), Before: eventlog.Offset(p.random.IntN(200))}
	}
	what := fmt.Sprintf("trim %+v", trims)
	errs, err := p.store.Trim(p.ctx, trims)
	if err = errors.Join(append(errs, err)...); err != nil {
		p.Errorf("%s: %v", what, err)
	}
	_, _ = p.model.Trim(p.ctx, trims)
	return what
}

func (p *pair) list() string {
	prefix, after, limit := []string{"", "a", "b/", "c/3", "d"}[p.random.IntN(5)], "", p.random.IntN(12)
	if p.random.IntN(2) == 0 {
		after = p.key()
	}
	got, err := p.store.List(p.ctx, prefix, after, limit)
	want, _ := p.model.List(p.ctx, prefix, after, limit)
	what := fmt.Sprintf("list under %q after %q at most %d", prefix, after, limit)
	if err != nil {
		p.Errorf("%s: %v", what, err)
	}
	for i := range got {
		p.versions[got[i].Key] = got[i].Version
		got[i].Age, got[i].Now, got[i].NowMax = 0, 0, 0
	}
	for i := range want {
		want[i].Age, want[i].Now, want[i].NowMax = 0, 0, 0
	}
	p.same(what, want, got)
	return what
}

func (p *pair) get() string {
	keys := make([]string, p.random.IntN(6))
	for i := range keys {
		keys[i] = p.key()
	}
	most := p.random.IntN(60)
	got, err := p.store.Get(p.ctx, keys, most)
	want, _ := p.model.Get(p.ctx, keys, most)
	what := fmt.Sprintf("get %q, at most %d bytes", keys, most)
	if err != nil {
		p.Errorf("%s: %v", what, err)
	}
	for i := range got {
		p.versions[got[i].Key] = got[i].Version
		got[i].Age, got[i].Now, got[i].NowMax = 0, 0, 0
	}
	for i := range want {
		want[i].Age, want[i].Now, want[i].NowMax = 0, 0, 0
	}
	p.same(what, want, got)
	return what
}

// moved asks both what moved since they were last asked. A store may list more than moved.
func (p *pair) moved() string {
	got, mark, err := p.store.Changes(p.ctx, p.mark)
	want, modelMark, _ := p.model.Changes(p.ctx, p.modelMark)
	what := fmt.Sprintf("moved since %+v", p.mark)
	if err != nil {
		p.Errorf("%s: %v", what, err)
	}
	p.mark, p.modelMark = mark, modelMark
	listed := map[eventlog.Partition]eventlog.Bounds{}
	for _, bounds := range got {
		listed[bounds.Partition] = bounds
	}
	for _, bounds := range want {
		got, found := listed[bounds.Partition]
		if !found || got.First != bounds.First || got.Next != bounds.Next {
			p.Errorf("%s: partition %d is at %+v and listed as %+v (%v)", what, bounds.Partition, bounds, got, found)
		}
	}
	return what
}

func (p *pair) same(what string, want, got any) {
	p.Helper()
	equalErrors := cmp.Comparer(func(a, b error) bool { return errors.Is(a, b) || errors.Is(b, a) })
	emptyIsNil := cmp.FilterValues(func(a, b []eventlog.Offset) bool { return len(a)+len(b) == 0 }, cmp.Ignore())
	noKeys := cmp.FilterValues(func(a, b []eventlog.KeyValue) bool { return len(a)+len(b) == 0 }, cmp.Ignore())
	if diff := cmp.Diff(want, got, equalErrors, emptyIsNil, quickly, noKeys); diff != "" {
		p.Errorf("%.2000s (-model +store):\n%.4000s", what, diff)
	}
}
