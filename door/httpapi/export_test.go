package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/weir-log/weir/use/acl"
)

// Routes are the patterns of the API, with the parameters of each.
func Routes() (patterns []string) {
	for _, r := range api {
		patterns = append(patterns, r.pattern)
	}
	return patterns
}

// TakeDecoders takes all turns to decode, until release.
func (s *Server) TakeDecoders(ctx context.Context) (release func(), err error) {
	turn := decoding{of: s.decoders}
	for range s.decoders.most {
		if err := turn.acquire(ctx); err != nil {
			return nil, err
		}
	}
	return func() {
		for range s.decoders.most {
			turn.release()
		}
	}, nil
}

// HoldBodies takes n bytes of the memory for bodies, until release.
func (s *Server) HoldBodies(ctx context.Context, n int64) (release func(), err error) {
	claim := s.bodies.Begin()
	_, err = claim.Grow(ctx, n)
	return claim.Release, err
}

// TakePages takes all turns to have a page of messages or dead letters, until release.
func (s *Server) TakePages(ctx context.Context) (release func(), err error) {
	for range s.pages.most {
		if err := s.pages.acquire(ctx, ""); err != nil {
			return nil, err
		}
	}
	return func() {
		for range s.pages.most {
			s.pages.release("")
		}
	}, nil
}

// What openapi.yaml says in numbers and words.
const (
	ClaimDefault      = claimDefault
	CursorMax         = cursorMax
	EventsMax         = eventsMax
	EventsDefault     = eventsDefault
	AttemptsMax       = attemptsMax
	ConcurrencyMax    = concurrencyMax
	DelaysMax         = delaysMax
	LeaseMax          = leaseMax
	LeaseMin          = leaseMin
	LettersDefault    = lettersDefault
	LettersMax        = lettersMax
	PartsMax          = partsMax
	PauseMax          = pauseMax
	PrioritiesMax     = prioritiesMax
	RateMax           = rateMax
	WindowMost        = windowMost
	ListedDefault     = listedDefault
	OnceKeyMax        = onceKeyMax
	ReadDefault       = readDefault
	SessionDefault    = sessionDefault
	SessionMax        = sessionMax
	SessionMin        = sessionMin
	StreamPageDefault = streamPageDefault
	StreamPartitions  = streamPartitions
	TimestampMax      = timestampMax
	WaitMax           = waitMax
	PageGrace         = pageGrace
	PageRate          = pageRate
)

// Renamed says where paths of earlier versions are now.
var Renamed = renamed

// Limits are the bounds that tests change.
type Limits = limits

// With returns the configuration with other limits.
func (c Config) With(l Limits) Config {
	c.limits = l
	return c
}

// Needs is the table of docs/http.md: for each route the access of a key, and the operations of a
// user on the topic and on the group.
func Needs() (rows []string) {
	list := func(all []acl.Operation, between string) string {
		var words []string
		for _, op := range all {
			words = append(words, op.String())
		}
		return cmp.Or(strings.Join(words, between), "–")
	}
	for _, rt := range api {
		if rt.needs.access == public {
			continue
		}
		path, _, _ := strings.Cut(rt.pattern, "?")
		if rt.needs.cluster != nil {
			rows = append(rows, fmt.Sprintf("| `%s` | %s, for everything | %s on the cluster | – |", path, rt.needs.access, list(rt.needs.cluster, ", ")))
			continue
		}
		between, group := ", ", "–"
		if rt.needs.either {
			between = " or "
		}
		if strings.Contains(path, "/groups") || strings.Contains(path, "/queues") || strings.Contains(path, "/projections") {
			group = list(rt.needs.group, ", ")
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |", path, rt.needs.access, list(rt.needs.topic, between), group))
	}
	return rows
}

// EncoderBytes is what the encoder of a follower takes while it sends a page.
const EncoderBytes = encoderBytes

// HeldByAnswers returns how many bytes answers hold, as the budget counts them.
func (s *Server) HeldByAnswers() int64 { return s.answers.Held() }

// WaitBytes is what a request that waits claims.
const WaitBytes = waitBytes

// HeldByWaits returns how many bytes requests that wait hold, as the budget counts them.
func (s *Server) HeldByWaits() int64 { return s.waits.Held() }
