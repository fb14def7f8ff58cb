package publish

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

var (
	// ErrKeyReused: other events were published under this idempotency key.
	ErrKeyReused = errors.New("idempotency key was used for other events")
	// ErrInProgress: other calls are busy with this idempotency key. Nothing was published; trying
	// again may work.
	ErrInProgress = errors.New("idempotency key is in use right now")
)

// keyMax bounds an idempotency key, in bytes. Escaped, and with a topic's id before it, it fits
// into a key of the store.
const keyMax = 512

// onceTries bounds how often a call tries to publish: it tries again if its key existed then, but
// was deleted before the call read it.
const onceTries = 4

// onceMax bounds the events of one PublishOnce: the partition of each is stored under the key.
const onceMax = 10_000

// PublishOnce is Publish under an idempotency key. A repetition with the same events within
// Config.IdempotencyAge, from any process, publishes nothing and returns the first call's result
// with repeated true. With other events the error is ErrKeyReused. Of two concurrent calls one is
// the first, and the other is the repetition. A key has 1 to 512 bytes, and one call at most 10,000
// events.
//
// After eventlog.ErrUnsure call it again with the same key and events: that returns what happened,
// or publishes.
func (p *Publisher) PublishOnce(ctx context.Context, key string, events ...Event) (placed []Placed, repeated bool, err error) {
	return p.publishOnce(ctx, scope{key: key}, events)
}

// PublishOnceIn is PublishOnce for events of one topic, under a key that belongs to that topic.
// After the topic was deleted, a repetition fails with eventlog.ErrUnknownTopic; in a new topic of
// the same name it counts as a first call.
func (p *Publisher) PublishOnceIn(ctx context.Context, topic, key string, events ...Event) (placed []Placed, repeated bool, err error) {
	return p.publishOnce(ctx, scope{key: key, topic: topic}, events)
}

// scope is an idempotency key, and the topic that it belongs to; "" for none.
type scope struct{ key, topic string }

func (p *Publisher) publishOnce(ctx context.Context, in scope, events []Event) (placed []Placed, repeated bool, err error) {
	ctx, end := p.cfg.Tracer.Start(ctx, "publish", p.spanOf(events))
	defer func() { end(err) }()
	if len(in.key) == 0 || len(in.key) > keyMax {
		return nil, false, &eventlog.InvalidError{What: "idempotency key", Value: in.key[:min(len(in.key), 64)],
			Why: fmt.Sprintf("it has %d bytes; 1 to %d are allowed", len(in.key), keyMax)}
	}
	if len(events) > onceMax {
		return nil, false, fmt.Errorf("%w: %d events under one idempotency key, the limit is %d: split them, and give each part its own key", eventlog.ErrTooLarge, len(events), onceMax)
	}
	sum := digest(events)
	for range onceTries {
		o, err := p.once(ctx, in, sum)
		if err != nil {
			return nil, false, err
		}
		placed, err = p.publishFirst(ctx, o, events)
		if p.stale(ctx, err) {
			if o, err = p.once(ctx, in, sum); err != nil {
				return nil, false, err
			}
			placed, err = p.publishFirst(ctx, o, events)
		}
		if err == nil || errors.Is(err, eventlog.ErrUnsure) {
			return placed, false, err
		}
		// This call has not published the events. Whatever the error is, an earlier call with this
		// key may have published them, and only the key shows that. If it does, the result is that
		// of the earlier call, and nothing is published twice.
		before, found, recallErr := p.recall(ctx, o, events)
		switch {
		case found:
			return before, true, nil
		case errors.Is(recallErr, ErrKeyReused):
			return nil, false, fmt.Errorf("publish under idempotency key %q: %w", in.key, recallErr)
		case errors.Is(recallErr, eventlog.ErrUnknownTopic):
			return nil, false, recallErr
		case recallErr != nil && !errors.Is(err, eventlog.ErrUnavailable) && !errors.Is(err, eventlog.ErrClosed):
			// Events that are refused for good now may have been published before: only the key
			// shows that.
			return nil, false, fmt.Errorf("publish under idempotency key %q: %v, and it could not be read what was published under the key before: %w", in.key, err, recallErr)
		case !errors.Is(err, eventlog.ErrStale):
			return nil, false, err
		}
	}
	return nil, false, fmt.Errorf("publish under idempotency key %q: %w: the key was created and deleted %d times meanwhile", in.key, ErrInProgress, onceTries)
}

// once is a call's idempotency key as the store has it, and the digest of the call's events.
type once struct {
	key    string
	digest string
	topic  eventlog.Topic // the topic that the key belongs to, as this process knows it; or none
}

func (p *Publisher) once(ctx context.Context, in scope, digest string) (o once, err error) {
	o.digest = digest
	name := in.key
	if in.topic != "" {
		if o.topic, err = p.log.Topic(ctx, in.topic); err != nil {
			return o, fmt.Errorf("publish to topic %q: %w", in.topic, err)
		}
		name = o.topic.ID.String() + "/" + in.key
	}
	o.key = prefix + url.PathEscape(name)
	return o, nil
}

// bound reports whether the key belongs to a topic.
func (o once) bound() bool { return o.topic.Version != 0 }

