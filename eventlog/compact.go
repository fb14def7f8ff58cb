package eventlog

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/closing"
)

// Compaction (cleanup.policy=compact) keeps the newest record of each key, at its offset. A pass
// has two steps, as Kafka's log cleaner:
//
//	First ──────── clean ──────── end ──── Next
//	               │ 1: keys and their last offsets
//	│ 2: rewrite batches without older records │
//
// Any process may make a pass. The state of a partition's passes is a key, which every entry of a
// pass checks and puts: if two processes make a pass at the same time, one gets ErrStale and stops.
// A pass that ends early has removed some older records, which does no harm; the next pass begins
// where this one did.

const (
	// compactEvery is the longest time between two checks of a topic (Kafka's
	// log.cleaner.backoff.ms). A topic with a shorter max.compaction.lag.ms is checked that often,
	// but not more often than every compactTick.
	compactEvery, compactTick = 15 * time.Second, time.Second
	// compactLease is the age of the state's key at which a pass counts as dead: then another
	// process may begin one.
	compactLease = time.Minute
	// compactKeys bounds the keys of a pass, which take about 60 MiB of memory. A partition with
	// more keys needs several passes.
	compactKeys = 1_000_000
	// compactBytes bounds the bytes that one entry replaces, and so how long producers wait for it.
	compactBytes = 1 << 20

	// CompactPrefix begins the keys of the states of compaction: compact/<partition>.
	CompactPrefix = "compact/"
)

// cleaned is the state of a partition's compaction, the value of compact/<partition>.
type cleaned struct {
	Clean Offset    `json:"clean"`         // below it, only the newest record of each key is left
	First Offset    `json:"first"`         // the partition's First when the last pass began
	Bytes int64     `json:"bytes"`         // the bytes of the batches below Clean, after the last pass; batches that are trimmed later stay counted
	Due   Timestamp `json:"due,omitempty"` // when the first tombstone below Clean may be deleted; 0: there is none
	// Kept is the end of a batch that was trimmed in part, and so not rewritten: tombstones of its
	// keys are kept until First has come so far, and do not count in Due. 0: there is none.
	Kept Offset `json:"kept,omitempty"`
	By   string `json:"by,omitempty"` // who makes a pass; "": nobody

	version Version
}

// compactAll compacts the partitions that need it, one after the other, until ctx ends.
func (l *Log) compactAll(ctx context.Context) error {
	me := strconv.FormatInt(int64(Version(0).Next()), 36)
	var silent Silence
	tick := time.NewTicker(compactTick)
	defer tick.Stop()
	looked := make(map[TopicID]time.Time)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		silent.Forget(time.Now().Add(-2 * compactLease)) // the keys of deleted topics
		last := looked
		looked = make(map[TopicID]time.Time) // without deleted topics
		for _, t := range l.Topics() {
			if !t.Compacted() || t.needed() {
				continue
			}
			lag := time.Duration(min(t.number("max.compaction.lag.ms"), compactEvery.Milliseconds())) * time.Millisecond
			if looked[t.ID] = last[t.ID]; time.Since(last[t.ID]) < max(lag, compactTick) {
				continue
			}
			looked[t.ID] = time.Now()
			for i, p := range t.Partitions {
				if ctx.Err() != nil || l.reachable() != nil {
					break
				}
				err := l.compact(ctx, t, p, me, &silent)
				if err != nil && ctx.Err() == nil && !errors.Is(err, ErrStale) && !errors.Is(err, ErrNoPartition) {
					l.cfg.Logger.Warn("compaction failed; trying again later", "topic", t.Name, "partition", i, "err", err)
				}
			}
		}
	}
}

// compact makes a pass over a partition, if it is time for one.
func (l *Log) compact(ctx context.Context, t Topic, p Partition, me string, silent *Silence) error {
	held, _ := l.tail.known(p)
	if held.First == held.Next {
		return nil
	}
	asked := time.Now()
	kv, err := l.Get(ctx, ReplacedKey(p))
	if err != nil {
		return err
	}
	state := cleaned{version: kv.Version}
	if kv.Version > 0 {
		if err := json.Unmarshal(kv.Value, &state); err != nil {
			return fmt.Errorf("key %s holds %q: %w", kv.Key, kv.Value, err)
		}
	}
	if state.By != "" && state.By != me && silent.Of(kv, asked) < compactLease {
		return nil
	}
	if kv.Version == 0 { // there was no pass yet, so kv has no time of the store
		if kv, err = l.Get(ctx, EpochKey); err != nil {
			return err
		}
	}
	now, read := kv.Past(), cmp.Or(max(kv.Now, kv.NowMax), Timestamp(time.Now().UnixMilli()))
	end, err := l.compactable(ctx, t, p, held, state, now)
	if err != nil || end <= held.First {
		return err
	}
	pass := compaction{log: l, topic: t, partition: p, changed: l.IncarnationChanged(), now: now, read: read, state: state, latest: map[[16]byte]Offset{}}
	pass.state.By = me
	return pass.run(ctx, held.First, end)
}

