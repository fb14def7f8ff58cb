package s3

import (
	"context"
	"time"

	"github.com/weir-log/weir/internal/simbucket"
)

// fake is a bucket in memory whose answers can be changed by tests.
type fake struct {
	simbucket.Memory
	onPut func(key string, do func() error) error // answers a put
	onGet func(key string)                        // is called before a get is answered
}

type stored = simbucket.Object

func newFake() *fake { return &fake{Memory: simbucket.Memory{Objects: map[string]stored{}}} }

func (f *fake) Put(ctx context.Context, key string, body []byte) (time.Time, error) {
	f.Mu.Lock()
	on := f.onPut
	f.Mu.Unlock()
	if on == nil {
		return f.Memory.Put(ctx, key, body)
	}
	err := on(key, func() error {
		_, err := f.Memory.Put(ctx, key, body)
		return err
	})
	f.Mu.Lock()
	defer f.Mu.Unlock()
	return time.Now().Add(f.Ahead).Truncate(time.Second), err
}

func (f *fake) Get(ctx context.Context, key string, from, size int64) ([]byte, int64, time.Time, error) {
	f.Mu.Lock()
	on := f.onGet
	f.Mu.Unlock()
	if on != nil {
		on(key)
	}
	return f.Memory.Get(ctx, key, from, size)
}
