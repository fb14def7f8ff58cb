package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// shared is where made builds.
var shared string

func TestMain(m *testing.M) {
	trim, licenceFile = false, "../../LICENSE"
	var err error
	if shared, err = os.MkdirTemp("", "weir-dist-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(shared)
	os.Exit(code)
}

var buildOnce = sync.OnceValue(func() error { return build("v1.2.3", shared, runtime.GOOS+"/"+runtime.GOARCH) })

// made builds what this machine can run, once for all tests.
func made(t *testing.T) (dir string) {
	t.Helper()
	if err := buildOnce(); err != nil {
		t.Fatal(err)
	}
	return shared
}

func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

func TestChecksumsAreThoseOfTheFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checksums(dir, []string{"a"}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if want := fmt.Sprintf("%x  a\n", sha256.Sum256([]byte("content"))); err != nil || string(got) != want {
		t.Errorf("SHA256SUMS is %q (%v), want %q", got, err, want)
	}
}

func TestDebianVersionsBeginWithADigit(t *testing.T) {
	for version, want := range map[string]string{"v1.2.3": "1.2.3", "v1.2.3-4-gabc-dirty": "1.2.3+4+gabc+dirty", "ac1ad46": "0~ac1ad46", "": "0~"} {
		if got := debianVersion(version); got != want {
			t.Errorf("%q became %q, want %q", version, got, want)
		}
	}
}

// The package is installed into an empty root, and its binary runs there with nothing beside it:
// that is also what the container image holds.
func TestTheDebianPackageInstallsAndRunsInAnEmptyRoot(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("Debian packages are for Linux")
	}
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("there is no dpkg-deb here")
	}
	dir := made(t)
	deb := filepath.Join(dir, "weir_1.2.3_"+runtime.GOARCH+".deb")
	if told := run(t, exec.Command("dpkg-deb", "--info", deb)); !strings.Contains(told, "Package: weir") || !strings.Contains(told, "Version: 1.2.3") {
		t.Errorf("dpkg-deb --info: %s", told)
	}
	root := t.TempDir()
	run(t, exec.Command("dpkg-deb", "--extract", deb, root))
	binary := filepath.Join(root, "usr/bin/weir")
	if got := run(t, exec.Command(binary, "--version")); got != "v1.2.3\n" {
		t.Errorf("weir --version says %q", got)
	}
	if os.Geteuid() == 0 {
		chrooted := func(args ...string) string {
			cmd := exec.Command("/usr/bin/weir", args...)
			cmd.Dir, cmd.Env = "/", []string{"WEIR_STORE=sqlite:/data/weir.db"}
			cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
			return run(t, cmd)
		}
		if err := os.Chmod(root, 0o755); err != nil {
			t.Fatal(err)
		}
		data := filepath.Join(root, "data")
		if err := os.Mkdir(data, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(data, 65532, 65532); err != nil {
			t.Fatal(err)
		}
		if got := chrooted("version"); !strings.Contains(got, "weir v1.2.3") {
			t.Errorf("in a root of its own: %q", got)
		}
		if _, err := os.Stat(filepath.Join(data, "weir.db")); err == nil {
			t.Error("the store is there before anybody asked for it")
		}
		chrooted("key", "create", "k", "--access", "read", "--all-topics", "--all-groups")
		if _, err := os.Stat(filepath.Join(data, "weir.db")); err != nil {
			t.Errorf("no store was made in a root of its own: %v", err)
		}
	}
	unitIsSound(t, root)
	if zip, err := os.ReadFile(filepath.Join(root, "usr/share/man/man1/weir.1.gz")); err != nil || len(zip) == 0 {
		t.Errorf("the manual page has %d bytes: %v", len(zip), err)
	}
	for _, name := range []string{"bash-completion/completions/weir", "zsh/vendor-completions/_weir", "fish/vendor_completions.d/weir.fish", "doc/weir/copyright"} {
		if text, err := os.ReadFile(filepath.Join(root, "usr/share", name)); err != nil || !strings.Contains(string(text), "weir") {
			t.Errorf("%s has %q: %v", name, text, err)
		}
	}
}

func TestTheArchiveHasWhatBelongsToTheBinary(t *testing.T) {
	dir := made(t)
	run(t, exec.Command("tar", "-xzf", filepath.Join(dir, fmt.Sprintf("weir_v1.2.3_%s_%s.tar.gz", runtime.GOOS, runtime.GOARCH)), "-C", dir))
	for name, text := range map[string]string{"LICENSE": "Apache License", "weir.1": ".SS weir queue send", "completion/weir.bash": "complete -o default", "completion/_weir": "#compdef weir", "completion/weir.fish": "complete -c weir"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(got), text) {
			t.Errorf("%s has no %q: %v", name, text, err)
		}
	}
	if got := run(t, exec.Command(filepath.Join(dir, "weir"), "--version")); got != "v1.2.3\n" {
		t.Errorf("weir --version says %q", got)
	}
}

func unitIsSound(t *testing.T, root string) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("there is no systemd-analyze here: the unit was not checked")
		return
	}
	unit := filepath.Join(root, "usr/lib/systemd/system/weir.service")
	for _, name := range []string{"sysinit", "basic", "shutdown", "multi-user", "network-online"} { // of systemd's own
		if err := os.WriteFile(filepath.Join(filepath.Dir(unit), name+".target"), []byte("[Unit]\nDescription="+name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(analyze, "--root="+root, "--man=no", "--generators=no", "verify", unit).CombinedOutput()
	for line := range strings.SplitSeq(string(out), "\n") {
		if strings.Contains(line, "weir.service") {
			t.Errorf("systemd-analyze verify: %s (%v)", line, err)
		}
	}
	// 10 is wide open, 0 is shut.
	if out, err := exec.Command(analyze, "security", "--offline=true", "--threshold=20", unit).CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
}

func TestTheArchiveOfTheBenchmarkRuns(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("weir-bench is for Linux: it measures with /proc")
	}
	dir := made(t)
	run(t, exec.Command("tar", "-xzf", filepath.Join(dir, "weir-bench_v1.2.3_linux_"+runtime.GOARCH+".tar.gz"), "-C", dir))
	if got := run(t, exec.Command(filepath.Join(dir, "weir-bench"), "--version")); got != "v1.2.3\n" {
		t.Errorf("weir-bench --version says %q", got)
	}
	if got := run(t, exec.Command(filepath.Join(dir, "weir-bench"), "workloads")); !strings.Contains(got, "p-queue") {
		t.Errorf("weir-bench workloads says %q", got)
	}
}
