package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/weir-log/weir/use/stream"
)

// Which events of streams are kept: retention, and subjects that are forgotten.

// alterCategory changes the retention of a category's streams that have none of their own.
func (s *Server) alterCategory(c *call) error {
	var kept *stream.Retention
	err := s.bodyAsJSON(c, func(r *jsonReader) error {
		return r.object(func(member string) error {
			if member != "retention" {
				return r.unknown(member, "retention")
			}
			read, err := readRetention(r)
			kept = &read
			return err
		})
	})
	if err != nil {
		return err
	}
	if kept == nil {
		return kindInvalidJSON.because(`"retention" is missing; {"retention": {}} keeps all events. The settings of the topic are changed with PATCH /v1/topics/{topic}`)
	}
	return s.keep(c, func(ctx context.Context, category *stream.Category) error {
		if err := category.SetRetention(ctx, *kept); err != nil {
			return err
		}
		v, err := s.viewOfCategory(ctx, category)
		if err != nil {
			return kindUnknown.because("the retention was set, but weir could not read it afterwards")
		}
		return c.json(http.StatusOK, v)
	})
}

// setStreamRetention gives a stream a retention of its own.
func (s *Server) setStreamRetention(c *call) error {
	var kept stream.Retention
	err := s.bodyAsJSON(c, func(r *jsonReader) (err error) {
		kept, err = readRetention(r)
		return err
	})
	if err != nil {
		return err
	}
	return s.keepStream(c, &kept)
}

// unsetStreamRetention gives a stream the retention of its category.
func (s *Server) unsetStreamRetention(c *call) error {
	if err := s.noBody(c); err != nil {
		return err
	}
	return s.keepStream(c, nil)
}

func (s *Server) keepStream(c *call, kept *stream.Retention) error {
	return s.keep(c, func(ctx context.Context, category *stream.Category) error {
		var conflict *stream.ConflictError
		err := category.SetStreamRetention(ctx, c.r.PathValue("stream"), kept)
		if errors.As(err, &conflict) {
			return unknownStream(c)
		}
		if err == nil {
			c.WriteHeader(http.StatusNoContent)
		}
		return err
	})
}

// forgetSubject destroys the key that encrypts the data about a subject. The subject is in the
// body, since URLs are written into logs.
func (s *Server) forgetSubject(c *call) error {
	subject := ""
	err := s.bodyAsJSON(c, func(r *jsonReader) error {
		return r.object(func(member string) (err error) {
			if member != "subject" {
				return r.unknown(member, "subject")
			}
			subject, err = r.string()
			return err
		})
	})
	if err != nil {
		return err
	}
	return s.keep(c, func(ctx context.Context, category *stream.Category) error {
		if err := category.ForgetSubject(ctx, subject); err != nil {
			return err
		}
		c.WriteHeader(http.StatusNoContent)
		return nil
	})
}

// bodyAsJSON reads a body of JSON.
func (s *Server) bodyAsJSON(c *call, read func(*jsonReader) error) error {
	body, err := s.jsonBody(c)
	if err != nil {
		return err
	}
	return readJSON(body, 0, read)
}

// keep changes what is kept of the category in the path. Each change may be repeated.
func (s *Server) keep(c *call, change func(context.Context, *stream.Category) error) error {
	for _, name := range []string{"If-Match", "If-None-Match", "Idempotency-Key"} {
		if c.r.Header[name] != nil {
			return kindInvalidRequest.because("this request takes no %s; leave it out: the change can be repeated, whatever the version is", name)
		}
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	category, err := s.category(ctx, c)
	if err != nil {
		return err
	}
	err = change(ctx, category)
	if uncertain(err) {
		return kindUnknown.because("the change was sent to the store, but no answer came. Send the request again: this is safe")
	}
	return err
}
