package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/doctor"
	"github.com/weir-log/weir/store/shard"
)

// shardsIn splits the list after "shard:". Commas separate the URLs; a comma inside a URL is
// written twice.
func shardsIn(list string) (addresses []string) {
	const comma = "\x00" // no URL has it
	for _, address := range strings.Split(strings.ReplaceAll(list, ",,", comma), ",") {
		addresses = append(addresses, strings.TrimSpace(strings.ReplaceAll(address, comma, ",")))
	}
	return addresses
}

// shardAddresses checks a list of shards.
func shardAddresses(list string) ([]string, error) {
	addresses := shardsIn(list)
	for i, address := range addresses {
		switch scheme, _ := split(address); scheme {
		case "memory", "sqlite", "postgres", "postgresql", "mysql", "mariadb", "s3":
		case "shard":
			return nil, fmt.Errorf("%w: shard %d is a list of shards itself: name its stores instead", ErrAddress, i)
		default:
			return nil, fmt.Errorf("shard %d of %d: %w; in a list of shards, a comma inside a URL is written twice", i, len(addresses), unknown(address))
		}
	}
	return addresses, nil
}

// openShards opens a set of shards.
func openShards(ctx context.Context, list string, opts Options) (*shard.Set, error) {
	addresses, err := shardAddresses(list)
	if err != nil {
		return nil, err
	}
	if len(opts.Rules) == 0 {
		return nil, fmt.Errorf("%w: this program does not open shards", ErrAddress)
	}
	var shards []shard.Shard
	for _, address := range addresses {
		shards = append(shards, shard.Shard{Name: Redact(address)})
	}
	return shard.Open(ctx, shards, shard.Options{Rules: opts.Rules, Logger: opts.Logger, Open: func(ctx context.Context, number int, made bool) (eventlog.Store, error) {
		return openOne(ctx, addresses[number], opts, made)
	}})
}

// examineShards examines each shard by itself. With an error, it returns what it found of the
// shards that can be examined.
func examineShards(ctx context.Context, list string) (all []doctor.Finding, err error) {
	addresses, err := shardAddresses(list)
	if err != nil {
		return nil, err
	}
	all = []doctor.Finding{{Name: "store", Value: fmt.Sprintf("%d shards; whether they are those of one set is checked when the store is opened", len(addresses))}}
	found, errs := make([][]doctor.Finding, len(addresses)), make([]error, len(addresses))
	var examining errgroup.Group
	for i, address := range addresses {
		examining.Go(func() error {
			if found[i], errs[i] = Examine(ctx, address); errs[i] != nil {
				errs[i] = fmt.Errorf("shard %d (%s): %w", i, Redact(address), errs[i])
			}
			return nil
		})
	}
	_ = examining.Wait()
	for i := range addresses {
		for _, f := range found[i] {
			f.Name = fmt.Sprintf("shard %d: %s", i, f.Name)
			all = append(all, f)
		}
	}
	return all, errors.Join(errs...)
}
