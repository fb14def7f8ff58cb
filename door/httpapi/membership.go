package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/weir-log/weir/door/httpapi/member"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/group"
)

const (
	sessionDefault = 30 * time.Second
	sessionMin     = time.Second
	sessionMax     = 30 * time.Minute

	processSessionMin = 5 * time.Second
)

// join makes the client a member of a group.
func (s *Server) join(c *call) error {
	body, err := s.jsonBody(c)
	if err != nil {
		return err
	}
	m := &member.Member{Group: c.r.PathValue("group"), Session: sessionDefault}
	cfg := group.PeerConfig{Group: m.Group, By: c.who.ID(), Logger: s.cfg.Logger}
	if err := readJSON(body, 0, func(r *jsonReader) error { return parseJoin(r, m, &cfg) }); err != nil {
		return err
	}
	if len(cfg.Topics) == 0 {
		return kindInvalidJSON.because(`"topics" is missing or empty`)
	}
	m.Topics = cfg.Topics
	// If this process dies, other members wait no longer than for a silent client. The session is
	// not below processSessionMin, because one heartbeat may take a third of it, and a store may be
	// slow.
	cfg.Session = min(max(m.Session, processSessionMin), group.PeerSession)
	if err := c.mayAll(m.Topics); err != nil {
		return err
	}
	if err := s.memberships.begin(c.who); err != nil { // before the group is touched; the client counts until its member has left
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	if m.Peer, err = s.cfg.Groups.JoinPeer(ctx, cfg); err != nil {
		s.memberships.end(c.who)
		return err
	}
	if !s.members.Add(m, c.who) {
		s.memberships.end(c.who)
		_ = m.Peer.Leave(ctx) // if this fails, its session expires soon
		return eventlog.ErrClosed
	}
	c.Header().Set("Location", "/v1/groups/"+url.PathEscape(m.Group)+"/members/"+url.PathEscape(m.Peer.ID()))
	return c.json(http.StatusCreated, memberJoined{m.Peer.ID(), m.Group, m.Topics, s.missing(ctx, m.Topics), m.Session.Milliseconds()})
}

// memberJoined is the answer to joining.
type memberJoined struct {
	ID      string   `json:"id"`
	Group   string   `json:"group"`
	Topics  []string `json:"topics"`
	Missing []string `json:"missing,omitempty"` // topics that do not exist yet
	Session int64    `json:"session_ms"`
}

// missing returns the topics that do not exist. It costs no store call if this process knows all of
// them, otherwise those of Log.RefreshTopics.
func (s *Server) missing(ctx context.Context, topics []string) []string {
	lacks := func() (names []string) {
		there := make(map[string]bool)
		for _, t := range s.cfg.Log.Topics() {
			there[t.Name] = true
		}
		for _, name := range topics {
			if !there[name] {
				names = append(names, name)
			}
		}
		return names
	}
	names := lacks()
	if names != nil && s.cfg.Log.RefreshTopics(ctx) == nil { // another process may have created them
		names = lacks()
	}
	return names
}

func parseJoin(r *jsonReader, m *member.Member, cfg *group.PeerConfig) error {
	return r.object(func(name string) (err error) {
		switch name {
		case "topics":
			err = r.array(func(int) error {
				topic, err := r.string()
				cfg.Topics = append(cfg.Topics, topic)
				return err
			})
		case "from":
			start := *r
			var from string
			from, err = r.string()
			if cfg.FromLatest = from == "latest"; err == nil && !cfg.FromLatest && from != "earliest" {
				*r = start
				err = r.fail(`it must be "earliest" or "latest"`)
			}
		case "session_ms":
			var ms int64
			ms, err = r.integer(sessionMin.Milliseconds(), sessionMax.Milliseconds())
			m.Session = time.Duration(ms) * time.Millisecond
		case "client":
			cfg.Client, err = r.string()
		default:
			err = r.unknown(name, "topics", "from", "session_ms", "client")
		}
		return err
	})
}

func (c *call) mayAll(topics []string) error {
	for _, t := range topics {
		if err := c.may(toRead, t); err != nil {
			return err
		}
	}
	return nil
}

// enterMember finds the member in the path.
func (s *Server) enterMember(c *call) (*member.Member, func(), error) {
	m, done := s.members.Enter(c.r.PathValue("group"), c.r.PathValue("member"))
	if m == nil {
		return nil, nil, kindUnknownMember.because("the member left, or sent no request for the time of its session, or joined through another weir process; join again: POST /v1/groups/{group}/members")
	}
	if err := c.mayAll(m.Topics); err != nil {
		done()
		return nil, nil, err
	}
	s.members.Adopt(m, c.who)
	return m, done, nil
}

// leaveGroup makes the member leave.
func (s *Server) leaveGroup(c *call) error {
	m, rest, err := s.enterMember(c)
	if err != nil {
		return err
	}
	defer rest()
	ctx, cancel := c.withTimeout()
	defer cancel()
	m.Leave()
	select {
	case <-m.Gone():
		c.WriteHeader(http.StatusNoContent)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// memberEvents answers with events of the member's partitions, from its committed offsets or a
// cursor on. By asking, the client says that it has handled the events that it got before.
func (s *Server) memberEvents(c *call) error {
	most, wait, err := paging(c.query)
	if err != nil {
		return err
	}
	after, err := parseCursor(c.query.Get("after"))
	if err != nil {
		return err
	}
	m, rest, err := s.enterMember(c)
	if err != nil {
		return err
	}
	defer rest()
	waits := s.waits.BeginFor(c.who.ID())
	defer waits.Release()
	if wait > 0 {
		if err := s.polls.begin(c.who); err != nil {
			return err
		}
		defer s.polls.end(c.who)
		if err := s.growWait(waits, waitBytes); err != nil {
			return err
		}
	}
	m.Handled()
	c.waits(wait)
	ctx, cancel := c.withTimeout()
	defer cancel()
	m.ReleaseIdle(ctx)

	polls, stop := untilDraining(c.r)
	defer stop()
	deadline := time.Now().Add(wait)
	var gaps []placedGap
	for {
		pages, claim, err := s.lookAt(ctx, polls, c.who, m, after, most, time.Until(deadline), waits)
		if err != nil {
			return err
		}
		events := 0
		var failed error
		if !fit(pages) {
			claim.Release()
			return kindTooLarge.past(cursorMax, "the member has read events in so many partitions without committing them that next would be longer than %d characters, the limit. Commit what it has handled, and ask again without after", cursorMax)
		}
		pages = deliver(m, pages)
		for _, p := range pages {
			events += len(p.events)
			if p.gap != nil {
				gaps = append(gaps, placedGap{p.of, *p.gap})
				after[p.of] = p.next
			}
			if p.err != nil {
				failed = p.err
			}
		}
		if events == 0 && failed != nil {
			claim.Release()
			return failed
		}
		if events > 0 || polls.Err() != nil || !time.Now().Before(deadline) {
			defer claim.Release()
			if err := s.again(c, toRead, m.Topics...); err != nil {
				return err
			}
			return answerPages(c, cursorAfter(pages), pages, gaps, claim)
		}
		claim.Release()
		select {
		case <-m.Gone():
			return kindUnknownMember.because("the member was removed from the group; join again")
		default:
		}
	}
}
