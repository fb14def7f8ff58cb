package verify

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Cell is a cell in a storage, as one connection sees it. It has versions from 1 on; several
// connections race to make the next one, as processes of weir race to commit.
type Cell interface {
	// Put makes a version, if the cell is at the version before. won is false if it certainly did
	// not; after an error it may have.
	Put(ctx context.Context, version int64, value string) (won bool, err error)
	// Get returns the newest version and its value; 0: there is none yet.
	Get(ctx context.Context) (version int64, value string, err error)
}

// Scratch is a new cell in a storage, of its own, beside a store that may be there.
type Scratch struct {
	Name  string // of the storage
	Cells []Cell // the cell as connections see it, which may go through several servers
	// Remove removes the cell from the storage, and closes the connections.
	Remove func(context.Context) error
}

// RandomName is a name for a cell, of 16 digits and lower-case letters.
func RandomName() string { return strings.ToLower(rand.Text()[:16]) }

// Raced is the result of a Race.
type Raced struct {
	Puts, Won, Gets, Unsure int
	Wrong                   []string // what the cell did that no cell may do: up to wrongMost sentences
}

const wrongMost = 20

// Race lets two callers for each connection make versions of the cell, until it has the given
// number of versions, or ten times as many were tried. Then it judges what they saw: exactly one
// put of each version won, and nobody saw an older version than one that was there before. It
// returns an error if the storage answered so rarely that nothing is known.
func Race(ctx context.Context, s *Scratch, versions int64) (Raced, error) {
	began := time.Now()
	var mu sync.Mutex // guards done, failed and failures
	var done []operation
	var failed error
	failures := 0
	var all sync.WaitGroup
	for n := range 2 * len(s.Cells) {
		cell := s.Cells[n%len(s.Cells)]
		all.Go(func() {
			note := func(o operation, err error) {
				mu.Lock()
				defer mu.Unlock()
				o.end, o.unsure = time.Since(began), err != nil
				done = append(done, o)
				if err != nil {
					failed = err
					failures++
				}
			}
			for try := int64(0); try < 10*versions && ctx.Err() == nil; try++ {
				o := operation{caller: n, begin: time.Since(began)}
				var err error
				o.version, o.value, err = cell.Get(ctx)
				note(o, err)
				if err != nil {
					continue
				}
				if o.version >= versions {
					return
				}
				p := operation{caller: n, put: true, version: o.version + 1, value: fmt.Sprintf("caller %d, try %d", n, try), begin: time.Since(began)}
				p.won, err = cell.Put(ctx, p.version, p.value)
				note(p, err)
			}
		})
	}
	all.Wait()
	if err := ctx.Err(); err != nil {
		return Raced{}, context.Cause(ctx)
	}
	r := judge(done)
	if r.Won == 0 {
		return r, fmt.Errorf("no version could be written: %w", cmp.Or(failed, errors.New("every write was refused")))
	}
	return r, nil
}

// operation is a Put or a Get of one caller, and when it was under way.
type operation struct {
	caller     int
	put        bool
	version    int64
	value      string
	won        bool // of a put
	unsure     bool // it failed: a put may have happened, a get saw nothing
	begin, end time.Duration
}

func (o operation) String() string {
	if o.put {
		return fmt.Sprintf("the write of version %d by %q", o.version, o.value)
	}
	return fmt.Sprintf("the read of caller %d, which saw version %d,", o.caller, o.version)
}

// judge says whether operations are those of a register with compare-and-set (they are
// linearizable). Values are unique, and versions count, so the order of the writes is known. What
// is left to check: each version has one writer, each read has its value, no operation is before
// one that had ended when it began, and a put that was refused came too late.
func judge(all []operation) (r Raced) {
	wrong := func(format string, a ...any) {
		if len(r.Wrong) < wrongMost {
			r.Wrong = append(r.Wrong, fmt.Sprintf(format, a...))
		}
	}
	winner := make(map[int64]operation)
	may := make(map[string]operation) // by value: puts whose outcome is unknown
	for _, o := range all {
		switch {
		case o.unsure:
			r.Unsure++
			if o.put {
				may[o.value] = o
			}
		case o.put:
			r.Puts++
			if !o.won {
				continue
			}
			r.Won++
			if other, twice := winner[o.version]; twice {
				wrong("%s and %s both succeeded: one of them is lost", other, o)
			}
			winner[o.version] = o
		default:
			r.Gets++
		}
	}
	// What was read was written, whatever its writer was told.
	for _, o := range all {
		if o.put || o.unsure || o.version == 0 {
			continue
		}
		switch by, known := winner[o.version]; {
		case known && by.value == o.value:
		case may[o.value].version == o.version && !known:
			winner[o.version] = may[o.value]
		case known:
			wrong("%s read %q, but %q was acknowledged", o, o.value, by.value)
		default:
			wrong("%s read %q, which nobody wrote as this version", o, o.value)
		}
	}
	for version, o := range winner {
		if _, there := winner[version-1]; version > 1 && !there && len(may) == 0 {
			wrong("%s succeeded, but nobody wrote the version before", o)
		}
	}
	// No operation is before one that had ended when it began. A put is at its version, and so is a
	// get; a put that was refused is at its version or above, because its version was taken.
	at := make([]operation, 0, len(all))
	for _, o := range all {
		if w, known := winner[o.version]; !o.unsure && (!o.put || o.won) || o.put && known && w.value == o.value {
			at = append(at, o)
		}
		if o.put && !o.won && !o.unsure {
			by, known := winner[o.version]
			if known && by.begin > o.end || !known && len(may) == 0 {
				wrong("%s was refused, but nobody had written this version", o)
			}
		}
	}
	ended := slices.Clone(at)
	slices.SortFunc(at, func(a, b operation) int { return cmp.Compare(a.begin, b.begin) })
	slices.SortFunc(ended, func(a, b operation) int { return cmp.Compare(a.end, b.end) })
	var newest operation
	next := 0
	for _, o := range at {
		for ; next < len(ended) && ended[next].end < o.begin; next++ {
			if e := ended[next]; !e.unsure && e.version >= newest.version {
				newest = e
			}
		}
		if o.version < newest.version || o.put && newest.put && o.version == newest.version && o.value != newest.value {
			wrong("%s began after %s had ended: it came too late, or what it read was old", o, newest)
		}
	}
	return r
}
