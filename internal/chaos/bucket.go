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
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/s3test"
)

// verifyEvery is how often processes look whether the bucket was rewound. What they commit between
// a restore and that look may be lost.
const verifyEvery = time.Second

// bucket is a bucket on a server of the run's own, which speaks S3's protocol.
type bucket struct {
	server *s3test.Server
	url    string
}

func launchBucket(dir string) (*bucket, error) {
	server, err := s3test.Launch(dir)
	if err != nil {
		return nil, err
	}
	b := &bucket{server: server}
	if b.url, err = bucketOn(server); err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return b, nil
}

// bucketOn makes a bucket, and returns the URL by which weir knows it.
func bucketOn(server *s3test.Server) (string, error) {
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

func (b *bucket) address() string { return b.url }
func (b *bucket) close() error    { return b.server.Close() }

// settings: an S3 server has none that weir could ask for.
func (b *bucket) settings() map[string]string { return nil }

func (b *bucket) crash() error {
	b.server.Kill()
	return nil
}

func (b *bucket) recover(context.Context) error { return b.server.Recover() }

// makeNewer changes the name of the format, with which each object begins, in one object.
func (b *bucket) makeNewer(context.Context) (known, newer string, back func() error, err error) {
	const this, later = "weirS3F1", "weirS3F9"
	path := filepath.Join(b.server.Directory(b.url), "log", "format")
	object, err := os.ReadFile(path)
	if err != nil {
		return "", "", nil, err
	}
	if !bytes.HasPrefix(object, []byte(this)) {
		return "", "", nil, fmt.Errorf("the object format begins with %q, want %q", object[:min(len(object), 8)], this)
	}
	return "versions up to 1", "version 9", func() error { return os.WriteFile(path, object, 0o644) }, os.WriteFile(path, append([]byte(later), object[len(later):]...), 0o644)
}

// changeByte changes the last byte of the value in each object that has it.
func (b *bucket) changeByte(_ context.Context, _ eventlog.Partition, _ int64, value string) error {
	changed, dir := false, b.server.Directory(b.url)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		object, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if at := bytes.Index(object, []byte(value)); at >= 0 {
			object[at+len(value)-1] ^= 64
			changed = true
			return os.WriteFile(path, object, 0o644)
		}
		return nil
	})
	if err == nil && !changed {
		err = errors.New("no object in " + dir + " has the value " + value)
	}
	return err
}

func (b *bucket) backup(ctx context.Context) (restore func() error, err error) {
	putBack, err := b.server.Backup()
	return func() error {
		err := putBack()
		pause(ctx, 5*verifyEvery) // docs/s3.md: what is committed before processes have looked may be lost
		return err
	}, err
}
