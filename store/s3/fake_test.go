package s3

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// fake is a bucket in memory. Its clock can be moved on, and its answers can be changed by tests.
type fake struct {
	mu      sync.Mutex // guards all below
	objects map[string]stored
	ahead   time.Duration
	onPut   func(key string, do func() error) error // answers a put
	onGet   func(key string)                        // is called before a get is answered
}

type stored struct {
	body     []byte
	modified time.Time
}

func newFake() *fake { return &fake{objects: map[string]stored{}} }

// seen is a fake as one store sees it.
type seen struct {
	*fake
	clock *clock
}

func (f seen) answer(asked time.Time) answer {
	date := time.Now().Add(f.ahead).Truncate(time.Second)
	f.clock.observe(date, asked, time.Now(), exactLag)
	return answer{date: date}
}

func (f seen) stats() Stats { return Stats{} }
func (f seen) close()       {}

func (f seen) put(_ context.Context, key string, body []byte) (answer, error) {
	asked := time.Now()
	do := func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if _, there := f.objects[key]; there {
			return errExists
		}
		f.objects[key] = stored{bytes.Clone(body), time.Now().Add(f.ahead)}
		return nil
	}
	f.mu.Lock()
	on := f.onPut
	f.mu.Unlock()
	var err error
	if on != nil {
		err = on(key, do)
	} else {
		err = do()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.answer(asked), err
}

func (f seen) get(_ context.Context, key string, from, size int64) ([]byte, answer, error) {
	f.mu.Lock()
	on := f.onGet
	f.mu.Unlock()
	if on != nil {
		on(key)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.answer(time.Now())
	o, there := f.objects[key]
	if !there {
		return nil, a, errMissing
	}
	a.size = int64(len(o.body))
	if size >= 0 && from >= a.size {
		return nil, a, errBeyond
	}
	body := o.body[min(from, a.size):]
	if size >= 0 {
		body = body[:min(size, int64(len(body)))]
	}
	return bytes.Clone(body), a, nil
}

func (f seen) list(_ context.Context, prefix, after string, limit int) ([]item, answer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []item
	for key, o := range f.objects {
		if strings.HasPrefix(key, prefix) && key > after {
			all = append(all, item{key, int64(len(o.body)), o.modified})
		}
	}
	slices.SortFunc(all, func(a, b item) int { return strings.Compare(a.key, b.key) })
	return all[:min(limit, len(all))], f.answer(time.Now()), nil
}

func (f seen) remove(_ context.Context, key string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.objects, key)
	return nil
}
