package system

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/mytest"
	"github.com/weir-log/weir/internal/node"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/use/queue"
)

// weirStore is a store that weir can be measured on.
type weirStore struct {
	name, needs string
	settings    string                                                 // "": weir's defaults
	open        func(Place) (url string, database database, err error) // database is nil: nothing runs
}

// set is which settings weir has on the store.
func (st weirStore) set() string { return cmp.Or(st.settings, "weir's defaults") }

// about is the store and its settings.
func (st weirStore) about() string {
	store, _, _ := strings.Cut(st.name, "-")
	if st.settings != "" {
		store += ", with " + st.settings
	}
	return store
}

// S3Linger is the linger of a store on S3 with which an event waits less than with the default.
const S3Linger = 10 * time.Millisecond

func weirStores() []weirStore {
	return []weirStore{
		{"sqlite", "", "", func(p Place) (string, database, error) {
			return "sqlite:" + filepath.Join(p.Dir, "weir.db"), nil, nil
		}},
		{"postgres", "PostgreSQL", "", startPostgres},
		{"mysql", "MariaDB", "", func(p Place) (string, database, error) {
			server, err := mytest.Launch("", "--innodb-buffer-pool-size=128M") // its default
			if err != nil {
				return "", nil, err
			}
			url, err := server.Database("weir")
			return url, p.ending(server, "mysql"), err
		}},
		{"s3", needsS3, "", func(p Place) (string, database, error) { return startS3(p, 0) }},
		{"s3-10ms", needsS3, "linger=10ms in the store's URL", func(p Place) (string, database, error) { return startS3(p, S3Linger) }},
	}
}

// flush is what an acknowledgement of weir on the store means.
func (st weirStore) flush() string {
	if st.needs == needsS3 {
		return "believed: an acknowledged event is in the bucket, and S3 keeps it; versitygw, which stands for S3 here, flushes nothing, so that no flush is in the figures"
	}
	return "every acknowledgement is on disk"
}

// weirs is weir by its Go library on each store, with its defaults. An acknowledged event is always
// on disk, so there is one mode: what is shipped is durable.
func weirs() []System {
	var all []System
	for _, st := range weirStores() {
		settings := Settings{"flush": st.flush(), "settings": st.set()}
		all = append(all, System{
			Name: "weir-" + st.name, About: "weir by its Go library on " + st.about(), Needs: st.needs, Ordered: true,
			Modes: map[Mode]Settings{Durable: settings, Shipped: settings},
			Start: func(_ context.Context, p Place, _ Mode) (Server, error) { return startWeir(st, p) },
		})
	}
	return all
}

func startWeir(st weirStore, p Place) (*weirServer, error) {
	url, db, err := st.open(p)
	if err != nil {
		return nil, fmt.Errorf("start %s for weir: %w", st.name, err)
	}
	return &weirServer{url: url, database: db, dir: p.Dir}, nil
}

// database is the server that a system keeps its data on.
type database interface{ Close() error }

// ending is a database that closes as its place says.
func (p Place) ending(started interface {
	database
	Leave(to string) error
}, name string) database {
	if !p.Keep {
		return started
	}
	return closer(func() error { return started.Leave(filepath.Join(p.Dir, name)) })
}

// closer is a database of which nothing is known but how it closes.
type closer func() error

func (c closer) Close() error { return c() }

// postgres is a PostgreSQL that a system keeps its data on.
type postgres struct {
	database
	url    string
	server *pgtest.Server // nil: it was there before
}

func startPostgres(place Place) (string, database, error) {
	if place.Postgres != "" {
		return freshDatabase(place.Postgres)
	}
	server, err := pgtest.Launch("")
	if err != nil {
		return "", nil, err
	}
	return server.Admin(), &postgres{place.ending(server, "postgres"), server.Admin(), server}, nil
}

