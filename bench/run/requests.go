package run

import (
	"fmt"
	"time"

	"github.com/weir-log/weir/bench/system"
)

// Requests are those to a bucket each second, by its server's own count; deletions are free.
type Requests struct {
	Puts  float64 `json:"puts"`
	Gets  float64 `json:"gets"`
	Lists float64 `json:"lists"`
}

// requested begins to count requests; count returns nil if the system has no bucket.
func (m *measurement) requested() (count func() (*Requests, error), err error) {
	r, is := m.server.(system.Requester)
	if !is {
		return func() (*Requests, error) { return nil, nil }, nil
	}
	before, has, err := r.Requests()
	if err != nil {
		return nil, fmt.Errorf("count the requests: %w", err)
	}
	began := time.Now()
	return func() (*Requests, error) {
		after, _, err := r.Requests()
		if !has || err != nil {
			return nil, err
		}
		each := func(before, after int64) float64 { return float64(after-before) / time.Since(began).Seconds() }
		return &Requests{Puts: each(before.Puts, after.Puts), Gets: each(before.Gets, after.Gets), Lists: each(before.Lists, after.Lists)}, nil
	}, nil
}
