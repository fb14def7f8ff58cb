package httpapi

import (
	"context"
	"net/http"
	"slices"

	"github.com/weir-log/weir/use/projection"
	"github.com/weir-log/weir/use/stream"
)

// A projection in an answer.
type (
	projectionView struct {
		Name   string   `json:"name"`
		Paused bool     `json:"paused"`
		Run    runView  `json:"run"`
		Next   *runView `json:"next,omitempty"` // it takes over when it has caught up
	}

	runView struct {
		Number     int64    `json:"number"`
		Version    int      `json:"version"`
		Categories []string `json:"categories,omitzero"` // nil: all
		Group      string   `json:"group"`
		Lag        int64    `json:"lag"`
		Behind     int64    `json:"behind_ms"`
	}
)

// viewOfRun describes a run to a client, with the categories that the client may see.
func (c *call) viewOfRun(r projection.Run) runView {
	var seen []string // nil: all
	if len(r.Categories) > 0 {
		seen = slices.DeleteFunc(slices.Clone(r.Categories), func(name string) bool { return !c.who.mayTopic(toDescribe, name) })
	}
	return runView{r.Number, r.Version, seen, r.Group, r.Lag, r.Behind.Milliseconds()}
}

// listProjections lists the names of the projections that the caller may see.
func (s *Server) listProjections(c *call) error {
	return answerList(c, "projections", s.cfg.Projections.Names, func(name string) bool { return c.who.mayGroup(toDescribe, stream.GroupsOf(name)) }, asItIs)
}

// describeProjection says which runs a projection has, and how far they have come.
func (s *Server) describeProjection(c *call) error {
	ctx, cancel := c.withTimeout()
	defer cancel()
	if err := c.build(ctx); err != nil {
		return err
	}
	info, err := s.cfg.Projections.Describe(ctx, c.r.PathValue("projection"))
	if err != nil {
		return err
	}
	v := projectionView{Name: info.Name, Paused: info.Paused, Run: c.viewOfRun(info.Run)}
	if info.Next != nil {
		next := c.viewOfRun(*info.Next)
		v.Next = &next
	}
	return c.json(http.StatusOK, v)
}

func (s *Server) rebuildProjection(c *call) error { return c.projection(s.cfg.Projections.Rebuild) }
func (s *Server) pauseProjection(c *call) error   { return c.projection(s.cfg.Projections.Pause) }
func (s *Server) resumeProjection(c *call) error  { return c.projection(s.cfg.Projections.Resume) }
func (s *Server) deleteProjection(c *call) error  { return c.projection(s.cfg.Projections.Delete) }

// projection changes a projection. Each change may be repeated.
func (c *call) projection(change func(ctx context.Context, name string) error) error {
	ctx, cancel := c.withTimeout()
	defer cancel()
	if err := change(ctx, c.r.PathValue("projection")); err != nil {
		return err
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}
