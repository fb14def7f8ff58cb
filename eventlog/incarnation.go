package eventlog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/weir-log/weir/internal/longlock"
)

// A store can be rewound under a running process: a standby that lacks the last commits is
// promoted, or a backup is restored. docs/decisions/a-store-has-an-incarnation.md says how that is
// noticed, and what is done.

// epochRecord is the value of EpochKey. The version of the key is the newest epoch's number, plus
// one.
type epochRecord struct {
	Store  string  `json:"store"`  // Incarnation.Store when the newest epoch began
	Epochs []epoch `json:"epochs"` // the oldest first; the first begins at 0 everywhere

	version Version
}

// epoch says where one leader epoch begins in each partition. In a partition that is not in Starts
// it begins at 0: the partition was empty then or did not exist, or an earlier epoch that begins at
// 0 was merged into this one (after).
type epoch struct {
	Number int32                `json:"epoch"`
	Starts map[Partition]Offset `json:"starts,omitempty"`
	// Planned: the epoch began without a rewind, so no record of an earlier epoch was lost. Starts
	// may be too low then, because processes of the earlier epoch appended until it began.
	Planned bool `json:"planned,omitempty"`
}

const (
	// EpochKey has at most epochsKept epochs, and these at most startsKept starts of partitions,
	// unless that leaves fewer than epochsMin epochs. Older epochs are merged: a client that missed
	// them truncates more than necessary, never too little.
	epochsKept = 1024
	epochsMin  = 8
	startsKept = 1 << 16
	// notBegun is the start of an epoch that does not begin in a partition, because its shard has
	// lost nothing (Log.startsOn): its records count for the epoch before.
	notBegun Offset = math.MaxInt64
	// enterMax bounds how often enter is repeated because other processes begin epochs at the same
	// time.
	enterMax = 32
)

// epochZero: epochs after the first are numbered by the seconds since then, or higher. So numbers
// go up even if a rewound store lacks the last epochs.
var epochZero = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// newest returns the number of the newest epoch; -1: none has begun.
func (r *epochRecord) newest() int32 {
	if len(r.Epochs) == 0 {
		return -1
	}
	return r.Epochs[len(r.Epochs)-1].Number
}

// planned reports whether the newest epoch is Planned.
func (r *epochRecord) planned() bool { return r.Epochs[len(r.Epochs)-1].Planned }

// raised returns the record after a new epoch began in partitions with these bounds. The number of
// the new epoch is above those of all epochs that the store or this process knows. known is nil if
// the process knows none.
func (r *epochRecord) raised(store string, known *epochRecord, bounds []Bounds, now time.Time) *epochRecord {
	if r.version == 0 { // the first epoch of a new store
		return &epochRecord{Store: store, Epochs: []epoch{{}}, version: 1}
	}
	byClock := min(int64(now.Sub(epochZero)/time.Second), math.MaxInt32)
	next := epoch{Number: max(r.newest()+1, int32(byClock)), Starts: make(map[Partition]Offset)}
	for _, b := range bounds {
		if b.Next > 0 {
			next.Starts[b.Partition] = b.Next
		}
	}
	// Planned epochs lost nothing, so their records may as well count for the epoch before. They
	// are left out, so that moving partitions does not fill the record.
	epochs := slices.DeleteFunc(slices.Clone(r.Epochs), func(e epoch) bool { return e.Planned })
	if known != nil {
		next.Number = max(next.Number, known.newest()+1)
		for _, e := range known.Epochs {
			if e.Number <= r.newest() {
				continue
			}
			// The store lacks epoch e, and so all that was appended in it: the new epoch begins no
			// later than e did. On a shard that has lost nothing this is not so: there e still is
			// an epoch.
			if next.isPartial() && !e.Planned {
				epochs = append(epochs, e)
			}
			next = next.afterLost(e)
		}
	}
	epochs = append(epochs, next)
	for len(epochs) > epochsKept || len(epochs) > epochsMin && starts(epochs) > startsKept {
		// Merge the second epoch into the third. For a client that read in the second epoch, the
		// second then ends where it began: too early, which is safe.
		epochs = append([]epoch{epochs[0], epochs[2].after(epochs[1])}, epochs[3:]...)
	}
	return &epochRecord{Store: store, Epochs: epochs, version: Version(next.Number) + 1}
}

