package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/verify"
	"github.com/weir-log/weir/store/cache"
	"github.com/weir-log/weir/store/mysql"
	"github.com/weir-log/weir/store/postgres"
	"github.com/weir-log/weir/store/s3"
)

// VerifyCache checks that the files of a cache have what the store has. address is the store's URL,
// as the process has it that uses the cache. An error: that store's caches are not used again by
// another process, so there is nothing to check.
func VerifyCache(address, dir string) (verify.Check, error) {
	if !Shared(address) {
		return verify.Check{}, errors.New("a cache in front of a store that is a file, or in memory, begins empty with each process: there is nothing to check")
	}
	return cache.Verify(cache.Options{Dir: dir, Store: Redact(address)}), nil
}

// Scratch makes a cell in the storage that the URLs name, to try what weir needs of it: one URL, or
// several that reach the same storage through several servers. It changes no store that is there.
func Scratch(ctx context.Context, addresses ...string) (*verify.Scratch, error) {
	first, _ := split(addresses[0])
	for _, other := range addresses[1:] {
		if scheme, _ := split(other); scheme != first {
			return nil, fmt.Errorf("%w: %s and %s are storages of different kinds; give URLs of one storage", ErrAddress, Redact(addresses[0]), Redact(other))
		}
	}
	switch first {
	case "postgres", "postgresql":
		return postgres.Scratch(ctx, addresses...)
	case "mysql", "mariadb":
		return mysql.Scratch(ctx, addresses...)
	case "s3":
		return s3.Scratch(ctx, addresses...)
	}
	return nil, fmt.Errorf("%w: %s: only storages that several processes share are tried: postgres://, mysql:// and s3://; `weir doctor` examines the others", ErrAddress, Redact(addresses[0]))
}

// Verify checks what only one kind of store has: the objects of a bucket.
func Verify() verify.Check {
	return verify.Check{Name: "objects", Run: func(ctx context.Context, x *verify.Exam) error {
		opened := []eventlog.Store{x.Store()}
		if set, is := eventlog.As[eventlog.Sharded](x.Store()); is {
			opened = nil
			for n := range set.Shards() {
				shard, err := set.ShardStore(n)
				if err != nil {
					return err
				}
				opened = append(opened, shard)
			}
		}
		for _, one := range opened {
			if bucket, is := eventlog.As[*s3.Store](one); is {
				if err := bucket.Verify(ctx, x); err != nil {
					return err
				}
			}
		}
		return nil
	}}
}
