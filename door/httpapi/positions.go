package httpapi

import (
	"strconv"
	"strings"

	"github.com/weir-log/weir/eventlog"
)

// positions are how far a topic was read: the next offset of each partition, by number. Written down, for an event's id, they
// are
//
//	3f2a91c0/0:13,2:40
//
// the beginning of the topic's own id, and each partition that was read at all. A topic that is deleted and made again has another id, so
// that nobody goes on reading in it where they had stopped in the old one.
type positions []eventlog.Offset

const topicMark = 8 // letters of a topic's id

func (p positions) appendTo(b []byte, t eventlog.Topic) []byte {
	b = append(b, t.ID.String()[:topicMark]...)
	divider := byte('/')
	for n, next := range p {
		if next == 0 {
			continue
		}
		b = strconv.AppendInt(append(b, divider), int64(n), 10)
		b = strconv.AppendInt(append(b, ':'), int64(next), 10)
		divider = ','
	}
	if divider == '/' {
		b = append(b, divider)
	}
	return b
}

// parsePositions reads positions in a topic. What they do not name is at 0.
func parsePositions(text string, t eventlog.Topic) (positions, error) {
	wrong := func(why string) error {
		return kindInvalidRequest.because("%s is not a position: %s; take the id of an event, or write partition:offset,…", shorten(text), why)
	}
	mark, list, marked := strings.Cut(text, "/")
	if !marked {
		list = text
	} else if mark != t.ID.String()[:topicMark] {
		if len(mark) != topicMark {
			return nil, wrong("the topic's mark has not 8 letters")
		}
		return nil, kindRecreated.because("the position is in another topic of this name, which was deleted; begin anew, with from=earliest or from=latest")
	}
	p := make(positions, len(t.Partitions))
	if list == "" && marked {
		return p, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		number, offset, _ := strings.Cut(part, ":")
		n, err := strconv.ParseUint(number, 10, 31)
		if err != nil {
			return nil, wrong("a partition's number is missing")
		}
		if n >= uint64(len(p)) {
			return nil, noSuchPartition(t, int64(n))
		}
		at, err := strconv.ParseInt(offset, 10, 64)
		if err != nil || at < 0 {
			return nil, wrong("an offset is missing")
		}
		p[n] = eventlog.Offset(at)
	}
	return p, nil
}
