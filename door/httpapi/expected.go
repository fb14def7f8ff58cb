package httpapi

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/stream"
)

// expected reads which version of the stream the request expects. A stream's ETag is its version (RFC 9110, 8.8.3 and 13.1):
//
//	If-Match: "12"       it is at version 12
//	If-Match: *          it exists
//	If-None-Match: *     it does not exist
//	neither              any
func expected(h http.Header) (stream.Expected, error) {
	match, none := h["If-Match"], h["If-None-Match"]
	switch {
	case len(match)+len(none) > 1:
		return 0, kindInvalidRequest.because("there are %d headers If-Match and If-None-Match together; one says what is expected", len(match)+len(none))
	case len(none) == 1 && none[0] == "*":
		return stream.NoStream, nil
	case len(none) == 1:
		return 0, kindInvalidRequest.because("If-None-Match: %s: only * is known here, for a stream that does not exist", shorten(none[0]))
	case len(match) == 0:
		return stream.Any, nil
	case match[0] == "*":
		return stream.Exists, nil
	}
	text, begins := strings.CutPrefix(match[0], `"`)
	text, ends := strings.CutSuffix(text, `"`)
	n, whole := wholeNumber(text)
	if !begins || !ends || !whole || n == math.MaxInt64 {
		return 0, kindInvalidRequest.because(`If-Match: %s: one version is needed, in quotes, as "12", or * for a stream that exists`, shorten(match[0]))
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
	p := kindConflict.because("stream %q is at version %d, and %s was expected. Nothing happened; read it again from there, and decide anew", shorten(e.Stream), e.Actual, e.Expected)
	if !e.Exists {
		p.Detail = "the stream does not exist; its next event gets version " + strconv.FormatInt(e.Actual, 10) + ", and " + e.Expected.String() + " was expected. Nothing happened"
	}
	p.Version, p.Exists = &e.Actual, &e.Exists
	return p
}