// weirServer is an embedded weir: its processor time is that of the client, and says so. It opens
// the library for logs and streams, or the queues alone, because the library's workers do not say
// when an acknowledgement is durable.
type weirServer struct {
	url      string
	database database // nil: none
	dir      string   // its files, if there is no database

	mu       sync.Mutex // guards all below
	log      *weir.Log
	node     *node.Node
	ends     []func() error // of what was opened, in the order in which it closes
	category *weir.Category
}

func (s *weirServer) Target() any { return s }

func (s *weirServer) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, end := range s.ends {
		errs = append(errs, end())
	}
	if s.database != nil {
		errs = append(errs, s.database.Close())
	}
	return errors.Join(errs...)
}

// Faults are those of its database: weir itself is in this process.
func (s *weirServer) Faults() Faults { return databaseFaults(s.database) }

// Requests are those to its bucket.
func (s *weirServer) Requests() (Requests, bool, error) { return requests(s.database) }

func (s *weirServer) Size(ctx context.Context) (int64, error) {
	return databaseSize(ctx, s.database, s.dir)
}

func warnings() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// library opens the Go library.
func (s *weirServer) library(ctx context.Context) (*weir.Log, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log != nil {
		return s.log, nil
	}
	log, err := weir.Open(ctx, s.url, weir.Options{Logger: warnings()})
	if err != nil {
		return nil, err
	}
	s.log = log
	s.ends = append(s.ends, func() error {
		closing, cancel := context.WithTimeout(context.Background(), closeWait)
		defer cancel()
		return log.Close(closing)
	})
	return log, nil
}

// queues opens the queues.
func (s *weirServer) queues(ctx context.Context) (*queue.Queues, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node != nil {
		return s.node.Queues, nil
	}
	opened, err := store.Open(ctx, s.url, warnings())
	if err != nil {
		return nil, err
	}
	n, err := node.Open(ctx, opened, node.Config{Logger: warnings()})
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	s.node = n
	running, end := context.WithCancel(context.Background())
	var all errgroup.Group
	all.Go(func() error { return n.Log.Run(running) })
	all.Go(func() error { return n.Queues.Run(running) })
	s.ends = append(s.ends, func() error { end(); return errors.Join(all.Wait(), opened.Close()) })
	return n.Queues, nil
}

// unsure translates weir's third outcome.
func unsure(err error) error {
	if errors.Is(err, weir.ErrUnsure) {
		return fmt.Errorf("%w: %w", ErrUnsure, err)
	}
	return err
}

func (s *weirServer) Create(ctx context.Context, topic string, partitions int) error {
	log, err := s.library(ctx)
	if err != nil {
		return err
	}
	return log.EnsureTopic(ctx, weir.Topic{Name: topic, Partitions: partitions})
}

func (s *weirServer) Publish(ctx context.Context, topic string, events []Event) error {
	all := make([]weir.Event, len(events))
	for i, e := range events {
		all[i] = weir.Event{Topic: topic, Key: e.Key, Value: e.Value}
	}
	_, err := s.log.Publish(ctx, all...)
	return unsure(err)
}

