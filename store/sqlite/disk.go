package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
)

// spaceMin is how many bytes of a disk must stay free of records. On a completely full disk nothing
// could be trimmed: deleting, too, writes to the WAL first. On a small disk 1/spacePart of the disk
// must stay free instead.
const (
	spaceMin  = 256 << 20
	spacePart = 20
	// walPart: on a small disk the WAL grows to 1/walPart of the disk before it is checkpointed.
	walPart = 16
)

// disk is the disk and file system of a directory.
type disk struct {
	free, total     int64 // bytes that weir may use, and bytes in all
	system          string
	network, memory bool
}

// spare is how many bytes of the disk must stay free of records.
func (d disk) spare() int64 { return min(spaceMin, d.total/spacePart) }

// spaceRefusal returns why there is no space for records. Free pages in the file count as space,
// although the disk does not report them. If the free space of the disk is unknown, records are
// accepted.
func (s *Store) spaceRefusal(w *conn) (refusal, err error) {
	disk, failed := s.disk(filepath.Dir(s.path()))
	if failed != nil || disk.free >= s.needs(disk) {
		return nil, nil
	}
	within, err := s.within(w)
	if err != nil || within >= disk.spare() {
		return nil, err
	}
	return fmt.Errorf("%w (%s are free, but kept for deletions)", s.noSpace(nil), human(disk.free)), nil
}

// spaceRefusalWithWAL is spaceRefusal, but first, if the file could not grow by the whole WAL, it
// restarts the WAL; if that fails, it refuses. The caller holds the writer.
func (s *Store) spaceRefusalWithWAL(w *conn) (refusal, err error) {
	disk, failed := s.disk(filepath.Dir(s.path()))
	if failed == nil && disk.free < s.needs(disk)+s.keeper.length.Load() && s.keeper.length.Load() > 0 && !s.restartWAL() {
		refusal := fmt.Errorf("%w (%s are free, but the WAL of %s cannot be copied into the file yet)", s.noSpace(nil), human(disk.free), human(s.keeper.length.Load()))
		s.remember(refusal)
		return refusal, nil
	}
	return s.spaceRefusal(w)
}

// within returns how many bytes are free in the file. If the file must still grow for the WAL, it
// checkpoints first: until then nothing is free.
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
		info, err := os.Stat(s.path())
		if err != nil {
			return 0, err
		}
		if info.Size() >= all*s.keeper.page {
			return pages * s.keeper.page, nil
		}
		if _, _, err := c.wal("PASSIVE"); err != nil {
			break // the disk is too full, or the keeper is checkpointing
		}
	}
	return 0, nil
}

// walStep is the length of the WAL, in bytes, at which it is checkpointed on this disk: on a small
// disk a longer WAL would take the space that the file needs for the same pages.
func (d disk) walStep() int64 { return min(walStep, max(1<<20, d.total/walPart)) }
