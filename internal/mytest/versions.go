package mytest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// fetchScript unpacks Debian's unstable MySQL, and every library that it needs, into the directory
// sys of $1. apt gets a state of its own, in which nothing is installed, and the address from which
// it takes Debian's packages here.
const fetchScript = `
set -e
root=$1
mkdir -p "$root/apt/lists/partial" "$root/apt/cache/archives/partial" "$root/apt/parts" "$root/sys"
from=$(apt-get indextargets --format '$(ORIGIN) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
	awk '$1 == "Debian" && $2 == "main" && $3 !~ /security/ { print $3; exit }')
[ -n "$from" ] || { echo "apt has no sources of Debian here" >&2; exit 1; }
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $from sid main" >"$root/apt/sources.list"
: >"$root/apt/status"
set -- -q -y -o Dir::State="$root/apt" -o Dir::State::lists="$root/apt/lists" -o Dir::State::status="$root/apt/status" -o Dir::Cache="$root/apt/cache" \
	-o Dir::Etc::sourcelist="$root/apt/sources.list" -o Dir::Etc::sourceparts="$root/apt/parts" -o Dir::Etc::preferences=/dev/null \
	-o Dir::Etc::preferencesparts="$root/apt/parts" -o APT::Sandbox::User= -o Acquire::Languages=none -o APT::Install-Recommends=false \
	-o APT::Keep-Downloaded-Packages=true -o APT::Update::Post-Invoke= -o DPkg::Post-Invoke=
apt-get "$@" update
apt-get "$@" --download-only install mysql-server-core
for package in "$root"/apt/cache/archives/*.deb; do dpkg-deb -x "$package" "$root/sys"; done
rm -rf "$root/apt"
touch "$root/complete"
`

// fetched returns the command that runs MySQL's server of a version, fetching it the first time. It
// runs beside the system's own libraries, through the loader that came with it. Test processes that
// ask concurrently take turns.
func fetched(version string) (command []string, err error) {
	root := filepath.Join(os.TempDir(), fmt.Sprintf("weir-mytest-mysql-%d", os.Getuid()))
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(root+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(root, "complete")); err != nil {
		fmt.Fprintln(os.Stderr, "mytest: fetching MySQL from Debian's unstable suite")
		fetch := exec.Command("/bin/sh", "-c", fetchScript, "weir-mytest-fetch", root)
		fetch.Stdout, fetch.Stderr = os.Stderr, os.Stderr
		if err := fetch.Run(); err != nil {
			return nil, fmt.Errorf("fetch MySQL: %w; give a server with WEIR_TEST_MYSQL=mysql://…", err)
		}
	}
	sys := filepath.Join(root, "sys")
	loaders, _ := filepath.Glob(filepath.Join(sys, "usr/lib*/ld-linux*.so.*"))
	libraries, _ := filepath.Glob(filepath.Join(sys, "usr/lib/*-linux-gnu"))
	if len(loaders) == 0 || len(libraries) == 0 {
		return nil, fmt.Errorf("the packages of MySQL in %s have no loader: remove the directory", root)
	}
	command = []string{loaders[0], "--library-path", strings.Join(libraries, ":"), filepath.Join(sys, "usr/sbin/mysqld"), "--no-defaults",
		"--basedir=" + filepath.Join(sys, "usr"), "--lc-messages-dir=" + filepath.Join(sys, "usr/share/mysql"), "--mysqlx=OFF", "--secure-file-priv=NULL"}
	said, err := exec.Command(command[0], append(command[1:5:5], "--version")...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("mysqld --version: %w: %s", err, said)
	}
	if !strings.Contains(string(said), "Ver "+version) {
		return nil, fmt.Errorf("WEIR_TEST_MYSQL_VERSION is %q, and Debian's unstable suite has another version: %s", version, strings.TrimSpace(string(said)))
	}
	return command, nil
}
