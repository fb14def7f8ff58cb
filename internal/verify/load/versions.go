package load

import (
	"context"
	"sync"
)

// versions are those at which writers know their streams to be.
type versions struct {
	mu    sync.Mutex // guards known
	known map[int]int64
}

// of returns the version of a writer's stream; it asks if that is not known.
func (v *versions) of(writer int, ask func() (int64, error)) (int64, error) {
	v.mu.Lock()
	version, known := v.known[writer]
	v.mu.Unlock()
	if known {
		return version, nil
	}
	version, err := ask()
	if err == nil {
		v.set(writer, version)
	}
	return version, err
}

func (v *versions) set(writer int, version int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known == nil {
		v.known = map[int]int64{}
	}
	v.known[writer] = version
}

// forget is for a call that failed: its events may be there.
func (v *versions) forget(writer int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.known, writer)
}

// nextVersions are those that the reader of streams has not read yet, by stream. It goes on with
// them after an error.
type nextVersions map[string]int64

// follow reads again and again what came, until ctx ends.
func (n *nextVersions) follow(ctx context.Context, read func(next map[string]int64) error) error {
	if *n == nil {
		*n = nextVersions{}
	}
	for ctx.Err() == nil {
		if err := read(*n); err != nil {
			return err
		}
		pause(ctx)
	}
	return nil
}
