package httpapi

import (
	"context"
	"math"
	"net/http"

	"github.com/weir-log/weir/door/httpapi/member"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/group"
)

// commitOffsets commits the member's offsets: those of an answer's cursor, or a list. An empty
// commit only keeps the session alive.
func (s *Server) commitOffsets(c *call) error {
	body, err := s.jsonBody(c)
	if err != nil {
		return err
	}
	var wanted cursor
	if err := readJSON(body, 0, func(r *jsonReader) (err error) { wanted, err = parseCommit(r); return err }); err != nil {
		return err
	}
	m, rest, err := s.enterMember(c)
	if err != nil {
		return err
	}
	defer rest()
	if len(wanted) > 0 {
		ctx, cancel := c.withTimeout()
		defer cancel()
		commits, err := s.commitsOf(ctx, m, wanted)
		if err != nil {
			return err
		}
		if err := m.Peer.Commit(ctx, commits); err != nil {
			return err
		}
		for _, o := range commits {
			m.Handled(o.TopicPartition)
		}
		m.ReleaseIdle(ctx)
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}

// commitsOf finds the partitions in the member's assignment, and checks that the offsets are not
// past their ends, with one store call.
//
// An offset below the first event is allowed: retention may have deleted what the member handled.
func (s *Server) commitsOf(ctx context.Context, m *member.Member, wanted cursor) (commits []group.Committed, err error) {
	var partitions []eventlog.Partition
	a := m.Peer.Assignment()
	for _, has := range append(a.Own, a.Revoking...) {
		for _, since := range []int32{has.Since, anySince} {
			of := place{has.Topic, has.Partition, since}
			at, ok := wanted[of]
			if !ok || since == anySince && !m.Means(has) {
				continue
			}
			delete(wanted, of)
			commits = append(commits, group.Committed{TopicPartition: has.TopicPartition, Name: has.Topic, Offset: at, LeaderEpoch: -1, Since: has.Since})
			partitions = append(partitions, has.Log)
		}
	}
	for of := range wanted {
		return nil, kindFenced.because("partition %d of topic %s is not assigned to this member, or was assigned to another one in the meantime. Nothing was committed; discard the events of this partition, and commit the others again",
			of.partition, shorten(of.topic))
	}
	bounds, err := s.cfg.Log.Bounds(ctx, partitions...)
	if err != nil {
		return nil, err
	}
	for i, b := range bounds {
		c := &commits[i]
		if b.Err == nil && c.Offset > b.Bounds.Next {
			b.Err = &eventlog.RangeError{Partition: b.Bounds.Partition, Asked: c.Offset, First: b.Bounds.First, Next: b.Bounds.Next}
		}
		if b.Err != nil {
			return nil, in(c.Name, c.Partition, b.Err)
		}
	}
	return commits, nil
}

// anySince, as a place's since, means the member's current assignment.
const anySince = -1

// parseCommit reads {"next": …} or {"offsets": [...]}.
func parseCommit(r *jsonReader) (wanted cursor, err error) {
	wanted = make(cursor)
	given := 0
	err = r.object(func(name string) (err error) {
		if given++; given > 1 {
			return r.fail("give either next or offsets, once")
		}
		switch name {
		case "next":
			start := *r
			var next string
			if next, err = r.string(); err == nil {
				if wanted, err = parseCursor(next); err != nil {
					*r = start
					err = r.fail("it is not a valid cursor; send next from an earlier answer")
				}
			}
		case "offsets":
			err = r.array(func(int) error {
				of, at, err := parseCommitted(r)
				if _, twice := wanted[of]; twice && err == nil {
					err = r.fail("partition %d of topic %s is in the request twice; give it once", of.partition, shorten(of.topic))
				}
				wanted[of] = at
				return err
			})
		default:
			err = r.unknown(name, "next", "offsets")
		}
		return err
	})
	return wanted, err
}

func parseCommitted(r *jsonReader) (of place, at eventlog.Offset, err error) {
	of.since = anySince
	fields := 0
	err = r.object(func(name string) (err error) {
		fields++
		var n int64
		switch name {
		case "topic":
			of.topic, err = r.string()
		case "partition":
			n, err = r.integer(0, math.MaxInt32)
			of.partition = int32(n)
		case "offset":
			n, err = r.integer(0, math.MaxInt64)
			at = eventlog.Offset(n)
		default:
			err = r.unknown(name, "topic", "partition", "offset")
		}
		return err
	})
	if err == nil && fields != 3 {
		err = r.fail("topic, partition and offset must all be given")
	}
	return of, at, err
}
