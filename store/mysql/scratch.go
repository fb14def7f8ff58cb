package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/weir-log/weir/internal/verify"
)

// Scratch makes a cell in a database, which the addresses reach: a table of its own. It has one
// row, which is updated if it is at the version before.
func Scratch(ctx context.Context, addresses ...string) (*verify.Scratch, error) {
	s := &verify.Scratch{}
	var pools []*sql.DB
	table := "weir_verify_" + verify.RandomName()
	s.Remove = func(ctx context.Context) error {
		_, err := pools[0].ExecContext(ctx, "DROP TABLE IF EXISTS "+table)
		for _, p := range pools {
			err = errors.Join(err, p.Close())
		}
		return err
	}
	for _, address := range addresses {
		config, err := parse(address)
		if err != nil {
			return nil, fmt.Errorf("verify MySQL: %w", err)
		}
		s.Name = nameOf(config.Config)
		for range 2 {
			p := pool(config.Config, "READ COMMITTED", 2)
			pools = append(pools, p)
			s.Cells = append(s.Cells, cell{p, table})
		}
	}
	_, err := pools[0].ExecContext(ctx, "CREATE TABLE "+table+" (one INT PRIMARY KEY, version BIGINT NOT NULL, value VARCHAR(200) NOT NULL) ENGINE = InnoDB")
	if err == nil {
		_, err = pools[0].ExecContext(ctx, "INSERT INTO "+table+" VALUES (1, 0, '')")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("verify MySQL at %s: make table %s: %w", s.Name, table, err), s.Remove(ctx))
	}
	return s, nil
}

type cell struct {
	db    *sql.DB
	table string
}

func (c cell) Put(ctx context.Context, version int64, value string) (won bool, err error) {
	did, err := c.db.ExecContext(ctx, "UPDATE "+c.table+" SET version = version + 1, value = ? WHERE one = 1 AND version = ? - 1", value, version)
	if err != nil {
		return false, err
	}
	n, err := did.RowsAffected()
	return n == 1, err
}

func (c cell) Get(ctx context.Context) (version int64, value string, err error) {
	err = c.db.QueryRowContext(ctx, "SELECT version, value FROM "+c.table+" WHERE one = 1").Scan(&version, &value)
	return version, value, err
}
