package stream

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/verify"
)

// Verify checks what the store has of streams:
//
//   - Each event in a category's topic that its stream still has is under its key, with the same
//     content, and the versions of a stream rise by one there.
//   - Each head is of a partition of its category, and the keys of the stream's events are those
//     from its first version to its last, without a gap.
//   - Each event is found by each of its tags, and each key of a tag names an event that has it.
//   - Each snapshot is of a version that its stream has had; the key of each subject is there.
func Verify() verify.Check {
	e := &examination{}
	return verify.Check{Name: "streams", Visit: e.visit, Run: e.run}
}

const (
	// lookEvents and lookBytes bound the events of the log that are compared with their keys at a
	// time.
	lookEvents, lookBytes = 500, 2 << 20
	// lastMost bounds the streams of a partition whose last version is remembered while it is read.
	lastMost = 100_000
	// doubtsMost bounds the events of one stream that are looked at again.
	doubtsMost = 100

	restoreStream = "restore the stream's keys from a backup, all of the same time; its events are in the category's topic, as far as its retention reaches"
	restoreTag    = "events with this tag cannot be found by it, and decisions that rest on it may miss them: restore the keys of the category from a backup"
)

type examination struct{}

// logged is an event in the log.
type logged struct {
	partition eventlog.Partition
	stream    string
	version   int64
	record    batch.Record
	stamped   bool // the time is the broker's, in the log alone
}

// visit compares the events of a category's partition with their keys.
func (e *examination) visit(x *verify.Exam, topic eventlog.Topic, _ int) verify.Visitor {
	if topic.Writer != writerName {
		return nil
	}
	c, last := &Category{topic: topic}, make(map[string]int64)
	return func(ctx context.Context, batches []eventlog.Placed) error {
		var some []logged
		size := 0
		for _, b := range batches {
			h, err := batch.Parse(b.Bytes)
			if err != nil {
				return err
			}
			for r, err := range b.Decode() {
				if err != nil {
					return err
				}
				ev, is := streamEvent(r)
				if !is || ev.Type == TypeDeleted {
					continue
				}
				if before, known := last[ev.Stream]; known && ev.Version != before+1 {
					if err := e.order(ctx, x, c, b.Partition, r, before, ev); err != nil {
						return err
					}
				}
				if len(last) >= lastMost {
					clear(last)
				}
				last[ev.Stream] = ev.Version
				some = append(some, logged{b.Partition, ev.Stream, ev.Version, r, h.Attributes.AppendTime()})
				if size += len(r.Value) + len(r.Key); len(some) >= lookEvents || size >= lookBytes {
					if err := e.compare(ctx, x, c, some); err != nil {
						return err
					}
					some, size = nil, 0
				}
			}
		}
		return e.compare(ctx, x, c, some)
	}
}

// order reports an event that does not follow the one before it of its stream, unless its category
// was deleted meanwhile. Records do not change, so they are not read again.
func (e *examination) order(ctx context.Context, x *verify.Exam, c *Category, p eventlog.Partition, r batch.Record, before int64, ev Event) error {
	return x.Confirm(ctx, func(v *verify.View) error {
		if there, err := c.stillThere(ctx, v); err != nil || !there {
			return err
		}
		v.Find(x.Place(p, eventlog.Offset(r.Offset)), "restore the partition from a backup",
			"the event is version %d of stream %q, but the event of the stream before it in the log is version %d", ev.Version, shorten(ev.Stream), before)
		return nil
	})
}

// stillThere reports whether the category exists: what is left of a deleted one is removed later.
func (c *Category) stillThere(ctx context.Context, v *verify.View) (bool, error) {
	topics, err := v.Topics(ctx)
	_, there := topics[c.topic.ID]
	return there, err
}

