// Package store opens the store that a URL names.
package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/doctor"
	"github.com/weir-log/weir/store/cache"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/mysql"
	"github.com/weir-log/weir/store/postgres"
	"github.com/weir-log/weir/store/s3"
	"github.com/weir-log/weir/store/sqlite"
)

// ErrAddress: a URL does not name a store.
var ErrAddress = errors.New("invalid URL of a store")

// forms lists what Open accepts.
const forms = "sqlite:PATH, postgres://USER:PASSWORD@HOST:PORT/DATABASE, mysql://USER:PASSWORD@HOST:PORT/DATABASE, s3://BUCKET/PREFIX, memory:, or several of them as shard:URL,URL"

// Options of OpenWith.
type Options struct {
	Logger *slog.Logger       // logs what fails while no caller waits for an answer
	Rules  []eventlog.KeyRule // where keys live on a store made of shards (use/keys); without them such a store is refused
	// NoUpgrade: a store that an older weir made is refused with eventlog.ErrUpgradeDue, and not
	// upgraded.
	NoUpgrade bool
}

// Open is OpenWith for a store that may be upgraded.
func Open(ctx context.Context, address string, logger *slog.Logger, rules ...eventlog.KeyRule) (eventlog.Store, error) {
	return OpenWith(ctx, address, Options{Logger: logger, Rules: rules})
}

// OpenWith opens the store that a URL names. A store that a newer weir made, or upgraded, is
// refused with eventlog.ErrUpgraded.
func OpenWith(ctx context.Context, address string, opts Options) (eventlog.Store, error) {
	scheme, rest := split(address)
	if scheme == "shard" {
		return opened(openShards(ctx, rest, opts))
	}
	return openOne(ctx, address, opts, false)
}

// openOne opens a store that is not made of shards. existing: it must be there already, and nothing
// is created if it is not.
func openOne(ctx context.Context, address string, opts Options, existing bool) (eventlog.Store, error) {
	scheme, rest := split(address)
	switch scheme {
	case "memory":
		return memory.New(), nil
	case "sqlite":
		path, err := sqlitePath(rest)
		if err != nil {
			return nil, err
		}
		if existing && Missing(address) { // its disk is not mounted, for example: a new file would hide that
			return nil, fmt.Errorf("%w: the file does not exist, and must: mount its disk, correct the path, or restore a backup", eventlog.ErrUnavailable)
		}
		return opened(sqlite.Open(ctx, path, sqlite.Options{Logger: opts.Logger, NoUpgrade: opts.NoUpgrade}))
	case "postgres", "postgresql":
		return opened(postgres.Open(ctx, address, postgres.Options{Logger: opts.Logger, Existing: existing, NoUpgrade: opts.NoUpgrade}))
	case "mysql", "mariadb":
		return opened(mysql.Open(ctx, address, mysql.Options{Logger: opts.Logger, Existing: existing, NoUpgrade: opts.NoUpgrade}))
	case "s3":
		return opened(s3.Open(ctx, address, s3.Options{Logger: opts.Logger, Existing: existing}))
	}
	return nil, unknown(address)
}

// opened returns a nil interface for a nil store.
func opened[S eventlog.Store](store S, err error) (eventlog.Store, error) {
	if err != nil {
		return nil, err
	}
	return store, nil
}

// Cached puts a cache into opts.Dir in front of an open store, which belongs to the cache then.
// address is the store's URL. The files of the cache are used again by the next process if the
// store cannot be put back to an earlier state without a new incarnation: if it is Shared, a server
// or a bucket.
func Cached(opened eventlog.Store, address string, opts cache.Options) (*cache.Store, error) {
	if Shared(address) {
		opts.Store = Redact(address)
	}
	opts.Check = func(b eventlog.Placed) error {
		_, err := batch.CheckStored(b.Bytes)
		return err
	}
	return cache.Open(opened, opts)
}

