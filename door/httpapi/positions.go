package httpapi

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"github.com/weir-log/weir/eventlog"
)

// positions are the next offset of each partition of a topic, by number. As an event's id they are
// encoded as
//
//	3f2a91c0.AgENAgEo.28512345
//
// These are: the first characters of the topic's id; in base64url, runs of partitions with an
// offset above 0 (how many partitions are skipped, how many follow, and the offset of each minus
// the offset before); and the leader epoch in which the events before the positions were read. A
// topic that is deleted and created again has another id, so that no client continues in the new
// topic from offsets of the old one. People write positions as 0:13,2:40, without an epoch; ids
// from older versions of weir have no epoch, either.
type positions []eventlog.Offset

const (
	topicMark    = 8  // characters of a topic's id
	unknownEpoch = -1 // of positions without one

	damagedPosition = "it is damaged"
)

// streamPartitions is the most partitions of a stream that has positions: with any offsets, they
// fit into a header of headerBytesMax.
const streamPartitions = 2048

func (p positions) appendTo(b []byte, t eventlog.Topic, epoch int32) []byte {
	b = append(append(b, t.ID.String()[:topicMark]...), '.')
	var raw []byte
	last := eventlog.Offset(0)
	for n := 0; ; {
		from := n
		for n < len(p) && p[n] == 0 {
			n++
		}
		skip := n - from
		for from = n; n < len(p) && p[n] != 0; n++ {
		}
		if from == n {
			b = append(base64.RawURLEncoding.AppendEncode(b, raw), '.')
			return strconv.AppendInt(b, int64(epoch), 10)
		}
		raw = binary.AppendUvarint(binary.AppendUvarint(raw, uint64(skip)), uint64(n-from))
		for ; from < n; from++ {
			raw = binary.AppendVarint(raw, int64(p[from]-last))
			last = p[from]
		}
	}
}

// parsePositions reads positions in a topic, and their epoch. Partitions that are not listed are at
// 0.
func parsePositions(text string, t eventlog.Topic) (p positions, epoch int32, err error) {
	wrong := func(why string) (positions, int32, error) {
		return nil, 0, kindInvalidRequest.because("%s is not a valid position: %s; send the id of an event, or write partition:offset,…", shorten(text), why)
	}
	list, read := text, parseWritten
	epoch = unknownEpoch
	if at := strings.IndexAny(text, "./"); at >= 0 {
		mark := text[:at]
		list = text[at+1:]
		switch {
		case at != topicMark:
			return wrong("the part before the first dot or slash must have 8 characters")
		case mark != t.ID.String()[:topicMark]:
			return nil, 0, kindRecreated.because("the position belongs to an earlier topic of this name, which was deleted; start again with from=earliest or from=latest")
		case text[at] == '.':
			read = parseRuns
			runs, number, has := strings.Cut(list, ".")
			if has {
				n, err := strconv.ParseUint(number, 10, 31)
				if err != nil {
					return wrong(damagedPosition)
				}
				list, epoch = runs, int32(n)
			}
		case list == "":
			return make(positions, len(t.Partitions)), epoch, nil
		}
	}
	p = make(positions, len(t.Partitions))
	missing, why := read(list, p)
	switch {
	case why != "":
		return wrong(why)
	case missing >= 0:
		return nil, 0, noSuchPartition(t, missing)
	}
	return p, epoch, nil
}

// parseRuns reads the runs of an encoding by appendTo into p. It returns what is wrong, or the
// partition that does not exist; -1: none.
func parseRuns(text string, p positions) (missing int64, wrong string) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return -1, damagedPosition
	}
	r := varints{rest: raw}
	n, last := uint64(0), int64(0)
	for len(r.rest) > 0 {
		skip, count := r.next(math.MaxInt32), r.next(math.MaxInt32)
		if r.bad || count == 0 || count > uint64(len(r.rest)) {
			return -1, damagedPosition
		}
		for n += skip; count > 0; n, count = n+1, count-1 {
			if last += r.difference(); r.bad || last <= 0 {
				return -1, damagedPosition
			}
			if n >= uint64(len(p)) {
				return int64(n), ""
			}
			p[n] = eventlog.Offset(last)
		}
	}
	return -1, ""
}

// parseWritten reads partition:offset,… into p, as parseRuns does.
func parseWritten(text string, p positions) (missing int64, wrong string) {
	given := make([]bool, len(p))
	for part := range strings.SplitSeq(text, ",") {
		number, offset, _ := strings.Cut(part, ":")
		n, err := strconv.ParseUint(number, 10, 31)
		if err != nil {
			return -1, "a partition is not a number"
		}
		if n >= uint64(len(p)) {
			return int64(n), ""
		}
		at, err := strconv.ParseInt(offset, 10, 64)
		if err != nil || at < 0 {
			return -1, "an offset is missing, or not a number from 0"
		}
		if given[n] {
			return -1, "partition " + number + " is there twice"
		}
		p[n], given[n] = eventlog.Offset(at), true
	}
	return -1, ""
}

// varints reads numbers from untrusted input.
type varints struct {
	rest []byte
	bad  bool
}

// next reads a number from 0 to most.
func (r *varints) next(most uint64) uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > most {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// difference reads a number that may be negative.
func (r *varints) difference() int64 {
	n, size := binary.Varint(r.rest)
	if size <= 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// text reads size bytes.
func (r *varints) text(size uint64) string {
	if size > uint64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return ""
	}
	text := string(r.rest[:size])
	r.rest = r.rest[size:]
	return text
}
