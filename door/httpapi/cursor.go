package httpapi

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/group"
)

// cursor is how far a client has got in what it owns: "topic/partition/since:offset,…". A position counts only as long as the
// partition has not been another's meanwhile.
type cursor map[place]eventlog.Offset

// place is a partition while a member has it.
type place struct {
	topic     string
	partition int32
	since     int32 // group.Assigned.Since
}

// spans asks for what the member owns. Where the cursor has no position, what was committed has.
func (cu cursor) spans(own []group.Assigned) (spans []eventlog.Span, pages []memberPage) {
	for _, a := range own {
		of := place{a.Topic, a.Partition, a.Since}
		from := max(cu[of], a.Position)
		spans = append(spans, eventlog.Span{Partition: a.Log, From: from})
		pages = append(pages, memberPage{of: of, tp: a.TopicPartition, had: a.Position})
	}
	return spans, pages
}

// cursorBehind names where a client is ahead of what it committed.
func cursorBehind(pages []memberPage) string {
	var b []byte
	for _, p := range pages {
		if p.next == p.had {
			continue
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "%s/%d/%d:%d", p.of.topic, p.of.partition, p.of.since, p.next)
	}
	return string(b)
}

func parseCursor(text string) (cursor, error) {
	cu := make(cursor)
	if text == "" {
		return cu, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		where, offset, _ := strings.Cut(part, ":")
		fields := strings.Split(where, "/")
		if len(fields) != 3 {
			return nil, badCursor(text)
		}
		partition, err1 := strconv.ParseUint(fields[1], 10, 31)
		since, err2 := strconv.ParseInt(fields[2], 10, 32)
		at, err3 := strconv.ParseUint(offset, 10, 63)
		if err1 != nil || err2 != nil || err3 != nil {
			return nil, badCursor(text)
		}
		cu[place{fields[0], int32(partition), int32(since)}] = eventlog.Offset(at)
	}
	return cu, nil
}

func badCursor(text string) error {
	return kindInvalidRequest.because("%s is not a cursor; take next from the answer before", shorten(text))
}
