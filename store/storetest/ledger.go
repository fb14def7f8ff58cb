package storetest

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/weir-log/weir/eventlog"
)

// ledger writes down what committers were answered and what readers saw, and finds contradictions.
//
// Every batch carries a label that no other batch has, and the rest of its bytes follow from the
// label. So whoever reads a batch can tell who sent it and that every byte is as it was sent.
type ledger struct {
	mu    sync.Mutex // guards what follows
	at    map[place]string
	where map[string]place
	high  map[eventlog.Partition]eventlog.Offset // the highest Next that anyone has seen
	wrong []string
}

type place struct {
	partition eventlog.Partition
	base      eventlog.Offset
}

func newLedger() *ledger {
	return &ledger{at: map[place]string{}, where: map[string]place{}, high: map[eventlog.Partition]eventlog.Offset{}}
}

// labeled makes the batch that belongs to a label.
func labeled(id eventlog.Partition, label string, size int) eventlog.Batch {
	hash := fnv.New64a()
	hash.Write([]byte(label))
	random := rand.New(rand.NewPCG(hash.Sum64(), 0))
	content := make([]byte, 0, len(label)+1+size)
	content = append(append(content, label...), '\n')
	for len(content) < cap(content) {
		content = append(content, byte(random.Uint32()))
	}
	return eventlog.Batch{
		Partition: id, Records: 1 + random.Int32N(9), MaxTime: eventlog.Timestamp(random.Int64N(1 << 40)), Bytes: content,
	}
}

// labelOf returns a batch's label, or an error if it is not the batch that belongs to the label.
func labelOf(b eventlog.Batch) (string, error) {
	label, rest, found := bytes.Cut(b.Bytes, []byte("\n"))
	if !found {
		return "", fmt.Errorf("a batch of partition %d that nobody sent: %.60q", b.Partition, b.Bytes)
	}
	sent := labeled(b.Partition, string(label), len(rest))
	if sent.Records != b.Records || sent.MaxTime != b.MaxTime || !bytes.Equal(sent.Bytes, b.Bytes) {
		return "", fmt.Errorf("batch %s of partition %d is not as it was sent: %d records, time %d, %d bytes",
			label, b.Partition, b.Records, b.MaxTime, len(b.Bytes))
	}
	return string(label), nil
}

// known returns the highest Next that anyone has seen. What is sent from now on must not be placed
// below it.
func (l *ledger) known(id eventlog.Partition) eventlog.Offset {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.high[id]
}

// acked notes that a batch was acknowledged at a base offset. after is what known returned before
// it was sent.
func (l *ledger) acked(b eventlog.Batch, base, after eventlog.Offset) {
	if base < after {
		l.complain("partition %d: a batch sent when %d was known was placed at %d", b.Partition, after, base)
	}
	l.saw(eventlog.Placed{Base: base, Batch: b})
}

// saw notes that a batch was seen at its place.
func (l *ledger) saw(b eventlog.Placed) {
	label, err := labelOf(b.Batch)
	if err != nil {
		l.complain("%v", err)
		return
	}
	l.note(label, place{b.Partition, b.Base}, b.End())
}

func (l *ledger) note(label string, at place, end eventlog.Offset) {
	l.mu.Lock()
	other, taken := l.at[at]
	before, placed := l.where[label]
	l.at[at], l.where[label] = label, at
	l.high[at.partition] = max(l.high[at.partition], end)
	l.mu.Unlock()
	if taken && other != label {
		l.complain("partition %d offset %d holds %s, and held %s", at.partition, at.base, label, other)
	}
	if placed && before != at {
		l.complain("%s is at %+v, and was at %+v", label, at, before)
	}
}

func (l *ledger) complain(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// settle compares all that was noted with what the store holds in the end.
func (l *ledger) settle(r *rig, ids ...eventlog.Partition) {
	r.Helper()
	var held map[place]bool
	var half []string
	// What a killed process sent last may be committed while we look: an entry is half done only if
	// it stays so.
	for range 20 {
		held = l.look(r, ids)
		if half = l.halfDone(r); len(half) == 0 {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for at, label := range l.at {
		if !held[at] {
			l.wrong = append(l.wrong, fmt.Sprintf("%s was at partition %d offset %d, and is lost", label, at.partition, at.base))
		}
	}
	l.wrong = append(l.wrong, half...)
	if len(l.wrong) > 0 {
		r.Errorf("%d things are wrong, the first:\n%s", len(l.wrong), strings.Join(l.wrong[:min(len(l.wrong), 10)], "\n"))
	}
	if len(l.at) == 0 {
		r.Errorf("nothing was written down: the test tested nothing")
	}
}

// look notes what partitions hold, and returns the places that hold something.
func (l *ledger) look(r *rig, ids []eventlog.Partition) map[place]bool {
	r.Helper()
	held := map[place]bool{}
	for _, id := range ids {
		for _, b := range r.all(id) {
			held[place{id, b.Base}] = true
			l.saw(b)
		}
		if next := r.bounds(id).Next; next < l.known(id) {
			l.complain("partition %d ends at %d, and %d was known", id, next, l.known(id))
		}
	}
	return held
}

// halfDone finds entries of which a part is there: some batches without the others, or without the
// key. A label is the entry's name, the batch's number and their count: "w3/17 1 of 2". An entry
// puts the key sent/NAME with its last base offset.
func (l *ledger) halfDone(r *rig) []string {
	r.Helper()
	type entry struct {
		seen, all int
		last      eventlog.Offset
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	entries := map[string]entry{}
	for label, at := range l.where {
		var name string
		var number, all int
		if _, err := fmt.Sscanf(label, "%s %d of %d", &name, &number, &all); err != nil {
			panic(fmt.Sprintf("label %q: %v", label, err))
		}
		e := entries[name]
		e.seen, e.all = e.seen+1, all
		if number == all {
			e.last = at.base
		}
		entries[name] = e
	}
	var wrong []string
	const prefix, page = "sent/", 500
	for after := ""; ; {
		list := r.list(prefix, after, page)
		for _, kv := range list {
			name := kv.Key[len(prefix):]
			if e, there := entries[name]; !there || string(kv.Value) != fmt.Sprint(e.last) {
				wrong = append(wrong, fmt.Sprintf("entry %s put its key, with %s, and its batches: %+v", name, kv.Value, e))
			} else if e.seen != e.all {
				wrong = append(wrong, fmt.Sprintf("entry %s: %d of its %d batches are there", name, e.seen, e.all))
			}
			delete(entries, name)
			after = kv.Key
		}
		if len(list) < page {
			break
		}
	}
	for name, e := range entries {
		wrong = append(wrong, fmt.Sprintf("entry %s is there without its key: %+v", name, e))
	}
	return wrong
}
