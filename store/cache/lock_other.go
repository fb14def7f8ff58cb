//go:build !unix

package cache

import (
	"errors"
	"os"
)

// lock fails: the file locks of package syscall are those of Unix.
func lock(string) (*os.File, error) {
	return nil, errors.New("a cache needs a system with flock, such as Linux or macOS")
}
