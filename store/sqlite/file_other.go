//go:build !unix

package sqlite

import "os"

// inode is 0: an open file cannot be replaced here.
func inode(os.FileInfo) uint64 { return 0 }

// links is 0: it is unknown here.
func links(os.FileInfo) uint64 { return 0 }
