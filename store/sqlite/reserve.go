package sqlite

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// If another program fills the disk completely, weir could not delete anything: deleting, too,
// writes to the WAL first. So a file next to the log reserves some space, and is truncated when the
// disk is full.
const (
	// reserveMax is the largest size of the reserve in bytes: what a checkpoint may have to copy
	// into the file before the WAL restarts.
	reserveMax = walStep
	// reserveMin is the size of the reserve on the smallest disk.
	reserveMin = 1 << 20
	// reserveForStart is the part of the reserve that is kept for opening a store on a full disk:
	// SQLite's shared memory and the WAL need a file each.
	reserveForStart = 256 << 10
)

// reserve is the size of the reserve on a disk.
func (d disk) reserve() int64 { return max(reserveMin, min(reserveMax, d.total/spacePart)) }

func (s *Store) reservePath() string { return s.path() + "-reserve" }

// reserved is the present size of the reserve. Another process may have used it.
func (s *Store) reserved() int64 {
	info, err := os.Stat(s.reservePath())
	if err != nil {
		return 0
	}
	return info.Size()
}

// needs is how many bytes must be free for records to be accepted.
func (s *Store) needs(d disk) int64 { return d.spare() + max(0, d.reserve()-s.reserved()) }

// release truncates the reserve to the size keep, in bytes, if it is larger. It reports whether
// that freed space.
func (s *Store) release(keep int64) bool {
	if s.reserved() <= keep || os.Truncate(s.reservePath(), keep) != nil {
		return false
	}
	s.log.Warn("the disk is full; using the space reserved for deletion", "path", s.reservePath())
	return true
}

// refill extends the reserve to its full size if there is space.
func (s *Store) refill() error {
	disk, err := s.disk(filepath.Dir(s.path()))
	if err != nil || s.reserved() >= disk.reserve() || disk.free < s.needs(disk) {
		return nil // if the free space is unknown, the reserve itself could fill the disk
	}
	file, err := os.OpenFile(s.reservePath(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("reserve space for deletion: %w", err)
	}
	err = allocate(file, disk.reserve())
	if errors.Is(err, errors.ErrUnsupported) {
		// Random bytes, which no file system compresses.
		_, err = io.CopyN(file, rand.Reader, disk.reserve())
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("reserve %s for deletion in %s: %w", human(disk.reserve()), s.reservePath(), err)
	}
	return nil
}

// freeSpace makes space for a change that must be possible on a full disk: it restarts the WAL, and
// uses the reserve. It reports whether a retry may succeed. The caller holds the writer, without a
// transaction.
func (s *Store) freeSpace() bool {
	gained := s.release(reserveForStart)
	return s.restartWAL() || gained
}

// restartWAL checkpoints the WAL, so that the next commit writes at its start and needs no more
// space. The caller holds the writer.
func (s *Store) restartWAL() bool { return s.keeper.restart() == nil && s.keeper.length.Load() == 0 }

// full reports whether the disk has no space even for SQLite's smallest file, its shared memory of
// 32 KiB.
func (s *Store) full() bool {
	disk, err := s.disk(filepath.Dir(s.path()))
	return err == nil && disk.free < 32<<10
}
