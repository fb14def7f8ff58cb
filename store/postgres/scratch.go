package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/internal/verify"
)

// Scratch makes a cell in a database, which the addresses reach: a table of its own, in the first
// schema of the search path. It has one row, which is updated if it is at the version before.
func Scratch(ctx context.Context, addresses ...string) (*verify.Scratch, error) {
	s := &verify.Scratch{}
	var pools []*pgxpool.Pool
	table := "weir_verify_" + verify.RandomName()
	s.Remove = func(ctx context.Context) error {
		_, err := pools[0].Exec(ctx, "DROP TABLE IF EXISTS "+table)
		for _, p := range pools {
			p.Close()
		}
		return err
	}
	for _, address := range addresses {
		plain, opts, err := options(address, Options{})
		if err != nil {
			return nil, fmt.Errorf("verify PostgreSQL: %w", err)
		}
		config, err := parse(plain)
		if err != nil {
			return nil, fmt.Errorf("verify PostgreSQL: %w", err)
		}
		configure(config.ConnConfig, opts)
		s.Name = serverName(config.ConnConfig)
		for range 2 {
			p, err := pool(config, 2)
			if err != nil {
				return nil, fmt.Errorf("verify PostgreSQL at %s: %w", s.Name, err)
			}
			pools = append(pools, p)
			s.Cells = append(s.Cells, cell{p, table})
		}
	}
	_, err := pools[0].Exec(ctx, "CREATE TABLE "+table+" (one int PRIMARY KEY, version bigint NOT NULL, value text NOT NULL)")
	if err == nil {
		_, err = pools[0].Exec(ctx, "INSERT INTO "+table+" VALUES (1, 0, '')")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("verify PostgreSQL at %s: make table %s: %w", s.Name, table, err), s.Remove(ctx))
	}
	return s, nil
}

type cell struct {
	pool  *pgxpool.Pool
	table string
}

func (c cell) Put(ctx context.Context, version int64, value string) (won bool, err error) {
	tag, err := c.pool.Exec(ctx, "UPDATE "+c.table+" SET version = version + 1, value = $2 WHERE one = 1 AND version = $1 - 1", version, value)
	return tag.RowsAffected() == 1, err
}

func (c cell) Get(ctx context.Context) (version int64, value string, err error) {
	err = c.pool.QueryRow(ctx, "SELECT version, value FROM "+c.table+" WHERE one = 1").Scan(&version, &value)
	return version, value, err
}
