package httpapi

import (
	"context"
	"math"
	"net/http"
	"net/url"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/stream"
)

const (
	listedDefault = 100
	listedMax     = 1000
)

// categoryView is a category in an answer.
type categoryView struct {
	Name       string        `json:"name"`
	ID         string        `json:"id"`
	Partitions int           `json:"partitions"`
	Retention  retentionView `json:"retention"`
}

// streamList is a page of a category's streams.
type streamList struct {
	Streams []namedView `json:"streams"`
	Next    string      `json:"next,omitempty"` // name of the last one, if there may be more
}

// retentionView is which events the category's streams keep; 0: all.
type retentionView struct {
	Events int64 `json:"events,omitempty"`
	Age    int64 `json:"age_ms,omitempty"`
}

// namedView is a stream in a list.
type namedView struct {
	Stream    string         `json:"stream"`
	Version   int64          `json:"version"`
	First     int64          `json:"first"`
	Exists    bool           `json:"exists"`
	Archived  bool           `json:"archived,omitempty"`
	Retention *retentionView `json:"retention,omitempty"` // its own; nil: that of the category
}

func viewOfStream(n stream.Named) namedView {
	v := namedView{Stream: n.Stream, Version: n.Version, First: n.First, Exists: n.Exists, Archived: n.Archived}
	if own := n.Retention; own != nil {
		v.Retention = &retentionView{own.Events, own.Age.Milliseconds()}
	}
	return v
}

// category finds the category in the path.
func (s *Server) category(ctx context.Context, c *call) (*stream.Category, error) {
	return s.cfg.Categories.Category(ctx, c.r.PathValue("category"))
}

// viewOfCategory describes a category, with one store call.
func (s *Server) viewOfCategory(ctx context.Context, category *stream.Category) (categoryView, error) {
	v := categoryView{Name: category.Name(), ID: category.ID().String()}
	topic, err := s.cfg.Log.TopicByID(category.ID())
	if err != nil {
		return v, err
	}
	kept, err := category.Retention(ctx)
	v.Partitions, v.Retention = len(topic.Partitions), retentionView{kept.Events, kept.Age.Milliseconds()}
	return v, err
}

// listCategories lists the names of the categories that the caller may see.
func (s *Server) listCategories(c *call) error {
	return answerList(c, "categories", s.cfg.Categories.Categories, func(name string) bool { return c.who.mayTopic(toDescribe, name) }, asItIs)
}

// describeCategory describes a category.
func (s *Server) describeCategory(c *call) error {
	ctx, cancel := c.withTimeout()
	defer cancel()
	category, err := s.category(ctx, c)
	if err != nil {
		return err
	}
	v, err := s.viewOfCategory(ctx, category)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, v)
}

// listStreams lists streams of a category.
func (s *Server) listStreams(c *call) error {
	most, err := number(c.query, "max", 1, math.MaxInt64, listedDefault)
	if err != nil {
		return err
	}
	most = min(most, listedMax)
	ctx, cancel := c.withTimeout()
	defer cancel()
	if err := c.build(ctx); err != nil {
		return err
	}
	category, err := s.category(ctx, c)
	if err != nil {
		return err
	}
	streams, err := category.List(ctx, c.query.Get("prefix"), c.query.Get("after"), int(most))
	if err != nil {
		return err
	}
	v := streamList{Streams: make([]namedView, len(streams))}
	for i, n := range streams {
		v.Streams[i] = viewOfStream(n)
	}
	if len(streams) == int(most) {
		v.Next = streams[len(streams)-1].Stream
	}
	return c.json(http.StatusOK, v)
}

// createCategory creates a category.
func (s *Server) createCategory(c *call) error {
	spec, err := s.readCategory(c)
	if err != nil {
		return err
	}
	if err := c.may(toCreate, spec.Name); err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	category, err := s.cfg.Categories.CreateCategory(ctx, spec)
	if uncertain(err) {
		return kindUnknown.because("the category was sent to the store, or its topic was created, but no answer came. GET /v1/categories/%s shows whether it exists. If the answer is unknown_category, send the request again: if the topic was created, that makes it a category", url.PathEscape(shorten(spec.Name)))
	}
	if err != nil {
		return err
	}
	v, err := s.viewOfCategory(ctx, category)
	if err != nil {
		return kindUnknown.because("the category was created, but weir could not read it afterwards")
	}
	c.Header().Set("Location", "/v1/categories/"+url.PathEscape(spec.Name))
	return c.json(http.StatusCreated, v)
}

// readCategory reads the body of a request that creates a category.
func (s *Server) readCategory(c *call) (spec stream.Spec, err error) {
	body, err := s.jsonBody(c)
	if err != nil {
		return spec, err
	}
	err = readJSON(body, 0, func(r *jsonReader) error {
		return r.object(func(member string) (err error) {
			switch member {
			case "name":
				spec.Name, err = r.string()
			case "partitions":
				var n int64
				n, err = r.integer(1, eventlog.PartitionsMax)
				spec.Partitions = int(n)
			case "config":
				var config map[string]*string
				config, err = readConfig(r)
				spec.Settings = make(map[string]string)
				for name, value := range config {
					if value != nil {
						spec.Settings[name] = *value
					}
				}
			case "retention":
				spec.Retention, err = readRetention(r)
			default:
				err = r.unknown(member, "name", "partitions", "config", "retention")
			}
			return err
		})
	})
	if err == nil && spec.Name == "" {
		err = kindInvalidJSON.because(`"name" is missing`)
	}
	return spec, err
}

func readRetention(r *jsonReader) (kept stream.Retention, err error) {
	err = r.object(func(member string) (err error) {
		switch member {
		case "events":
			kept.Events, err = r.integer(1, math.MaxInt64)
		case "age_ms":
			var ms int64
			ms, err = r.integer(1, pauseMax)
			kept.Age = time.Duration(ms) * time.Millisecond
		default:
			err = r.unknown(member, "events", "age_ms")
		}
		return err
	})
	return kept, err
}
