package sqlite

import (
	"errors"
	"os"
	"syscall"
)

// allocate gives a file that many bytes of the disk. Some file systems cannot:
// errors.ErrUnsupported.
func allocate(file *os.File, bytes int64) error {
	for {
		err := syscall.Fallocate(int(file.Fd()), 0, 0, bytes)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
