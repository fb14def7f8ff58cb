// Package s3 keeps the log in a bucket of S3, or of a server with its protocol that knows
// If-None-Match. See eventlog.Store for the contract, docs/s3.md for its use, docs/s3-format.md for
// the objects.
//
// The log is a chain of commit objects. The put with If-None-Match: * that creates commit n wins;
// there is no other sequencer. A process holds in memory what all commits add up to (state).
// docs/decisions/s3-is-a-chain-of-commits.md says why that is safe.
package s3

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog"
)

const (
	// answerMax is how long a change is tried before its caller gets an answer.
	answerMax = 30 * time.Second
	// requestMax is how long one request may go without progress.
	requestMax = 20 * time.Second
	// flushBytes is the default of the option flush_bytes: at 50 ms a PUT, 300 MB/s. flushMin is
	// its lowest value.
	flushBytes, flushMin = 16 << 20, 64 << 10
	// commitMax bounds the batches of one commit.
	commitMax = 256 << 20
	// roundsMax bounds how often a change is evaluated anew because other processes were faster.
	roundsMax = 1000
	// After streakMax commits in a row a process waits for others; after streakRival, if one of
	// them made a commit within rivalFor. It waits yieldRounds times as long as its last commit
	// took, at most yieldMost: a commit whose answer was lost takes long, and that says nothing
	// about others. A process that lost has to read the winner's commit, check that it is on the
	// chain, and find the next number free: five requests, where the winner makes two.
	streakMax, streakRival, yieldRounds = 16, 2, 4
	rivalFor, yieldMost                 = 10 * time.Second, 2 * time.Second
	// headGuess is how much of a commit is read at first. The heads of most commits are smaller.
	headGuess = 64 << 10
)

var (
	// errForeign: a commit that does not continue what this process knows.
	errForeign = errors.New("another chain of commits")
	// errNoLog: a replica was opened where no process has begun a store.
	errNoLog = errors.New("there is no log yet, and a replica (--read-only) begins none: correct the bucket and the prefix, or start weir without --read-only first")
	// errGone: Options.Existing demands a log, and there is none.
	errGone = errors.New("there is no log, and there must be one: correct the bucket and the prefix, or restore a backup")
)

// lost says what to do when objects are missing that weir did not delete.
const lost = "a part of the bucket was lost: restore all of it from a backup, and remove lifecycle rules that delete objects below the prefix"

// Options change how a store works. The zero value is the default.
type Options struct {
	Logger   *slog.Logger // for what fails while no caller waits for an answer. Default: slog.Default()
	Existing bool         // the bucket must have a log already: Open begins none, and fails without it
}

// Store keeps batches and keyed state in a bucket.
type Store struct {
	place
	logger *slog.Logger
	bucket bucket
	clock  *clock
	writer string // names this Store value in its commits

	turn turn // held by whoever moves st to another commit

	mu       sync.Mutex // guards all below; never held during a request
	st       *state
	behind   bool   // st is being read anew, because the bucket was rewound
	rewinds  string // in a replica: names the rewinds that it noticed, because it may not begin an incarnation for all processes; else empty
	told     eventlog.Incarnation
	synced   time.Time       // the server's clock when st was last known to be no older than the newest snapshot that can be read
	asked    time.Time       // this machine's clock at the last request for the next commit that found none
	verified time.Time       // when the newest known commit was last read again
	nextPut  time.Time       // no put of a change begins before; see pace
	streak   int             // commits of this process since another's, or since it left others time
	lost     time.Time       // when this process last read a commit of another
	newest   int64           // the newest known snapshot
	floor    int64           // the log goes at least to this commit, because a snapshot covers it
	sent     []tip           // commits that this process wrote, or may have written, and that are void if the bucket was rewound
	pending  map[string]bool // segments that are being written
	mover    *mover          // a finished segment whose moves wait for a commit; nil: none

	loading *loading // guarded by turn

	trimTurn  turn               // held by the call of Trim that makes a commit for all that wait
	trimmings map[*trimming]bool // guarded by mu

	probing turn // guards probed
	probes  atomic.Int64
	probed  int64

	due     chan struct{} // wakes the upkeep
	closing context.Context
	close   context.CancelFunc
	work    sync.WaitGroup
}

