package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/simbucket"
)

func init() { simbucket.OpenStore = openGiven }

// openGiven opens a store on a simulated bucket.
func openGiven(ctx context.Context, url string, b simbucket.Bucket, t simbucket.Tuning, logger *slog.Logger) (eventlog.Store, error) {
	at, err := parse(url)
	if err != nil {
		return nil, fmt.Errorf("open S3 store: %w", err)
	}
	at.grace, at.every = cmp.Or(t.Grace, at.grace), t.Snapshots
	clock := &clock{}
	s, err := open(ctx, at, given{b, clock}, clock, Options{Logger: logger})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// given is a simulated bucket as one store sees it. Its Date is the time of the answer.
type given struct {
	simbucket.Bucket
	clock *clock
}

var givenKinds = map[error]error{
	simbucket.ErrMissing: errMissing, simbucket.ErrExists: errExists, simbucket.ErrBeyond: errBeyond, simbucket.ErrBusy: errBusy,
}

func (g given) answered(date, asked time.Time, err error) (answer, error) {
	if !date.IsZero() {
		g.clock.observe(date, asked, time.Now(), exactLag)
	}
	for told, kind := range givenKinds {
		if errors.Is(err, told) {
			err = fmt.Errorf("%w: %w", kind, err)
		}
	}
	return answer{date: date}, err
}

func (g given) put(ctx context.Context, key string, body []byte) (answer, error) {
	asked := time.Now()
	date, err := g.Put(ctx, key, body)
	return g.answered(date, asked, err)
}

func (g given) get(ctx context.Context, key string, from, size int64) ([]byte, answer, error) {
	asked := time.Now()
	body, whole, date, err := g.Get(ctx, key, from, size)
	a, err := g.answered(date, asked, err)
	a.size = whole
	return body, a, err
}

func (g given) list(ctx context.Context, prefix, after string, limit int) (items []item, a answer, err error) {
	asked := time.Now()
	found, date, err := g.List(ctx, prefix, after, limit)
	for _, it := range found {
		items = append(items, item{it.Key, it.Size, it.Modified})
	}
	a, err = g.answered(date, asked, err)
	return items, a, err
}

func (g given) remove(ctx context.Context, key string) error { return g.Remove(ctx, key) }

func (g given) stats() Stats { return Stats{} }
func (g given) close()       {}
