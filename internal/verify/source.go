package verify

import (
	"context"
	"errors"
	"time"

	"github.com/weir-log/weir/eventlog"
)

const (
	// readBytes bounds the batches, and the values of keys, of one call; the first may be larger.
	readBytes = 4 << 20
	// pageKeys bounds the keys of one call.
	pageKeys = 1000
	// triesMost bounds how often a call is made whose store did not answer.
	triesMost = 6
)

// source is the store, for reading only: it counts what is read, keeps to a rate, and tries again
// if the store does not answer.
type source struct {
	eventlog.Store
	rate  int64     // bytes in a second; 0: any
	due   time.Time // when what was read is paid for
	bytes int64
	keys  int64
}

// Commit refuses: an exam changes nothing.
func (s *source) Commit(context.Context, []eventlog.Entry) ([]eventlog.Outcome, error) {
	return nil, eventlog.ErrReadOnly
}

// Trim refuses, too.
func (s *source) Trim(context.Context, []eventlog.Trim) ([]error, error) {
	return nil, eventlog.ErrReadOnly
}

// Unwrap lets eventlog.As find what the store is.
func (s *source) Unwrap() eventlog.Store { return s.Store }

func (s *source) again(ctx context.Context, call func() error) error {
	for try := 1; ; try++ {
		err := call()
		if !errors.Is(err, eventlog.ErrUnavailable) || try == triesMost || ctx.Err() != nil {
			return err
		}
		eventlog.Pause(ctx, try)
	}
}

// pay waits until the rate allows what was read.
func (s *source) pay(ctx context.Context, bytes int) {
	s.bytes += int64(bytes)
	if s.rate <= 0 {
		return
	}
	now := time.Now()
	if s.due.Before(now) {
		s.due = now
	}
	s.due = s.due.Add(time.Duration(float64(bytes) / float64(s.rate) * float64(time.Second)))
	select {
	case <-time.After(s.due.Sub(now)):
	case <-ctx.Done():
	}
}

// Read implements eventlog.Store.
func (s *source) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) (slices []eventlog.Slice, err error) {
	err = s.again(ctx, func() (err error) {
		slices, err = s.Store.Read(ctx, spans, maxBytes)
		for _, slice := range slices {
			if err == nil && errors.Is(slice.Err, eventlog.ErrUnavailable) {
				err = slice.Err
			}
		}
		return err
	})
	size := 0
	for _, slice := range slices {
		for _, b := range slice.Batches {
			size += len(b.Bytes)
		}
	}
	s.pay(ctx, size)
	return slices, err
}

// Changes implements eventlog.Store.
func (s *source) Changes(ctx context.Context, since eventlog.Mark) (moved []eventlog.Bounds, mark eventlog.Mark, err error) {
	err = s.again(ctx, func() (err error) {
		moved, mark, err = s.Store.Changes(ctx, since)
		return err
	})
	return moved, mark, err
}

// Seek implements eventlog.Store.
func (s *source) Seek(ctx context.Context, goals []eventlog.Goal) (found []eventlog.Found, err error) {
	err = s.again(ctx, func() (err error) {
		found, err = s.Store.Seek(ctx, goals)
		return err
	})
	return found, err
}

// List implements eventlog.Store.
func (s *source) List(ctx context.Context, prefix, after string, limit int) (list []eventlog.KeyValue, err error) {
	err = s.again(ctx, func() (err error) {
		list, err = s.Store.List(ctx, prefix, after, limit)
		return err
	})
	s.payKeys(ctx, list)
	return list, err
}

// Get implements eventlog.Store.
func (s *source) Get(ctx context.Context, keys []string, maxBytes int) (found []eventlog.KeyValue, err error) {
	err = s.again(ctx, func() (err error) {
		found, err = s.Store.Get(ctx, keys, maxBytes)
		return err
	})
	s.payKeys(ctx, found)
	return found, err
}

func (s *source) payKeys(ctx context.Context, kvs []eventlog.KeyValue) {
	size := 0
	for _, kv := range kvs {
		size += len(kv.Key) + len(kv.Value)
	}
	s.keys += int64(len(kvs))
	s.pay(ctx, size)
}
