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

// A store can be rewound under a running process: a standby that lacks the last commits is promoted, or a backup is
// restored. docs/decisions/a-store-has-an-incarnation.md says how that is noticed, and what is done.

// epochRecord is the value of EpochKey. The version of the key is the epoch, plus one.
type epochRecord struct {
	Store  string  `json:"store"`  // Incarnation.Store when the newest epoch began
	Epochs []epoch `json:"epochs"` // the oldest first; the first begins at 0 everywhere

	version Version
}

// epoch says where one leader epoch begins in each partition. A partition that is not in Starts was empty then, or did
// not exist.
type epoch struct {
	Number int32                `json:"epoch"`
	Starts map[Partition]Offset `json:"starts,omitempty"`
}

const (
	// epochsKept bounds the epochs in EpochKey. A client that missed more of them truncates further than necessary, never
	// too little.
	epochsKept = 8
	// enterMax bounds how often enter is repeated because other processes begin epochs at the same time.
	enterMax = 32
)

// epochZero is the second from which epochs are counted, after the first. Counted by the clock they increase even if the
// store was rewound and lacks the ones before.
var epochZero = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

func (r *epochRecord) newest() int32 { return r.Epochs[len(r.Epochs)-1].Number }

// raised returns the record after a new epoch began in partitions with these bounds. Its number is above every epoch that
// the store or this process knows.
func (r *epochRecord) raised(store string, known int32, bounds []Bounds, now time.Time) *epochRecord {
	if r.version == 0 { // the first epoch of a new store
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
		// Merge the second epoch into the third: a client of the second is told that it ended where it began, rather too
		// early than too late.
		kept := epoch{Number: epochs[2].Number, Starts: maps.Clone(epochs[2].Starts)}
		maps.DeleteFunc(kept.Starts, func(p Partition, at Offset) bool { return epochs[1].Starts[p] == 0 })
		for p, at := range kept.Starts {
			kept.Starts[p] = min(at, epochs[1].Starts[p])
		}
		epochs = append([]epoch{epochs[0], kept}, epochs[3:]...)
	}
	return &epochRecord{Store: store, Epochs: epochs, version: Version(next.Number) + 1}
}

// at returns the epoch in which the record at an offset was appended.
func (r *epochRecord) at(p Partition, o Offset) int32 {
	for i := len(r.Epochs) - 1; i > 0; i-- {
		if o >= r.Epochs[i].Starts[p] {
			return r.Epochs[i].Number
		}
	}
	return r.Epochs[0].Number
}

// end returns the newest epoch not above asked, and where its records end: the lowest start of all later epochs, or next
// if there is none.
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

// incarnation is the incarnation of the store that the log is in.
type incarnation struct {
	Incarnation
	epochs  *epochRecord
	changed chan struct{} // closed when the log enters another one
}

// epochNumbers returns the lowest number assigned in an epoch, to partitions and to blocks of producer ids. A number
// assigned in an earlier epoch may be in use although a rewound store does not know it. The first epoch begins at 0, so
// that numbers stay short in a store that was never rewound.
func epochNumbers(epoch int32) int64 { return int64(epoch) << 20 }

// LeaderEpoch increases whenever the store may have been rewound. It is the same for all partitions, and in all processes
// once they have noticed.
func (l *Log) LeaderEpoch() int32 { return l.incarnation.Load().epochs.newest() }

// EpochAt returns the leader epoch in which the record at an offset was appended.
func (l *Log) EpochAt(p Partition, o Offset) int32 { return l.incarnation.Load().epochs.at(p, o) }

// EpochEnd returns where the records appended up to a leader epoch end now, in a partition that ends at next: a client
// that has read further in that epoch has read records that are lost. epoch is the newest not above the one asked for;
// known is false if there is none.
func (l *Log) EpochEnd(p Partition, asked int32, next Offset) (epoch int32, end Offset, known bool) {
	return l.incarnation.Load().epochs.end(p, asked, next)
}

// IncarnationChanged is closed when the log enters another incarnation of its store after the call: keys read before may
// be gone, and versions may be assigned again. Call it before reading.
func (l *Log) IncarnationChanged() <-chan struct{} { return l.incarnation.Load().changed }

// gate stops flushes while the log does not know which incarnation the store is in.
type gate struct {
	sync.RWMutex      // a flush holds it to read, enter to write
	shut         bool // enter failed halfway: it is called again
}

func (g *gate) isShut() bool {
	g.RLock()
	defer g.RUnlock()
	return g.shut
}

// suspect returns the error for bounds below those seen before, and asks the follower to find out why.
func (l *Log) suspect(p Partition, was, is Offset) error {
	l.suspectRewind()
	return fmt.Errorf("%w: partition %d ended at %d before and at %d now; checking whether the store was rewound", ErrUnavailable, p, was, is)
}

func (l *Log) suspectRewind() {
	select {
	case l.rewindSuspected <- struct{}{}:
	default:
	}
}

// enter finds out which incarnation the store is in. If it is another one, or the first, the log's state is replaced by
// what the store holds now, before any other flush.
func (l *Log) enter(ctx context.Context) error {
	l.gate.Lock()
	defer l.gate.Unlock()
	l.gate.shut = true // until all is done
	before := l.incarnation.Load()
	for range enterMax {
		l.tail.beginCheck()
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
		known, same, rewound := int32(-1), false, false
		if before != nil {
			known, same, rewound = before.epochs.newest(), before.Incarnation == mark.Incarnation, l.tail.rewound(bounds)
		}
		switch {
		case same && !rewound && record.Store == mark.Incarnation.Store:
			l.gate.shut = false
			return nil // a false alarm
		case !same && record.version > 0 && record.Store == mark.Incarnation.Store && record.newest() > known:
			// The process that began this epoch, perhaps this one, did so after what we saw before.
			if err := l.resetForIncarnation(ctx, before, bounds, mark, record); err != nil {
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
					"epoch", next.newest(), "store", mark.Incarnation.Store, "before", record.Store, "lost", rewound)
			}
		case errors.Is(err, ErrStale), errors.Is(err, ErrRewound), errors.Is(err, ErrUnsure):
			// Another process began an epoch first, or our commit succeeded after all: the next round reads which.
		default:
			l.failed("commit", err)
			if before == nil && record.version == 0 {
				record = &epochRecord{Epochs: []epoch{{}}}
			}
			if before == nil && l.resetForIncarnation(ctx, before, bounds, mark, record) == nil {
				// A full disk, for example. What is stored can be read; nothing is written until the epoch has begun.
				l.cfg.Logger.Warn("nothing can be written to the store yet: a leader epoch must begin first, and that failed; trying on", "err", err)
				return nil
			}
			return fmt.Errorf("begin a leader epoch: %w", err)
		}
	}
	return fmt.Errorf("enter the store's incarnation: %w: it changed %d times meanwhile", ErrUnavailable, enterMax)
}

// resetForIncarnation replaces the log's state by what the store holds now. The caller holds the gate, so no flush is in
// flight.
func (l *Log) resetForIncarnation(ctx context.Context, before *incarnation, bounds []Bounds, mark Mark, record *epochRecord) error {
	l.tail.reset(bounds)
	l.prefetch.clear()
	l.appender.resetForIncarnation()
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
