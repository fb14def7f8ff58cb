package stream

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

const (
	tagPrefix    = "stream/tag/"
	taggedPrefix = "stream/tagged/"

	tagMax  = 255 // bytes of a tag
	tagsMax = 16  // tags of an event, and of a Boundary

	// These bound all events of one append together, to all its streams. Each tag of an event, each
	// different tag and each different subject is a key of the entry, and other changes of keys
	// wait meanwhile.
	appendTags      = 10_000
	appendDifferent = 1000 // different tags; different subjects

	taggedMax   = 10_000   // events that Tagged reads
	taggedBytes = 64 << 20 // about how many bytes of events it reads
	taggedCalls = 16       // store calls that it makes at the same time
	taggedPage  = 4 << 20  // about how many bytes of events come with a store call
	placeMemory = 32       // memory of the place of an event, besides its bytes
)

// Boundary is what was known of some tags when their events were read: a decision that rests on
// these events is appended only if no other event with one of the tags was appended meanwhile
// (Category.AppendWithin).
type Boundary struct {
	// versions are those of the tags' keys. Of a tag without a key it is the version of
	// vanishedKey, negative: if the tag's key was created and removed since, vanishedKey has
	// another version.
	versions map[string]eventlog.Version
}

// String returns the boundary as a text of URL-safe characters, which Category.Boundary reads, also
// in another process.
func (b Boundary) String() string {
	named := make(map[string]eventlog.Version, len(b.versions))
	for key, version := range b.versions {
		named[strings.TrimPrefix(key, tagPrefix)] = version
	}
	text, err := json.Marshal(named)
	if err != nil {
		panic(err) // it holds texts and numbers
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// Boundary reads the text of a boundary that Tagged returned for this category.
// *eventlog.InvalidError: it is not such a text.
func (c *Category) Boundary(text string) (Boundary, error) {
	invalid := func(why string) (Boundary, error) {
		return Boundary{}, &eventlog.InvalidError{What: "boundary", Value: shorten(text), Why: why + "; send it as it came with the events that have the tags"}
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return invalid("it is not one")
	}
	var named map[string]eventlog.Version
	if err := json.Unmarshal(raw, &named); err != nil || len(named) == 0 || len(named) > tagsMax {
		return invalid("it is not one")
	}
	b := Boundary{versions: make(map[string]eventlog.Version, len(named))}
	for name, version := range named {
		id, escaped, _ := strings.Cut(name, "/")
		tag, err := url.PathUnescape(escaped)
		switch {
		case id != c.topic.ID.String():
			return invalid("it is of another category, or the category was deleted and created again")
		case err != nil || checkTags([]string{tag}) != nil || url.PathEscape(tag) != escaped:
			return invalid("it is not one")
		}
		b.versions[c.tagKey(tag)] = version
	}
	return b, nil
}

// tagHead is how many events a tag has had.
type tagHead struct {
	next    int64
	version eventlog.Version // of its key
	put     bool             // an event of the entry has the tag
}

// tagHeads are the heads of the tags that an entry depends on, by their keys.
type tagHeads map[string]*tagHead

// write adds to an entry the checks that the tags are as they were read, and the puts of those that
// change.
func (heads tagHeads) write(e *eventlog.Entry) {
	for _, key := range slices.Sorted(maps.Keys(heads)) {
		h := heads[key]
		e.Checks = append(e.Checks, eventlog.Check{Key: key, Version: h.version})
		if h.put {
			e.Puts = append(e.Puts, eventlog.Put{Key: key, Version: h.version.Next(), Value: strconv.AppendInt(nil, h.next, 10)})
		}
	}
}

func (c *Category) tagKey(tag string) string {
	return tagPrefix + c.topic.ID.String() + "/" + url.PathEscape(tag)
}

// vanishedKey returns the key that changes when keys of the category's tags are removed with their
// last events. It has the place of a tag without a name.
func vanishedKey(topicID string) string { return tagPrefix + topicID + "/" }

func (c *Category) vanishedKey() string { return vanishedKey(c.topic.ID.String()) }

// taggedKey returns the key that names the n-th event of a tag.
func (c *Category) taggedKey(tag string, n int64) string {
	return taggedKey(c.topic.ID.String(), tag, n)
}

func taggedKey(topicID, tag string, n int64) string {
	return taggedPrefix + topicID + "/" + url.PathEscape(tag) + "/" + digits(n)
}

func checkTags(tags []string) error {
	if len(tags) > tagsMax {
		return &eventlog.InvalidError{What: "number of tags", Value: strconv.Itoa(len(tags)), Why: fmt.Sprintf("at most %d are allowed", tagsMax)}
	}
	for i, tag := range tags {
		why := ""
		switch {
		case tag == "":
			why = "it is empty"
		case len(tag) > tagMax:
			why = fmt.Sprintf("it has %d bytes; at most %d are allowed", len(tag), tagMax)
		case !isText(tag):
			why = "it is not UTF-8, or has control characters"
		case slices.Contains(tags[:i], tag):
			why = "it occurs twice"
		default:
			continue
		}
		return &eventlog.InvalidError{What: "tag", Value: shorten(tag), Why: why}
	}
	return nil
}

// checkTogether checks the bounds that the events of all streams of an append have together.
func checkTogether(parts []Part, ops []*op) error {
	tags := 0
	different, subjects := make(map[string]bool), make(map[string]bool)
	for i, o := range ops {
		c := parts[i].Category
		for j := range o.events {
			e := &o.events[j]
			tags += len(e.Tags)
			for _, tag := range e.Tags {
				different[c.tagKey(tag)] = true
			}
			if e.Subject != "" {
				subjects[c.key(subjectPrefix, e.Subject)] = true
			}
		}
	}
	for _, bound := range []struct {
		what      string
		has, most int
	}{
		{"number of tags of all events", tags, appendTags}, {"number of different tags", len(different), appendDifferent}, {"number of different subjects", len(subjects), appendDifferent},
	} {
		if bound.has > bound.most {
			return &eventlog.InvalidError{What: bound.what, Value: strconv.Itoa(bound.has), Why: fmt.Sprintf("one append has at most %d: append fewer events in one call", bound.most)}
		}
	}
	return nil
}

// AppendWithin is Append if no event with one of the boundary's tags was appended since the
// boundary was read; otherwise it returns ErrBoundary. The events should have these tags, otherwise
// other decisions do not notice them. Appends of events with the same tag are serialised, in all
// streams: of appends at the same time the first one is not delayed, and each of the others takes
// at least three more store calls for each append before it.
func (c *Category) AppendWithin(ctx context.Context, b Boundary, stream string, expected Expected, events ...NewEvent) (Appended, error) {
	return c.append(ctx, b, stream, expected, events)
}

// tagsOf adds to heads the tags that operations depend on.
func (c *Category) tagsOf(heads tagHeads, ops ...*op) tagHeads {
	for _, o := range ops {
		for key, version := range o.within {
			heads[key] = &tagHead{}
			if version <= 0 {
				heads[c.vanishedKey()] = &tagHead{}
			}
		}
		for i := range o.events {
			for _, tag := range o.events[i].Tags {
				heads[c.tagKey(tag)] = &tagHead{}
			}
		}
	}
	return heads
}

// readTags reads the heads of tags, all with one read.
func (s *Streams) readTags(ctx context.Context, heads tagHeads) error {
	return s.log.GetAll(ctx, slices.Collect(maps.Keys(heads)), func(kv eventlog.KeyValue) (err error) {
		h := heads[kv.Key]
		h.version = kv.Version
		if kv.Version > 0 {
			if h.next, err = strconv.ParseInt(string(kv.Value), 10, 64); err != nil {
				return fmt.Errorf("key %s does not hold a number: %w; restore a backup", kv.Key, err)
			}
		}
		return nil
	})
}

// each calls do for every item, some concurrently, and returns the first error. After an error it
// calls do for no other item.
func each[T any](items []T, do func(T) error) error {
	calls, failed := errgroup.WithContext(context.Background()) // failed does not end calls in progress
	calls.SetLimit(taggedCalls)
	for _, item := range items {
		calls.Go(func() error {
			if failed.Err() != nil {
				return nil
			}
			return do(item)
		})
	}
	return calls.Wait()
}

// allows reports whether the tags are as the boundary has them.
func (c *Category) allows(within map[string]eventlog.Version, heads tagHeads) bool {
	for key, version := range within {
		switch h := heads[key]; {
		case h.version != max(version, 0):
			return false
		case version <= 0 && heads[c.vanishedKey()].version != -version:
			return false
		}
	}
	return true
}

// boundaryVersion returns what a boundary says of a tag, by the tag's key. heads must have
// vanishedKey, too.
func (c *Category) boundaryVersion(heads tagHeads, key string) eventlog.Version {
	if v := heads[key].version; v > 0 {
		return v
	}
	return -heads[c.vanishedKey()].version
}

// tag writes into an event's record its number among the events of each of its tags, and returns
// the puts by which it is found there.
func (c *Category) tag(heads tagHeads, e *NewEvent, r *batch.Record, stream string, version int64) (puts []eventlog.Put) {
	at := keyHeader - 1
	if e.Subject != "" {
		at += 2
	}
	for _, tag := range e.Tags {
		h := heads[c.tagKey(tag)]
		r.Headers[at+1].Value = strconv.AppendInt(nil, h.next, 10)
		at += 2
		puts = append(puts, eventlog.Put{Key: c.taggedKey(tag, h.next), Version: 1, Value: []byte(url.PathEscape(stream) + "/" + digits(version))})
		h.next++
		h.put = true
	}
	return puts
}

// tagKeysOf returns the keys by which events are found by their tags (taggedKey). It skips what is
// damaged.
func tagKeysOf(events []eventlog.KeyValue) (keys []string) {
	for _, kv := range events {
		topic, _, _ := strings.Cut(strings.TrimPrefix(kv.Key, eventPrefix), "/")
		for r, err := range batch.Records(kv.Value, batch.DefaultMaxDecompressed) {
			if err != nil {
				break
			}
			tag := ""
			for _, h := range r.Headers {
				if h.Key == HeaderTag {
					tag = string(h.Value)
				}
				if h.Key == headerTagged {
					if n, err := strconv.ParseInt(string(h.Value), 10, 64); err == nil {
						keys = append(keys, taggedKey(topic, tag, n))
					}
				}
			}
		}
	}
	return keys
}

// lastOf returns the keys of the tags that only the given events have: tagged are the keys by which
// these are found (taggedKey). If events with such a tag are appended later, their numbers begin
// again: none of the numbers is in use then. It costs a store call for each tag that has had other
// events, some at the same time, and one for all tags. vanished is the category's vanishedKey,
// which the entry that removes keys of tags must put.
func (s *Streams) lastOf(ctx context.Context, topicID string, tagged []string) (over []eventlog.KeyValue, vanished eventlog.KeyValue, err error) {
	of := make(map[string][]string) // by the key of a tag
	for _, key := range tagged {
		name := strings.TrimPrefix(key[:strings.LastIndexByte(key, '/')], taggedPrefix)
		of[tagPrefix+name] = append(of[tagPrefix+name], key)
	}
	if len(of) == 0 {
		return nil, vanished, nil
	}
	var heads []eventlog.KeyValue // read before the events: a later append changes them
	keys := append(slices.Sorted(maps.Keys(of)), vanishedKey(topicID))
	err = s.log.GetAll(ctx, keys, func(kv eventlog.KeyValue) error {
		if kv.Key == vanishedKey(topicID) {
			vanished = kv
		} else if kv.Version > 0 {
			heads = append(heads, kv)
		}
		return nil
	})
	if err != nil {
		return nil, vanished, err
	}
	var mu sync.Mutex // guards over
	err = each(heads, func(kv eventlog.KeyValue) error {
		mine := of[kv.Key]
		if string(kv.Value) != strconv.Itoa(len(mine)) {
			name := strings.TrimPrefix(kv.Key, tagPrefix)
			left, err := s.log.List(ctx, taggedPrefix+name+"/", "", len(mine)+1)
			if err != nil {
				return err
			}
			for _, l := range left {
				if !slices.Contains(mine, l.Key) {
					return nil
				}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		over = append(over, kv)
		return nil
	})
	return over, vanished, err
}

// Tagged reads the events, in all streams of the category, that have at least one of the tags, and
// the boundary for a decision that rests on these events. Events with the same tag come in the
// order in which they were appended; of events that share no tag the one with the earlier time
// comes first. It costs a store call for all tags, one for each tag and each thousand of its
// events, and what eventsAt costs. At most 10,000 events (*eventlog.InvalidError) and 64 MiB
// (eventlog.ErrTooLarge) are read.
func (c *Category) Tagged(ctx context.Context, tags ...string) ([]Event, Boundary, error) {
	events, b, _, err := c.TaggedUpTo(ctx, taggedBytes, nil, tags...)
	return events, b, err
}

// TaggedUpTo is Tagged with the limit most for the bytes that the events take in memory. It calls
// grow with the number of further bytes before the events take them; grow may be nil. It also
// returns how many bytes the events take.
func (c *Category) TaggedUpTo(ctx context.Context, most int64, grow func(ctx context.Context, bytes int64) error, tags ...string) (events []Event, b Boundary, take int64, err error) {
	r := &taggedRoom{most: most, grow: grow}
	events, b, err = c.tagged(ctx, r, tags)
	if err != nil {
		return nil, Boundary{}, 0, fmt.Errorf("read events of category %q by tags: %w", c.Name(), err)
	}
	for i := range events {
		take += events[i].memory()
	}
	return events, b, take, nil
}

// taggedStep is how many bytes are claimed at a time.
const taggedStep = 64 << 10

// taggedRoom is the memory of a read by tags.
type taggedRoom struct {
	most, used, held int64
	grow             func(ctx context.Context, bytes int64) error
}

// take claims n bytes more. eventlog.ErrTooLarge: the limit is reached.
func (r *taggedRoom) take(ctx context.Context, n int64) error {
	if r.used += n; r.used > r.most {
		return fmt.Errorf("%w: the events that have the tags take more than %d bytes of memory, the limit: use tags that fewer events have", eventlog.ErrTooLarge, r.most)
	}
	more := r.used - r.held
	if more <= 0 || r.grow == nil {
		return nil
	}
	more = max(more, min(taggedStep, r.most-r.held))
	r.held += more
	return r.grow(ctx, more)
}

func (c *Category) tagged(ctx context.Context, r *taggedRoom, tags []string) ([]Event, Boundary, error) {
	if len(tags) == 0 {
		return nil, Boundary{}, &eventlog.InvalidError{What: "number of tags", Value: "0", Why: "at least 1 is needed"}
	}
	if err := checkTags(tags); err != nil {
		return nil, Boundary{}, err
	}
	if _, err := c.knownTopic(); err != nil {
		return nil, Boundary{}, err
	}
	b := Boundary{versions: make(map[string]eventlog.Version)}
	for _, tag := range tags {
		b.versions[c.tagKey(tag)] = 0
	}
	heads := c.tagsOf(make(tagHeads), &op{within: b.versions})
	if err := c.owner.readTags(ctx, heads); err != nil { // before the events: later ones are not within the boundary
		return nil, Boundary{}, err
	}
	lists := make([][]string, len(tags)) // for each tag the places of its events, in order
	total := 0
	for i, tag := range tags {
		h := heads[c.tagKey(tag)]
		b.versions[c.tagKey(tag)] = c.boundaryVersion(heads, c.tagKey(tag))
		var err error
		if lists[i], err = c.placesOf(ctx, r, tag, h.next); err != nil {
			return nil, Boundary{}, err
		}
		if total += len(lists[i]); total > taggedMax {
			return nil, Boundary{}, &eventlog.InvalidError{What: "tags", Value: shorten(strings.Join(tags, ", ")), Why: fmt.Sprintf("more than %d events have them: use tags that fewer events have", taggedMax)}
		}
	}
	byPlace, err := c.eventsAt(ctx, r, slices.Compact(slices.Sorted(slices.Values(slices.Concat(lists...)))))
	if err != nil {
		return nil, Boundary{}, err
	}
	return merge(lists, byPlace), b, nil
}

// placesOf lists the places of a tag's first count events. A place is the stream and version of an
// event, as in its key.
func (c *Category) placesOf(ctx context.Context, r *taggedRoom, tag string, count int64) (places []string, err error) {
	end := c.taggedKey(tag, count)
	prefix := strings.TrimSuffix(end, digits(count))
	errFull := errors.New("there are too many")
	err = c.owner.log.ListAll(ctx, prefix, func(kv eventlog.KeyValue) error {
		if kv.Key >= end {
			return nil
		}
		if places = append(places, string(kv.Value)); len(places) > taggedMax {
			return errFull
		}
		return r.take(ctx, int64(placeMemory+len(kv.Value)))
	})
	if errors.Is(err, errFull) {
		err = nil
	}
	return places, err
}

// eventsAt reads the events at places: a store call for each thousand streams, events and subjects,
// and one more for each 4 MiB. If there is no room even for empty events, it reads none. Events
// that are not there any more are left out.
func (c *Category) eventsAt(ctx context.Context, r *taggedRoom, places []string) (map[string]*Event, error) {
	heads, err := c.headsAt(ctx, places)
	if err != nil {
		return nil, err
	}
	keys := make([]string, 0, len(places))
	prefix := eventPrefix + c.topic.ID.String() + "/"
	page := int64(0) // at most so many bytes come with a store call
	for _, place := range places {
		version, err := versionIn(place)
		if err != nil {
			return nil, fmt.Errorf("%q is not the place of an event: %w; restore a backup", place, err)
		}
		escaped, _, _ := strings.Cut(place, "/")
		if h := heads[escaped]; version >= h.First { // an event below First was deleted, and its key is not removed yet
			keys = append(keys, prefix+place)
			page += h.Largest
		}
	}
	if err := r.take(ctx, int64(len(keys))*eventMemory); err != nil {
		return nil, err
	}
	page = min(page, r.most-r.used, taggedPage)
	if err := r.take(ctx, page); err != nil {
		return nil, err
	}
	at := make([]string, 0, len(keys)) // the place of each event
	all := make([]Event, 0, len(keys))
	err = c.owner.log.GetAll(ctx, keys, func(kv eventlog.KeyValue) error {
		if kv.Version == 0 {
			return nil
		}
		e, err := eventIn(kv)
		if err != nil {
			return err
		}
		n := e.memory() - eventMemory
		before := min(n, page) // that much was taken with the page
		if page -= before; n > before {
			if err := r.take(ctx, n-before); err != nil {
				return err
			}
		}
		at, all = append(at, strings.TrimPrefix(kv.Key, prefix)), append(all, e)
		return nil
	})
	if err == nil {
		err = c.reveal(ctx, all)
	}
	if err != nil {
		return nil, err
	}
	events := make(map[string]*Event, len(all))
	for i, place := range at {
		events[place] = &all[i]
	}
	return events, nil
}

// headsAt returns the heads of the streams with the places, by the streams' escaped names. The head
// of a stream that does not exist is zero.
func (c *Category) headsAt(ctx context.Context, places []string) (map[string]head, error) {
	heads := make(map[string]head)
	var keys []string
	prefix := headPrefix + c.topic.ID.String() + "/"
	for _, place := range places {
		escaped, _, _ := strings.Cut(place, "/")
		if _, known := heads[escaped]; !known {
			heads[escaped] = head{}
			keys = append(keys, prefix+escaped)
		}
	}
	return heads, c.owner.log.GetAll(ctx, keys, func(kv eventlog.KeyValue) (err error) {
		heads[strings.TrimPrefix(kv.Key, prefix)], err = headIn(kv)
		return err
	})
}

// merge brings the events of several tags into one order, in which the events of each tag keep
// their order. Places without an event are left out.
func merge(lists [][]string, byPlace map[string]*Event) (events []Event) {
	in := make(map[string]int) // how many lists have a place that is not taken yet
	for _, list := range lists {
		for _, place := range list {
			in[place]++
		}
	}
	for {
		best, at := "", -1
		for i, list := range lists {
			if len(list) == 0 || !isNext(list[0], lists, in[list[0]]) {
				continue
			}
			if at < 0 || older(byPlace[list[0]], byPlace[best]) {
				best, at = list[0], i
			}
		}
		if at < 0 {
			return events
		}
		for i, list := range lists {
			if len(list) > 0 && list[0] == best {
				lists[i] = list[1:]
			}
		}
		if e := byPlace[best]; e != nil {
			events = append(events, *e)
		}
	}
}

// isNext reports whether a place is the first one of all lists that have it.
func isNext(place string, lists [][]string, in int) bool {
	first := 0
	for _, list := range lists {
		if len(list) > 0 && list[0] == place {
			first++
		}
	}
	return first == in
}

func older(a, b *Event) bool { return a == nil || b != nil && a.Time.Before(b.Time) }