// compactable returns where a pass over a partition ends; 0: no pass is needed now.
func (l *Log) compactable(ctx context.Context, t Topic, p Partition, held Bounds, state cleaned, now time.Time) (Offset, error) {
	clean, end := max(state.Clean, held.First), held.Stable() // as Kafka's LogCleanerManager.cleanableOffsets: what an open transaction wrote may yet be aborted
	if lag := t.number("min.compaction.lag.ms"); lag > 0 {
		young, err := l.seekOne(ctx, Goal{Partition: p, At: Timestamp(now.UnixMilli() - lag + 1), From: clean})
		if err != nil {
			return 0, err
		}
		end = min(end, young)
	}
	if state.Due > 0 && int64(state.Due) <= now.UnixMilli() || state.Kept > 0 && state.Kept <= held.First {
		return max(clean, end), nil
	}
	if clean >= end {
		return 0, nil
	}
	if dirty, err := l.dirty(ctx, t, p, held, state, clean); dirty || err != nil {
		return end, err
	}
	most := t.number("max.compaction.lag.ms")
	if most > now.UnixMilli() {
		return 0, nil
	}
	b, _, err := l.batchAt(ctx, p, clean)
	if err != nil || int64(b.MaxTime) > now.UnixMilli()-most {
		return 0, err
	}
	return end, nil
}

// dirty reports whether the batches from clean on are as large a share of a partition's bytes as
// min.cleanable.dirty.ratio asks for. It costs a Seek if the state does not answer this: batches
// below Clean were trimmed since the last pass, or a pass that ended early has made them smaller.
func (l *Log) dirty(ctx context.Context, t Topic, p Partition, held Bounds, state cleaned, clean Offset) (bool, error) {
	want := t.dirtyRatio() * float64(held.Bytes)
	if float64(max(held.Bytes-state.Bytes, 0)) >= want { // there are not more clean bytes than state.Bytes
		return true, nil
	}
	if held.First == state.First && state.By == "" {
		return false, nil
	}
	last, err := l.seekOne(ctx, Goal{Partition: p, Bytes: max(int64(math.Ceil(want)), 1)}) // the last batch with so many bytes from it on
	return last >= clean, err
}

// compaction is one pass over a partition.
type compaction struct {
	log       *Log
	topic     Topic
	partition Partition
	changed   <-chan struct{}
	now       time.Time // KeyValue.Past: whether something is due is judged by it
	read      Timestamp // an upper bound of the store's clock when the pass began: the times at which tombstones become due are counted from it
	state     cleaned
	latest    map[[16]byte]Offset     // the last offset of each key, by its hash
	older     map[[16]byte]bool       // keys of a batch that is not rewritten: it may have older records of them
	kept      Offset                  // the end of the batch that older is about
	due       Timestamp               // when the first of the tombstones that are kept may be deleted, without those of keys in older; 0: there are none
	bytes     int64                   // how many bytes the batches that the pass has gone through have now
	drops     func(batch.Record) bool // not nil: these records go, and no others; see Log.Drop
}

func (c *compaction) run(ctx context.Context, first, end Offset) error {
	if err := c.commit(ctx, nil); err != nil { // begin, unless another process did
		return err
	}
	end, err := c.collect(ctx, max(c.state.Clean, first), end)
	if err != nil {
		return err
	}
	err = c.each(ctx, first, end, func(batches []Placed) error {
		if batches[0].Base < first {
			c.bytes += int64(bytesIn(batches[:1]))
			if err := c.keep(batches[0]); err != nil { // the first records of this batch were trimmed: it stays until its other records are, too
				return err
			}
			batches = batches[1:]
		}
		if len(batches) == 0 {
			return nil
		}
		return c.rewrite(ctx, batches)
	})
	if err != nil {
		return err
	}
	c.state.Clean, c.state.First, c.state.Bytes, c.state.Due, c.state.Kept, c.state.By = end, first, c.bytes, c.due, c.kept, ""
	return c.commit(ctx, nil)
}

