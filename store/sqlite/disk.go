package sqlite

import (
	"fmt"
	"path/filepath"

	"github.com/weir-log/weir/eventlog"
)

// spaceMin is how much disk, in bytes, is kept from producers. On a disk that is full to the end nothing can be trimmed:
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

// full tells whether so little is free that producers are refused.
func (d disk) full() bool { return d.free < min(spaceMin, d.total/spacePart) }

// roomForRecords refuses records while the disk is all but full. Where nobody can say how full it is there is room.
func (s *Store) roomForRecords() error {
	disk, err := s.disk(filepath.Dir(s.path))
	if err != nil || !disk.full() {
		return nil
	}
	return fmt.Errorf("%w: the disk of %s has %s left, which deletion may need: free some, or shorten the topics' retention",
		eventlog.ErrUnavailable, s.path, human(disk.free))
}
