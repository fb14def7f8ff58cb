package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/doctor"
)

// Examine reports what the store in a database is, and whether it keeps what it acknowledges. It
// changes nothing, and may run while the store is in use.
func Examine(ctx context.Context, address string) ([]doctor.Finding, error) {
	config, err := parse(address)
	if err != nil {
		return nil, fmt.Errorf("examine MySQL: %w", err)
	}
	db := pool(config.Config, "READ COMMITTED", 1)
	defer db.Close()
	x := examination{ctx: ctx, db: db, oneNode: config.oneNode}
	x.add("store", "MySQL or MariaDB at "+nameOf(config.Config))
	for _, check := range []func() error{x.server, x.settings, x.log} {
		if err := check(); err != nil {
			return nil, fmt.Errorf("examine MySQL at %s: %w", nameOf(config.Config), readFailed(err))
		}
	}
	return x.findings, nil
}

// Keys lists at most limit keys that begin with prefix, for an examination. It changes nothing. A
// database without weir's tables has none.
func Keys(ctx context.Context, address, prefix string, limit int) (list []eventlog.KeyValue, err error) {
	config, err := parse(address)
	if err != nil {
		return nil, fmt.Errorf("examine MySQL: %w", err)
	}
	db := pool(config.Config, "READ COMMITTED", 1)
	defer db.Close()
	rows, err := db.QueryContext(ctx, selectKeys+"k >= ? AND k < ? ORDER BY k LIMIT ?", []byte(prefix), end(prefix), limit)
	if code(err) == errNoTable {
		return nil, nil
	}
	if err == nil {
		defer rows.Close()
		for v := new(view); err == nil && rows.Next(); {
			var kv eventlog.KeyValue
			kv, err = v.keyValue(rows)
			list = append(list, kv)
		}
		err = errors.Join(err, rows.Err())
	}
	if err != nil {
		return nil, fmt.Errorf("examine MySQL at %s: list keys under %q: %w", nameOf(config.Config), prefix, readFailed(err))
	}
	return list, nil
}

type examination struct {
	ctx      context.Context
	db       *sql.DB
	oneNode  bool
	findings []doctor.Finding
}

func (x *examination) add(name, value string) *doctor.Finding {
	x.findings = append(x.findings, doctor.Finding{Name: name, Value: value})
	return &x.findings[len(x.findings)-1]
}

func (x *examination) server() error {
	var version string
	var major, minor int
	if err := x.db.QueryRowContext(x.ctx, "SELECT version()").Scan(&version); err != nil {
		return err
	}
	_, _ = fmt.Sscanf(version, "%d.%d", &major, &minor)
	maria := strings.Contains(version, "MariaDB")
	found := x.add("server version", version)
	if maria && (major < 10 || major == 10 && minor < 6) || !maria && major < 8 {
		found.Level, found.Advice = doctor.Bad, "weir needs MariaDB 10.6 or later, or MySQL 8.0 or later: upgrade the server"
	}
	return nil
}

func (x *examination) settings() error {
	vars, err := variables(x.ctx, x.db)
	if err == nil {
		x.findings = append(x.findings, judge(vars, x.oneNode)...)
	}
	return err
}

// log reports what the tables hold.
func (x *examination) log() error {
	var version int
	switch err := x.db.QueryRowContext(x.ctx, "SELECT coalesce(max(version), 0) FROM weir_migration").Scan(&version); {
	case code(err) == errNoTable:
		x.add("tables", "none; weir creates them when it starts")
		return nil
	case err != nil:
		return err
	}
	x.add("tables", fmt.Sprintf("version %d", version))
	var partitions, bytes, trash int64
	if err := x.db.QueryRowContext(x.ctx, "SELECT count(*), coalesce(sum(next_byte - first_byte - removed), 0) FROM weir_partition").Scan(&partitions, &bytes); err != nil {
		return err
	}
	x.add("partitions", fmt.Sprint(partitions))
	x.add("bytes of records", fmt.Sprint(bytes))
	if err := x.db.QueryRowContext(x.ctx, "SELECT count(*) FROM weir_trash").Scan(&trash); err != nil {
		return err
	}
	x.add("partitions with trimmed batches to delete", fmt.Sprint(trash))
	return nil
}