func (s *weirServer) Consume(ctx context.Context, topic, group string, members int, deliver func([]byte)) error {
	var all []*weir.Consumer
	for range members {
		c, err := s.log.Consume(ctx, weir.Subscription{Group: group, Topics: []string{topic}, Handler: func(_ context.Context, e weir.Event) error {
			deliver(e.Value)
			return nil
		}})
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	<-ctx.Done()
	var errs []error
	for _, c := range all {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
		errs = append(errs, c.Close(closing))
		cancel()
	}
	return errors.Join(errs...)
}

func (s *weirServer) CreateQueue(ctx context.Context, name string) error {
	all, err := s.queues(ctx)
	if err == nil {
		_, err = all.Create(ctx, queue.Spec{Name: name, Partitions: 4})
	}
	return err
}

func (s *weirServer) Enqueue(ctx context.Context, name string, values [][]byte) error {
	q, err := s.node.Queues.Open(ctx, name)
	if err != nil {
		return err
	}
	all := make([]queue.NewMessage, len(values))
	for i, v := range values {
		all[i].Value = v
	}
	_, err = q.Enqueue(ctx, all...)
	return unsure(err)
}

// Work lets each worker claim its next messages while the acknowledgement of those before is on its
// way.
func (s *weirServer) Work(ctx context.Context, name string, workers, batch int, got, acked func([]byte)) error {
	q, err := s.node.Queues.Open(ctx, name)
	if err != nil {
		return err
	}
	var all errgroup.Group
	for range workers {
		all.Go(func() error { return work(ctx, q, batch, got, acked) })
	}
	return all.Wait()
}

// claimWait is how long a claim waits for messages.
const claimWait = time.Second

func work(ctx context.Context, q *queue.Queue, batch int, got, acked func([]byte)) error {
	var acks errgroup.Group
	for ctx.Err() == nil {
		messages, err := q.Claim(ctx, queue.Claim{Max: batch, Wait: claimWait})
		if err != nil && ctx.Err() == nil {
			return errors.Join(err, acks.Wait())
		}
		receipts := make([]string, len(messages))
		for i, m := range messages {
			got(m.Value)
			receipts[i] = m.Receipt
		}
		if err := acks.Wait(); err != nil {
			return err
		}
		acks.Go(func() error {
			if len(receipts) == 0 {
				return nil
			}
			each, err := q.Ack(context.WithoutCancel(ctx), receipts...)
			if err := errors.Join(append(each, err)...); err != nil {
				return err
			}
			for _, m := range messages {
				acked(m.Value)
			}
			return nil
		})
	}
	return acks.Wait()
}

func (s *weirServer) Left(ctx context.Context, name string) (int64, error) {
	q, err := s.node.Queues.Open(ctx, name)
	if err != nil {
		return 0, err
	}
	stats, err := q.Stats(ctx)
	return stats.Ready + stats.Claimed + stats.Waiting + stats.Dead, err
}

func (s *weirServer) CreateStreams(ctx context.Context) error {
	log, err := s.library(ctx)
	if err != nil {
		return err
	}
	s.category, err = log.EnsureCategory(ctx, weir.CategorySpec{Name: "streams", Partitions: 4})
	return err
}

func (s *weirServer) Append(ctx context.Context, stream string, expected int64, values [][]byte) (int64, error) {
	events := make([]weir.NewStreamEvent, len(values))
	for i, v := range values {
		events[i] = weir.NewStreamEvent{Type: "measured", Data: v}
	}
	at := weir.ExpectedVersion(expected)
	if expected == AnyVersion {
		at = weir.AnyVersion
	}
	done, err := s.category.Append(ctx, stream, at, events...)
	var conflict *weir.ConflictError
	if errors.As(err, &conflict) {
		return 0, &Conflict{Actual: conflict.Actual}
	}
	return done.Version, unsure(err)
}

func (s *weirServer) ReadStream(ctx context.Context, stream string, from int64, most int) (versions []int64, values [][]byte, err error) {
	span := weir.StreamRange{From: from}
	if most > 0 {
		span.To = from + int64(most)
	}
	for e, err := range s.category.Events(ctx, stream, span) {
		if err != nil {
			return nil, nil, err
		}
		versions, values = append(versions, e.Version), append(values, e.Data)
	}
	return versions, values, nil
}

// Follow is a projection that keeps its state in memory.
func (s *weirServer) Follow(ctx context.Context, deliver func(Followed)) error {
	projector, err := s.log.Project(ctx, weir.Projection{
		Name: "follow-" + rand.Text(), Categories: []string{s.category.Name()}, MaxBatch: 1000,
		BatchHandler: func(_ context.Context, events []weir.ProjectedEvent) error {
			for _, e := range events {
				deliver(Followed{Stream: e.Stream, Version: e.Version, Value: e.Data, Saved: time.Now()})
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
	defer cancel()
	return projector.Close(closing)
}
