//go:build !linux

// Package smalldisk gives tests a file system of a few MiB that they may fill.
package smalldisk

import "testing"

// Run skips the test: it can mount only on Linux.
func Run(t *testing.T, _ int64, _ func(t *testing.T, dir string)) {
	t.Skip("small file systems are mounted on Linux alone")
}

// Fill is never called, because Run skips.
func Fill(t *testing.T, _ string) (free func()) { return func() {} }
