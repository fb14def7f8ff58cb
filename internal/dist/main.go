// Command dist builds what people install: archives and Debian packages of a static binary, and
// their checksums. It needs Go and nothing else.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed" // for the files of the package
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

//go:embed weir.service
var service []byte

//go:embed weir.default
var settings []byte

// targets are the systems that weir is built for.
var targets = []target{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

type target struct{ os, arch string }

func main() {
	version := flag.String("version", "unknown", "the version of the build")
	out := flag.String("o", "dist", "the directory to write to")
	only := flag.String("only", "", "build only for this system, such as linux/amd64")
	flag.Parse()
	if err := build(*version, *out, *only); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// build makes everything, and the list of checksums last.
func build(version, out, only string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	extras, err := beside(version)
	if err != nil {
		return err
	}
	var made []string
	for _, t := range targets {
		if only != "" && only != t.os+"/"+t.arch {
			continue
		}
		binary, err := t.compile(version, "weir", "")
		if err != nil {
			return err
		}
		name := fmt.Sprintf("weir_%s_%s_%s.tar.gz", version, t.os, t.arch)
		packed, err := archive(append([]file{{"weir", 0o755, binary}}, extras.inArchive()...))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, name), packed, 0o644); err != nil {
			return err
		}
		made = append(made, name)
		if t.os != "linux" {
			continue
		}
		bench, err := t.compile(version, "weir-bench", "bench")
		if err != nil {
			return err
		}
		name = fmt.Sprintf("weir-bench_%s_%s_%s.tar.gz", version, t.os, t.arch)
		if packed, err = archive([]file{{"weir-bench", 0o755, bench}}); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, name), packed, 0o644); err != nil {
			return err
		}
		made = append(made, name)
		name = fmt.Sprintf("weir_%s_%s.deb", debianVersion(version), t.arch)
		if packed, err = debian(debianVersion(version), t.arch, binary, extras); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, name), packed, 0o644); err != nil {
			return err
		}
		made = append(made, name)
	}
	if len(made) == 0 {
		return fmt.Errorf("%q is not one of the systems %v", only, targets)
	}
	return checksums(out, made)
}

// trim keeps paths of the building machine out of the binary. Tests turn it off, because with it
// every package is compiled again.
var trim = true

// compile returns the binary of a program for a target. The benchmark is a module of its own, in a
// directory of the repository.
func (t target) compile(version, program, module string) (binary []byte, err error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/weir-log/weir").Output()
	if err != nil {
		return nil, fmt.Errorf("find the repository: %w", err)
	}
	dir, err := os.MkdirTemp("", "weir-dist-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, program)
	cmd := exec.Command("go", "build", fmt.Sprintf("-trimpath=%t", trim), "-ldflags", "-s -w -X main.version="+version, "-o", path, "./cmd/"+program)
	cmd.Dir = filepath.Join(strings.TrimSpace(string(root)), module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.os, "GOARCH="+t.arch)
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s for %s/%s: %w\n%s", program, t.os, t.arch, err, said)
	}
	return os.ReadFile(path)
}

// checksums writes SHA256SUMS, for sha256sum -c.
func checksums(out string, names []string) error {
	var list strings.Builder
	slices.Sort(names)
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256(content), name)
	}
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(list.String()), 0o644)
}

// file is one file of an archive.
type file struct {
	name    string
	mode    int64
	content []byte
}

// archive packs files and the directories above them. The same content gives the same bytes.
func archive(files []file) ([]byte, error) {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	out := tar.NewWriter(zip)
	made := map[string]bool{}
	for _, f := range files {
		for i, c := range f.name {
			if dir := f.name[:i+1]; c == '/' && !made[dir] && dir != "./" {
				made[dir] = true
				if err := out.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755, ModTime: time.Unix(0, 0), Uname: "root", Gname: "root"}); err != nil {
					return nil, err
				}
			}
		}
		if err := out.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: time.Unix(0, 0), Uname: "root", Gname: "root"}); err != nil {
			return nil, err
		}
		if _, err := out.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := errors.Join(out.Close(), zip.Close())
	return packed.Bytes(), err
}
