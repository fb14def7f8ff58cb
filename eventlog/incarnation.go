package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"
)

// A store can lose its end: a standby is promoted that had not received the last commits, a backup is copied back, and all that under a
// running process. docs/decisions/a-store-has-an-incarnation.md says how that is noticed, and what is done.

// epochRecord is the value of EpochKey. The version of the key is the epoch, plus one.
type epochRecord struct {
	Store  string  `json:"store"`  // Incarnation.Store when the newest epoch began
	Epochs []epoch `json:"epochs"` // the oldest first; the first begins at 0 everywhere

	version Version
}

// epoch says where one leader epoch begins in each partition. One that is not mentioned was empty then, or not there.
type epoch struct {
	Number int32                `json:"epoch"`
	Starts map[Partition]Offset `json:"starts,omitempty"`
}

const (
	// epochsKept bounds the epochs that EpochKey remembers. A client that slept through more of them is sent back further than it
	// need be, never less far.
	epochsKept = 8
	// enterMax bounds how often entering an incarnation begins anew because other processes enter it as well.
	enterMax = 32
)

// epochZero is the second from which epochs are counted, once there is more than the first. By the clock they go up even where
// the store has forgotten the ones before.
var epochZero = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

func (r *epochRecord) newest() int32 { return r.Epochs[len(r.Epochs)-1].Number }

// raised is the record after a new epoch began, with partitions that end where bounds says. The epoch is above all that is known of.
func (r *epochRecord) raised(store string, known int32, bounds []Bounds, now time.Time) *epochRecord {
	if r.version == 0 { // the first, of a store that nobody opened before
		return &epochRecord{Store: store, Epochs: []epoch{{}}, version: 1}
	}
	byClock := min(int64(now.Sub(epochZero)/time.Second), math.MaxInt32)
	next := epoch{Number: max(r.newest()+1, known+1, int32(byClock)), Starts: make(map[Partition]Offset)}
	for _, b := range bounds {
		if b.Next > 0 {
			next.Starts[b.Partition] = b.Next
		}
	}
	epochs := append(append([]epoch(nil), r.Epochs...), next)
	for len(epochs) > epochsKept {
		// The oldest but the first goes. Who was in it is told that it ended where it began: too early rather than too late.
		kept := epoch{Number: epochs[2].Number, Starts: maps.Clone(epochs[2].Starts)}
		maps.DeleteFunc(kept.Starts, func(p Partition, at Offset) bool { return epochs[1].Starts[p] == 0 })
		for p, at := range kept.Starts {
			kept.Starts[p] = min(at, epochs[1].Starts[p])
		}
		epochs = append([]epoch{epochs[0], kept}, epochs[3:]...)
	}
	return &epochRecord{Store: store, Epochs: epochs, version: Version(next.Number) + 1}
}

// at is the epoch in which a record was appended, by its offset.
func (r *epochRecord) at(p Partition, o Offset) int32 {
	for i := len(r.Epochs) - 1; i > 0; i-- {
		if o >= r.Epochs[i].Starts[p] {
			return r.Epochs[i].Number
		}
	}
	return r.Epochs[0].Number
}

// end is where the records of an epoch and those before it end: the lowest start of all later epochs, or next where there is none. The epoch
// is the newest that is not above the one asked for.
func (r *epochRecord) end(p Partition, asked int32, next Offset) (int32, Offset, bool) {
	if asked < r.Epochs[0].Number || asked > r.newest() {
		return 0, 0, false
	}
	found := r.Epochs[0].Number
	for _, e := range r.Epochs[1:] {
		if e.Number <= asked {
			found = e.Number
		} else {
			next = min(next, e.Starts[p])
		}
	}
	return found, next, true
}

func parseEpochs(kv KeyValue) (*epochRecord, error) {
	r := &epochRecord{version: kv.Version}
	if kv.Version == 0 {
		return r, nil
	}
	if err := json.Unmarshal(kv.Value, r); err != nil {
		return nil, fmt.Errorf("key %s holds %.100q: %w", kv.Key, kv.Value, err)
	}
	if len(r.Epochs) == 0 || Version(r.newest())+1 != r.version {
		return nil, fmt.Errorf("key %s at version %d holds %.100q: expected epochs, the newest below the version", kv.Key, kv.Version, kv.Value)
	}
	return r, nil
}

// incarnation is what a log knows of the one that it is in.
type incarnation struct {
	Incarnation
	epochs  *epochRecord
	changed chan struct{} // closed when another takes its place
}

// epochNumbers is the first of the numbers that are given out in an epoch, of partitions and of blocks of producer ids. Those of an epoch before
// may have been given to somebody of whom the store knows nothing any more. The first epoch begins at 0, so that numbers are short where
// nothing was ever lost.
func epochNumbers(epoch int32) int64 { return int64(epoch) << 20 }

// LeaderEpoch goes up whenever the store may have lost its end. It is the same for all partitions, and in all processes once they know.
func (l *Log) LeaderEpoch() int32 { return l.incarnation.Load().epochs.newest() }

// EpochAt is the leader epoch in which the record at an offset was appended.
func (l *Log) EpochAt(p Partition, o Offset) int32 { return l.incarnation.Load().epochs.at(p, o) }

