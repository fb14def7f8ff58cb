package stream

import (
	"context"
	"fmt"
	"math"

	"github.com/weir-log/weir/eventlog"
)

// Snapshot is the state of a stream at a version, as an application keeps it: what the events below
// that version add up to.
type Snapshot struct {
	Version int64
	Data    []byte
}

// SaveSnapshot keeps a snapshot. A stream may have snapshots at several versions; a second one at a
// version replaces the first. The stream must exist, and have been at the version
// (*eventlog.InvalidError). A snapshot has at most max.message.bytes of the category
// (eventlog.ErrTooLarge).
func (c *Category) SaveSnapshot(ctx context.Context, stream string, s Snapshot) error {
	if err := c.saveSnapshot(ctx, stream, s); err != nil {
		return fmt.Errorf("save a snapshot of stream %q of category %q: %w", shorten(stream), c.Name(), err)
	}
	return nil
}

func (c *Category) saveSnapshot(ctx context.Context, stream string, s Snapshot) error {
	if err := checkName(stream); err != nil {
		return err
	}
	topic, err := c.knownTopic()
	if err != nil {
		return err
	}
	if most := topic.MaxMessageBytes(); len(s.Data) > most {
		return fmt.Errorf("%w: it has %d bytes, but max.message.bytes of the category is %d", eventlog.ErrTooLarge, len(s.Data), most)
	}
	_, err = c.owner.writer(c, stream).do(ctx, &op{stream: stream, expected: Any, snapshot: &s})
	return err
}

// refusedSnapshot is the error for a version at which a stream cannot have a snapshot.
func refusedSnapshot(version int64, h head) error {
	return &eventlog.InvalidError{What: "snapshot", Value: fmt.Sprintf("at version %d", version), Why: fmt.Sprintf("the stream has the versions [%d, %d): a snapshot must have a version above the first", h.First, h.Next)}
}

// Snapshot loads the newest snapshot whose version is not above the version most; false: there is
// none. Two store calls.
func (c *Category) Snapshot(ctx context.Context, stream string, most int64) (Snapshot, bool, error) {
	s, is, err := c.snapshot(ctx, stream, most)
	if err != nil {
		return Snapshot{}, false, fmt.Errorf("load a snapshot of stream %q of category %q: %w", shorten(stream), c.Name(), err)
	}
	return s, is, nil
}

func (c *Category) snapshot(ctx context.Context, stream string, most int64) (Snapshot, bool, error) {
	h, err := c.readHead(ctx, stream)
	if err != nil || !h.exists() || most < 0 {
		return Snapshot{}, false, err
	}
	return c.snapshotOf(ctx, stream, h, most)
}

// snapshotOf is snapshot for a stream that has a head: one store call.
func (c *Category) snapshotOf(ctx context.Context, stream string, h head, most int64) (Snapshot, bool, error) {
	after := ""
	if most < math.MaxInt64 {
		after = c.snapshotKey(stream, most+1)
	}
	list, err := c.owner.log.List(ctx, c.key(snapshotPrefix, stream)+"/", after, 1)
	if err != nil || len(list) == 0 {
		return Snapshot{}, false, err
	}
	version, err := snapshotVersion(list[0].Key)
	if err != nil || !h.hasState(version) || len(list[0].Value) == 0 {
		return Snapshot{}, false, err
	}
	return Snapshot{Version: version, Data: list[0].Value[1:]}, true, nil
}

// hasState reports whether a snapshot at a version can be used: it is not from before the stream
// was deleted, and the events that follow it are still there.
func (h head) hasState(version int64) bool {
	return version > h.Born && version >= h.First
}

// snapshotKey returns the key of a snapshot. The newest is the first.
func (c *Category) snapshotKey(stream string, version int64) string {
	return c.key(snapshotPrefix, stream) + "/" + digits(math.MaxInt64-version)
}

func snapshotVersion(key string) (int64, error) {
	n, err := versionIn(key)
	return math.MaxInt64 - n, err
}
