package system

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

// pgPlain is PostgreSQL and nothing else, as a team writes it: a table for each partition of a
// topic with a counter for its offsets, and a queue taken with SKIP LOCKED whose done messages go
// to an archive. The design is that of the article "Kafka is fast, I'll use Postgres"; the
// statements are written for this benchmark.
func pgPlain() System {
	settings := Settings{"fsync": "on", "synchronous_commit": "on", "settings": "PostgreSQL's defaults"}
	return System{
		Name: "pg-plain", About: "plain tables in PostgreSQL: a log with counters, a queue with SKIP LOCKED", Needs: "PostgreSQL", Ordered: true,
		Modes: map[Mode]Settings{Durable: settings, Shipped: settings},
		Start: func(ctx context.Context, place Place, _ Mode) (Server, error) {
			return startOnPostgres(ctx, place, "", func(_ context.Context, pool *pgxpool.Pool) (any, error) { return &plain{pool: pool}, nil })
		},
	}
}

type plain struct {
	pool       *pgxpool.Pool
	partitions int
}

// pollEvery is how long a reader that found nothing waits, as the article's does.
const pollEvery = time.Millisecond

func (p *plain) Create(ctx context.Context, topic string, partitions int) error {
	p.partitions = partitions
	for i := range partitions {
		table := pgx.Identifier{fmt.Sprintf("%s_%d", topic, i)}.Sanitize()
		counter := pgx.Identifier{fmt.Sprintf("%s_%d_counter", topic, i)}.Sanitize()
		if _, err := p.pool.Exec(ctx, `CREATE TABLE `+table+` (log_offset bigint PRIMARY KEY, payload bytea NOT NULL, created_at timestamptz DEFAULT now());
			CREATE TABLE `+counter+` (next bigint NOT NULL); INSERT INTO `+counter+` VALUES (0)`); err != nil {
			return err
		}
	}
	_, err := p.pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS consumed (consumer text, partition int, next bigint NOT NULL, PRIMARY KEY (consumer, partition))`)
	return err
}

// Publish writes the events of each partition with one statement, which raises the counter first:
// its row lock puts writers in line, so that offsets become visible in order.
func (p *plain) Publish(ctx context.Context, topic string, events []Event) error {
	of := make([][][]byte, p.partitions)
	for _, e := range events {
		n := partitionOf(e.Key, p.partitions)
		of[n] = append(of[n], e.Value)
	}
	return committed(ctx, p.pool, func(tx pgx.Tx) error {
		for i, values := range of {
			if len(values) == 0 {
				continue
			}
			table := pgx.Identifier{fmt.Sprintf("%s_%d", topic, i)}.Sanitize()
			counter := pgx.Identifier{fmt.Sprintf("%s_%d_counter", topic, i)}.Sanitize()
			if _, err := tx.Exec(ctx, `WITH c AS (UPDATE `+counter+` SET next = next + $1 RETURNING next - $1 AS first)
				INSERT INTO `+table+` (log_offset, payload) SELECT c.first + v.n - 1, v.payload FROM c, unnest($2::bytea[]) WITH ORDINALITY AS v (payload, n)`, len(values), values); err != nil {
				return err
			}
		}
		return nil
	})
}

// Consume gives each member its partitions for good; it claims a range of offsets and reads it in
// one transaction, as the article's reader does. It delivers before the commit, so that what a
// commit of unknown outcome has claimed is not lost.
func (p *plain) Consume(ctx context.Context, topic, group string, members int, deliver func([]byte)) error {
	for i := range p.partitions {
		if _, err := p.pool.Exec(ctx, `INSERT INTO consumed VALUES ($1, $2, 0) ON CONFLICT DO NOTHING`, topic+"/"+group, i); err != nil {
			return err
		}
	}
	all, ctx := errgroup.WithContext(ctx)
	for m := range min(members, p.partitions) {
		all.Go(func() error {
			for ctx.Err() == nil {
				found := false
				for i := m; i < p.partitions; i += members {
					n, err := p.take(ctx, topic, group, i, deliver)
					if err != nil && ctx.Err() == nil {
						return err
					}
					found = found || n > 0
				}
				if !found {
					pause(ctx, pollEvery)
				}
			}
			return nil
		})
	}
	return all.Wait()
}

// readMost is how many events a reader takes at once.
const readMost = 200

func (p *plain) take(ctx context.Context, topic, group string, partition int, deliver func([]byte)) (n int, err error) {
	table := pgx.Identifier{fmt.Sprintf("%s_%d", topic, partition)}.Sanitize()
	var payloads [][]byte
	err = pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		var next int64
		if err := tx.QueryRow(ctx, `SELECT next FROM consumed WHERE consumer = $1 AND partition = $2 FOR UPDATE`, topic+"/"+group, partition).Scan(&next); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `SELECT payload FROM `+table+` WHERE log_offset >= $1 ORDER BY log_offset LIMIT $2`, next, readMost)
		if err != nil {
			return err
		}
		if payloads, err = pgx.CollectRows(rows, pgx.RowTo[[]byte]); err != nil || len(payloads) == 0 {
			return err
		}
		for _, v := range payloads {
			deliver(v)
		}
		_, err = tx.Exec(ctx, `UPDATE consumed SET next = $3 WHERE consumer = $1 AND partition = $2`, topic+"/"+group, partition, next+int64(len(payloads)))
		return err
	})
	return len(payloads), err
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (p *plain) CreateQueue(ctx context.Context, queue string) error {
	name := pgx.Identifier{queue}.Sanitize()
	archive := pgx.Identifier{queue + "_archive"}.Sanitize()
	_, err := p.pool.Exec(ctx, `CREATE TABLE `+name+` (id bigserial PRIMARY KEY, payload bytea NOT NULL, created_at timestamptz DEFAULT now());
		CREATE TABLE `+archive+` (id bigint, payload bytea NOT NULL, created_at timestamptz, processed_at timestamptz DEFAULT now())`)
	return err
}

func (p *plain) Enqueue(ctx context.Context, queue string, values [][]byte) error {
	_, err := p.pool.Exec(ctx, `INSERT INTO `+pgx.Identifier{queue}.Sanitize()+` (payload) SELECT unnest($1::bytea[])`, values)
	return outcome(err)
}

// Work takes messages, handles them and archives them in one transaction. got is called inside of
// it, where a handler runs; acked after its commit.
func (p *plain) Work(ctx context.Context, queue string, workers, batch int, got, acked func([]byte)) error {
	name, archive := pgx.Identifier{queue}.Sanitize(), pgx.Identifier{queue + "_archive"}.Sanitize()
	var all errgroup.Group
	for range workers {
		all.Go(func() error {
			for ctx.Err() == nil {
				var payloads [][]byte
				err := pgx.BeginFunc(context.WithoutCancel(ctx), p.pool, func(tx pgx.Tx) error {
					rows, err := tx.Query(ctx, `WITH taken AS (DELETE FROM `+name+` WHERE id IN (SELECT id FROM `+name+` ORDER BY id FOR UPDATE SKIP LOCKED LIMIT $1) RETURNING id, payload, created_at)
						INSERT INTO `+archive+` (id, payload, created_at) SELECT id, payload, created_at FROM taken RETURNING payload`, batch)
					if err != nil {
						return err
					}
					if payloads, err = pgx.CollectRows(rows, pgx.RowTo[[]byte]); err != nil {
						return err
					}
					for _, v := range payloads {
						got(v)
					}
					return nil
				})
				switch {
				case err != nil && ctx.Err() == nil:
					return err
				case err != nil:
					return nil
				}
				for _, v := range payloads {
					acked(v)
				}
				if len(payloads) == 0 {
					pause(ctx, pollEvery)
				}
			}
			return nil
		})
	}
	return all.Wait()
}

func (p *plain) Left(ctx context.Context, queue string) (n int64, err error) {
	err = p.pool.QueryRow(ctx, `SELECT count(*) FROM `+pgx.Identifier{queue}.Sanitize()).Scan(&n)
	return n, err
}
