package sqlite

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Where another program fills the disk to its last byte, nothing could be deleted any more: deletion, too, goes through the WAL first. So a file
// beside the log holds some space, and is made shorter when the disk is full.
const (
	// reserveMax is how much it holds, in bytes: as much as the WAL may have to put into the file before it can begin anew.
	reserveMax = walStep
	// reserveMin is how much it holds on the smallest disk.
	reserveMin = 1 << 20
	// reserveForStart is kept until a store is opened on a full disk: SQLite's shared memory and the WAL need a file each.
	reserveForStart = 256 << 10
)

// reserve is how large the reserve on such a disk is.
func (d disk) reserve() int64 { return max(reserveMin, min(reserveMax, d.total/spacePart)) }

func (s *Store) reservePath() string { return s.path + "-reserve" }

// reserved is how much is held. Another process may have made use of it.
func (s *Store) reserved() int64 {
	info, err := os.Stat(s.reservePath())
	if err != nil {
		return 0
	}
	return info.Size()
}

// needs is how much must be free for records to be taken, in bytes.
func (s *Store) needs(d disk) int64 { return d.spare() + max(0, d.reserve()-s.reserved()) }

// release gives the reserve up, all but the last bytes of it, and reports whether that gave anything.
func (s *Store) release(keep int64) bool {
	if s.reserved() <= keep || os.Truncate(s.reservePath(), keep) != nil {
		return false
	}
	s.log.Warn("the disk is full; using the space reserved for deletion", "path", s.reservePath())
	return true
}

// refill makes the reserve whole again where there is space.
func (s *Store) refill() error {
	disk, err := s.disk(filepath.Dir(s.path))
	if err != nil || s.reserved() >= disk.reserve() || disk.free < s.needs(disk) {
		return nil // where nobody can say how much is free, a reserve could fill the disk itself
	}
	file, err := os.OpenFile(s.reservePath(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("reserve space for deletion: %w", err)
	}
	err = allocate(file, disk.reserve())
	if errors.Is(err, errors.ErrUnsupported) {
		// Noise, which no file system makes smaller.
		_, err = io.CopyN(file, rand.Reader, disk.reserve())
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("reserve %s for deletion in %s: %w", human(disk.reserve()), s.reservePath(), err)
	}
	return nil
}

// relieve looks for space for a change that must be possible on a full disk: a WAL that is moved into the file begins anew, and the reserve
// is the last resort. It reports whether another try may go better. The caller holds the writer, without a transaction.
func (s *Store) relieve() bool {
	gained := s.release(reserveForStart)
	return s.rewind() || gained
}

// rewind moves the WAL into the file, so that the next commit begins it anew and needs no space beyond it. The caller holds the writer.
func (s *Store) rewind() bool { return s.keeper.restart() == nil && s.keeper.length.Load() == 0 }

// full tells whether the disk has no space for even the smallest file of SQLite's, its shared memory of 32 KiB.
func (s *Store) full() bool {
	disk, err := s.disk(filepath.Dir(s.path))
	return err == nil && disk.free < 32<<10
}
