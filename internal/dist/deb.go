package main

import (
	"bytes"
	"fmt"
	"strings"
)

// The scripts that dpkg runs. They do not start the service, because an operator sets it up first.
const (
	afterInstall = `#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
`
	beforeRemove = `#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl stop weir.service || true; fi
`
)

// debian makes a package as deb(5) has it: an ar archive of debian-binary, control.tar.gz and
// data.tar.gz.
func debian(version, arch string, binary []byte, extras extras) ([]byte, error) {
	files, err := extras.inPackage()
	if err != nil {
		return nil, err
	}
	data, err := archive(append(files, []file{
		{"./etc/default/weir", 0o644, settings},
		{"./usr/bin/weir", 0o755, binary},
		{"./usr/lib/systemd/system/weir.service", 0o644, service},
	}...))
	if err != nil {
		return nil, err
	}
	control, err := archive([]file{
		{"./control", 0o644, fmt.Appendf(nil, `Package: weir
Version: %s
Architecture: %s
Maintainer: The weir authors <weir@localhost>
Section: database
Priority: optional
Installed-Size: %d
Description: event log over SQLite, PostgreSQL, MariaDB, MySQL and S3
 One durable event log in the storage that you already run, for clients of
 Kafka, HTTP and SQL.
`, version, arch, len(binary)>>10)},
		{"./conffiles", 0o644, []byte("/etc/default/weir\n")},
		{"./postinst", 0o755, []byte(afterInstall)},
		{"./prerm", 0o755, []byte(beforeRemove)},
	})
	if err != nil {
		return nil, err
	}
	packed := bytes.NewBufferString("!<arch>\n")
	for _, member := range []file{
		{"debian-binary", 0o644, []byte("2.0\n")}, {"control.tar.gz", 0o644, control}, {"data.tar.gz", 0o644, data},
	} {
		fmt.Fprintf(packed, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", member.name, 0, 0, 0, fmt.Sprintf("%o", 0o100000|member.mode), len(member.content))
		packed.Write(member.content)
		if len(member.content)%2 == 1 {
			packed.WriteByte('\n')
		}
	}
	return packed.Bytes(), nil
}

// debianVersion is a version as dpkg takes it: it begins with a digit, and a hyphen would begin a
// revision.
func debianVersion(version string) string {
	version = strings.ReplaceAll(strings.TrimPrefix(version, "v"), "-", "+")
	if version == "" || version[0] < '0' || version[0] > '9' {
		version = "0~" + version
	}
	return version
}
