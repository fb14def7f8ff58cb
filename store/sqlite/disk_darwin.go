package sqlite

import "syscall"

func statDisk(dir string) (disk, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return disk{}, err
	}
	var name []byte
	for _, c := range stat.Fstypename {
		if c == 0 {
			break
		}
		name = append(name, byte(c))
	}
	const local = 0x1000 // MNT_LOCAL in mount.h
	return disk{
		free: int64(stat.Bavail) * int64(stat.Bsize), total: int64(stat.Blocks) * int64(stat.Bsize),
		system: string(name), network: stat.Flags&local == 0,
	}, nil
}