// PlannedEpoch returns the check and the put of EpochKey for an entry that begins a leader epoch
// without a rewind. After that entry, a process cannot commit before it has noticed the epoch. kv
// is what EpochKey holds; the caller has read in and bounds before kv. If the store was rewound as
// well, and no process has noticed, the epoch begins only in the partitions for which intact, which
// is Sharded.Intact, returns false.
func PlannedEpoch(kv KeyValue, in Incarnation, bounds []Bounds, intact func(p Partition, since string) bool) (Check, Put, error) {
	record, err := parseEpochs(kv)
	if err != nil {
		return Check{}, Put{}, err
	}
	planned := record.version > 0 && record.Store == in.Store
	if !planned {
		bounds = slices.Clone(bounds)
		for i, b := range bounds {
			if intact(b.Partition, record.Store) {
				bounds[i].Next = notBegun
			}
		}
	}
	next := record.raised(in.Store, nil, bounds, time.Now())
	next.Epochs[len(next.Epochs)-1].Planned = planned
	value, err := json.Marshal(next)
	if err != nil {
		return Check{}, Put{}, fmt.Errorf("encode epochs: %w", err)
	}
	return Check{Key: EpochKey, Version: record.version}, Put{Key: EpochKey, Version: next.version, Value: value}, nil
}

// after returns the epoch with its starts lowered to those of an earlier epoch, where these are
// lower.
func (e epoch) after(before epoch) epoch {
	lower := make(map[Partition]Offset)
	for p, at := range e.Starts {
		if began := min(at, before.Starts[p]); began > 0 {
			lower[p] = began
		}
	}
	return epoch{Number: e.Number, Starts: lower}
}

// afterLost is after, for an epoch that is lost in the partitions in which e begins. Where e does
// not begin (notBegun), nothing is lost, and that stays so.
func (e epoch) afterLost(lost epoch) epoch {
	next := e.after(lost)
	for p, at := range e.Starts {
		if at == notBegun {
			next.Starts[p] = at
		}
	}
	return next
}

// isPartial reports whether there are partitions in which the epoch does not begin (notBegun).
func (e epoch) isPartial() bool {
	return slices.Contains(slices.Collect(maps.Values(e.Starts)), notBegun)
}

func starts(epochs []epoch) (n int) {
	for _, e := range epochs {
		n += len(e.Starts)
	}
	return n
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

// end returns the newest epoch not above asked, and where its records end: the lowest start of all
// later epochs that are not Planned, or next if there is none.
func (r *epochRecord) end(p Partition, asked int32, next Offset) (int32, Offset, bool) {
	if asked < r.Epochs[0].Number || asked > r.newest() {
		return 0, 0, false
	}
	found := r.Epochs[0].Number
	for _, e := range r.Epochs[1:] {
		if e.Number <= asked {
			found = e.Number
		} else if !e.Planned {
			next = min(next, e.Starts[p])
		}
	}
	return found, next, true
}

// lostBelow reports whether a partition was rewound below an offset by an epoch that is newer than
// known.
func (r *epochRecord) lostBelow(p Partition, next Offset, known int32) bool {
	return slices.ContainsFunc(r.Epochs, func(e epoch) bool { return e.Number > known && !e.Planned && e.Starts[p] < next })
}

// merged reports whether an epoch may have been merged into a later one (raised): then end returns
// an end that may be too low, by any amount. For other epochs that are not in the record (planned
// ones, and those that a rewound store lacked), end returns the offset to which their readers must
// go back.
func (r *epochRecord) merged(asked int32) bool {
	return len(r.Epochs) >= epochsMin && r.Epochs[0].Number < asked && asked < r.Epochs[1].Number
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
		return nil, fmt.Errorf("key %s at version %d holds %.100q: expected epochs, with the newest below the version", kv.Key, kv.Version, kv.Value)
	}
	return r, nil
}

// incarnation is the incarnation of the store that the log is in.
type incarnation struct {
	Incarnation
	epochs  *epochRecord
	changed chan struct{} // closed when the log enters another one
}

// epochNumbers returns the lowest number assigned in an epoch, to partitions and to blocks of
// producer ids. A number assigned in an earlier epoch may be in use although a rewound store does
// not know it. The first epoch begins at 0, so that numbers stay short in a store that was never
// rewound.
func epochNumbers(epoch int32) int64 { return int64(epoch) << 20 }

// LeaderEpoch increases whenever the store may have been rewound. It is the same for all
// partitions, and in all processes once they have noticed.
func (l *Log) LeaderEpoch() int32 { return l.incarnation.Load().epochs.newest() }

