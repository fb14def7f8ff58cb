package httpapi

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// boundsReads reads where partitions begin and end, for streams that begin. Of the same partitions
// there is one read at a time, and whoever came before it began shares it:
//
//	read 1   |--------|
//	read 2            |--------|
//	          ^ ^^ ^ ^^ ^^       came while read 1 was under way: all of them get read 2
//
// So a thousand streams of a topic that begin together cost two store calls, and nobody gets bounds
// that were read before it came. A read goes on when the client that began it leaves: otherwise
// those who wait for it would have waited in vain.
type boundsReads struct {
	log *eventlog.Log
	ask func(context.Context, []eventlog.Partition) ([]eventlog.Slice, error) // one store call

	mu sync.Mutex // guards of, and users of each
	of map[boundsKey]*boundsRead
}

// boundsKey names all partitions of a topic, by the first one, or one partition. Numbers of
// partitions are not used again, and a topic that grows has another key.
type boundsKey struct {
	first eventlog.Partition
	count int
}

// boundsRead is the last read of some partitions.
type boundsRead struct {
	users int
	begun atomic.Int64  // how many reads began
	turn  chan struct{} // a lock: has a value while somebody reads. It guards what follows

	number int64 // the number of the last read that ended; reads are numbered in the order in which they begin, from 1. 0: none has ended
	bounds []eventlog.Slice
	epoch  int32
	err    error
}

// read returns the bounds of a topic's partitions, or of one partition, and the leader epoch that
// the log was in before they were read: if the store is rewound after this, the first fetch
// notices. The caller must not change the bounds, because others have them, too. ctx must have a
// deadline.
func (r *boundsReads) read(ctx context.Context, ps []eventlog.Partition) (bounds []eventlog.Slice, epoch int32, err error) {
	key := boundsKey{ps[0], len(ps)}
	b := r.use(key)
	defer r.leave(key)
	came, before := time.Now(), b.begun.Load()
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return nil, 0, fmt.Errorf("read where %d partitions end: %w (%w)", len(ps), r.log.Late(came), context.Cause(ctx))
	}
	if b.number > before {
		return b.bounds, b.epoch, b.err
	}
	number := b.begun.Add(1)
	epoch = r.log.LeaderEpoch()
	until, _ := ctx.Deadline()
	asking, cancel := context.WithDeadline(context.WithoutCancel(ctx), until)
	defer cancel()
	bounds, err = r.ask(asking, ps)
	if err != nil && asking.Err() != nil {
		return nil, 0, err // the time of this caller is over, and not that of others
	}
	b.number, b.bounds, b.epoch, b.err = number, bounds, epoch, err
	return bounds, epoch, err
}

func (r *boundsReads) use(key boundsKey) *boundsRead {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.of[key]
	if b == nil {
		b = &boundsRead{turn: make(chan struct{}, 1)}
		r.of[key] = b
	}
	b.users++
	return b
}

func (r *boundsReads) leave(key boundsKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.of[key]
	if b.users--; b.users == 0 {
		delete(r.of, key)
	}
}