// Missing reports whether a URL names a store that is not there yet, and that Open would create: a
// SQLite file. Open never creates a database on a server. Of a set of shards it reports whether any
// shard is missing.
func Missing(address string) bool {
	scheme, rest := split(address)
	if scheme == "shard" {
		return slices.ContainsFunc(shardsIn(rest), Missing)
	}
	if scheme != "sqlite" {
		return false
	}
	path, err := sqlitePath(rest)
	if err != nil {
		return false
	}
	_, err = os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// Shared reports whether processes on several machines may use the store that a URL names.
func Shared(address string) bool {
	scheme, rest := split(address)
	if scheme == "shard" {
		return !slices.ContainsFunc(shardsIn(rest), func(address string) bool { return !Shared(address) })
	}
	return scheme == "postgres" || scheme == "postgresql" || scheme == "mysql" || scheme == "mariadb" || scheme == "s3"
}

// Alone reports whether a URL says that one process alone writes to the store: s3://…?alone=true.
func Alone(address string) bool {
	if scheme, rest := split(address); scheme == "shard" {
		return !slices.ContainsFunc(shardsIn(rest), func(address string) bool { return !Alone(address) })
	}
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "s3" && u.Query().Get("alone") == "true"
}

// ReadOnly returns the URL by which Open follows the store that a URL names, and never writes to
// it. Only a bucket can be followed: the other stores change their tables when they are opened.
func ReadOnly(address string) (string, error) {
	switch scheme, _ := split(address); scheme {
	case "s3":
	case "":
		return "", unknown(address)
	default:
		return "", fmt.Errorf("%w: a store of the kind %q cannot be followed read-only: only s3://BUCKET/PREFIX can", ErrAddress, scheme+":")
	}
	u, err := url.Parse(address)
	if err != nil {
		return address, nil // Open says what is wrong
	}
	options := u.Query()
	options.Del("alone") // it is said of a process that writes
	options.Set("read_only", "true")
	u.RawQuery = options.Encode()
	return u.String(), nil
}

// Examine reports what the store that a URL names is, and whether it keeps what it acknowledges. It
// changes nothing.
func Examine(ctx context.Context, address string) ([]doctor.Finding, error) {
	scheme, rest := split(address)
	switch scheme {
	case "memory":
		return []doctor.Finding{{Name: "store", Value: "memory", Level: doctor.Bad,
			Advice: "all data is lost when weir stops: to keep data, use sqlite:PATH, postgres://, mysql:// or s3://"}}, nil
	case "sqlite":
		path, err := sqlitePath(rest)
		if err != nil {
			return nil, err
		}
		return sqlite.Examine(ctx, path)
	case "postgres", "postgresql":
		return postgres.Examine(ctx, address)
	case "mysql", "mariadb":
		return mysql.Examine(ctx, address)
	case "s3":
		return s3.Examine(ctx, address)
	case "shard":
		return examineShards(ctx, rest)
	}
	return nil, unknown(address)
}

// Keys lists at most limit keys that begin with prefix, of each store that a URL names, for an
// examination: it changes nothing, and the store may be in use.
func Keys(ctx context.Context, address, prefix string, limit int) ([]eventlog.KeyValue, error) {
	scheme, rest := split(address)
	switch scheme {
	case "memory":
		return nil, nil
	case "sqlite":
		path, err := sqlitePath(rest)
		if err != nil {
			return nil, err
		}
		return sqlite.Keys(ctx, path, prefix, limit)
	case "postgres", "postgresql":
		return postgres.Keys(ctx, address, prefix, limit)
	case "mysql", "mariadb":
		return mysql.Keys(ctx, address, prefix, limit)
	case "s3":
		return s3.Keys(ctx, address, prefix, limit)
	case "shard":
		addresses, err := shardAddresses(rest)
		var all []eventlog.KeyValue
		for _, shard := range addresses {
			list, failed := Keys(ctx, shard, prefix, limit)
			all, err = append(all, list...), errors.Join(err, failed)
		}
		return all, err
	}
	return nil, unknown(address)
}

// Redact returns a store's URL without its passwords, for logs and errors.
func Redact(address string) string {
	scheme, rest := split(address)
	if scheme == "shard" {
		var all []string
		for _, shard := range shardsIn(rest) {
			all = append(all, strings.ReplaceAll(Redact(shard), ",", ",,"))
		}
		return "shard:" + strings.Join(all, ",")
	}
	if scheme == "sqlite" || scheme == "memory" {
		return address
	}
	u, err := url.Parse(address)
	if err != nil || u.Opaque != "" || u.Scheme == "" {
		if scheme != "" {
			scheme += ":"
		}
		return scheme + "…" // what cannot be read may hold a password anywhere
	}
	query := u.Query()
	for name := range query {
		if strings.Contains(strings.ToLower(name), "pass") {
			query.Set(name, "xxxxx")
		}
	}
	u.RawQuery = query.Encode()
	return u.Redacted()
}

// split takes the scheme off a URL. Without a colon, or with other than letters and digits before
// it, there is no scheme.
func split(address string) (scheme, rest string) {
	scheme, rest, found := strings.Cut(address, ":")
	other := func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') }
	if !found || strings.ContainsFunc(scheme, other) {
		return "", address
	}
	return strings.ToLower(scheme), rest
}

// sqlitePath takes sqlite:PATH and also sqlite://PATH, which people write out of habit.
func sqlitePath(rest string) (string, error) {
	path := strings.TrimPrefix(rest, "//")
	if path == "" {
		return "", fmt.Errorf("%w: it has no path: it must be sqlite:PATH, such as sqlite:weir-data/weir.db", ErrAddress)
	}
	return path, nil
}

func unknown(address string) error {
	if scheme, _ := split(address); scheme != "" {
		return fmt.Errorf("%w: %q is unknown: it must be %s", ErrAddress, scheme+":", forms)
	}
	return fmt.Errorf("%w: it must be %s", ErrAddress, forms)
}
