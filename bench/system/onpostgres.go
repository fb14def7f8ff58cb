package system

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sessionsMost is how many sessions a system on PostgreSQL has: more than there are callers.
const sessionsMost = 80

// onPostgres is a system that is nothing but a database and a client.
type onPostgres struct {
	pool     *pgxpool.Pool
	target   any
	database database
}

func (s *onPostgres) Target() any    { return s.target }
func (s *onPostgres) Close() error   { s.pool.Close(); return s.database.Close() }
func (s *onPostgres) Faults() Faults { return databaseFaults(s.database) }

func (s *onPostgres) Size(ctx context.Context) (int64, error) {
	return databaseSize(ctx, s.database, "")
}

// startOnPostgres starts a PostgreSQL with its defaults, and lets install make what the system is.
// Each session begins with a statement, if there is one.
func startOnPostgres(ctx context.Context, place Place, each string, install func(context.Context, *pgxpool.Pool) (any, error)) (Server, error) {
	url, db, err := startPostgres(place)
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	config.MaxConns = sessionsMost
	if each != "" {
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, each)
			return err
		}
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	target, err := install(ctx, pool)
	if err != nil {
		pool.Close()
		return nil, errors.Join(err, db.Close())
	}
	return &onPostgres{pool: pool, target: target, database: db}, nil
}
