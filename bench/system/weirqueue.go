package system

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir"
)

// weirQueues are weir's other ways to a queue: the library's workers, messages that are enqueued in
// a transaction of the caller's, and SQL alone.
func weirQueues() []System {
	var all []System
	modes := func(st weirStore) map[Mode]Settings {
		settings := Settings{"flush": st.flush(), "settings": st.set()}
		return map[Mode]Settings{Durable: settings, Shipped: settings}
	}
	var postgres weirStore
	for _, st := range weirStores() {
		if st.name == "postgres" {
			postgres = st
		}
		all = append(all, System{
			Name: "weir-" + st.name + "+work", About: "weir's queue by the workers of its Go library, on " + st.about(), Needs: st.needs, Modes: modes(st),
			Start: func(_ context.Context, p Place, _ Mode) (Server, error) { return startWorkers(st, p, false) },
		})
	}
	return append(all,
		System{
			Name: "weir-postgres+tx", About: "the same; messages are enqueued in a transaction of the caller's", Needs: "PostgreSQL", Modes: modes(postgres),
			Start: func(_ context.Context, p Place, _ Mode) (Server, error) { return startWorkers(postgres, p, true) },
		},
		System{
			Name: "weir-postgres+sql", About: "weir's queue by SQL alone, with weir serve beside it: each worker is a session", Needs: "PostgreSQL", Modes: modes(postgres),
			Start: func(ctx context.Context, p Place, _ Mode) (Server, error) { return startSQLQueue(ctx, p, postgres) },
		})
}

// workersServer is a weirServer of which only the queue is measured.
type workersServer struct {
	*weirServer
	queue *workersQueue
}

func startWorkers(st weirStore, p Place, tx bool) (Server, error) {
	server, err := startWeir(st, p)
	if err != nil {
		return nil, err
	}
	return &workersServer{server, &workersQueue{server: server, tx: tx}}, nil
}

func (s *workersServer) Target() any { return s.queue }

func (s *workersServer) Close() error {
	if s.queue.pool != nil {
		s.queue.pool.Close()
	}
	return s.weirServer.Close()
}

// workersQueue is a queue by the library's workers.
type workersQueue struct {
	server *weirServer
	tx     bool          // messages are enqueued in a transaction
	pool   *pgxpool.Pool // for these
}

func (q *workersQueue) CreateQueue(ctx context.Context, name string) error {
	log, err := q.server.library(ctx)
	if err != nil {
		return err
	}
	if q.tx {
		if q.pool, err = pgxpool.New(ctx, q.server.url); err != nil {
			return err
		}
	}
	return log.EnsureQueue(ctx, weir.Queue{Name: name, Partitions: 4})
}

// enqueueMost is how many messages one call enqueues; a transaction has several calls.
const enqueueMost = 1000

func (q *workersQueue) Enqueue(ctx context.Context, name string, values [][]byte) error {
	all := make([]weir.NewMessage, len(values))
	for i, v := range values {
		all[i].Value = v
	}
	if !q.tx {
		_, err := q.server.log.Enqueue(ctx, name, all...)
		return unsure(err)
	}
	return outcome(pgx.BeginFunc(ctx, q.pool, func(tx pgx.Tx) error {
		for some := range slices.Chunk(all, enqueueMost) {
			if err := q.server.log.EnqueueTx(ctx, tx, name, some...); err != nil {
				return err
			}
		}
		return nil
	}))
}

// Work hears of an acknowledgement by the context of the handler: it ends when the message's
// acknowledgement is on disk, or with ErrClaimLost.
func (q *workersQueue) Work(ctx context.Context, name string, workers, batch int, got, acked func([]byte)) error {
	var hearing sync.WaitGroup
	defer hearing.Wait()
	w, err := q.server.log.Work(ctx, weir.WorkOptions{Queue: name, Concurrency: workers * batch, Handler: func(ctx context.Context, j weir.Job) error {
		got(j.Value)
		hearing.Add(1)
		context.AfterFunc(ctx, func() {
			defer hearing.Done()
			if !errors.Is(context.Cause(ctx), weir.ErrClaimLost) {
				acked(j.Value)
			}
		})
		return nil
	}})
	if err != nil {
		return err
	}
	<-ctx.Done()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
	defer cancel()
	return w.Close(closing)
}