// each reads the batches from offset from on, about compactBytes at a time. It stops before a batch
// that ends past end. After each time it rests for as long as that took, so that a pass takes at
// most half of the store's time from producers.
func (c *compaction) each(ctx context.Context, from, end Offset, visit func([]Placed) error) error {
	for from < end {
		if err := ctx.Err(); err != nil {
			return err
		}
		began := time.Now()
		got, err := c.log.read(ctx, []Span{{Partition: c.partition, From: from, MaxBytes: compactBytes}}, compactBytes)
		if err != nil {
			return err
		}
		if got[0].Err != nil {
			return got[0].Err
		}
		batches := got[0].Batches
		for n, b := range batches {
			if b.End() > end {
				batches, end = batches[:n], from
				break
			}
			from = b.End()
		}
		if len(batches) == 0 {
			return nil
		}
		if err := visit(batches); err != nil {
			return err
		}
		select {
		case <-time.After(time.Since(began)):
		case <-ctx.Done():
		}
	}
	return nil
}

// errKeysFull ends the first step of a pass.
var errKeysFull = errors.New("the pass has as many keys as fit into its memory")

// collect finds the last offset of each key in [from, end). It returns how far it came.
func (c *compaction) collect(ctx context.Context, from, end Offset) (Offset, error) {
	at := from
	err := c.each(ctx, from, end, func(batches []Placed) error {
		for _, b := range batches {
			for rec, err := range b.Decode() {
				if err != nil {
					return err
				}
				if rec.Key != nil {
					c.latest[hashOf(rec.Key)] = Offset(rec.Offset)
				}
			}
			at = b.End()
			if len(c.latest) >= compactKeys {
				return errKeysFull
			}
		}
		return nil
	})
	if errors.Is(err, errKeysFull) {
		err = nil
	}
	return at, err
}

// hashOf returns 16 bytes of a key's SHA-256, which stand for the key: it takes about 2^64 tries to
// find two keys with the same hash.
func hashOf(key []byte) [16]byte {
	sum := sha256.Sum256(key)
	return [16]byte(sum[:16])
}

// rewrite replaces consecutive batches by batches without the records that are not needed any more.
// The new batches say when their tombstones may be deleted. If nothing would change, rewrite does
// nothing.
func (c *compaction) rewrite(ctx context.Context, old []Placed) error {
	var w rewriter
	w.most = c.topic.FilledBytes()
	changed := false
	for _, b := range old {
		h, err := batch.Parse(b.Bytes)
		if err != nil {
			return err
		}
		kept, horizon, dropped, err := c.needed(b, h)
		if err != nil {
			return err
		}
		changed = changed || dropped || horizon > 0 && !h.Attributes.HasHorizon() || len(kept) == 0 && len(old) > 1
		w.add(b, h, kept, horizon)
	}
	if !changed {
		c.bytes += int64(bytesIn(old))
		return nil
	}
	last := old[len(old)-1]
	r := Replace{Partition: c.partition, From: old[0].Base, To: last.End()}
	for _, b := range append(w.done, w.open) {
		raw, err := b.Seal()
		if err != nil {
			return err
		}
		h, err := batch.Parse(raw)
		if err != nil {
			panic(fmt.Sprintf("compaction sealed a batch that cannot be parsed: %v", err))
		}
		r.Batches = append(r.Batches, Batch{Partition: c.partition, Records: h.Offsets(), MaxTime: Timestamp(h.MaxTimestamp), Bytes: raw})
		c.bytes += int64(len(raw))
	}
	if err := c.commit(ctx, []Replace{r}); err != nil {
		return err
	}
	c.log.tail.replaced(r, int64(bytesIn(old)))
	return nil
}

// keep notes the keys of a batch that is not rewritten.
func (c *compaction) keep(b Placed) error {
	c.older, c.kept = make(map[[16]byte]bool), b.End()
	for rec, err := range b.Decode() {
		if err != nil {
			return err
		}
		if rec.Key != nil && rec.Value != nil {
			c.older[hashOf(rec.Key)] = true
		}
	}
	return nil
}

