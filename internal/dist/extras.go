package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// extras are the files that belong to the binary.
type extras struct {
	licence, manual []byte
	bash, zsh, fish []byte // completion scripts
}

// beside makes the extras. A program that is built for this machine prints the manual page and the
// scripts.
func beside(version string) (extras, error) {
	licence, err := os.ReadFile(licenceFile)
	if err != nil {
		return extras{}, err
	}
	binary, err := target{runtime.GOOS, runtime.GOARCH}.compile(version, "weir", "")
	if err != nil {
		return extras{}, err
	}
	dir, err := os.MkdirTemp("", "weir-dist-")
	if err != nil {
		return extras{}, err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "weir")
	if err := os.WriteFile(program, binary, 0o700); err != nil {
		return extras{}, err
	}
	e := extras{licence: licence}
	for _, of := range []struct {
		text *[]byte
		args []string
	}{
		{&e.manual, []string{"manual"}}, {&e.bash, []string{"completion", "bash"}}, {&e.zsh, []string{"completion", "zsh"}}, {&e.fish, []string{"completion", "fish"}},
	} {
		if *of.text, err = exec.Command(program, of.args...).Output(); err != nil {
			return extras{}, fmt.Errorf("weir %v: %w", of.args, err)
		}
	}
	return e, nil
}

// licenceFile is in the directory where this program runs; tests, which run elsewhere, change it.
var licenceFile = "LICENSE"

// inArchive returns the extras for people who unpack an archive anywhere.
func (e extras) inArchive() []file {
	return []file{
		{"LICENSE", 0o644, e.licence},
		{"weir.1", 0o644, e.manual},
		{"completion/weir.bash", 0o644, e.bash},
		{"completion/_weir", 0o644, e.zsh},
		{"completion/weir.fish", 0o644, e.fish},
	}
}

// inPackage returns the extras where Debian's programs look for them: policy 12.1 (manual pages)
// and 12.5 (copyright), and the directories of the packages bash-completion, zsh and fish.
func (e extras) inPackage() ([]file, error) {
	var packed bytes.Buffer
	zip, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := zip.Write(e.manual); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	copyright := fmt.Appendf(nil, `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: weir
Source: https://github.com/weir-log/weir

Files: *
Copyright: The weir authors
License: Apache-2.0
 On Debian systems, the text of the license is in
 /usr/share/common-licenses/Apache-2.0.
`)
	return []file{
		{"./usr/share/man/man1/weir.1.gz", 0o644, packed.Bytes()},
		{"./usr/share/bash-completion/completions/weir", 0o644, e.bash},
		{"./usr/share/zsh/vendor-completions/_weir", 0o644, e.zsh},
		{"./usr/share/fish/vendor_completions.d/weir.fish", 0o644, e.fish},
		{"./usr/share/doc/weir/copyright", 0o644, copyright},
	}, nil
}
