// Package postgres keeps the log in PostgreSQL 14 or later, in a schema of its own, weir.
//
// The SQL is in the directory sql, and says how the tables are built and why. A flush is one call
// of weir.commit, or of weir.commit_one or weir.replace: one round trip and one wait for the disk.
// Every transaction locks the rows of partitions and keys in one order, and holds the locks only
// for that round trip. Nothing in this package waits for a transaction that somebody else left
// open.
package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/postgres/wire"
	"github.com/weir-log/weir/store/storerow"
)

const (
	// commitsMax is how many flushes are in flight concurrently. A third would only wait for the
	// disk with the other two.
	commitsMax = 2
	// answerMax bounds the wait for an answer: if a network drops packets, the system ends a
	// connection only after a quarter of an hour.
	answerMax = 40 * time.Second
	// closeGrace is how long Close waits for the background work.
	closeGrace = 3 * time.Second
	// connectMax bounds one attempt to connect.
	connectMax = 10 * time.Second
)

// Options of a store. The zero value is right for nearly everybody. A URL has the same options,
// under the names in brackets: postgres://host/db?weir_pooled=true&weir_segment_bytes=1073741824
type Options struct {
	// SegmentBytes is the size at which a segment is sealed. Disk space is freed a segment at a
	// time. Default 256 MiB. [weir_segment_bytes]
	SegmentBytes int64
	// SegmentAge is the age at which a segment is sealed even if it is not full. Default an hour.
	// [weir_segment_age]
	SegmentAge time.Duration
	// Readers is the number of connections for everything but commits. Default 4. [weir_readers]
	Readers int
	// Pooled: a transaction pooler such as PgBouncer is in front of the server. Then weir uses no
	// LISTEN, no prepared statements and no session settings, and finds what other processes wrote
	// by polling. [weir_pooled]
	Pooled bool
	// Existing: the database must have weir's tables already. Open creates none, and fails without
	// them.
	Existing bool
	// NoUpgrade: Open fails with eventlog.ErrUpgradeDue where it would upgrade what an older weir
	// made.
	NoUpgrade bool
	// Logger logs what fails in the background. Default slog.Default().
	Logger *slog.Logger

	sweepPause, answerMax, probePause time.Duration // shorter in tests
	arraysOnly                        bool          // for tests: weir.commit commits a flush of one entry, too
}

// Store keeps batches and keyed state in PostgreSQL.
type Store struct {
	opts       Options
	config     *pgxpool.Config
	commitPool *pgxpool.Pool
	readPool   *pgxpool.Pool // for everything but commits

	mu       sync.Mutex // guards what follows, up to channels
	parts    []string   // the parts of the schema that this process uses
	newest   []int32    // for each of parts, the newest version that this binary knows
	sessions []*pgxpool.Pool
	channels map[string]chan struct{} // what Hear returned, by the name of the notification channel

	layout          storerow.Layout
	news            news
	seen            seen
	refused         atomic.Pointer[refusal] // why the server refused the last commit of records; nil if it took the records
	lastIncarnation lastIncarnation
	sweeper         sweeper
	replaced        atomic.Int64 // bytes that replaced others since the segment for them was last checked

	closing    context.Context // ends when Close begins: no more work is started
	close      context.CancelFunc
	background context.Context // ends up to closeGrace later: work in progress is cancelled
	abandon    context.CancelFunc
	work       sync.WaitGroup // the background work that Close waits for
	nonce      string         // identifies our own notifications
}

var (
	_ eventlog.Store = (*Store)(nil)
	_ eventlog.Waker = (*Store)(nil)
)

// Open connects to the database at a URL (postgres://user:password@host:port/database) and installs
// the tables and functions that this binary needs. Options in the URL override opts.
func Open(ctx context.Context, address string, opts Options) (*Store, error) {
	address, opts, err := options(address, opts)
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL store: %w", err)
	}
	config, err := parse(address)
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL store: %w", err)
	}
	return openAt(ctx, config, opts)
}

