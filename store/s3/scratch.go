package s3

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/weir-log/weir/internal/verify"
)

// Scratch makes a cell in a bucket, which the addresses reach, perhaps through several endpoints.
// The cell is a prefix of its own, below the prefix of the first address. A version is an object,
// as a commit is: it is put with If-None-Match, and found by listing.
func Scratch(ctx context.Context, addresses ...string) (*verify.Scratch, error) {
	s := &verify.Scratch{}
	var buckets []*remote
	prefix := ""
	for _, address := range addresses {
		at, err := parse(address)
		if err != nil {
			return nil, fmt.Errorf("verify S3: %w", err)
		}
		if prefix == "" {
			prefix, s.Name = at.prefix+"weir-verify-"+random()+"/", at.name()
		}
		at.prefix = prefix
		b, err := dial(ctx, at, &clock{}, slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, fmt.Errorf("verify S3 store %s: %w", at.name(), err)
		}
		buckets = append(buckets, b)
		s.Cells = append(s.Cells, versions{b}, versions{b})
	}
	s.Remove = func(ctx context.Context) error {
		var errs []error
		for {
			items, _, err := buckets[0].list(ctx, "", "", 1000)
			errs = append(errs, err)
			for _, i := range items {
				errs = append(errs, buckets[0].remove(ctx, i.key))
			}
			if err := errors.Join(errs...); err != nil || len(items) == 0 {
				for _, b := range buckets {
					b.close()
				}
				return err
			}
		}
	}
	return s, nil
}

// versions is a cell: each version is an object.
type versions struct{ bucket }

func (v versions) Put(ctx context.Context, version int64, value string) (won bool, err error) {
	_, err = v.put(ctx, fmt.Sprintf("%020d", version), []byte(value))
	if errors.Is(err, errExists) {
		return false, nil
	}
	return err == nil, err
}

func (v versions) Get(ctx context.Context) (version int64, value string, err error) {
	key := ""
	for {
		items, _, err := v.list(ctx, "", key, 1000)
		if err != nil {
			return 0, "", err
		}
		if len(items) == 0 {
			break
		}
		key = items[len(items)-1].key
	}
	if key == "" {
		return 0, "", nil
	}
	if version, err = strconv.ParseInt(strings.TrimLeft(key, "0"), 10, 64); err != nil {
		return 0, "", fmt.Errorf("the bucket has an object %q of somebody else: %w", key, err)
	}
	body, _, err := v.get(ctx, key, 0, -1)
	return version, string(body), err
}
