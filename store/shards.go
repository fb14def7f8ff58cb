package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/doctor"
	"github.com/weir-log/weir/store/shard"
)

// shardsIn splits the list after "shard:". Commas separate the URLs; a comma inside a URL is written twice.
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

// openShards opens the shards concurrently, and then the set.
func openShards(ctx context.Context, list string, logger *slog.Logger, rules []eventlog.KeyRule) (_ *shard.Set, err error) {
	addresses, err := shardAddresses(list)
	if err != nil {
		return nil, err
	}
	if len(rules) == 0 {
		return nil, fmt.Errorf("%w: this program does not open shards", ErrAddress)
	}
	shards := make([]shard.Shard, len(addresses))
	var opening errgroup.Group
	for i, address := range addresses {
		opening.Go(func() error {
			opened, err := Open(ctx, address, logger)
			if err != nil {
				return fmt.Errorf("shard %d (%s): %w", i, Redact(address), err)
			}
			shards[i] = shard.Shard{Name: Redact(address), Store: opened}
			return nil
		})
	}
	err = opening.Wait()
	var set *shard.Set
	if err == nil {
		set, err = shard.Open(ctx, shards, shard.Options{Rules: rules, Logger: logger})
	}
	if err == nil {
		return set, nil
	}
	for _, s := range shards {
		if s.Store != nil {
			err = errors.Join(err, s.Store.Close())
		}
	}
	return nil, err
}

// examineShards examines each shard by itself.
func examineShards(ctx context.Context, list string) (all []doctor.Finding, err error) {
	addresses, err := shardAddresses(list)
	if err != nil {
		return nil, err
	}
	all = []doctor.Finding{{Name: "store", Value: fmt.Sprintf("%d shards; whether they are those of one set is checked when the store is opened", len(addresses))}}
	for i, address := range addresses {
		found, err := Examine(ctx, address)
		if err != nil {
			return nil, fmt.Errorf("shard %d (%s): %w", i, Redact(address), err)
		}
		for _, f := range found {
			f.Name = fmt.Sprintf("shard %d: %s", i, f.Name)
			all = append(all, f)
		}
	}
	return all, nil
}
