package sqlite

import (
	"fmt"
	"syscall"
)

// The kernel's magic numbers of file systems, from statfs(2).
var (
	networks = map[int64]string{
		0x6969: "nfs", 0x517b: "smb", 0xff534d42: "cifs", 0xfe534d42: "smb2", 0x65735546: "fuse", 0x01021997: "9p",
		0x5346414f: "afs", 0x00c36400: "ceph", 0x0bd00bd0: "lustre", 0x01161970: "gfs2", 0x7461636f: "ocfs2",
	}
	memories = map[int64]string{0x01021994: "tmpfs", 0x858458f6: "ramfs"}
	locals   = map[int64]string{
		0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x2fc12fc1: "zfs", 0x794c7630: "overlay", 0xf2f52010: "f2fs",
	}
)

func statDisk(dir string) (disk, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return disk{}, err
	}
	d := disk{free: int64(stat.Bavail) * int64(stat.Bsize), total: int64(stat.Blocks) * int64(stat.Bsize)}
	return d.of(int64(uint32(stat.Type))), nil
}

// of returns d with the name of a kind of file system, and whether that is on a network or in
// memory.
func (d disk) of(kind int64) disk {
	if d.system, d.network = networks[kind]; d.network {
		return d
	}
	if d.system, d.memory = memories[kind]; d.memory {
		return d
	}
	if d.system = locals[kind]; d.system == "" {
		d.system = fmt.Sprintf("type %#x", kind)
	}
	return d
}
