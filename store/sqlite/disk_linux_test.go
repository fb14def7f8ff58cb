package sqlite

import "testing"

// The numbers are those of statfs(2); a Linux without such file systems has nothing to mount them
// from.
func TestKindsOfFileSystemsAreKnown(t *testing.T) {
	for kind, want := range map[int64]disk{
		0x6969: {system: "nfs", network: true}, 0xff534d42: {system: "cifs", network: true}, 0xfe534d42: {system: "smb2", network: true},
		0x65735546: {system: "fuse", network: true}, 0x01021997: {system: "9p", network: true}, 0x00c36400: {system: "ceph", network: true},
		0x01021994: {system: "tmpfs", memory: true}, 0x858458f6: {system: "ramfs", memory: true},
		0xef53: {system: "ext4"}, 0x58465342: {system: "xfs"}, 0x1234: {system: "type 0x1234"},
	} {
		if got := (disk{}).of(kind); got != want {
			t.Errorf("kind %#x is %+v, want %+v", kind, got, want)
		}
	}
}
