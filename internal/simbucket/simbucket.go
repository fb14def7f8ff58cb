// Package simbucket is a bucket of S3 in memory, and the lines between it and processes, for tests
// and simulations in fake time. The store in S3 (store/s3) is opened on it with OpenStore.
package simbucket

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// The answers that say for sure what happened. All other errors leave open whether a put or a
// removal happened.
var (
	ErrMissing = errors.New("no such object")
	ErrExists  = errors.New("the object exists already (412)")
	ErrBeyond  = errors.New("the object ends before (416)")
	ErrBusy    = errors.New("slow down (503): nothing was written")
)

// Bucket is what processes see. Dates are the server's clock in whole seconds, as in the header
// Date; zero: there was no answer.
type Bucket interface {
	// Put writes an object unless there is one with this key.
	Put(ctx context.Context, key string, body []byte) (date time.Time, err error)
	// Get reads size bytes from an offset on, fewer if the object ends before; all if size is
	// negative. whole is the size of the object.
	Get(ctx context.Context, key string, from, size int64) (body []byte, whole int64, date time.Time, err error)
	// List returns, in byte order, at most limit objects whose keys begin with a prefix and are
	// greater than after.
	List(ctx context.Context, prefix, after string, limit int) (items []Item, date time.Time, err error)
	Remove(ctx context.Context, key string) error
}

// Item is an object as a list has it.
type Item struct {
	Key      string
	Size     int64
	Modified time.Time
}

// Tuning makes times and counts of a store short, so that a history of minutes has all that weeks
// have. Zero: as in the product.
type Tuning struct {
	Grace     time.Duration // see docs/s3.md
	Snapshots int64         // how many commits come between two snapshots
}

// OpenStore opens the store in S3 on a bucket, with the options of a URL. The package store/s3 sets
// it.
var OpenStore func(ctx context.Context, url string, b Bucket, t Tuning, logger *slog.Logger) (eventlog.Store, error)

// Object is what a key names.
type Object struct {
	Body     []byte
	Modified time.Time
}

// Memory is a bucket in memory. The zero value is empty.
type Memory struct {
	Mu      sync.Mutex        // guards what follows
	Objects map[string]Object // bodies are never changed
	Ahead   time.Duration     // of the server's clock
}

func (m *Memory) date() time.Time { return time.Now().Add(m.Ahead).Truncate(time.Second) }

// Put implements Bucket.
func (m *Memory) Put(_ context.Context, key string, body []byte) (time.Time, error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	if _, there := m.Objects[key]; there {
		return m.date(), ErrExists
	}
	if m.Objects == nil {
		m.Objects = map[string]Object{}
	}
	m.Objects[key] = Object{bytes.Clone(body), time.Now().Add(m.Ahead)}
	return m.date(), nil
}

// Get implements Bucket.
func (m *Memory) Get(_ context.Context, key string, from, size int64) ([]byte, int64, time.Time, error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	o, there := m.Objects[key]
	if !there {
		return nil, 0, m.date(), ErrMissing
	}
	whole := int64(len(o.Body))
	if size >= 0 && from >= whole {
		return nil, whole, m.date(), ErrBeyond
	}
	body := o.Body[min(from, whole):]
	if size >= 0 {
		body = body[:min(size, int64(len(body)))]
	}
	return bytes.Clone(body), whole, m.date(), nil
}

// List implements Bucket.
func (m *Memory) List(_ context.Context, prefix, after string, limit int) ([]Item, time.Time, error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	var all []Item
	for key, o := range m.Objects {
		if strings.HasPrefix(key, prefix) && key > after {
			all = append(all, Item{key, int64(len(o.Body)), o.Modified})
		}
	}
	slices.SortFunc(all, func(a, b Item) int { return strings.Compare(a.Key, b.Key) })
	return all[:min(limit, len(all))], m.date(), nil
}

// Remove implements Bucket.
func (m *Memory) Remove(_ context.Context, key string) error {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	delete(m.Objects, key)
	return nil
}

// Keys lists the keys that begin with a prefix.
func (m *Memory) Keys(prefix string) (keys []string) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	for key := range m.Objects {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Copy returns what the bucket holds.
func (m *Memory) Copy() map[string]Object {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	return maps.Clone(m.Objects)
}

// PutBack puts a copy in the place of what the bucket holds.
func (m *Memory) PutBack(objects map[string]Object) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	m.Objects = maps.Clone(objects)
}
