package simbucket

import (
	"context"
	"errors"
	"time"
)

// ErrLost is an error that says nothing: no answer came.
var ErrLost = errors.New("the connection was lost")

// Request is what a process asks of a bucket.
type Request struct {
	Verb string // PUT, GET, LIST or DELETE
	Key  string // or the prefix
}

// Fate is what becomes of a request. The zero value: it is answered at once.
type Fate struct {
	There, Back time.Duration // how long the request takes to the bucket, and its answer back
	// Stops: it does not arrive, and whoever asked hears this after There.
	Stops error
	// Silent: it arrives, and the answer does not; whoever asked hears ErrLost.
	Silent bool
	// GivesUp: whoever asked hears ErrLost after this time, and a PUT or DELETE arrives all the
	// same. Zero: nobody gives up.
	GivesUp time.Duration
	// Again: a PUT or DELETE arrives once more after this time; the second answer is lost.
	Again time.Duration
}

// Line is the bucket as one process reaches it.
type Line struct {
	Of Bucket
	// Fate decides what becomes of a request.
	Fate func(Request) Fate
	// Awake returns nil at once or, if the process stands still, when it goes on. An error: the
	// process was killed, or the caller gave up.
	Awake func(context.Context) error
	// Dead is closed when the process is killed: nothing is sent any more, and nobody waits.
	Dead <-chan struct{}
	// Later does something that outlives the process.
	Later func(do func())
}

// pass passes time, as long as somebody waits.
func (l *Line) pass(ctx context.Context, d time.Duration) error {
	if err := l.Awake(ctx); err != nil {
		return err
	}
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.Dead:
			return ErrLost
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return l.Awake(ctx)
}

// ask makes a request that changes nothing.
func (l *Line) ask(ctx context.Context, f Fate, do func() error) error {
	if err := l.pass(ctx, f.There); err != nil {
		return err
	}
	if f.Stops != nil {
		return f.Stops
	}
	err := do()
	if lost := l.pass(ctx, f.Back); lost != nil {
		return lost
	}
	if f.Silent {
		return ErrLost
	}
	return err
}

// send makes a request that changes something: it arrives, whatever becomes of its sender.
func (l *Line) send(ctx context.Context, f Fate, do func() (time.Time, error)) (date time.Time, err error) {
	if err := l.pass(ctx, 0); err != nil {
		return date, err
	}
	if f.Stops != nil {
		if err := l.pass(ctx, f.There); err != nil {
			return date, err
		}
		return date, f.Stops
	}
	type answer struct {
		date time.Time
		err  error
	}
	arrived := make(chan answer, 1)
	l.Later(func() {
		time.Sleep(f.There)
		date, err := do()
		arrived <- answer{date, err}
		if f.Again > 0 {
			time.Sleep(f.Again)
			_, _ = do()
		}
	})
	var enough <-chan time.Time
	if f.GivesUp > 0 {
		timer := time.NewTimer(f.GivesUp)
		defer timer.Stop()
		enough = timer.C
	}
	var a answer
	select {
	case a = <-arrived:
	case <-enough:
		return date, ErrLost
	case <-l.Dead:
		return date, ErrLost
	case <-ctx.Done():
		return date, ctx.Err()
	}
	if lost := l.pass(ctx, f.Back); lost != nil {
		return date, lost
	}
	if f.Silent {
		return date, ErrLost
	}
	return a.date, a.err
}

// Put implements Bucket.
func (l *Line) Put(ctx context.Context, key string, body []byte) (time.Time, error) {
	return l.send(ctx, l.Fate(Request{"PUT", key}), func() (time.Time, error) {
		return l.Of.Put(context.WithoutCancel(ctx), key, body)
	})
}

// Get implements Bucket.
func (l *Line) Get(ctx context.Context, key string, from, size int64) (body []byte, whole int64, date time.Time, err error) {
	err = l.ask(ctx, l.Fate(Request{"GET", key}), func() error {
		body, whole, date, err = l.Of.Get(ctx, key, from, size)
		return err
	})
	if err != nil {
		body = nil
	}
	return body, whole, answered(date, err), err
}

// List implements Bucket.
func (l *Line) List(ctx context.Context, prefix, after string, limit int) (items []Item, date time.Time, err error) {
	err = l.ask(ctx, l.Fate(Request{"LIST", prefix}), func() error {
		items, date, err = l.Of.List(ctx, prefix, after, limit)
		return err
	})
	if err != nil {
		items = nil
	}
	return items, answered(date, err), err
}

// Remove implements Bucket.
func (l *Line) Remove(ctx context.Context, key string) error {
	_, err := l.send(ctx, l.Fate(Request{"DELETE", key}), func() (time.Time, error) {
		return time.Time{}, l.Of.Remove(context.WithoutCancel(ctx), key)
	})
	return err
}

// answered returns the date of an answer: none, if nothing came.
func answered(date time.Time, err error) time.Time {
	for _, told := range []error{nil, ErrMissing, ErrExists, ErrBeyond} {
		if err == told {
			return date
		}
	}
	return time.Time{}
}
