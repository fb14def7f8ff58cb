package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// reads is what was acknowledged to the publisher, and what the members said they read. Methods may
// be called concurrently.
type reads struct {
	mu         sync.Mutex // guards the rest
	partitions []mixedPartition
	acked      int
	last       map[string]time.Time // of a member's lines
	faults     []string
	table      map[string][]roundResult // by harm
	harm       string                   // of the current round
	current    roundResult
	measured   bool // the current round's harm is over
}

type mixedPartition struct {
	records map[int64]*mixedRecord
	unread  map[int64]*mixedRecord // of these the acknowledged ones that nobody has read
	newest  time.Time              // when the newest one that was read was acknowledged
}

// mixedRecord is one offset. Its times are zero until they are known.
type mixedRecord struct {
	value           string
	published, read time.Time
}

type roundResult struct {
	waited time.Duration // the longest time from a record's acknowledgement to its first read
	again  int           // reads of what had been read
}

func newReads(partitions int) *reads {
	r := &reads{last: map[string]time.Time{}, table: map[string][]roundResult{}}
	for range partitions {
		r.partitions = append(r.partitions, mixedPartition{records: map[int64]*mixedRecord{}, unread: map[int64]*mixedRecord{}})
	}
	return r
}

func (r *reads) at(partition int32, offset int64) *mixedRecord {
	of := r.partitions[partition].records
	if of[offset] == nil {
		of[offset] = &mixedRecord{}
	}
	return of[offset]
}

// published notes that a record was acknowledged.
func (r *reads) published(partition int32, offset int64, value string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.at(partition, offset)
	r.same(rec, partition, offset, value)
	rec.value, rec.published = value, at
	r.acked++
	if rec.read.IsZero() {
		r.partitions[partition].unread[offset] = rec
	} else {
		r.partitions[partition].newest = at
	}
}

// same complains if a record was seen with another value.
func (r *reads) same(rec *mixedRecord, partition int32, offset int64, value string) {
	if rec.value != "" && rec.value != value {
		r.faults = append(r.faults, fmt.Sprintf("partition %d, offset %d is %q and %q", partition, offset, rec.value, value))
	}
}

// line notes what a member said.
func (r *reads) line(member, line string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var partition int32
	var offset int64
	var value string
	word, rest, _ := strings.Cut(line, " ")
	if _, err := fmt.Sscanf(rest, "%d %d %s", &partition, &offset, &value); err != nil || word != "read" || partition < 0 || int(partition) >= len(r.partitions) {
		r.faults = append(r.faults, fmt.Sprintf("%s says %q", member, line))
		return
	}
	r.last[member] = at
	rec := r.at(partition, offset)
	r.same(rec, partition, offset, value)
	rec.value = value
	if !rec.read.IsZero() {
		r.current.again++
		return
	}
	rec.read = at
	if rec.published.IsZero() {
		return // the publisher has not heard of it
	}
	of := &r.partitions[partition]
	delete(of.unread, offset)
	of.newest = rec.published
	if !r.measured {
		r.current.waited = max(r.current.waited, at.Sub(rec.published))
	}
}

// round begins a round.
func (r *reads) round(harm string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keep()
	r.harm, r.current, r.measured = harm, roundResult{}, false
}

// handedOver ends what is measured of a round.
func (r *reads) handedOver() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.measured = true
}

func (r *reads) waited() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current.waited
}

func (r *reads) cameAgain() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current.again
}

func (r *reads) keep() {
	if r.harm != "" {
		r.table[r.harm] = append(r.table[r.harm], r.current)
	}
}

// missing says what is not there yet: all that was acknowledged until the time since must have been
// read, of each partition also something that was acknowledged later, and each of the members must
// have read something after since. A zero since asks for all that was acknowledged, and nothing
// else.
func (r *reads) missing(since time.Time, members []string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, of := range r.partitions {
		for offset, rec := range of.unread {
			if since.IsZero() || !rec.published.After(since) {
				return fmt.Sprintf("nobody has read partition %d, offset %d", p, offset)
			}
		}
		if !since.IsZero() && !of.newest.After(since) {
			return fmt.Sprintf("nobody reads partition %d", p)
		}
	}
	for _, name := range members {
		if !r.last[name].After(since) {
			return name + " reads nothing"
		}
	}
	return ""
}

// await waits until nothing is missing.
func (r *reads) await(ctx context.Context, since time.Time, members []string, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		what := r.missing(since, members)
		if what == "" {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("after %v: %s", most, what)
		}
	}
}

// lasts says when each member has read last.
func (r *reads) lasts() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var said []string
	for name, at := range r.last {
		said = append(said, fmt.Sprintf("%s %.1f s ago", name, time.Since(at).Seconds()))
	}
	slices.Sort(said)
	return strings.Join(said, ", ")
}

// verdict prints the rounds by their harm, and fails if something was wrong.
func (r *reads) verdict(out io.Writer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keep()
	r.harm = ""
	fmt.Fprintf(out, "%d records were acknowledged, and read\n\n| harm | rounds | longest wait of a record: p50 | max | records that came again: p50 | max |\n| --- | --- | --- | --- | --- | --- |\n", r.acked)
	for _, h := range harms {
		if rounds := r.table[h.name]; len(rounds) > 0 {
			waited := func(a, b roundResult) int { return int(a.waited - b.waited) }
			again := func(a, b roundResult) int { return a.again - b.again }
			w, a := slices.SortedFunc(slices.Values(rounds), waited), slices.SortedFunc(slices.Values(rounds), again)
			fmt.Fprintf(out, "| %s | %d | %.1f s | %.1f s | %d | %d |\n", h.name, len(rounds), w[len(w)/2].waited.Seconds(), w[len(w)-1].waited.Seconds(), a[len(a)/2].again, a[len(a)-1].again)
		}
	}
	if len(r.faults) > 0 {
		return fmt.Errorf("%d faults: %s", len(r.faults), strings.Join(r.faults[:min(len(r.faults), 10)], "; "))
	}
	return nil
}
