package httpapi

import (
	"context"
	"math"
	"net/http"

	"github.com/weir-log/weir/internal/budget"
	"github.com/weir-log/weir/use/stream"
)

// loadSnapshot answers with the newest snapshot of a stream at or below a version.
func (s *Server) loadSnapshot(c *call) error {
	at, err := version(c.query, "at", 0, math.MaxInt64)
	if err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	category, err := s.category(ctx, c)
	if err != nil {
		return err
	}
	memory, err := s.claimSnapshot(ctx, c, category)
	if err != nil {
		return err
	}
	defer memory.Release()
	snapshot, there, err := category.Snapshot(ctx, c.r.PathValue("stream"), at)
	if err != nil {
		return err
	}
	if !there {
		return kindUnknownSnapshot.because("the stream has no snapshot at or below that version")
	}
	c.Header()["Content-Type"] = jsonType
	e, end := pageEncoder(c, memory)
	defer end()
	e.string(`{"version":`)
	e.int(snapshot.Version)
	e.string(`,`)
	e.field("value", snapshot.Data)
	e.string("}\n")
	return nil
}

// claimSnapshot claims memory for the largest snapshot that the category takes.
func (s *Server) claimSnapshot(ctx context.Context, c *call, category *stream.Category) (*budget.Claim, error) {
	topic, err := s.cfg.Log.TopicByID(category.ID())
	if err != nil {
		return nil, err
	}
	most := int64(topic.MaxMessageBytes())
	return c.claimAnswer(ctx, most, most)
}

// saveSnapshot keeps a snapshot of a stream.
func (s *Server) saveSnapshot(c *call) error {
	for _, name := range []string{"If-Match", "If-None-Match", "Idempotency-Key"} {
		if c.r.Header[name] != nil {
			return kindInvalidRequest.because("saving a snapshot takes no %s: the body has the version, and a second snapshot of the same version replaces the first; leave the header out", name)
		}
	}
	body, err := s.jsonBody(c)
	if err != nil {
		return err
	}
	snapshot := stream.Snapshot{Version: -1}
	values := 0
	err = readJSON(body, 0, func(r *jsonReader) error {
		return r.object(func(name string) (err error) {
			switch name {
			case "version":
				snapshot.Version, err = r.integer(0, math.MaxInt64)
			case "value":
				values++
				snapshot.Data, err = anyValue(r)
			case "value_b64":
				values++
				snapshot.Data, err = r.base64()
			default:
				err = r.unknown(name, "version", "value", "value_b64")
			}
			return err
		})
	})
	switch {
	case err != nil:
		return err
	case snapshot.Version < 0:
		return kindInvalidJSON.because(`"version" is missing: the snapshot stands for the events below that version`)
	case values != 1:
		return kindInvalidJSON.because(`a snapshot must have one value: give either "value" or "value_b64"`)
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	category, err := s.category(ctx, c)
	if err != nil {
		return err
	}
	err = category.SaveSnapshot(ctx, c.r.PathValue("stream"), snapshot)
	if uncertain(err) {
		return kindUnknown.because("the snapshot was sent to the store, but no answer came. Save it again: this is safe")
	}
	if err != nil {
		return err
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}
