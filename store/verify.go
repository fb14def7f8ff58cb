package store

import (
	"context"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/verify"
	"github.com/weir-log/weir/store/s3"
)

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
