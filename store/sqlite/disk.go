package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
)

// spaceMin is how much room, in bytes, is kept from producers. On a disk that is full to the end nothing can be trimmed:
// deletion, too, goes through the WAL first. On a small disk it is one part in spacePart.
const (
	spaceMin  = 256 << 20
	spacePart = 20
	// walPart is which part of a small disk, one in so many, the WAL grows before it is moved.
	walPart = 16
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
	if failed != nil || disk.free >= s.needs(disk) {
		return nil, nil
	}
	within, err := s.within(w)
	if err != nil || within >= disk.spare() {
		return nil, err
	}
	return fmt.Errorf("%w (%s is free, and kept for deletion)", s.noSpace(nil), human(disk.free)), nil
}

// roomBesideWAL is room, once more is free than the file needs to take the WAL in. The caller holds the writer.
func (s *Store) roomBesideWAL(w *conn) (refusal, err error) {
	disk, failed := s.disk(filepath.Dir(s.path))
	if failed == nil && disk.free < s.needs(disk)+s.keeper.length.Load() && s.keeper.length.Load() > 0 && !s.rewind() {
		refusal := fmt.Errorf("%w (%s is free, and the WAL of %s cannot be moved yet)", s.noSpace(nil), human(disk.free), human(s.keeper.length.Load()))
		s.remember(refusal)
		return refusal, nil
	}
	return s.room(w)
}

// within is how many bytes are free in the file. A WAL that the file still has to grow for is moved first: without that nothing is.
func (s *Store) within(c *conn) (int64, error) {
	pages, err := c.integer("PRAGMA freelist_count")
	if err != nil || pages == 0 {
		return 0, err
	}
	for range 2 {
		all, err := c.integer("PRAGMA page_count")
		if err != nil {
			return 0, err
		}
		info, err := os.Stat(s.path)
		if err != nil {
			return 0, err
		}
		if info.Size() >= all*s.keeper.page {
			return pages * s.keeper.page, nil
		}
		if _, _, err := c.wal("PASSIVE"); err != nil {
			break // the disk is too full for it, or the keeper is at it
		}
	}
	return 0, nil
}

// walStep is how long the WAL grows on such a disk, in bytes, before it is moved: on a small one it would take what it is to be moved to.
func (d disk) walStep() int64 { return min(walStep, max(1<<20, d.total/walPart)) }
