package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weir-log/weir/internal/s3test"
)

// verifyEvery is how often processes look whether the bucket was rewound. What they commit between a restore and that may be lost.
const verifyEvery = time.Second

// bucketFor makes a bucket, and returns the URL that weir knows it by.
func bucketFor(server *s3test.Server) (string, error) {
	address, err := server.Bucket()
	if err != nil {
		return "", err
	}
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	options := u.Query()
	options.Set("verify", verifyEvery.String())
	u.RawQuery = options.Encode()
	return u.String(), nil
}

// judgeNewerObjects is judgeNewerTables for a bucket: each object begins with the name of its format.
func (w *world) judgeNewerObjects(ctx context.Context) error {
	const known, newer = "weirS3F1", "weirS3F9"
	path := filepath.Join(w.bucket.Directory(w.url), "log", "format")
	object, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(object, []byte(known)) {
		return fmt.Errorf("the object format begins with %q, want %q", object[:min(len(object), 8)], known)
	}
	if err := os.WriteFile(path, append([]byte(newer), object[len(newer):]...), 0o644); err != nil {
		return err
	}
	out, exit := w.program(ctx, "serve", "--store", w.url, "--kafka", "off", "--http", "127.0.0.1:0")
	if exit <= 0 || !strings.Contains(out, newer) || !strings.Contains(out, known) {
		w.model.broken("D4", nil, "the object format is %s, this weir knows %s, and weir serve exits with %d and says %s", newer, known, exit, out)
	}
	return os.WriteFile(path, object, 0o644)
}

// changeObject changes the last byte of a value in each object that has it.
func changeObject(dir string, value []byte) error {
	changed := false
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		object, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if at := bytes.Index(object, value); at >= 0 {
			object[at+len(value)-1] ^= 64
			changed = true
			return os.WriteFile(path, object, 0o644)
		}
		return nil
	})
	if err == nil && !changed {
		err = errors.New("no object in " + dir + " has the value " + string(value))
	}
	return err
}