// publishFirst publishes the events and puts the key, if the key does not exist; otherwise the
// error is eventlog.ErrStale.
func (p *Publisher) publishFirst(ctx context.Context, o once, events []Event) ([]Placed, error) {
	pl, err := p.plan(ctx, events)
	if err != nil {
		return nil, err
	}
	for _, b := range pl.batches {
		if err := p.log.CheckTogether(b.topic, o.key, "an idempotency key"); err != nil {
			return nil, err
		}
	}
	if o.bound() && pl.batches[0].topic.ID != o.topic.ID {
		return nil, fmt.Errorf("topic %q was deleted and created again a moment ago: %w", o.topic.Name, eventlog.ErrStale)
	}
	e, first, err := pl.entry()
	if err != nil {
		return nil, err
	}
	e.Checks = []eventlog.Check{{Key: o.key}}
	e.Puts = o.puts(pl, first)
	out, err := p.log.Append(ctx, e)
	if err != nil {
		return nil, fmt.Errorf("publish %d events once: %w", len(events), err)
	}
	return pl.placed(bases(out, first)), nil
}

// puts notes what was published and where. The store adds the offsets. The version is the time, so
// that a key that was deleted and put again is not taken for the old one.
func (o once) puts(pl *plan, first []int) []eventlog.Put {
	version := eventlog.Version(time.Now().UnixMicro())
	puts := make([]eventlog.Put, len(pl.batches))
	for i := range puts {
		puts[i] = eventlog.Put{Key: o.part(i), Version: version, Value: []byte{'@'}, AddBase: first[i] + 1}
	}
	n := note{digest: o.digest, batches: len(pl.batches), partitions: make([]int32, len(pl.where))}
	for i, at := range pl.where {
		n.partitions[i] = pl.batches[at].number
	}
	puts[0].Value = []byte(n.String())
	return puts
}

// part returns the key that holds the first offset in the i-th partition of the call.
func (o once) part(i int) string {
	if i == 0 {
		return o.key
	}
	return o.key + "/" + strconv.Itoa(i)
}

// recall finds where the events of an earlier call with the key went; not found when there was
// none.
func (p *Publisher) recall(ctx context.Context, o once, events []Event) (placed []Placed, found bool, err error) {
	kv, err := p.log.Get(ctx, o.key)
	if err != nil || kv.Version == 0 {
		return nil, false, err
	}
	if there, err := p.there(ctx, o); !there {
		return nil, false, err
	}
	n, base, err := parseNote(string(kv.Value))
	if err != nil {
		return nil, false, fmt.Errorf("key %s holds %q: %w", o.key, kv.Value, err)
	}
	if n.digest != o.digest {
		return nil, false, ErrKeyReused
	}
	if len(n.partitions) != len(events) {
		return nil, false, fmt.Errorf("key %s holds the offsets of %d events, but the digest of %d", o.key, len(n.partitions), len(events))
	}
	at := []eventlog.Offset{base}
	for i := 1; i < n.batches; i++ {
		at = append(at, 0)
	}
	if n.batches > 1 {
		found, err := p.recallParts(ctx, o, kv.Version, at)
		if !found || err != nil {
			return nil, false, err
		}
	}
	return n.placed(events, at), true, nil
}

// there reports whether the key's topic still exists. If not, it reads the catalog again.
func (p *Publisher) there(ctx context.Context, o once) (bool, error) {
	if !o.bound() {
		return true, nil
	}
	now, err := p.log.TopicNow(ctx, o.topic.Name)
	if err == nil && now.ID == o.topic.ID {
		return true, nil
	}
	return false, cmp.Or(err, p.log.RefreshTopics(ctx))
}

// recallParts reads the first offset in each partition but the first. found is false if the key was
// forgotten meanwhile.
func (p *Publisher) recallParts(ctx context.Context, o once, version eventlog.Version, at []eventlog.Offset) (found bool, err error) {
	left := len(at) - 1
	err = p.log.ListAll(ctx, o.key+"/", func(kv eventlog.KeyValue) error {
		i, err := strconv.Atoi(kv.Key[len(o.key)+1:])
		if err != nil || i < 1 || i >= len(at) || kv.Version != version {
			return nil // of a later call: the key that is searched for was deleted
		}
		base, err := parseBase(string(kv.Value))
		if err != nil {
			return fmt.Errorf("key %s holds %q: %w", kv.Key, kv.Value, err)
		}
		at[i] = base
		left--
		return nil
	})
	return left == 0, err
}

// digest is a hash of the events: all that a caller gives, and nothing that weir chooses. Trace
// context does not count, since a repetition has another span.
func digest(events []Event) string {
	d := digester{sha256.New()}
	for i := range events {
		e := &events[i]
		d.field([]byte(e.Topic))
		d.flag(e.Partition != nil)
		if e.Partition != nil {
			d.number(int64(*e.Partition))
		}
		d.number(int64(e.Wish))
		d.field(e.Key)
		d.field(e.Value)
		headers := slices.DeleteFunc(slices.Clone(e.Headers), func(h batch.RecordHeader) bool {
			return h.Key == eventlog.TraceParent || h.Key == eventlog.TraceState
		})
		d.number(int64(len(headers)))
		for _, h := range headers {
			d.field([]byte(h.Key))
			d.field(h.Value)
		}
		d.flag(e.Time.IsZero())
		if !e.Time.IsZero() {
			d.number(e.Time.UnixMilli())
		}
	}
	return fmt.Sprintf("%x", d.Sum(nil))
}

type digester struct{ hash.Hash }

// number writes a fixed length, and field writes its length first, so that no two lists of events
// make the same bytes.
func (d digester) number(n int64) { d.Write(binary.BigEndian.AppendUint64(nil, uint64(n))) }

func (d digester) field(b []byte) {
	if b == nil {
		d.number(-1)
		return
	}
	d.number(int64(len(b)))
	d.Write(b)
}

func (d digester) flag(set bool) {
	if set {
		d.number(1)
	} else {
		d.number(0)
	}
}
