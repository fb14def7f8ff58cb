package console

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-log/weir/use/audit"
)

const (
	auditStep  = 1000 // how many events of a partition one page looks at
	auditShown = 100
)

// change is one event of the audit.
type change struct {
	audit.Recorded

	at     int64 // when it was recorded
	index  int   // its partition's place in the list of partitions
	offset int64
}

// At is when the event was recorded, in ms.
func (c change) At() int64 { return c.at }

// States are what was there before and after, as texts; nil: no such object.
func (c change) States() (both [2]Text) {
	for i, state := range [][]byte{c.Before, c.After} {
		if s := string(state); s != "" && s != "null" {
			both[i].Plain = &s
		}
	}
	return both
}

type auditPage struct {
	None              bool   // no change has been recorded
	Who, Verb, Object string // what the events must have
	Changes           []change
	Scanned           int
	Before            string // the cursor of the next page, of older events; "": there are none
}

// audit lists who changed what, the newest first.
func (v *visit) audit() error {
	q := v.r.URL.Query()
	p := auditPage{Who: q.Get("who"), Verb: q.Get("verb"), Object: q.Get("object")}
	var t topicInfo
	err := v.get(path("/v1/topics/%s", audit.Topic), &t)
	var refused *problem
	switch {
	case errors.As(err, &refused) && refused.Status == http.StatusNotFound:
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

// scanAudit looks at the last events of each partition below the cursor, and shows the newest of
// those that match.
func (v *visit) scanAudit(p *auditPage, holds []held, cursor string) error {
	ends, err := endsOf(cursor, holds)
	if err != nil {
		return err
	}
	for i, h := range holds {
		from := max(h.First, ends[i]-auditStep)
		for next := from; next < ends[i]; {
			var page eventPage
			if err := v.get(path("/v1/topics/%s", audit.Topic)+fmt.Sprintf("/partitions/%d/events?offset=%d&max=%d", h.Partition, next, ends[i]-next), &page); err != nil {
				return err
			}
			for _, e := range page.Events {
				p.Scanned++
				if c, is := changeIn(e); is && p.takes(c) {
					c.index = i
					p.Changes = append(p.Changes, c)
				}
			}
			if page.Next <= next {
				break // the rest is gone, or damaged
			}
			next = page.Next
		}
		ends[i] = from
	}
	slices.SortStableFunc(p.Changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(b.index, a.index), cmp.Compare(b.offset, a.offset))
	})
	for _, c := range p.Changes[min(len(p.Changes), auditShown):] {
		ends[c.index] = max(ends[c.index], c.offset+1) // the next page begins with it
	}
	p.Changes = p.Changes[:min(len(p.Changes), auditShown)]
	if slices.ContainsFunc(holds, func(h held) bool { return ends[slices.Index(holds, h)] > h.First }) {
		p.Before = strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ends)), "."), "[]")
	}
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

// changeIn reads an event; false: it is none that this version knows.
func changeIn(e record) (c change, is bool) {
	if e.Value == nil || e.Timestamp == nil {
		return c, false
	}
	recorded, err := audit.Parse([]byte(*e.Value))
	return change{Recorded: recorded, at: *e.Timestamp, offset: e.Offset}, err == nil
}

func (p *auditPage) takes(c change) bool {
	who := []string{c.Who.Name, c.Who.ID, c.Who.Address, c.Who.Door, c.Who.Type}
	return (p.Who == "" || slices.ContainsFunc(who, func(s string) bool { return strings.Contains(s, p.Who) })) &&
		strings.Contains(string(c.Verb), p.Verb) && strings.Contains(c.Object, p.Object)
}