// epochVersion returns the version of EpochKey in the incarnation that the log is in.
func (l *Log) epochVersion() Version { return l.incarnation.Load().epochs.version }

// InEpoch returns a check that refuses an entry, with ErrStale, unless the log is in this leader
// epoch when the entry is flushed. It costs the store nothing: see otherEpoch.
func InEpoch(epoch int32) Check { return Check{Key: EpochKey, Version: Version(epoch) + 1} }

// EpochAt returns the leader epoch in which the record at an offset was appended.
func (l *Log) EpochAt(p Partition, o Offset) int32 { return l.incarnation.Load().epochs.at(p, o) }

// EpochEnd returns the end of the records that were appended up to a leader epoch, in a partition
// that ends at next: a client that has read further in that epoch has read records that are lost.
// epoch is the newest one not above asked; known is false if there is none.
func (l *Log) EpochEnd(p Partition, asked int32, next Offset) (epoch int32, end Offset, known bool) {
	return l.incarnation.Load().epochs.end(p, asked, next)
}

// EpochForgotten reports whether the log may no longer know where the records of a leader epoch
// end: EpochEnd may return an end that is too low then, by any amount.
func (l *Log) EpochForgotten(epoch int32) bool { return l.incarnation.Load().epochs.merged(epoch) }

// IncarnationChanged returns a channel that is closed when the log enters another incarnation of
// its store after the call: keys read before may be gone, and versions may be assigned again. Call
// it before reading.
func (l *Log) IncarnationChanged() <-chan struct{} { return l.incarnation.Load().changed }

// gate stops flushes while the log does not know which incarnation the store is in.
type gate struct {
	longlock.RWMutex       // a flush holds it to read, enter to write
	shut             bool  // enter has not succeeded yet; after a failure it is called again
	upgraded         error // why enter has not succeeded, if that is ErrUpgraded: then entries are refused at once, because waiting does not help

	mu      sync.Mutex    // guards what follows
	named   Incarnation   // the incarnation that the store named last; the store answers reads only from that one
	between bool          // the log has not yet entered the incarnation in named
	refused error         // why it will not, if that is ErrUpgraded
	asking  chan struct{} // not nil while the store is asked for its incarnation, to set named; closed when it has answered
}

// readable is called after a read. nil: what was read is of an incarnation that the log was in when
// the read began, or has entered since; otherwise ErrRewound, or ErrUpgraded if the log will not
// enter it. It waits while the store is asked for its incarnation.
func (g *gate) readable(ctx context.Context) error {
	for {
		g.mu.Lock()
		asking, between, refused := g.asking, g.between, g.refused
		g.mu.Unlock()
		switch {
		case asking != nil:
			select {
			case <-asking:
			case <-ctx.Done():
				return ctx.Err()
			}
		case between:
			return cmp.Or(refused, ErrRewound)
		default:
			return nil
		}
	}
}

// entered notes that the log is in the incarnation that the store named last.
func (g *gate) entered() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.between, g.refused = false, nil
}

// refuses notes that the log does not enter an incarnation, because of ErrUpgraded. The caller
// holds the gate to write.
func (g *gate) refuses(err error) {
	g.upgraded = err
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused, g.between = err, true // also if the store could not even be asked what it holds
}

func (g *gate) isShut() bool {
	g.RLock()
	defer g.RUnlock()
	return g.shut
}

// suspect returns the error for bounds below those seen before, and asks the follower to find out
// why.
func (l *Log) suspect(p Partition, was, is Offset) error {
	l.suspectRewind()
	return fmt.Errorf("%w: partition %d ended at offset %d before and ends at %d now; checking whether the store was rewound", ErrUnavailable, p, was, is)
}

func (l *Log) suspectRewind() {
	select {
	case l.rewindSuspected <- struct{}{}:
	default:
	}
}

// movedToNow reads all bounds. From here on the store answers reads from the incarnation that it is
// in now.
func (l *Log) movedToNow(ctx context.Context) ([]Bounds, Mark, error) {
	g := &l.gate
	asking := make(chan struct{})
	g.mu.Lock()
	g.asking = asking
	g.mu.Unlock()
	bounds, mark, err := l.store.Changes(ctx, Mark{})
	g.mu.Lock()
	defer g.mu.Unlock()
	close(asking)
	g.asking = nil
	if err == nil {
		g.between = g.between || mark.Incarnation != g.named
		g.named, g.refused = mark.Incarnation, nil
	}
	return bounds, mark, l.failed("moved", err)
}