// needed returns the records of a batch that are still needed, and in horizon when their tombstones
// may be deleted; 0: there are none.
func (c *compaction) needed(b Placed, h batch.Header) (kept []batch.Record, horizon Timestamp, dropped bool, err error) {
	counts := false // whether the horizon counts for c.due
	for rec, err := range b.Decode() {
		if err != nil {
			return nil, 0, false, err
		}
		if c.drops != nil {
			if c.drops(rec) {
				dropped = true
			} else {
				kept = append(kept, rec)
			}
			continue
		}
		if rec.Key != nil { // a record without a key was appended before the topic was compacted: it stays
			if c.latest[hashOf(rec.Key)] > Offset(rec.Offset) {
				dropped = true
				continue
			}
			if rec.Value == nil {
				due := int64(c.read) + min(c.topic.number("delete.retention.ms"), math.MaxInt64/2)
				if h.Attributes.HasHorizon() {
					due = h.BaseTimestamp
				}
				older := c.older[hashOf(rec.Key)] // if the tombstone went, an older record would be the newest one of the key
				if h.Attributes.HasHorizon() && due <= c.now.UnixMilli() && !older {
					dropped = true
					continue
				}
				horizon, counts = Timestamp(due), counts || !older
			}
		}
		kept = append(kept, rec)
	}
	if counts && (c.due == 0 || horizon < c.due) {
		c.due = horizon
	}
	return kept, horizon, dropped, nil
}

// rewriter joins what is kept of consecutive batches into as few batches as it can.
type rewriter struct {
	most int // limit for a batch with several records, in bytes, uncompressed
	done []batch.Compacted
	open batch.Compacted
	size int
	any  bool // open has offsets
}

func (w *rewriter) add(b Placed, h batch.Header, kept []batch.Record, horizon Timestamp) {
	last := int64(b.Base) + int64(b.Records) - 1
	next := batch.Compacted{
		Base: int64(b.Base), Last: last, Records: kept, Codec: h.Attributes.Codec(), AppendTime: h.Attributes.AppendTime(),
		Own: h.Attributes.Own(), Horizon: int64(horizon), EmptyTime: int64(b.MaxTime),
	}
	size := 0
	for i := range kept {
		size += batch.SealedSize(&kept[i])
	}
	fits := w.any && last-w.open.Base < math.MaxInt32
	switch {
	case fits && len(kept) == 0:
		w.open.Last, w.open.EmptyTime = last, max(w.open.EmptyTime, next.EmptyTime)
	case fits && len(w.open.Records) == 0:
		next.Base = w.open.Base
		w.open, w.size = next, size
	case fits && w.size+size <= w.most && w.open.Codec == next.Codec && w.open.Own == next.Own && w.open.Horizon == next.Horizon &&
		w.open.AppendTime == next.AppendTime && (!next.AppendTime || w.open.Records[0].Timestamp == kept[0].Timestamp):
		w.open.Last, w.open.Records = last, append(w.open.Records, kept...)
		w.size += size
	default:
		if w.any {
			w.done = append(w.done, w.open)
		}
		w.open, w.size, w.any = next, size, true
	}
}

// commit puts the state of the pass, together with replacements, unless another process has put it
// since.
func (c *compaction) commit(ctx context.Context, replaces []Replace) error {
	value, err := json.Marshal(c.state)
	if err != nil {
		return err
	}
	key, next := ReplacedKey(c.partition), c.state.version.Next()
	l := c.log
	l.gate.RLock() // the log enters no other incarnation meanwhile
	defer l.gate.RUnlock()
	select {
	case <-c.changed:
		return ErrRewound
	default:
	}
	checks := []Check{{Key: key, Version: c.state.version}}
	// A topic that is not compacted any more may have an owner by now, who needs all records: so
	// the topic must be Unchanged. On a store made of shards an entry can check that only if the
	// topic's key is on the partition's shard; with an owned topic it is.
	if l.CheckTogether(c.topic, topicPrefix+c.topic.Name, "compaction") == nil {
		checks = append(checks, c.topic.Unchanged())
	}
	begun, cancel := closing.Outlive(ctx, l.cfg.DrainTimeout)
	defer cancel()
	outcomes, err := l.store.Commit(begun, []Entry{{
		Checks:   checks,
		Puts:     []Put{{Key: key, Version: next, Value: value}},
		Replaces: replaces,
	}})
	if err = l.failed("commit", err); err == nil {
		err = outcomes[0].Err
	}
	if err != nil {
		return fmt.Errorf("compact partition %d: %w", c.partition, err)
	}
	c.state.version = next
	return nil
}
