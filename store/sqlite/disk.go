package sqlite

import (
	"fmt"
	"path/filepath"

	"github.com/weir-log/weir/eventlog"
)

// spaceMin is how much room, in bytes, is kept from producers. On a disk that is full to the end nothing can be trimmed:
// deletion, too, goes through the WAL first. On a small disk it is one part in spacePart.
const (
	spaceMin  = 256 << 20
	spacePart = 20
)

// disk is what holds a directory.
type disk struct {
	free, total     int64 // bytes that weir may use, and all
	system          string
	network, memory bool
}

// spare is how much is kept from producers.
func (d disk) spare() int64 { return min(spaceMin, d.total/spacePart) }

// room tells why there is none for records. What was deleted within the file is room, though the disk does not see it. Where
// nobody can say how full a disk is there is room.
func (s *Store) room(w *conn) (refusal, err error) {
	disk, failed := s.disk(filepath.Dir(s.path))
	if failed != nil || disk.free >= disk.spare() {
		return nil, nil
	}
	pages, err := w.integer("PRAGMA freelist_count")
	if err != nil || pages*s.keeper.page >= disk.spare() {
		return nil, err
	}
	return fmt.Errorf("%w: the disk of %s has %s left, which deletion may need: free some, or shorten the topics' retention",
		eventlog.ErrUnavailable, s.path, human(disk.free)), nil
}