// OpenPool is Open for the database of a pool. The store connects as the pool does, with its TLS,
// DialFunc and BeforeConnect (such as one that fetches a password), but by itself: it takes no
// connection of the pool's, and calls none of its other hooks. The pool may be closed before the
// store. Options.Pooled is set where the pool has the query mode of a transaction pooler:
// QueryExecModeExec or QueryExecModeSimpleProtocol.
func OpenPool(ctx context.Context, of *pgxpool.Pool, opts Options) (*Store, error) {
	config := of.Config() // a copy
	config.AfterConnect, config.AfterRelease, config.BeforeClose, config.ShouldPing = nil, nil, nil, nil
	config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return true, nil } // takes precedence over the older BeforeAcquire
	conn := config.ConnConfig
	opts.Pooled = opts.Pooled || conn.DefaultQueryExecMode == pgx.QueryExecModeExec || conn.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol
	conn.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	conn.Tracer, conn.AfterConnect, conn.OnNotice, conn.OnNotification = nil, nil, nil, nil
	return openAt(ctx, config, opts.withDefaults())
}

func openAt(ctx context.Context, config *pgxpool.Config, opts Options) (s *Store, err error) {
	configure(config.ConnConfig, opts)
	if err := prepare(ctx, config, opts, logPart); err != nil {
		return nil, fmt.Errorf("open PostgreSQL store at %s: %w", serverName(config.ConnConfig), err)
	}
	s = &Store{opts: opts, config: config, channels: make(map[string]chan struct{}), nonce: strconv.FormatUint(rand.Uint64(), 36)}
	s.used(logPart)
	s.news.sent = make(chan struct{}, 1)
	s.sweeper.due = make(chan struct{}, 1)
	if s.commitPool, err = pool(config, commitsMax, commitStatement, commitForgetStatement, commitOneStatement, replaceStatement); err == nil {
		s.readPool, err = pool(config, opts.Readers, readStatement, seekStatement, listStatement, getStatement)
	}
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL store at %s: %w", serverName(config.ConnConfig), err)
	}
	s.background, s.abandon = context.WithCancel(context.WithoutCancel(ctx))
	s.closing, s.close = context.WithCancel(s.background)
	s.work.Go(func() { s.sweep(s.closing) })
	s.work.Go(func() { s.watchUsage(s.closing) })
	if !opts.Pooled {
		s.work.Go(func() { s.notify(s.closing) })
	}
	return s, nil
}

// Close ends the background work and all connections. It waits for calls in progress.
func (s *Store) Close() error {
	s.close()
	timer := time.AfterFunc(closeGrace, s.abandon)
	defer timer.Stop()
	s.work.Wait()
	s.commitPool.Close()
	s.readPool.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, session := range s.sessions {
		session.Close()
	}
	s.abandon()
	return nil
}

// step returns a context for one statement of the background work. Close waits up to closeGrace for
// it.
func (s *Store) step() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.background, s.opts.answerMax)
}

// serverMax is the statement_timeout for statements that we wait answerMax for. The server gives up
// before we do: so no statement takes effect after its outcome was reported unknown, and none runs
// on without a client. A transaction pooler does not take it as a session setting.
func serverMax(answerMax time.Duration) time.Duration { return answerMax * 3 / 4 }

// parse parses a URL without our options into the driver's configuration.
func parse(address string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, fmt.Errorf("the URL cannot be parsed; it must have the form postgres://user:password@host:port/database: %w", err)
	}
	return config, nil
}

// configure sets what the store needs of its connections.
func configure(conn *pgx.ConnConfig, opts Options) {
	if conn.ConnectTimeout == 0 {
		conn.ConnectTimeout = connectMax
	}
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = "weir"
	}
	conn.RuntimeParams["client_encoding"] = "UTF8"
	if conn.ValidateConnect == nil && slices.ContainsFunc(conn.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.Host != conn.Host || f.Port != conn.Port }) {
		conn.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary // with several servers: only the primary, as a connection must not stay at a standby, which may lag
	}
	conn.RuntimeParams["standard_conforming_strings"] = "on" // PgBouncer takes this one and client_encoding, too
	if opts.Pooled {
		conn.DefaultQueryExecMode = pgx.QueryExecModeExec
		return
	}
	for _, s := range settings {
		conn.RuntimeParams[s[0]] = s[1]
	}
	conn.RuntimeParams["statement_timeout"] = strconv.FormatInt(serverMax(opts.answerMax).Milliseconds(), 10)
}

