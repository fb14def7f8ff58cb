package httpapi

import (
	"context"
	"maps"
	"net/http"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/group"
)

// A group in an answer.
type (
	groupView struct {
		Name  string `json:"name"`
		State string `json:"state"`
		Type  string `json:"type"` // the protocol type; "consumer" for all consumers
	}

	groupDetail struct {
		groupView
		Generation int32        `json:"generation"`
		Members    []memberView `json:"members"`
	}

	memberView struct {
		ID         string             `json:"id"`
		Client     string             `json:"client"`
		Host       string             `json:"host"`
		Partitions map[string][]int32 `json:"partitions"` // by topic
	}

	offsetsView struct {
		Offsets []offsetView `json:"offsets"`
		Total   int          `json:"total"` // how many there are; the answer to a reset lists at most resetShown
		Lag     int64        `json:"lag"`   // of all
	}

	offsetView struct {
		Topic     string          `json:"topic"`
		Partition int32           `json:"partition"`
		Offset    eventlog.Offset `json:"offset"` // of the next event to read
		EndOffset eventlog.Offset `json:"end_offset"`
		Lag       int64           `json:"lag"`
		Metadata  string          `json:"metadata,omitempty"`
	}
)

// listGroups lists the groups that the caller may see.
func (s *Server) listGroups(c *call) error {
	read := func(ctx context.Context) ([]group.Listed, error) {
		return s.cfg.Groups.Select(ctx, group.Filter{Prefixes: c.who.groupPrefixes()})
	}
	view := func(g group.Listed) groupView { return groupView{g.Group, string(g.State), g.ProtocolType} }
	return answerList(c, "groups", read, func(g group.Listed) bool { return c.who.seesGroup(g.Group) }, view)
}

// describeGroup returns a group's members, and the partitions of each in topics that the caller may
// describe.
func (s *Server) describeGroup(c *call) error {
	ctx, cancel := c.withTimeout()
	defer cancel()
	if err := c.build(ctx); err != nil {
		return err
	}
	g, err := s.cfg.Groups.Describe(ctx, c.r.PathValue("group"))
	if err != nil {
		return err
	}
	view := groupDetail{groupView{g.Group, string(g.State), g.ProtocolType}, g.Generation, []memberView{}}
	for _, m := range g.Members {
		v := memberView{ID: m.ID, Client: m.ClientID, Host: m.ClientHost, Partitions: map[string][]int32{}}
		if g.ProtocolType == "consumer" {
			v.Partitions = m.Partitions()
			maps.DeleteFunc(v.Partitions, func(topic string, _ []int32) bool { return !c.who.mayTopic(toDescribe, topic) })
		}
		view.Members = append(view.Members, v)
	}
	return c.json(http.StatusOK, view)
}

// deleteGroup deletes a group without members, and its committed offsets.
func (s *Server) deleteGroup(c *call) error {
	ctx, cancel := c.withTimeout()
	defer cancel()
	if err := s.cfg.Groups.Delete(ctx, c.r.PathValue("group")); err != nil {
		return err
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}

// groupOffsets returns a group's committed offsets and lag, with a store call for the lag and those
// of Coordinator.Fetch for the offsets.
func (s *Server) groupOffsets(c *call) error {
	ctx, cancel := c.withTimeout()
	defer cancel()
	if err := c.build(ctx); err != nil {
		return err
	}
	name := c.r.PathValue("group")
	found, err := s.cfg.Groups.Fetch(ctx, name, nil)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		if _, err := s.cfg.Groups.Describe(ctx, name); err != nil {
			return err // the group does not exist
		}
	}
	return s.answerOffsets(ctx, c, name, found, len(found))
}

// resetShown is how many offsets the answer to a reset lists: a request of a few bytes can reset
// 10,000 partitions.
const resetShown = 1000

// answerOffsets answers with offsets and lag, with one store call. Its totals are of all offsets in
// topics that the caller may describe; most bounds how many of these are listed.
func (s *Server) answerOffsets(ctx context.Context, c *call, name string, found []group.Committed, most int) error {
	lags, err := s.cfg.Groups.Lags(ctx, name, found)
	if err != nil {
		return err
	}
	view := offsetsView{Offsets: []offsetView{}}
	for _, lag := range lags {
		if !c.who.mayTopic(toDescribe, lag.Name) {
			continue
		}
		view.Lag += lag.Records
		if view.Total++; view.Total <= most {
			view.Offsets = append(view.Offsets, offsetView{
				Topic: lag.Name, Partition: lag.Partition, Offset: lag.Offset, EndOffset: lag.Bounds.Next, Metadata: lag.Metadata, Lag: lag.Records,
			})
		}
	}
	return c.json(http.StatusOK, view)
}

// resetOffsets sets the offsets of a group without members, all or none, and answers with the first
// resetShown of the new ones. A dry run sets nothing.
func (s *Server) resetOffsets(c *call) error {
	body, err := s.jsonBody(c)
	if err != nil {
		return err
	}
	asked, dry, err := parseResets(body)
	if err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	if err := c.build(ctx); err != nil {
		return err
	}
	name := c.r.PathValue("group")
	topics := make(map[string]eventlog.Topic)
	offsets, err := s.resolve(ctx, asked, func(name string) (t eventlog.Topic, err error) {
		t, known := topics[name]
		if known {
			return t, nil
		}
		if err := c.may(toReset, name); err != nil {
			return t, err
		}
		t, err = s.cfg.Log.Topic(ctx, name)
		topics[name] = t
		return t, err
	})
	if err != nil {
		return err
	}
	if !dry {
		if _, err := s.cfg.Groups.Commit(ctx, group.Commit{Group: name, Generation: -1, By: c.who.ID(), Offsets: offsets, Reset: true}); err != nil {
			return err
		}
	}
	return s.answerOffsets(ctx, c, name, offsets, resetShown)
}