// enter finds out which incarnation the store is in. If it is another one, or the first, the log's
// state is replaced by what the store holds now, before the next flush.
func (l *Log) enter(ctx context.Context) error {
	l.gate.Lock()
	defer l.gate.Unlock()
	l.gate.shut, l.gate.upgraded = true, nil // until all is done
	before := l.incarnation.Load()
	begun := false // by this call
	for range enterMax {
		l.tail.beginCheck()
		bounds, mark, err := l.movedToNow(ctx)
		if errors.Is(err, ErrUpgraded) {
			l.gate.refuses(err)
		}
		if err != nil {
			return fmt.Errorf("enter the store's incarnation: %w", err)
		}
		kv, err := l.incarnationKey(ctx)
		if errors.Is(err, ErrUpgraded) {
			l.gate.refuses(err)
		}
		if errors.Is(err, ErrRewound) {
			continue // another process began an epoch just now
		}
		if l.failed("list", err) != nil {
			return fmt.Errorf("enter the store's incarnation: %w", err)
		}
		record, err := parseEpochs(kv)
		if err != nil {
			return fmt.Errorf("enter the store's incarnation: %w", err)
		}
		if record.version != mark.Incarnation.Epoch {
			continue // another process began an epoch just now
		}
		var epochs *epochRecord
		known, same := int32(-1), false
		var lost []Partition
		if before != nil {
			epochs = before.epochs
			same, lost = before.Incarnation == mark.Incarnation, l.tail.rewound(l.heard(bounds))
			if epochs.version > 0 { // some process had begun an epoch
				known = epochs.newest()
			}
		}
		rewound := len(lost) > 0
		switch {
		case same && !rewound && (record.Store == mark.Incarnation.Store || l.readOnly):
			l.gate.shut = false
			l.gate.entered()
			return nil // a false alarm
		case !same && record.version > 0 && (record.Store == mark.Incarnation.Store || l.readOnly) && record.newest() > known && (!rewound || !record.planned() || l.readOnly):
			// Some process, perhaps this one, has begun an epoch after the last one that this log
			// knew: readers learn from the epoch what was lost. A planned epoch does not tell them.
			if err := l.resetForIncarnation(ctx, before, bounds, mark, record); err != nil {
				return fmt.Errorf("enter the store's incarnation: %w", err)
			}
			l.gate.shut = false
			if rewound && !begun { // what this process knew, the one that began the epoch may not have known
				l.sayBegun(true, true, "epoch", record.newest(), "store", mark.Incarnation.Store)
			}
			return nil
		}
		// The store lacks an epoch that this process knows, or has another one under its number.
		epochsLost := record.version > 0 && (record.newest() < known || record.newest() == known && !same && record.Store == mark.Incarnation.Store)
		since := record.Store
		if epochs != nil && epochs.newest() > record.newest() {
			since = epochs.Store
		}
		starts, unchanged, err := l.startsOn(ctx, bounds, lost, epochsLost, since)
		if errors.Is(err, ErrRewound) {
			continue // another process began an epoch just now
		}
		if l.failed("list", err) != nil {
			return fmt.Errorf("enter the store's incarnation: %w", err)
		}
		if l.readOnly {
			if err := l.enterUnseen(ctx, before, bounds, starts, mark, record); err != nil {
				return fmt.Errorf("enter the store's incarnation: %w", err)
			}
			l.gate.shut = false
			return nil
		}
		next := record.raised(mark.Incarnation.Store, epochs, starts, time.Now())
		value, err := json.Marshal(next)
		if err != nil {
			panic(fmt.Sprintf("cannot encode epochs as JSON: %v", err))
		}
		out, err := l.store.Commit(ctx, []Entry{{
			Checks: append(unchanged, Check{Key: EpochKey, Version: record.version}),
			Puts:   []Put{{Key: EpochKey, Version: next.version, Value: value}},
		}})
		if err == nil {
			err = out[0].Err
		}
		switch {
		case err == nil:
			begun = true
			if record.version > 0 {
				l.sayBegun(before != nil, rewound || epochsLost, "epoch", next.newest(), "store", mark.Incarnation.Store, "before", record.Store)
			}
		case errors.Is(err, ErrStale), errors.Is(err, ErrRewound), errors.Is(err, ErrUnsure):
			// Another process began an epoch first, or our commit succeeded after all: the next
			// round finds out.
		default:
			l.failed("commit", err)
			if record.version == 0 {
				record.Epochs = []epoch{{}}
			}
			// The epoch could not be begun, because the disk is full, for example. What is stored
			// can be read; nothing is written until the epoch has begun.
			if record.newest() > known {
				if err := l.resetForIncarnation(ctx, before, bounds, mark, record); err != nil {
					return fmt.Errorf("enter the store's incarnation: %w", err)
				}
				l.cfg.Logger.Warn("nothing can be written to the store yet: a new leader epoch must begin first, and that failed; trying again", "err", err)
			} else {
				l.gate.entered() // no epoch has begun since, so nothing was appended in an epoch that the log does not know
			}
			if before == nil {
				return nil
			}
			return fmt.Errorf("begin a leader epoch: %w", err)
		}
	}
	return fmt.Errorf("enter the store's incarnation: %w: it changed %d times meanwhile", ErrUnavailable, enterMax)
}

