package stream

import (
	"errors"
	"slices"
	"strings"

	"github.com/weir-log/weir/eventlog"
)

// countedMax bounds the categories that are counted. If there are more, counting begins again.
const countedMax = 10_000

// Counts are how many appends to streams of a category this process has answered since it began, by
// their outcome.
type Counts struct {
	Category   string
	Appended   int64
	Duplicates int64 // the events were there already
	Conflicts  int64 // a stream was not at the expected version
	Boundaries int64 // ErrBoundary
}

// count counts an append to a stream.
func (c *Category) count(done Appended, err error) {
	s := c.owner
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.counts[c.topic.ID]
	if n == nil {
		if len(s.counts) >= countedMax {
			clear(s.counts)
		}
		n = &Counts{Category: c.Name()}
		s.counts[c.topic.ID] = n
	}
	switch {
	case err == nil && done.Duplicate:
		n.Duplicates++
	case err == nil:
		n.Appended++
	case errors.Is(err, ErrConflict):
		n.Conflicts++
	case errors.Is(err, ErrBoundary):
		n.Boundaries++
	}
}

// countAll counts the appends of one AppendAll. A conflict counts for the category of its stream.
func countAll(parts []Part, done []Appended, err error) {
	var conflict *ConflictError
	for i, p := range parts {
		switch {
		case err == nil:
			p.Category.count(done[i], nil)
		case errors.As(err, &conflict) && p.Stream == conflict.Stream && p.Category.Name() == conflict.Category:
			p.Category.count(Appended{}, err)
		}
	}
}

// Counts returns what this process has counted, by category: of those that exist, and that it has
// appended to.
func (s *Streams) Counts() (list []Counts) {
	known := make(map[eventlog.TopicID]bool)
	for _, t := range s.log.Topics() {
		known[t.ID] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, n := range s.counts {
		if known[id] {
			list = append(list, *n)
		} else {
			delete(s.counts, id)
		}
	}
	slices.SortFunc(list, func(a, b Counts) int { return strings.Compare(a.Category, b.Category) })
	return list
}