var (
	_ eventlog.Store   = (*Store)(nil)
	_ eventlog.Costly  = (*Store)(nil)
	_ eventlog.Replica = (*Store)(nil)
)

// turn is a mutex whose waiters can give up.
type turn chan struct{}

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, ctx.Err())
	}
}

func (t turn) give() { <-t }

// Open opens the store at a URL (s3://bucket/prefix; docs/s3.md has the options), and begins one if
// there is none. With the option read_only=true it is a replica: no request of it writes, and a
// store must be there.
func Open(ctx context.Context, address string, opts Options) (*Store, error) {
	at, err := parse(address)
	if err != nil {
		return nil, fmt.Errorf("open S3 store: %w", err)
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	clock := &clock{}
	r, err := dial(ctx, at, clock, opts.Logger)
	if err != nil {
		return nil, fmt.Errorf("open S3 store %s: %w", at.name(), err)
	}
	return open(ctx, at, r, clock, opts)
}

func open(ctx context.Context, at place, b bucket, clock *clock, opts Options) (*Store, error) {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if at.replica {
		b = onlyRead{b}
	}
	s := &Store{
		place: at, logger: opts.Logger, bucket: b, clock: clock, writer: random(),
		turn: make(turn, 1), probing: make(turn, 1), due: make(chan struct{}, 1), pending: map[string]bool{},
		trimTurn: make(turn, 1), trimmings: map[*trimming]bool{},
	}
	s.closing, s.close = context.WithCancel(context.WithoutCancel(ctx))
	// begin has no time-out, because it reads all commits since the newest snapshot. Each of its
	// requests has one.
	if err := s.begin(ctx, opts.Existing); err != nil {
		s.close()
		b.close()
		return nil, fmt.Errorf("open S3 store %s: %w", at.name(), notOpened(err))
	}
	s.work.Go(s.upkeep)
	s.work.Go(s.findTick)
	return s, nil
}

// begin checks the bucket, and reads the state.
func (s *Store) begin(ctx context.Context, existing bool) error {
	id, err := s.format(ctx, existing)
	if err != nil {
		return err
	}
	if !s.replica { // a replica has nothing to write, so it need not know whether the server honours If-None-Match
		if err := probe(ctx, s.bucket); err != nil {
			return err
		}
	}
	if err := s.turn.take(ctx); err != nil {
		return err
	}
	defer s.turn.give()
	s.st = newState(id)
	if err := s.reload(ctx); err != nil {
		return err
	}
	_, err = s.noGap(ctx)
	return err
}

// format reads the store's id. If there is no store, it begins one, but not for a replica, and not
// if existing says that there must be one.
func (s *Store) format(ctx context.Context, existing bool) (string, error) {
	for range 5 {
		body, a, err := s.bucket.get(ctx, "format", 0, -1)
		if err == nil {
			head, _, err := unseal(magicFormat, body)
			if err != nil {
				return "", fmt.Errorf("object format: %w", err)
			}
			if a.date.IsZero() {
				return "", errors.New("the server's answers have no Date header, which weir needs as the store's clock: use another server")
			}
			r := &reader{b: head}
			id := r.string()
			return id, r.end()
		}
		if !errors.Is(err, errMissing) {
			return "", err
		}
		if found, _, err := s.bucket.list(ctx, "commit/", "", 1); err != nil || len(found) > 0 {
			return "", errors.Join(err, fmt.Errorf("the object format is missing, and commits are there (%v): %s", found, lost))
		}
		if s.replica {
			return "", errNoLog
		}
		if existing {
			return "", errGone
		}
		var w writer
		w.string(random())
		object, _ := seal(magicFormat, w.b)
		if _, err := s.bucket.put(ctx, "format", object); err != nil && !errors.Is(err, errExists) {
			return "", err
		}
	}
	return "", errors.New("the object format was written, and cannot be read: the server does not keep what it acknowledges")
}

// probe checks that of several puts of one key with If-None-Match exactly one succeeds. Without
// that, processes would overwrite each other's commits.
func probe(ctx context.Context, b bucket) error {
	const rounds, puts, tries = 2, 4, 8
	proven, unclear := 0, error(nil)
	for try := 0; proven < rounds; try++ {
		if try == tries {
			return fmt.Errorf("%w: whether the S3 server honours If-None-Match is not known, as its answers are unclear: %w", eventlog.ErrUnavailable, unclear)
		}
		key := "probe/" + random()
		var won atomic.Int32
		var all errgroup.Group
		for i := range puts {
			all.Go(func() error {
				_, err := b.put(ctx, key, fmt.Append(nil, i))
				if err == nil {
					won.Add(1)
				}
				if err != nil && !errors.Is(err, errExists) && errors.Is(err, errRefused) {
					return err
				}
				return nil // an unclear answer proves nothing
			})
		}
		err := all.Wait()
		_, last := b.put(ctx, key, []byte("last"))
		gone := b.remove(ctx, key)
		if err != nil {
			return err
		}
		if won.Load() > 1 || last == nil {
			then := "one more succeeded"
			if last != nil {
				then = fmt.Sprintf("one more failed: %v", last)
			}
			return fmt.Errorf("the S3 server ignores If-None-Match (%d of %d puts of one new key succeeded, then %s): processes would overwrite each other's records; use a server that knows conditional writes",
				won.Load(), puts, then)
		}
		if gone != nil {
			return gone
		}
		if errors.Is(last, errRefused) {
			return last
		}
		if errors.Is(last, errExists) {
			proven++
			continue
		}
		unclear = last
		select {
		case <-time.After(time.Duration(try+1) * 50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// heartbeatEvery is how often a process says that it lives. Each time is a PUT: 520,000 a month.
const heartbeatEvery = 5 * time.Second

// FlushBytes implements eventlog.Costly.
func (s *Store) FlushBytes() int { return s.flush }

// HeartbeatEvery implements eventlog.Costly.
func (s *Store) HeartbeatEvery() time.Duration { return max(heartbeatEvery, s.CommitEvery()) }

// CommitEvery implements eventlog.Costly: see pace.
func (s *Store) CommitEvery() time.Duration { return s.linger }

// NextCommit implements eventlog.Costly: see pace and wins.
func (s *Store) NextCommit() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nextPut
}

// Stats is how many requests a store has made, by kind. Repeats that the AWS SDK makes by itself
// are not counted.
type Stats struct{ Puts, Gets, Lists, Deletes int64 }

// Stats returns how many requests were made since Open.
func (s *Store) Stats() Stats {
	return s.bucket.stats()
}

// Replica implements eventlog.Replica.
func (s *Store) Replica() (behind time.Duration, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.asked), s.replica
}

// incarnation is what Changes returns. The caller holds mu.
func (s *Store) incarnation() eventlog.Incarnation {
	in := s.st.incarnation()
	in.Store += s.rewinds
	return in
}

// Close ends the background work, and closes the connections.
func (s *Store) Close() error {
	s.close()
	s.work.Wait()
	s.bucket.close()
	return nil
}

// rewound reports whether an incarnation that Changes returned (told) is over, or the state is
// being read anew. The caller holds mu.
func (s *Store) rewound(told eventlog.Incarnation) bool {
	return s.behind || told != eventlog.Incarnation{} && told != s.incarnation()
}

func commitKey(n int64) string { return fmt.Sprintf("commit/%020d", n) }

// random returns a name that nobody else has.
func random() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// failed turns an error into ErrUnavailable, unless it is of a kind that the log knows already. So
// call it only if certainly nothing happened.
func failed(err error) error {
	if err == nil {
		return nil
	}
	known := []error{eventlog.ErrUnavailable, eventlog.ErrUnsure, eventlog.ErrNoPartition, eventlog.ErrTooLarge, eventlog.ErrReadOnly}
	for _, kind := range known {
		if errors.Is(err, kind) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
}

// notOpened is failed for the opening of a store. An error that trying again does not mend stays as
// it is.
func notOpened(err error) error {
	for _, lasting := range []error{errDamaged, errForeign, errRefused, errNoLog, errGone} {
		if errors.Is(err, lasting) {
			return err
		}
	}
	return failed(err)
}

// alive returns an error if the caller has given up already.
func alive(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
	}
	return nil
}