// settings are what weir relies on in its own sessions, because a role or a database may have other
// defaults. A transaction pooler does not take them: there the functions' own settings (Part) must
// do, and what an installation needs is set in its transaction.
var settings = [][2]string{
	{"default_transaction_isolation", "read committed"},
	{"default_transaction_deferrable", "off"},
	{"lock_timeout", "0"},
	{"idle_in_transaction_session_timeout", "0"},
	{"plan_cache_mode", "force_generic_plan"}, // a custom plan would contain a copy of all bytes of a flush
	{"jit", "off"},       // compiling takes a hundred times as long as the statements themselves
	{"work_mem", "64MB"}, // an answer to Read is gathered in memory
	// How SQL is read:
	{"backslash_quote", "safe_encoding"},
	{"array_nulls", "on"},
	{"transform_null_equals", "off"},
	{"check_function_bodies", "on"},
	{"row_security", "on"},
	// How values are written as text:
	{"bytea_output", "hex"},
	{"datestyle", "ISO, YMD"},
	{"intervalstyle", "postgres"},
	{"timezone", "UTC"},
	{"extra_float_digits", "1"},
	{"quote_all_identifiers", "off"},
	{"client_min_messages", "notice"},
}

// connect opens a connection that belongs to no pool.
func connect(ctx context.Context, config *pgxpool.Config) (*pgx.Conn, error) {
	conn := config.ConnConfig
	if config.BeforeConnect != nil {
		conn = conn.Copy()
		if err := config.BeforeConnect(ctx, conn); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, conn)
}

// options removes our own options from the URL: the driver would send them to the server.
func options(address string, opts Options) (string, Options, error) {
	u, err := url.Parse(address)
	if err != nil {
		// The error of url.Parse quotes the URL, and with it the password.
		return "", opts, fmt.Errorf("the URL cannot be parsed; it must have the form postgres://user:password@host:port/database, with special characters percent-encoded")
	}
	query := u.Query()
	bad := func(name, wanted string) error {
		return fmt.Errorf("%s=%s in the URL: it must be %s", name, query.Get(name), wanted)
	}
	if text := query.Get("weir_segment_bytes"); text != "" {
		if opts.SegmentBytes, err = strconv.ParseInt(text, 10, 64); err != nil || opts.SegmentBytes < 1 {
			return "", opts, bad("weir_segment_bytes", "a number of bytes, such as 268435456")
		}
	}
	if text := query.Get("weir_segment_age"); text != "" {
		if opts.SegmentAge, err = time.ParseDuration(text); err != nil || opts.SegmentAge <= 0 {
			return "", opts, bad("weir_segment_age", "a duration, such as 1h")
		}
	}
	if text := query.Get("weir_readers"); text != "" {
		if opts.Readers, err = strconv.Atoi(text); err != nil || opts.Readers < 1 || opts.Readers > 1000 {
			return "", opts, bad("weir_readers", "a number of connections, 1 to 1000")
		}
	}
	if text := query.Get("weir_pooled"); text != "" {
		if opts.Pooled, err = strconv.ParseBool(text); err != nil {
			return "", opts, bad("weir_pooled", "true or false")
		}
	}
	for _, name := range []string{"weir_segment_bytes", "weir_segment_age", "weir_readers", "weir_pooled"} {
		query.Del(name)
	}
	u.RawQuery = query.Encode()
	return u.String(), opts.withDefaults(), nil
}

func (opts Options) withDefaults() Options {
	if opts.SegmentBytes == 0 {
		opts.SegmentBytes = 256 << 20
	}
	if opts.SegmentAge == 0 {
		opts.SegmentAge = time.Hour
	}
	if opts.Readers == 0 {
		opts.Readers = 4
	}
	if opts.sweepPause == 0 {
		opts.sweepPause = sweepPause
	}
	if opts.probePause == 0 {
		opts.probePause = probePause
	}
	if opts.answerMax == 0 {
		opts.answerMax = answerMax
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return opts
}

// pool returns a pool that connects when it is first used, and prepares the statements on each
// connection.
func pool(config *pgxpool.Config, most int, ready ...wire.Statement) (*pgxpool.Pool, error) {
	config = config.Copy()
	config.MaxConns = int32(most)
	config.MinConns, config.MinIdleConns = 0, 0
	config.PingTimeout = config.ConnConfig.ConnectTimeout // before an idle connection is used, the pool pings it
	if config.ConnConfig.DefaultQueryExecMode != pgx.QueryExecModeExec {
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			for _, s := range ready {
				if _, err := conn.Prepare(ctx, s.Name, s.SQL); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return pgxpool.NewWithConfig(context.Background(), config)
}

// serverName names a server and database without secrets.
func serverName(config *pgx.ConnConfig) string {
	return fmt.Sprintf("%s:%d/%s", config.Host, config.Port, config.Database)
}