// EpochEnd tells where what was appended up to a leader epoch ends now, in a partition that ends at next: who has read further
// in that epoch has read what is lost. The epoch that it returns is the newest not above the one asked for; false when that is unknown.
func (l *Log) EpochEnd(p Partition, asked int32, next Offset) (epoch int32, end Offset, known bool) {
	return l.incarnation.Load().epochs.end(p, asked, next)
}

// IncarnationChanged is closed when the log enters another incarnation of its store after the call: what was read from keyed state before may
// not be there any more, and versions may be given again. Call it before reading.
func (l *Log) IncarnationChanged() <-chan struct{} { return l.incarnation.Load().changed }

// gate lets flushes through while the log knows which incarnation the store is in.
type gate struct {
	sync.RWMutex      // flushes hold it to read, enter to write
	shut         bool // entering failed halfway: it is tried again
}

func (g *gate) isShut() bool {
	g.RLock()
	defer g.RUnlock()
	return g.shut
}

// suspect notes that the store showed less than it had shown before, and has the follower find out why.
func (l *Log) suspect(p Partition, was, is Offset) error {
	l.poke()
	return fmt.Errorf("%w: partition %d ended at %d before and at %d now; finding out whether the store lost its end", ErrUnavailable, p, was, is)
}

func (l *Log) poke() {
	select {
	case l.doubts <- struct{}{}:
	default:
	}
}

// enter finds out which incarnation the store is in. When it is another one, or the first, everything remembered of the store gives way to
// what it holds now, before any flush goes out again.
func (l *Log) enter(ctx context.Context) error {
	l.gate.Lock()
	defer l.gate.Unlock()
	l.gate.shut = true // until all is done
	before := l.incarnation.Load()
	for range enterMax {
		l.tail.beginLook()
		bounds, mark, err := l.store.Moved(ctx, Mark{})
		if l.failed("moved", err) != nil {
			return fmt.Errorf("enter the store's incarnation: %w", err)
		}
		kv, err := l.Get(ctx, EpochKey)
		if err != nil {
			return fmt.Errorf("enter the store's incarnation: %w", err)
		}
		record, err := parseEpochs(kv)
		if err != nil {
			return fmt.Errorf("enter the store's incarnation: %w", err)
		}
		if record.version != mark.Incarnation.Epoch {
			continue // another process began an epoch just now
		}
		known, same, lost := int32(-1), false, false
		if before != nil {
			known, same, lost = before.epochs.newest(), before.Incarnation == mark.Incarnation, l.tail.lost(bounds)
		}
		switch {
		case same && !lost && record.Store == mark.Incarnation.Store:
			l.gate.shut = false
			return nil // a false alarm
		case !same && record.version > 0 && record.Store == mark.Incarnation.Store && record.newest() > known:
			// Whoever began this epoch, we perhaps, did so after what we saw before.
			if err := l.startAnew(ctx, before, bounds, mark, record); err != nil {
				return fmt.Errorf("enter the store's incarnation: %w", err)
			}
			l.gate.shut = false
			return nil
		}
		next := record.raised(mark.Incarnation.Store, known, bounds, time.Now())
		value, err := json.Marshal(next)
		if err != nil {
			panic(fmt.Sprintf("epochs do not become JSON: %v", err))
		}
		out, err := l.store.Commit(ctx, []Entry{{
			Checks: []Check{{Key: EpochKey, Version: record.version}},
			Puts:   []Put{{Key: EpochKey, Version: next.version, Value: value}},
		}})
		if err == nil {
			err = out[0].Err
		}
		switch {
		case err == nil:
			if record.version > 0 {
				l.cfg.Logger.Warn("the store may have lost what it acknowledged last: it was restarted, restored, or another server took over; a new leader epoch begins",
					"epoch", next.newest(), "store", mark.Incarnation.Store, "before", record.Store, "lost", lost)
			}
		case errors.Is(err, ErrStale), errors.Is(err, ErrRewound), errors.Is(err, ErrUnsure):
			// Another process was faster, or perhaps we were: the next round tells.
		default:
			l.failed("commit", err)
			if before == nil && record.version == 0 {
				record = &epochRecord{Epochs: []epoch{{}}}
			}
			if before == nil && l.startAnew(ctx, before, bounds, mark, record) == nil {
				// Such as a full disk. What is there can be read; nothing is written until the epoch has begun.
				l.cfg.Logger.Warn("nothing can be written to the store yet: a leader epoch must begin first, and that failed; trying on", "err", err)
				return nil
			}
			return fmt.Errorf("begin a leader epoch: %w", err)
		}
	}
	return fmt.Errorf("enter the store's incarnation: %w: it changed %d times meanwhile", ErrUnavailable, enterMax)
}

// startAnew lets go of what was known of the store before, and takes in what it holds. No flush is under way.
func (l *Log) startAnew(ctx context.Context, before *incarnation, bounds []Bounds, mark Mark, record *epochRecord) error {
	l.tail.reset(bounds)
	l.prefetch.clear()
	l.appender.startAnew()
	if err := l.loadCatalog(ctx); err != nil {
		return err
	}
	l.mark, l.catalogAt = mark, 0
	for _, b := range bounds {
		if b.Partition == catalogPartition {
			l.catalogAt = b.Next
		}
	}
	l.incarnation.Store(&incarnation{Incarnation: mark.Incarnation, epochs: record, changed: make(chan struct{})})
	if before != nil {
		close(before.changed)
	}
	return nil
}
