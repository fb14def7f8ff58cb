//go:build !linux && !darwin

package sqlite

import "errors"

func statDisk(string) (disk, error) {
	return disk{}, errors.New("weir cannot read it on this operating system")
}
