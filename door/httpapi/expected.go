package httpapi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/stream"
)

// expected reads which version of the stream the request expects. A stream's ETag is its version
// (RFC 9110, 8.8.3 and 13.1):
//
//	If-Match: "12"       it is at version 12
//	If-Match: *          it exists
//	If-None-Match: *     it does not exist
//	neither              any
func expected(h http.Header) (stream.Expected, error) {
	match, none := h["If-Match"], h["If-None-Match"]
	switch {
	case len(match)+len(none) > 1:
		return 0, kindInvalidRequest.because("the request has %d headers If-Match and If-None-Match together; send at most one", len(match)+len(none))
	case len(none) == 1 && none[0] == "*":
		return stream.NoStream, nil
	case len(none) == 1:
		return 0, kindInvalidRequest.because("If-None-Match: %s: it must be *, for a stream that does not exist", shorten(none[0]))
	case len(match) == 0:
		return stream.Any, nil
	case match[0] == "*":
		return stream.Exists, nil
	}
	text, begins := strings.CutPrefix(match[0], `"`)
	text, ends := strings.CutSuffix(text, `"`)
	n, whole := wholeNumber(text)
	if !begins || !ends || !whole || n == math.MaxInt64 {
		return 0, kindInvalidRequest.because(`If-Match: %s: it must be one version in quotes, such as "12", or * for a stream that exists`, shorten(match[0]))
	}
	return stream.Expected(n), nil
}

// etag is the ETag of a stream at a version.
func etag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// uncertain reports whether the outcome of a change is unknown.
func uncertain(err error) bool {
	return errors.Is(err, eventlog.ErrUnsure) ||
		!errors.Is(err, eventlog.ErrUnavailable) && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled))
}

// conflictProblem says at which version a stream is.
func conflictProblem(e *stream.ConflictError) *problem {
	p := kindConflict.because("stream %q is at version %d, but the request expected %s. Nothing happened; read the stream again, and decide again what to do", shorten(e.Stream), e.Actual, e.Expected)
	if !e.Exists {
		p.Detail = fmt.Sprintf("stream %q does not exist; its next event gets version %d, but the request expected %s. Nothing happened", shorten(e.Stream), e.Actual, e.Expected)
	}
	p.Category, p.Stream, p.Version, p.Exists = e.Category, e.Stream, &e.Actual, &e.Exists
	return p
}
