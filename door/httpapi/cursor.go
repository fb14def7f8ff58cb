package httpapi

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/group"
)

// cursor is a client's next offset in each partition that it owns. An offset is valid only if no
// other member has owned the partition meanwhile, and the store has not lost the group's position.
// The encoding of a cursor, in base64url, has for each topic its name and the number of partitions,
// and for each partition its number, since when the member owns it, and the offset. All is sorted,
// so that nothing is listed twice.
type cursor map[place]eventlog.Offset

// cursorMax bounds the characters of a cursor, so that it fits into a header and a URL of most
// programs.
const cursorMax = 6 << 10

// place is a partition during one assignment to a member.
type place struct {
	topic     string
	partition int32
	since     int32 // group.Assigned.Since
}

// spans returns the spans of the member's partitions, each from the cursor's offset or from the
// committed one on, whichever is higher.
func (cu cursor) spans(own []group.Assigned) (spans []eventlog.Span, pages []memberPage) {
	spans, pages = make([]eventlog.Span, 0, len(own)), make([]memberPage, 0, len(own))
	for _, a := range own {
		of := place{a.Topic, a.Partition, a.Since}
		from := max(cu[of], a.Position)
		spans = append(spans, eventlog.Span{Partition: a.Log, From: from})
		pages = append(pages, memberPage{of: of, tp: a.TopicPartition, had: a.Position, from: from})
	}
	return spans, pages
}

// cursorAfter returns the cursor after pages: the partitions in which the client has read past its
// commits.
func cursorAfter(pages []memberPage) string {
	pages = slices.DeleteFunc(slices.Clone(pages), func(p memberPage) bool { return p.next == p.had })
	slices.SortFunc(pages, func(a, b memberPage) int {
		return cmp.Or(strings.Compare(a.of.topic, b.of.topic), cmp.Compare(a.of.partition, b.of.partition))
	})
	var raw []byte
	for len(pages) > 0 {
		topic, n := pages[0].of.topic, 1
		for n < len(pages) && pages[n].of.topic == topic {
			n++
		}
		raw = append(binary.AppendUvarint(raw, uint64(len(topic))), topic...)
		raw = binary.AppendUvarint(raw, uint64(n))
		free := int32(0)
		for _, p := range pages[:n] {
			raw = p.of.appendTo(raw, free, p.next)
			free = p.of.partition + 1
		}
		pages = pages[n:]
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

func (of place) appendTo(raw []byte, free int32, at eventlog.Offset) []byte {
	raw = binary.AppendUvarint(raw, uint64(of.partition-free))
	raw = binary.AppendUvarint(raw, uint64(of.since))
	return binary.AppendUvarint(raw, uint64(at))
}

func parseCursor(text string) (cursor, error) {
	cu := make(cursor)
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	r := varints{rest: raw, bad: err != nil}
	last := ""
	for len(r.rest) > 0 && !r.bad {
		topic := r.text(r.next(math.MaxUint16))
		count := r.next(math.MaxInt32)
		if topic <= last || count == 0 {
			r.bad = true
		}
		last = topic
		for free := uint64(0); count > 0 && !r.bad; count-- {
			partition := free + r.next(math.MaxInt32)
			since, at := r.next(math.MaxInt32), r.next(math.MaxInt64)
			if partition > math.MaxInt32 {
				r.bad = true
			}
			cu[place{topic, int32(partition), int32(since)}] = eventlog.Offset(at)
			free = partition + 1
		}
	}
	if r.bad {
		return nil, kindInvalidRequest.because("%s is not a valid cursor; send next from an earlier answer", shorten(text))
	}
	return cu, nil
}

// fit removes the events of partitions that the cursor has no space for. It starts at a random
// page, so that no partition is left out for ever. It returns false if it had to remove all events.
func fit(pages []memberPage) bool {
	const most = cursorMax / 4 * 3
	used, topics := 0, make(map[string]bool)
	size := func(p *memberPage, at eventlog.Offset) (n int) {
		if !topics[p.of.topic] {
			n = 2*binary.MaxVarintLen16 + len(p.of.topic)
		}
		return n + len(p.of.appendTo(nil, 0, at))
	}
	for i := range pages {
		if p := &pages[i]; p.from != p.had { // the client had read past its commit before
			used += size(p, p.from)
			topics[p.of.topic] = true
		}
	}
	kept, dropped := 0, 0
	if len(pages) == 0 {
		return true
	}
	start := rand.IntN(len(pages))
	for i := range pages {
		p := &pages[(start+i)%len(pages)]
		if p.next == p.from {
			continue
		}
		more := size(p, p.next)
		if p.from != p.had {
			more -= size(p, p.from)
		}
		if used+more > most {
			p.page = page{next: p.from, bounds: p.bounds, err: p.err}
			dropped++
			continue
		}
		used += more
		topics[p.of.topic] = true
		kept++
	}
	return kept > 0 || dropped == 0
}