// compare looks for events of the log that disagree with their keys.
func (e *examination) compare(ctx context.Context, x *verify.Exam, c *Category, some []logged) error {
	if len(some) == 0 {
		return nil
	}
	var headKeys, eventKeys []string
	for _, l := range some {
		headKeys = append(headKeys, c.key(headPrefix, l.stream))
		eventKeys = append(eventKeys, c.eventKey(l.stream, l.version))
	}
	slices.Sort(headKeys)
	headKeys = slices.Compact(headKeys)
	heads, events := make(map[string]eventlog.KeyValue), make(map[string]eventlog.KeyValue)
	for of, keys := range map[*map[string]eventlog.KeyValue][]string{&heads: headKeys, &events: eventKeys} {
		if err := x.GetEach(ctx, keys, func(kv eventlog.KeyValue) error { (*of)[kv.Key] = kv; return nil }); err != nil {
			return err
		}
	}
	for i, l := range some {
		if l.disagrees(c, heads[c.key(headPrefix, l.stream)], events[eventKeys[i]]) == "" {
			continue
		}
		err := x.Confirm(ctx, func(v *verify.View) error {
			kvs, err := v.Get(ctx, c.key(headPrefix, l.stream), eventKeys[i])
			if err != nil {
				return err
			}
			why := l.disagrees(c, kvs[0], kvs[1])
			if why == "" {
				return nil
			}
			if there, err := c.stillThere(ctx, v); err != nil || !there {
				return err
			}
			v.Find(verify.AtKey(eventKeys[i]), restoreStream, "version %d of stream %q of category %q is at offset %d of partition %d, but %s", l.version, shorten(l.stream), c.Name(), l.record.Offset, l.partition, why)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// disagrees returns how an event of the log disagrees with the keys of its stream; "": it does not.
func (l logged) disagrees(c *Category, headKV, eventKV eventlog.KeyValue) string {
	h, err := headIn(headKV)
	switch {
	case err != nil:
		return err.Error()
	case h.version == 0:
		return "the stream has no head"
	case l.version >= h.Next:
		return fmt.Sprintf("the stream's head says that it ends at version %d", h.Next)
	case h.Partition != l.partition:
		return fmt.Sprintf("the stream's head says that it is in partition %d", h.Partition)
	case l.version < h.First:
		return "" // deleted
	case eventKV.Version == 0:
		return "the key of the event is missing"
	}
	for r, err := range batch.Records(eventKV.Value, batch.DefaultMaxDecompressed) {
		switch {
		case err != nil:
			return "the key of the event is damaged: " + err.Error()
		case !bytes.Equal(r.Key, l.record.Key), !bytes.Equal(r.Value, l.record.Value), !l.stamped && r.Timestamp != l.record.Timestamp,
			!slices.EqualFunc(r.Headers, l.record.Headers, func(a, b batch.RecordHeader) bool { return a.Key == b.Key && bytes.Equal(a.Value, b.Value) }):
			return "the key of the event has another content"
		}
	}
	return ""
}

// run checks the keys of all categories.
func (e *examination) run(ctx context.Context, x *verify.Exam) error {
	for _, t := range x.Topics {
		if t.Writer != writerName {
			continue
		}
		c := &Category{topic: t}
		for _, check := range []func(context.Context, *verify.Exam) error{c.verifyHeads, c.verifyTags, c.verifySnapshots} {
			if err := check(ctx, x); err != nil {
				return fmt.Errorf("category %q: %w", t.Name, err)
			}
		}
	}
	return x.Keys(ctx, projectionPrefix, func(page []eventlog.KeyValue) error {
		for _, kv := range page {
			err := x.Judge(ctx, func(v *verify.View) error {
				now, err := v.Get(ctx, kv.Key)
				if err == nil && now[0].Version > 0 {
					if _, wrong := projectionIn(now[0]); wrong != nil {
						v.Find(verify.AtKey(kv.Key), "delete the projection, and make it anew", "%v", wrong)
					}
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// verifyHeads checks all heads of a category, and the keys of the events of each stream.
func (c *Category) verifyHeads(ctx context.Context, x *verify.Exam) error {
	return x.Keys(ctx, c.key(headPrefix, ""), func(page []eventlog.KeyValue) error {
		for _, kv := range page {
			stream, err := url.PathUnescape(kv.Key[strings.LastIndexByte(kv.Key, '/')+1:])
			if err != nil {
				continue // no client can name it
			}
			h, err := headIn(kv)
			if err != nil || !c.plausible(h) {
				if err := x.Confirm(ctx, func(v *verify.View) error { return c.lookAtHead(ctx, v, kv.Key) }); err != nil {
					return err
				}
				continue
			}
			doubts, err := c.doubts(ctx, x, stream, h)
			if err != nil {
				return err
			}
			for _, version := range doubts {
				if err := x.Confirm(ctx, func(v *verify.View) error { return c.lookAtEvent(ctx, v, stream, version) }); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// plausible reports whether a head does not contradict itself.
func (c *Category) plausible(h head) bool {
	return 0 <= h.Born && h.Born <= h.First && h.First <= h.Next && (!h.Deleted || h.First == h.Next) && slices.Contains(c.topic.Partitions, h.Partition)
}

func (c *Category) lookAtHead(ctx context.Context, v *verify.View, key string) error {
	kvs, err := v.Get(ctx, key)
	if err != nil || kvs[0].Version == 0 {
		return err
	}
	topics, err := v.Topics(ctx)
	now, there := topics[c.topic.ID]
	if err != nil || !there {
		return err
	}
	h, err := headIn(kvs[0])
	if err != nil {
		v.Find(verify.AtKey(key), restoreStream, "%v", err)
	} else if !(&Category{topic: now}).plausible(h) {
		v.Find(verify.AtKey(key), restoreStream, "the head contradicts itself or its category: %s", kvs[0].Value)
	}
	return nil
}

// doubts returns versions of a stream that need another look: those whose keys seem to be wrong.
func (c *Category) doubts(ctx context.Context, x *verify.Exam, stream string, h head) (doubts []int64, err error) {
	prefix := c.key(eventPrefix, stream) + "/"
	doubt := func(version int64) {
		if len(doubts) < doubtsMost {
			doubts = append(doubts, version)
		}
	}
	missing := func(from, to int64) {
		for from = max(from, h.First); from < min(to, h.Next) && len(doubts) < doubtsMost; from++ {
			doubt(from)
		}
	}
	step := int(pageStep(h))
	next := int64(0) // the version that comes next
	for after := ""; len(doubts) < doubtsMost; {
		page, err := x.Store().List(ctx, prefix, after, step)
		if err != nil {
			return nil, err
		}
		var sound []eventlog.KeyValue
		for _, kv := range page {
			version, err := versionIn(kv.Key)
			if err != nil {
				continue
			}
			missing(next, version)
			next = version + 1
			switch {
			case version < h.First || c.unsound(kv, stream, version) != "":
				doubt(version)
			case version >= h.Next: // appended since the head was read; or the head is old
				doubt(version)
				return doubts, nil
			default:
				sound = append(sound, kv)
			}
		}
		found, err := c.unreached(ctx, x, sound)
		if err != nil {
			return nil, err
		}
		for _, version := range found {
			doubt(version)
		}
		if len(page) < step {
			break
		}
		after = page[len(page)-1].Key
	}
	missing(next, h.Next)
	return doubts, nil
}

// unsound returns what is wrong with the key of an event in itself; "": nothing.
func (c *Category) unsound(kv eventlog.KeyValue, stream string, version int64) string {
	e, err := eventIn(kv)
	if err != nil {
		return err.Error()
	}
	if e.Stream != stream {
		return fmt.Sprintf("the key has an event of stream %q", shorten(e.Stream))
	}
	for r := range batch.Records(kv.Value, batch.DefaultMaxDecompressed) {
		if in, is := streamEvent(r); !is || in.Version != version {
			return fmt.Sprintf("the key has the event of version %d", in.Version)
		}
	}
	return ""
}

// reach returns the keys by which an event is found, and what they must have; "": anything.
func (c *Category) reach(kv eventlog.KeyValue) (keys, want []string) {
	place := strings.TrimPrefix(kv.Key, c.key(eventPrefix, ""))
	for _, key := range tagKeysOf([]eventlog.KeyValue{kv}) {
		keys, want = append(keys, key), append(want, place)
	}
	if e, err := eventIn(kv); err == nil && e.Subject != "" {
		keys, want = append(keys, c.key(subjectPrefix, e.Subject)), append(want, "")
	}
	return keys, want
}

// unreached returns the versions of events that are not found by all their tags, or whose subject's
// key is missing.
func (c *Category) unreached(ctx context.Context, x *verify.Exam, events []eventlog.KeyValue) (doubts []int64, err error) {
	var keys, want []string
	var of []int64
	for _, kv := range events {
		version, err := versionIn(kv.Key)
		if err != nil {
			return nil, err
		}
		k, w := c.reach(kv)
		for range k {
			of = append(of, version)
		}
		keys, want = append(keys, k...), append(want, w...)
	}
	kvs, err := x.Get(ctx, keys...)
	if err != nil {
		return nil, err
	}
	for i, kv := range kvs {
		if (kv.Version == 0 || want[i] != "" && string(kv.Value) != want[i]) && !slices.Contains(doubts, of[i]) {
			doubts = append(doubts, of[i])
		}
	}
	return doubts, nil
}

// lookAtEvent compares one version of a stream with its head and its tags.
func (c *Category) lookAtEvent(ctx context.Context, v *verify.View, stream string, version int64) error {
	headKey, key := c.key(headPrefix, stream), c.eventKey(stream, version)
	kvs, err := v.Get(ctx, headKey, key, c.key(gonePrefix, stream))
	if err != nil {
		return err
	}
	h, err := headIn(kvs[0])
	if err != nil || h.version == 0 { // a finding of lookAtHead; or the category was deleted
		return nil
	}
	if there, err := c.stillThere(ctx, v); err != nil || !there {
		return err
	}
	is := kvs[1].Version > 0
	about := fmt.Sprintf("stream %q of category %q has the versions %d to %d", shorten(stream), c.Name(), h.First, h.Next-1)
	switch {
	case !is && version >= h.First && version < h.Next:
		v.Find(verify.AtKey(key), restoreStream, "%s, and the event of version %d is missing", about, version)
	case !is, version < h.First && kvs[2].Version > 0: // it is being removed
	case version < h.First, version >= h.Next:
		v.Find(verify.AtKey(key), restoreStream, "%s, and an event of version %d is there, too", about, version)
	default:
		if why := c.unsound(kvs[1], stream, version); why != "" {
			v.Find(verify.AtKey(key), restoreStream, "%s", why)
			return nil
		}
		keys, want := c.reach(kvs[1])
		by, err := v.Get(ctx, keys...)
		if err != nil {
			return err
		}
		for i, kv := range by {
			switch {
			case want[i] == "" && kv.Version == 0:
				v.Find(verify.AtKey(kv.Key), "the event cannot be read; restore the key from a backup", "the key that encrypts version %d of stream %q of category %q is missing", version, shorten(stream), c.Name())
			case kv.Version == 0:
				v.Find(verify.AtKey(kv.Key), restoreTag, "version %d of stream %q of category %q has the tag, and this key, by which it is found, is missing", version, shorten(stream), c.Name())
			case want[i] != "" && string(kv.Value) != want[i]:
				v.Find(verify.AtKey(kv.Key), restoreTag, "version %d of stream %q of category %q has the tag, and this key, by which it is found, names %q", version, shorten(stream), c.Name(), kv.Value)
			}
		}
	}
	return nil
}

// verifyTags checks that each key of a tag names an event with the tag, and is counted by the tag's
// own key.
func (c *Category) verifyTags(ctx context.Context, x *verify.Exam) error {
	id := c.topic.ID.String()
	prefix := taggedPrefix + id + "/"
	return x.Keys(ctx, prefix, func(page []eventlog.KeyValue) error {
		var keys []string
		for _, kv := range page {
			keys = append(keys, eventPrefix+id+"/"+string(kv.Value), tagPrefix+id+"/"+kv.Key[len(prefix):strings.LastIndexByte(kv.Key, '/')])
		}
		slices.Sort(keys)
		there := make(map[string]bool)   // tagged keys that an event names
		counts := make(map[string]int64) // of tags
		if err := x.GetEach(ctx, slices.Compact(keys), func(kv eventlog.KeyValue) error {
			if strings.HasPrefix(kv.Key, tagPrefix) {
				counts[kv.Key], _ = strconv.ParseInt(string(kv.Value), 10, 64)
			}
			for _, key := range tagKeysOf([]eventlog.KeyValue{kv}) {
				there[key+" "+kv.Key] = true
			}
			return nil
		}); err != nil {
			return err
		}
		for _, kv := range page {
			n, err := versionIn(kv.Key)
			if err == nil && there[kv.Key+" "+eventPrefix+id+"/"+string(kv.Value)] && n < counts[tagPrefix+id+"/"+kv.Key[len(prefix):strings.LastIndexByte(kv.Key, '/')]] {
				continue
			}
			if err := x.Confirm(ctx, func(v *verify.View) error { return c.lookAtTagged(ctx, v, kv.Key) }); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *Category) lookAtTagged(ctx context.Context, v *verify.View, key string) error {
	id := c.topic.ID.String()
	tag := tagPrefix + id + "/" + key[len(taggedPrefix+id+"/"):strings.LastIndexByte(key, '/')]
	kvs, err := v.Get(ctx, key, tag)
	if err != nil || kvs[0].Version == 0 {
		return err
	}
	event := eventPrefix + id + "/" + string(kvs[0].Value)
	events, err := v.Get(ctx, event)
	if err != nil {
		return err
	}
	if there, err := c.stillThere(ctx, v); err != nil || !there {
		return err
	}
	if !slices.Contains(tagKeysOf(events), key) {
		v.Find(verify.AtKey(key), restoreTag, "it names %q as an event of category %q with the tag; that event is missing, or has not the tag with this number", kvs[0].Value, c.Name())
	}
	n, err := versionIn(key)
	count, err2 := strconv.ParseInt(string(kvs[1].Value), 10, 64)
	switch {
	case err != nil:
		v.Find(verify.AtKey(key), restoreTag, "%v", err)
	case kvs[1].Version == 0:
		v.Find(verify.AtKey(tag), restoreTag, "events of category %q have the tag, and this key, which counts them, is missing: the next event gets a number that is in use", c.Name())
	case err2 != nil || n >= count:
		v.Find(verify.AtKey(tag), restoreTag, "the key says that %q events of category %q have had the tag, but one has the number %d: the next event gets a number that is in use", kvs[1].Value, c.Name(), n)
	}
	return nil
}

// snapshotsPage is how many snapshots are read with a call: each may be large.
const snapshotsPage = 16

// verifySnapshots checks that each snapshot is of a version that its stream has had.
func (c *Category) verifySnapshots(ctx context.Context, x *verify.Exam) error {
	return x.KeysPaged(ctx, c.key(snapshotPrefix, ""), snapshotsPage, func(page []eventlog.KeyValue) error {
		for _, kv := range page {
			headKey := headPrefix + strings.TrimPrefix(kv.Key[:strings.LastIndexByte(kv.Key, '/')], snapshotPrefix)
			err := x.Judge(ctx, func(v *verify.View) error {
				kvs, err := v.Get(ctx, kv.Key, headKey)
				if err != nil || kvs[0].Version == 0 {
					return err
				}
				h, wrong := headIn(kvs[1])
				version, err := snapshotVersion(kv.Key)
				if wrong == nil && err == nil && h.version > 0 && version >= 0 && version <= h.Next && len(kvs[0].Value) > 0 {
					return nil
				}
				if there, err := c.stillThere(ctx, v); err != nil || !there || wrong != nil {
					return err
				}
				v.Find(verify.AtKey(kv.Key), "delete the snapshot: an aggregate that is loaded from it has a wrong state; save a new one",
					"it is a snapshot at version %d of a stream of category %q that ends at version %d", version, c.Name(), h.Next)
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}
