package cache

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/verify"
)

const deleteFile = "delete the file: what it has is read from the store again"

// Verify checks that the files of a cache have what the store has, as far as a process would use
// them. A process may use the directory meanwhile. Of opts only Dir and Store count, which are
// those of that process. Files of other stores and of earlier incarnations are left out: nobody
// reads them.
func Verify(opts Options) verify.Check {
	return verify.Check{Name: "cache", Run: func(ctx context.Context, x *verify.Exam) error {
		_, mark, err := x.Store().Changes(ctx, eventlog.Mark{})
		if err != nil {
			return err
		}
		mine := (&Store{opts: opts}).identify(mark.Incarnation)
		files, err := os.ReadDir(opts.Dir)
		if err != nil {
			return err
		}
		for _, f := range files {
			b, is := parseName(f.Name())
			if !is || b.identity != mine {
				continue
			}
			path := filepath.Join(opts.Dir, f.Name())
			if err := x.Judge(ctx, func(v *verify.View) error { return b.compare(ctx, x, v, path) }); err != nil {
				return err
			}
		}
		return nil
	}}
}

// compare compares a file with the store.
func (b *block) compare(ctx context.Context, x *verify.Exam, v *verify.View, path string) error {
	kvs, err := v.Get(ctx, eventlog.ReplacedKey(b.partition))
	if err != nil || kvs[0].Version != b.version { // compaction has replaced batches: nobody reads the file
		return err
	}
	cached, _, err := readBlock(path, b, b.first, math.MaxInt, true)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // evicted
	}
	if err != nil {
		v.Find(x.Place(b.partition, b.first), deleteFile, "the file %s of the cache is damaged, and readers get these events from the store: %v", path, err)
		return nil
	}
	for len(cached) > 0 {
		read, err := v.Read(ctx, b.partition, cached[0].Base, blockBytes)
		switch {
		case err != nil:
			return err
		case errors.Is(read.Err, eventlog.ErrNoPartition):
			return nil // deleted
		case cached[0].End() <= read.Bounds.First:
			cached = cached[1:] // trimmed
			continue
		case cached[0].Base < read.Bounds.First: // trimmed in part: the store is asked from its first offset on
			if read, err = v.Read(ctx, b.partition, read.Bounds.First, blockBytes); err != nil {
				return err
			}
		}
		n := min(len(read.Batches), len(cached))
		for i := range n {
			if a, c := read.Batches[i], cached[i]; a.Base != c.Base || a.Records != c.Records || a.MaxTime != c.MaxTime || !bytes.Equal(a.Bytes, c.Bytes) {
				v.Find(x.Place(b.partition, c.Base), deleteFile+"; and restart the process that uses it", "the file %s of the cache has another batch than the store", path)
				return nil
			}
		}
		if n == 0 {
			return nil // damaged in the store: a finding of the log
		}
		cached = cached[n:]
	}
	return nil
}
