//go:build unix

package sqlite

import (
	"os"
	"syscall"
)

// inode is a file's number in its file system, 0 if it has none.
func inode(info os.FileInfo) uint64 {
	if stat, is := info.Sys().(*syscall.Stat_t); is {
		return uint64(stat.Ino)
	}
	return 0
}

// links is how many names a file has, 0 if that is unknown.
func links(info os.FileInfo) uint64 {
	if stat, is := info.Sys().(*syscall.Stat_t); is {
		return uint64(stat.Nlink)
	}
	return 0
}
