package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/weir-log/weir/use/stream"
)

// deleteStream deletes a stream.
func (s *Server) deleteStream(c *call) error {
	return s.streamVerb(c, func(ctx context.Context, category *stream.Category, name string, want stream.Expected) error {
		_, err := category.Delete(ctx, name, want)
		return err
	})
}

// archiveStream closes a stream for appends.
func (s *Server) archiveStream(c *call) error {
	return s.streamVerb(c, func(ctx context.Context, category *stream.Category, name string, want stream.Expected) error {
		return category.Archive(ctx, name, want)
	})
}

// unarchiveStream opens a stream for appends again.
func (s *Server) unarchiveStream(c *call) error {
	return s.streamVerb(c, func(ctx context.Context, category *stream.Category, name string, want stream.Expected) error {
		if want != stream.Any && want != stream.Exists {
			return kindInvalidRequest.because("unarchive takes no version in If-Match, because an archived stream does not change; leave it out")
		}
		return category.Unarchive(ctx, name)
	})
}

// streamVerb is a handler for an action that needs a stream's name and expected version, and no
// body. A client may repeat the request, unless it is a deletion without an expected version: that
// would also delete a stream that was begun again meanwhile.
func (s *Server) streamVerb(c *call, do func(context.Context, *stream.Category, string, stream.Expected) error) error {
	want, err := expected(c.r.Header)
	if err != nil {
		return err
	}
	if err := s.noBody(c); err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	category, err := s.category(ctx, c)
	if err != nil {
		return err
	}
	err = do(ctx, category, c.r.PathValue("stream"), want)
	var conflict *stream.ConflictError
	switch {
	case uncertain(err):
		return kindUnknown.because("the change was sent to the store, but no answer came. Read the stream to see whether it happened, or send the request again; send a deletion again only with If-Match, because without it a stream that was begun again in the meantime would be deleted")
	case errors.As(err, &conflict) && want == stream.Any:
		return unknownStream(c)
	case err != nil:
		return err
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}
