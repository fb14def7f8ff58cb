// Package mysql keeps the log in MariaDB (10.6 and later) or MySQL (8.0 and later), in InnoDB
// tables whose names begin with weir_. See eventlog.Store for the contract.
//
// A commit is two trips to the server: the first locks the rows of partitions and keys, in the
// order of their ids, and reads them; the second writes and commits. Transactions are READ
// COMMITTED. InnoDB may end one as the victim of a deadlock, or when it waited too long for a lock;
// it is then repeated.
package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/closing"
)

const (
	commitsMax = 3 // connections that commit
	readersMax = 8 // connections for everything else

	// answerMax is how long a call waits for the server, answerGrace how long a transaction goes on
	// waiting when its caller has given up.
	answerMax   = 30 * time.Second
	answerGrace = 500 * time.Millisecond
	// lockWaitMax is how long a statement waits for a lock (innodb_lock_wait_timeout).
	lockWaitMax = 5 * time.Second
	// packetMin is the smallest max_allowed_packet that the store works with: a quarter of
	// MariaDB's default.
	packetMin = 4 << 20
)

// Options change how a store works. The zero value is the default.
type Options struct {
	Logger   *slog.Logger // for what fails while no caller waits for an answer. Default: slog.Default()
	Existing bool         // the database must have weir's tables already: Open creates none, and fails without them
	// NoUpgrade: Open fails with eventlog.ErrUpgradeDue where it would upgrade what an older weir
	// made.
	NoUpgrade bool
}

// Store keeps batches and keyed state in MariaDB or MySQL.
type Store struct {
	name    string // server and database, without secrets
	config  *mysql.Config
	logger  *slog.Logger
	commits *sql.DB // READ COMMITTED
	reads   *sql.DB // REPEATABLE READ: a read sees one state of the database
	packet  int     // max_allowed_packet

	noUpgrade bool

	lastIncarnation lastIncarnation
	seen            seen
	durable         durable
	sweeper         sweeper

	mu       sync.Mutex // guards what follows
	sessions []*sql.DB

	closing context.Context // ends when Close begins
	close   context.CancelFunc
	work    sync.WaitGroup // the background work that Close waits for
}

var _ eventlog.Store = (*Store)(nil)

// Open connects to the database at a URL (mysql://user:password@host:port/database; docs/mysql.md
// has the options) and creates the tables that this binary needs.
func Open(ctx context.Context, address string, opts Options) (*Store, error) {
	config, err := parse(address)
	if err != nil {
		return nil, fmt.Errorf("open MySQL store: %w", err)
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	s := &Store{name: nameOf(config.Config), config: config.Config, logger: opts.Logger, noUpgrade: opts.NoUpgrade}
	s.commits = pool(s.config, "READ COMMITTED", commitsMax)
	s.reads = pool(s.config, "REPEATABLE READ", readersMax)
	s.closing, s.close = context.WithCancel(context.WithoutCancel(ctx))
	s.sweeper.due = make(chan struct{}, 1)
	if err := s.prepare(ctx, config.oneNode, opts.Existing); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("open MySQL store at %s: %w", s.name, err)
	}
	s.work.Go(func() { s.sweep(s.closing) })
	return s, nil
}

// prepare checks the server, and creates the tables.
func (s *Store) prepare(ctx context.Context, oneNode, existing bool) error {
	ctx, cancel := context.WithTimeout(ctx, answerMax)
	defer cancel()
	if err := s.commits.QueryRowContext(ctx, "SELECT @@max_allowed_packet").Scan(&s.packet); err != nil {
		return readFailed(err)
	}
	if s.packet < packetMin {
		return fmt.Errorf("max_allowed_packet is %d; weir needs at least %d: set it in the server's configuration", s.packet, packetMin)
	}
	vars, err := variables(ctx, s.commits)
	if err != nil {
		return readFailed(err)
	}
	if all := unfit(vars, oneNode); len(all) > 0 {
		return fmt.Errorf("%s is %s: %s", all[0].name, all[0].value, all[0].advice)
	}
	return s.migrate(ctx, existing)
}

// Close ends the background work and all connections. It waits for calls in progress.
func (s *Store) Close() error {
	s.close()
	s.work.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{s.commits.Close(), s.reads.Close()}
	for _, db := range s.sessions {
		errs = append(errs, db.Close())
	}
	return errors.Join(errs...)
}

// concluding returns a context for a transaction that has begun: it outlives ctx, so that the
// answer is heard, for at most answerGrace, and waits for at most answerMax in all. Nobody who
// must stop can wait for answerMax. An answer may never come: when KILL QUERY or
// max_statement_time comes between two statements of a text, MariaDB says after the first that
// more answers follow, and sends none (dispatch_command in sql/sql_parse.cc, `while (!thd->killed
// && …)`; 10.11 did that in 14 of 5,000 texts).
func concluding(ctx context.Context) (context.Context, context.CancelFunc) {
	outlives, release := closing.Outlive(ctx, answerGrace)
	bounded, cancel := context.WithTimeout(outlives, answerMax)
	return bounded, func() { cancel(); release() }
}
