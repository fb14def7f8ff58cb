package console

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-log/weir/use/audit"
)

const (
	auditLook  = 1000     // how many events one page looks at
	auditRead  = 50       // how many events of a partition one call reads: each has at most 256 KiB
	auditShown = 100      // changes on one page
	stateShown = 16 << 10 // bytes that a page keeps of what was there before, and after
)

// change is one event of the audit.
type change struct {
	audit.Recorded
	States [2]Text // what was there before and after; empty: no such object

	known  bool // false: it is no event that this version knows
	at     int64
	offset int64
}

// At is when the event was recorded, in ms.
func (c change) At() int64 { return c.at }

type auditPage struct {
	None              bool   // no change has been recorded
	Who, Verb, Object string // what the events must have
	Changes           []change
	Scanned           int
	Gaps              []gap  // offsets that are damaged, among those that were looked at
	Before            string // the cursor of the next page, of older events; "": there are none
}

// audit lists who changed what, the newest first.
func (v *visit) audit() error {
	q := v.r.URL.Query()
	p := auditPage{Who: q.Get("who"), Verb: q.Get("verb"), Object: q.Get("object")}
	var t topicInfo
	err := v.get(path("/v1/topics/%s", audit.Topic), &t)
	switch {
	case refusedWith(err, http.StatusNotFound):
		p.None = true
	case err != nil:
		return err
	default:
		if err := v.scanAudit(&p, t.Holds, q.Get("before")); err != nil {
			return err
		}
	}
	v.show(http.StatusOK, "access_audit", "Audit", p)
	return nil
}

// refusedWith reports whether the API refused with this status.
func refusedWith(err error, status int) bool {
	p, is := errors.AsType[*problem](err)
	return is && p.Status == status
}

// auditTail is the end of a partition, which is looked at backwards, from its last event.
type auditTail struct {
	held
	read int64    // the events from here on were read
	left []change // of these, the ones that have not been looked at, in their order
}

// end is where the events end that have not been looked at.
func (t *auditTail) end() int64 {
	if n := len(t.left); n > 0 {
		return t.left[n-1].offset + 1
	}
	return t.read
}

// last is the event to look at next.
func (t *auditTail) last() change { return t.left[len(t.left)-1] }

// scanAudit looks at the partitions from their ends, always at the newest of their last events. So
// what was looked at is the end of each partition, and the next page begins where this one ends.
func (v *visit) scanAudit(p *auditPage, holds []held, cursor string) error {
	ends, err := endsOf(cursor, holds)
	if err != nil {
		return err
	}
	var tails []*auditTail
	for i, h := range holds {
		tails = append(tails, &auditTail{held: h, read: ends[i]})
	}
	for p.Scanned < auditLook && len(p.Changes) < auditShown {
		var from *auditTail
		for _, t := range tails {
			for len(t.left) == 0 && t.read > t.First {
				if err := v.readTail(p, t); err != nil {
					return err
				}
			}
			if len(t.left) > 0 && (from == nil || t.last().at > from.last().at) {
				from = t
			}
		}
		if from == nil {
			break
		}
		c := from.last()
		from.left = from.left[:len(from.left)-1]
		if p.Scanned++; c.known && p.takes(c) {
			p.Changes = append(p.Changes, c)
		}
	}
	more := false
	for i, t := range tails {
		ends[i] = t.end()
		more = more || ends[i] > t.First
	}
	if more {
		p.Before = strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ends)), "."), "[]")
	}
	return nil
}

// readTail reads the events before those that were read.
func (v *visit) readTail(p *auditPage, t *auditTail) error {
	from := max(t.First, t.read-auditRead)
	for next := from; next < t.read; {
		var page eventPage
		err := v.get(path("/v1/topics/%s", audit.Topic)+fmt.Sprintf("/partitions/%d/events?offset=%d&max=%d", t.Partition, next, t.read-next), &page)
		switch {
		case refusedWith(err, http.StatusRequestedRangeNotSatisfiable): // retention has deleted them meanwhile
			t.read = t.First
			return nil
		case err != nil:
			return err
		}
		for _, e := range page.Events {
			if e.Offset < t.read {
				t.left = append(t.left, changeIn(e))
			}
		}
		if page.Gap != nil {
			p.Gaps = append(p.Gaps, *page.Gap)
		}
		if page.Next <= next {
			break
		}
		next = page.Next
	}
	t.read = from
	return nil
}

// endsOf reads a cursor: an offset for each partition, with points between them. "": their ends.
func endsOf(cursor string, holds []held) (ends []int64, err error) {
	parts := strings.Split(cursor, ".")
	for i, h := range holds {
		end := h.End
		if cursor != "" && i < len(parts) { // a partition may be new
			n, err := strconv.ParseInt(parts[i], 10, 64)
			if err != nil {
				return nil, &problem{Status: http.StatusBadRequest, Title: "This page of the audit cannot be found", Detail: "Begin again with its first page."}
			}
			end = min(n, h.End)
		}
		ends = append(ends, end)
	}
	return ends, nil
}

// changeIn reads an event, and keeps no more of it than a page shows.
func changeIn(e record) change {
	c := change{offset: e.Offset}
	if e.Timestamp != nil {
		c.at = *e.Timestamp
	}
	if e.Value == nil {
		return c
	}
	recorded, err := audit.Parse([]byte(*e.Value))
	if err != nil {
		return c
	}
	for i, state := range [][]byte{recorded.Before, recorded.After} {
		if s := string(state); s != "" && s != "null" {
			kept := strings.Clone(s[:min(len(s), stateShown)])
			c.States[i] = Text{Plain: &kept, Left: len(s) - len(kept)}
		}
	}
	recorded.Before, recorded.After = nil, nil
	c.Recorded, c.known = recorded, true
	return c
}

func (p *auditPage) takes(c change) bool {
	who := []string{c.Who.Name, c.Who.ID, c.Who.Address, c.Who.Door, c.Who.Type}
	return (p.Who == "" || slices.ContainsFunc(who, func(s string) bool { return strings.Contains(s, p.Who) })) &&
		strings.Contains(string(c.Verb), p.Verb) && strings.Contains(c.Object, p.Object)
}
