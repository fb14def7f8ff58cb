package s3

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// errStalled: a request was given up because no byte of it went either way for too long.
var errStalled = errors.New("the request made no progress")

// progress gives a request up when none of its bytes, and none of its answer's, has moved for the
// time max. While they move, a request may take as long as it needs.
type progress struct {
	of  http.RoundTripper
	max time.Duration
}

// RoundTrip implements http.RoundTripper.
func (p progress) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(p.max, func() { cancel(errStalled) })
	moved := func() { timer.Reset(p.max) }
	out := r.Clone(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		out.Body = movedBody{r.Body, moved, func() {}}
		if again := r.GetBody; again != nil {
			out.GetBody = func() (io.ReadCloser, error) {
				body, err := again()
				return movedBody{body, moved, func() {}}, err
			}
		}
	}
	end := func() {
		timer.Stop()
		cancel(nil)
	}
	answer, err := p.of.RoundTrip(out)
	if err != nil {
		err = stalled(ctx, err)
		end()
		return nil, err
	}
	moved()
	answer.Body = movedBody{answer.Body, func() {
		if ctx.Err() == nil {
			moved()
		}
	}, end}
	return answer, nil
}

// stalled adds errStalled to the error of a request that was given up for that reason.
func stalled(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errStalled) {
		return errors.Join(cause, err)
	}
	return err
}

// movedBody calls moved when bytes were read, and closed when it is closed.
type movedBody struct {
	io.ReadCloser
	moved, closed func()
}

func (b movedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.moved()
	}
	return n, err
}

func (b movedBody) Close() error {
	defer b.closed()
	return b.ReadCloser.Close()
}
