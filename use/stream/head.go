package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/weir-log/weir/eventlog"
)

// head is where a stream ends and begins: the value of its key, in JSON.
type head struct {
	Partition eventlog.Partition `json:"partition"`
	Next      int64              `json:"next"`            // the version of the next event
	First     int64              `json:"first,omitempty"` // the version of the first event that can be read
	Born      int64              `json:"born,omitempty"`  // what First became when the stream was deleted last
	Deleted   bool               `json:"deleted,omitempty"`
	Archived  bool               `json:"archived,omitempty"`
	Retention *Retention         `json:"retention,omitempty"` // applies to this stream alone; nil: that of its category applies
	Bytes     int64              `json:"bytes,omitempty"`     // the size of all events that the stream has had, to guess how many to read in one call
	Largest   int64              `json:"largest,omitempty"`   // bytes of the largest event
	Memory    int64              `json:"memory,omitempty"`    // the most memory that one decoded event takes

	version eventlog.Version // the version of the head's key; 0: there is no such stream
}

// exists reports whether the stream has been begun, and is not deleted.
func (h head) exists() bool { return h.version > 0 && !h.Deleted }

func (h head) state() State {
	return State{Version: h.Next, First: h.First, Exists: h.exists(), Archived: h.Archived, Retention: h.Retention}
}

func (h head) encode() []byte {
	raw, err := json.Marshal(h)
	if err != nil {
		panic(err) // it holds numbers and a bool
	}
	return raw
}

// readHead reads a stream's head from the store; its version is 0 if there is none. It refuses
// names that cannot be stream names, and a category that was deleted (ErrUnknownCategory).
func (c *Category) readHead(ctx context.Context, stream string) (head, error) {
	key, err := c.headKey(stream)
	if err != nil {
		return head{}, err
	}
	kv, err := c.owner.log.Get(ctx, key)
	if err != nil {
		return head{}, err
	}
	return headIn(kv)
}

// headKey returns the key of a stream's head. It refuses what readHead refuses.
func (c *Category) headKey(stream string) (string, error) {
	if err := checkName(stream); err != nil {
		return "", err
	}
	if _, err := c.knownTopic(); err != nil {
		return "", err
	}
	return c.key(headPrefix, stream), nil
}

func headIn(kv eventlog.KeyValue) (h head, err error) {
	if kv.Version == 0 {
		return head{}, nil
	}
	if err := json.Unmarshal(kv.Value, &h); err != nil {
		return head{}, fmt.Errorf("key %s does not hold a head: %w", kv.Key, err)
	}
	h.version = kv.Version
	return h, nil
}

// State is what is known of a stream without its events.
type State struct {
	Version int64 // how many events it has had; the version of the next one
	First   int64 // the version of the first event that can be read
	Exists  bool  // it was begun, and is not deleted
	// Archived: it is read as before, and cannot be appended to.
	Archived bool
	// Retention is of this stream alone (SetStreamRetention); nil: that of its category.
	Retention *Retention
}

// State reads where a stream ends and begins: one store call. A stream that never was is at version
// 0.
func (c *Category) State(ctx context.Context, stream string) (State, error) {
	h, err := c.readHead(ctx, stream)
	if err != nil {
		return State{}, fmt.Errorf("state of stream %q of category %q: %w", shorten(stream), c.Name(), err)
	}
	return h.state(), nil
}

// Place returns in which of the category's partitions a stream's events are, counted from 0. It
// returns false for a stream that never was. A partition that another process has just added is
// known here afterwards.
func (c *Category) Place(ctx context.Context, stream string) (partition int32, is bool, err error) {
	h, err := c.readHead(ctx, stream)
	if err == nil && h.version > 0 {
		partition, err = c.numberOf(ctx, h.Partition)
	}
	if err != nil {
		return 0, false, fmt.Errorf("partition of stream %q of category %q: %w", shorten(stream), c.Name(), err)
	}
	return partition, h.version > 0, nil
}

// numberOf returns the number of a partition in the category. It reads the topics again if this
// process does not know the partition.
func (c *Category) numberOf(ctx context.Context, id eventlog.Partition) (int32, error) {
	for refreshed := false; ; refreshed = true {
		topic, err := c.knownTopic()
		if err != nil {
			return 0, err
		}
		if n := slices.Index(topic.Partitions, id); n >= 0 {
			return int32(n), nil
		}
		if refreshed {
			return 0, fmt.Errorf("its partition in the log, %d, is not one of the category's %d partitions; restore a backup", id, len(topic.Partitions))
		}
		if err := c.owner.log.RefreshTopics(ctx); err != nil {
			return 0, err
		}
	}
}

// Named is a stream's name and state.
type Named struct {
	Stream string
	State
}

// List lists at most limit streams whose names begin with prefix and come after the name that is
// given as after ("": from the first one on), in the byte order of their escaped names
// (url.PathEscape): one store call. Deleted streams are listed, too: their versions go on.
func (c *Category) List(ctx context.Context, prefix, after string, limit int) ([]Named, error) {
	if limit < 1 || limit > eventsMax {
		return nil, &eventlog.InvalidError{What: "number of streams", Value: fmt.Sprint(limit), Why: fmt.Sprintf("one call lists 1 to %d", eventsMax)}
	}
	begin := ""
	if after != "" {
		begin = c.key(headPrefix, after)
	}
	list, err := c.owner.log.List(ctx, c.key(headPrefix, prefix), begin, limit)
	if err != nil {
		return nil, fmt.Errorf("list streams of category %q: %w", c.Name(), err)
	}
	var streams []Named
	for _, kv := range list {
		h, err := headIn(kv)
		if err != nil {
			return nil, err
		}
		name, err := url.PathUnescape(kv.Key[strings.LastIndexByte(kv.Key, '/')+1:])
		if err != nil {
			return nil, fmt.Errorf("key %s does not end in a name: %w", kv.Key, err)
		}
		streams = append(streams, Named{name, h.state()})
	}
	return streams, nil
}
