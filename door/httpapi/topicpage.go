package httpapi

import "math/rand/v2"

// topicPage answers with events of all partitions of a topic, or of one, and with where they end,
// which is the from of the next page. If there are none it waits, if the client asked for it.
func (s *Server) topicPage(c *call) error {
	st, err := s.streamOf(c)
	if err != nil {
		return err
	}
	most, wait, err := paging(c.query)
	if err != nil {
		return err
	}
	from := readDefault
	if c.query.Has("from") {
		from = c.query.Get("from")
	}
	if wait > 0 {
		if err := s.polls.begin(c.who); err != nil {
			return err
		}
		defer s.polls.end(c.who)
	}
	memory, err := s.beginWait(c.who, int64(len(st.topic.Partitions))*offsetBytes)
	if err != nil {
		return err
	}
	defer memory.Release()
	if err := st.begin(from); err != nil {
		return err
	}
	c.waits(wait)
	ctx, cancel := c.withTimeout()
	defer cancel()
	wide, err := s.claimSpans(ctx, c.who.ID(), len(st.next))
	defer func() { wide.Release() }()
	if err != nil {
		return err
	}
	polls, stop := untilDraining(c.r)
	defer stop()
	spans, numbers := st.spans()
	epoch := st.epoch
	got, claim, err := s.fetch(ctx, polls, c.who, spans, rand.IntN(len(spans)), most, wait, &epoch)
	defer claim.Release()
	if err == nil && wait > 0 {
		err = s.again(c, toRead, st.topic.Name)
	}
	if err != nil {
		return err
	}
	pages, gaps, err := st.passOver(got, numbers, epoch)
	if err != nil {
		return err
	}
	return answerPages(c, string(st.next.appendTo(nil, st.topic, epoch)), pages, gaps, claim)
}

// passOver moves the stream's positions past pages, which were read in an epoch. If other
// partitions have events, a partition that cannot be read keeps its position, and its page has the
// error.
func (st *streamed) passOver(got []page, numbers []int32, epoch int32) (pages []memberPage, gaps []placedGap, err error) {
	events := 0
	pages = make([]memberPage, len(got))
	for i := range got {
		p := &pages[i]
		p.page, p.of = got[i], place{partition: numbers[i]}
		p.passTrimmed()
		if epoch != st.epoch && p.err != nil {
			return nil, nil, p.err // what this reader got last may be past events that were lost, and positions with the new epoch would hide that
		}
		st.s.logGap(st.topic.Name, numbers[i], p.gap)
		events += len(p.events)
	}
	for i := range pages {
		p := &pages[i]
		switch {
		case p.err != nil && events == 0:
			return nil, nil, p.err
		case p.err != nil:
			p.err = in(st.topic.Name, p.of.partition, p.err)
			continue
		case p.gap != nil:
			gaps = append(gaps, placedGap{p.of, *p.gap})
		}
		st.next[p.of.partition] = p.next
	}
	return pages, gaps, nil
}
