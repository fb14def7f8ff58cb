package mysql

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// InnoDB shows a commit to other transactions before the commit's redo log is on disk
// (trx_commit_low: trx_commit_in_memory comes before trx_flush_log_if_needed). So a crash of the
// server can undo what another process has read. What a view saw is therefore returned only after a
// later commit of our own: redo log is flushed in order, so that commit makes everything before it
// durable, too. Views that saw nothing new need no such commit.
//
// A key whose deletion was seen may be back after a crash: nobody was told that the deletion is
// done.

// durable is what is known to survive a crash.
type durable struct {
	mu     sync.Mutex // guards bounds, keys, next
	bounds map[eventlog.Partition]eventlog.Bounds
	keys   map[string]stored // of at most keysMax keys
	next   *barrier          // the barrier that has not begun yet; nil: nobody has asked for one

	turn sync.Mutex // held while a barrier is committed
}

// barrier is a commit that callers wait for together.
type barrier struct {
	done chan struct{} // closed when err is set
	err  error
}

// unsureMax is how old a key's value must be to be durable for certain: from the statement that put
// it to the end of the commit, answerMax passes at most twice.
const unsureMax = 2 * answerMax

// keysMax bounds the keys whose values are remembered as durable. When there are more, all are
// forgotten: they only save barriers.
const keysMax = 10_000

// sight is what a view saw that a crash might undo.
type sight struct {
	bounds []eventlog.Bounds
	gone   []eventlog.Partition // partitions that do not exist
	keys   []keyStored          // that were put less than unsureMax ago
}

type keyStored struct {
	key string
	stored
}

// stored tells values of one key apart. The version does not: values may follow each other under
// one version, as the offsets of a group do.
type stored struct {
	version eventlog.Version
	value   uint64 // a hash of the value
}

var valueSeed = maphash.MakeSeed()

func storedAs(key string, version eventlog.Version, value []byte) keyStored {
	return keyStored{key, stored{version, maphash.Bytes(valueSeed, value)}}
}

// note records what is durable: this process committed it, or passed a barrier after it saw it.
func (d *durable) note(saw sight) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bounds == nil {
		d.bounds = map[eventlog.Partition]eventlog.Bounds{}
	}
	for _, b := range saw.bounds {
		d.bounds[b.Partition] = b
	}
	for _, p := range saw.gone {
		delete(d.bounds, p)
	}
	if d.keys == nil || len(d.keys)+len(saw.keys) > keysMax {
		d.keys = map[string]stored{}
	}
	for _, k := range saw.keys[max(0, len(saw.keys)-keysMax):] {
		d.keys[k.key] = k.stored
	}
}

// forget forgets all: in another incarnation of the store nothing of it need be true.
func (d *durable) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bounds, d.keys = nil, nil
}

// keep forgets the partitions that a poll did not find.
func (d *durable) keep(all []eventlog.Bounds) {
	d.mu.Lock()
	defer d.mu.Unlock()
	kept := make(map[eventlog.Partition]eventlog.Bounds, len(all))
	for _, b := range all {
		if known, ok := d.bounds[b.Partition]; ok {
			kept[b.Partition] = known
		}
	}
	d.bounds = kept
}

// known reports whether all that was seen is known to be durable.
func (d *durable) known(saw sight) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range saw.bounds {
		if d.bounds[b.Partition] != b {
			return false
		}
	}
	for _, p := range saw.gone {
		if _, was := d.bounds[p]; was {
			return false
		}
	}
	for _, k := range saw.keys {
		if d.keys[k.key] != k.stored {
			return false
		}
	}
	return true
}

// awaitDurable returns when all that a view saw is durable. It costs a trip and a flush of the redo
// log if something was new.
func (s *Store) awaitDurable(ctx context.Context, saw sight) error {
	if s.durable.known(saw) {
		return nil
	}
	if err := s.passBarrier(ctx); err != nil {
		return err
	}
	s.durable.note(saw)
	return nil
}

// passBarrier commits a change that began after the call. Callers that come while one is being
// committed share the next one.
func (s *Store) passBarrier(ctx context.Context) error {
	d := &s.durable
	d.mu.Lock()
	b := d.next
	first := b == nil
	if first {
		b = &barrier{done: make(chan struct{})}
		d.next = b
	}
	d.mu.Unlock()
	if first {
		go s.commitBarrier(b) // no caller's end cancels it: others wait for it, too
	}
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// commitBarrier commits the change that those wait for who found b in durable.next.
func (s *Store) commitBarrier(b *barrier) {
	defer close(b.done)
	d := &s.durable
	d.turn.Lock()
	defer d.turn.Unlock()
	d.mu.Lock()
	d.next = nil
	d.mu.Unlock()
	ctx, cancel := concluding(s.closing)
	defer cancel()
	_, b.err = retry(ctx, interrupted, func() (none struct{}, err error) {
		_, err = s.reads.ExecContext(ctx, "INSERT INTO weir_barrier VALUES (0, 0) ON DUPLICATE KEY UPDATE n = n + 1")
		return none, err
	})
}

// young reports whether a value of this age may not be durable yet.
func young(age time.Duration) bool { return age < unsureMax }
