package httpapi

import (
	"errors"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// repeatable is the only parameter that may be given more than once.
const repeatable = "tag"

// query returns a URL's parameters: only those allowed, each at most once, except repeatable.
func query(u *url.URL, names []string) (url.Values, error) {
	if u.RawQuery == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, kindInvalidRequest.because("cannot parse the query string: %v", err)
	}
	for name, all := range values {
		switch {
		case !slices.Contains(names, name):
			return nil, kindInvalidRequest.because("this path has no parameter %q%s", shorten(name), suggest(name, names))
		case len(all) > 1 && name != repeatable:
			return nil, kindInvalidRequest.because("the parameter %q is given %d times; give it once", name, len(all))
		}
	}
	return values, nil
}

// follows reports whether a client asks for events as they come, until it disconnects: as
// server-sent events, or one a line. Else it gets a page.
func follows(r *http.Request) bool {
	return wantsLines(r) || strings.Contains(r.Header.Get("Accept"), "event-stream")
}

// followsFrom checks the parameters of a client that follows: those of a page make no sense to it.
func followsFrom(q url.Values, names ...string) error {
	for name := range q {
		if !slices.Contains(names, name) {
			return kindInvalidRequest.because("%s is a parameter of a page, and with this Accept events come as they are published; leave it out, or send Accept: application/json", name)
		}
	}
	return nil
}

// paging reads how many events a page may have, and how long its client waits for the first one.
func paging(q url.Values) (most int, wait time.Duration, err error) {
	if most, err = howMany(q); err == nil {
		wait, err = waiting(q)
	}
	return most, wait, err
}

// number reads a parameter that is an integer within bounds, or returns the default.
func number(q url.Values, name string, least, most, none int64) (int64, error) {
	if !q.Has(name) {
		return none, nil
	}
	text := q.Get(name)
	n, whole := wholeNumber(text)
	switch {
	case !whole || n < least:
		return 0, kindInvalidRequest.because("%s=%s: it must be a whole number, %d or more", name, shorten(text), least)
	case n > most:
		return 0, kindInvalidRequest.because("%s=%s: it must be a whole number from %d to %d", name, shorten(text), least, most)
	}
	return n, nil
}

// version reads the query parameter name as the version of an event: a number that fits into 64
// bits, as openapi.yaml says, and not below least. none: it is not given.
func version(q url.Values, name string, least, none int64) (int64, error) {
	if _, err := strconv.ParseInt(q.Get(name), 10, 64); errors.Is(err, strconv.ErrRange) {
		return 0, kindInvalidRequest.because("%s=%s: it must be a whole number from %d to %d", name, shorten(q.Get(name)), least, int64(math.MaxInt64))
	}
	return number(q, name, least, math.MaxInt64, none)
}

// wholeNumber reads digits and nothing else, as the patterns of openapi.yaml say: +5 and -0 are
// refused. A number above the largest int64 is read as the largest int64.
func wholeNumber(text string) (n int64, ok bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, _ = strconv.ParseInt(text, 10, 64) // text has only digits, so at most it is too large, and then n is the largest int64
	return n, true
}

// truth reads a parameter that is true or false; false if it is not given.
func truth(q url.Values, name string) (bool, error) {
	if !q.Has(name) {
		return false, nil
	}
	switch text := q.Get(name); text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, kindInvalidRequest.because("%s=%s: it must be true or false", name, shorten(text))
	}
}

// topic finds the topic in the path.
func (s *Server) topic(c *call) (eventlog.Topic, error) {
	ctx, cancel := c.withTimeout()
	defer cancel()
	return s.cfg.Log.Topic(ctx, c.r.PathValue("topic"))
}

// partitionOf finds a topic's partition by a number as clients write it.
func partitionOf(t eventlog.Topic, text string) (number int32, p eventlog.Partition, err error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, 0, kindInvalidRequest.because("partition %s: it must be a whole number, 0 or more", shorten(text))
	}
	if n >= uint64(len(t.Partitions)) {
		return 0, 0, noSuchPartition(t, int64(n))
	}
	return int32(n), t.Partitions[n], nil
}

func noSuchPartition(t eventlog.Topic, n int64) error {
	return kindNoPartition.because("topic %q has no partition %[3]d; its partitions are 0 to %[2]d", t.Name, len(t.Partitions)-1, n)
}

// waiting reads how long the client wants to wait for events.
func waiting(q url.Values) (time.Duration, error) {
	ms, err := number(q, "wait_ms", 0, math.MaxInt64, 0)
	return time.Duration(min(ms, waitMax.Milliseconds())) * time.Millisecond, err
}

// howMany reads how many events the client wants at most.
func howMany(q url.Values) (int, error) {
	n, err := number(q, "max", 1, math.MaxInt64, eventsDefault)
	return int(min(n, eventsMax)), err
}