func (q *workersQueue) Left(ctx context.Context, name string) (int64, error) {
	stats, err := q.server.log.QueueStats(ctx, name)
	return stats.Ready + stats.Claimed + stats.Waiting + stats.Dead, err
}

// sqlServer is a weir process, and sessions on its PostgreSQL.
type sqlServer struct {
	*broker
	log  *weir.Log // for what SQL does not do: it creates the queue, and looks how long it is
	pool *pgxpool.Pool
}

func startSQLQueue(ctx context.Context, p Place, st weirStore) (Server, error) {
	b, err := startWeirServe(ctx, p, st)
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(b.url)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	config.MaxConns = sessionsMost
	s := &sqlServer{broker: b}
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return s, nil
}

func (s *sqlServer) Target() any { return sqlQueue{s} }

func (s *sqlServer) Close() error {
	s.pool.Close()
	if s.log == nil {
		return s.broker.Close()
	}
	closing, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	return errors.Join(s.log.Close(closing), s.broker.Close())
}

type sqlQueue struct{ *sqlServer }

func (q sqlQueue) CreateQueue(ctx context.Context, name string) (err error) {
	if q.log, err = weir.Open(ctx, q.url, weir.Options{Logger: warnings()}); err != nil {
		return err
	}
	return q.log.EnsureQueue(ctx, weir.Queue{Name: name, Partitions: 4})
}

func (q sqlQueue) Enqueue(ctx context.Context, name string, values [][]byte) error {
	_, err := q.pool.Exec(ctx, `SELECT weir.enqueue($1, v) FROM unnest($2::bytea[]) AS v`, name, values)
	return outcome(err)
}

func (q sqlQueue) Work(ctx context.Context, name string, workers, batch int, got, acked func([]byte)) error {
	var all errgroup.Group
	for range workers {
		all.Go(func() error {
			return q.pool.AcquireFunc(context.WithoutCancel(ctx), func(conn *pgxpool.Conn) error {
				for ctx.Err() == nil {
					if err := takeBySQL(context.WithoutCancel(ctx), conn.Conn(), name, batch, got, acked); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	return all.Wait()
}

// takeBySQL claims messages, handles them, and acknowledges them in a transaction.
func takeBySQL(ctx context.Context, conn *pgx.Conn, name string, batch int, got, acked func([]byte)) error {
	var messages []byte
	if err := conn.QueryRow(ctx, `CALL weir.claim($1, $2, wait => '1 s')`, name, batch).Scan(&messages); err != nil {
		return err
	}
	var all []struct {
		Receipt string  `json:"receipt"`
		Value   *string `json:"value"`
		Base64  []byte  `json:"value_b64"`
	}
	if err := json.Unmarshal(messages, &all); err != nil || len(all) == 0 {
		return err
	}
	receipts := make([]string, len(all))
	for i, m := range all {
		receipts[i] = m.Receipt
		if m.Value != nil {
			all[i].Base64 = []byte(*m.Value)
		}
		got(all[i].Base64)
	}
	if _, err := conn.Exec(ctx, `SELECT weir.ack(r) FROM unnest($1::text[]) AS r`, receipts); err != nil {
		return err
	}
	for _, m := range all {
		acked(m.Base64)
	}
	return nil
}

func (q sqlQueue) Left(ctx context.Context, name string) (int64, error) {
	stats, err := q.log.QueueStats(ctx, name)
	return stats.Ready + stats.Claimed + stats.Waiting + stats.Dead, err
}