// sayBegun logs that a leader epoch began. lost: the store lacks what this process knows. ran: this
// process was running before the epoch began, so it would know of a loss.
func (l *Log) sayBegun(ran, lost bool, about ...any) {
	switch {
	case lost:
		l.cfg.Logger.Warn("the store has lost acknowledged records: it was restored, or another server took over; a new leader epoch begins", about...)
	case ran:
		l.cfg.Logger.Info("the store was restarted or restored, or another server took over; it has all that this process knows; a new leader epoch begins", about...)
	default:
		l.cfg.Logger.Info("the store was restarted or restored, or another server took over, since weir last used it; a new leader epoch begins", about...)
	}
}

// enterUnseen enters an incarnation of a store that this process may only read, and for which no
// other process has begun an epoch that is above those that this process knows. So the log begins
// one that only its own readers see, with the lowest number above those. The readers find out what
// was lost. The epoch that a writing process begins will have a higher number, because writing
// processes number by the clock. The caller holds the gate.
func (l *Log) enterUnseen(ctx context.Context, before *incarnation, bounds, starts []Bounds, mark Mark, record *epochRecord) error {
	var known *epochRecord
	if before != nil {
		known = before.epochs
	}
	next := &epochRecord{Epochs: []epoch{{}}} // no process has ever written a record
	if record.version > 0 {
		next = record.raised(mark.Incarnation.Store, known, starts, epochZero)
		l.cfg.Logger.Warn("the store was restored, or another server took over; a leader epoch begins that only clients of this process see",
			"epoch", next.newest(), "store", mark.Incarnation.Store)
	}
	return l.resetForIncarnation(ctx, before, bounds, mark, next)
}

// incarnationKey reads EpochKey. If the store is closed, needs what this weir does not know, or is
// a shard that was opened by itself, it returns an error that says so.
func (l *Log) incarnationKey(ctx context.Context) (KeyValue, error) {
	found := KeyValue{Key: EpochKey}
	kvs, err := l.store.List(ctx, EpochKey, "", marksMost) // ClosedKey, NeedsKey and ShardKey are the next in order
	for _, kv := range kvs {
		switch kv.Key {
		case EpochKey:
			found = kv
		case ClosedKey:
			closed, err := parseClosed(kv)
			if err != nil {
				return found, err
			}
			return found, closed.refusal(kv.Version)
		case NeedsKey:
			if err := checkNeeds(kv); err != nil {
				return found, err
			}
		case ShardKey:
			return found, refuseShard(kv)
		}
	}
	return found, err
}

// resetForIncarnation replaces the log's state by what the store holds now. The caller holds the
// gate, so no flush is in flight. Readers see the new bounds and the new epoch in one step:
// otherwise a reader that waits would take the records there now for records of the old epoch.
func (l *Log) resetForIncarnation(ctx context.Context, before *incarnation, bounds []Bounds, mark Mark, record *epochRecord) error {
	catalog, err := readCatalog(ctx, l.store.List, l.tail.incarnationNumber()+1)
	if err != nil {
		return err
	}
	l.noteLeftovers(l.heard(bounds), catalog)
	l.mark, l.catalogAt = mark, 0
	for _, b := range bounds {
		if b.Partition == catalogPartition {
			l.catalogAt = b.Next
		}
	}
	bounds = l.withoutLost(before, bounds, record)
	l.prefetch.clear()
	l.appender.resetForIncarnation()
	next := &incarnation{Incarnation: mark.Incarnation, epochs: record, changed: make(chan struct{})}
	l.tail.reset(bounds, func() {
		l.incarnation.Store(next)
		l.gate.entered()
	})
	l.swapCatalog(catalog)
	if before != nil {
		close(before.changed)
	}
	return nil
}
