package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/weir-log/weir/internal/doctor"
)

// Examine reports what the store in a database is, and whether it keeps what it acknowledges. It changes nothing, and may run while the store is in use.
func Examine(ctx context.Context, address string) ([]doctor.Finding, error) {
	config, err := parse(address)
	if err != nil {
		return nil, fmt.Errorf("examine MySQL: %w", err)
	}
	db := pool(config, "READ COMMITTED", 1)
	defer db.Close()
	x := examination{ctx: ctx, db: db}
	x.add("store", "MySQL or MariaDB at "+nameOf(config))
	for _, check := range []func() error{x.server, x.settings, x.log} {
		if err := check(); err != nil {
			return nil, fmt.Errorf("examine MySQL at %s: %w", nameOf(config), readFailed(err))
		}
	}
	return x.findings, nil
}

type examination struct {
	ctx      context.Context
	db       *sql.DB
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

// advised is what a setting should be, and what happens if it is not.
type advised struct {
	name   string
	good   []string // any of these; empty: any value is reported as OK
	level  doctor.Level
	advice string
}

// From MariaDB's "InnoDB System Variables", "Replication and Binary Log System Variables" and "Galera Cluster System Variables".
var advice = []advised{
	{"innodb_flush_log_at_trx_commit", []string{"1", "3"}, doctor.Bad, "a crash loses up to a second of acknowledged records: set innodb_flush_log_at_trx_commit = 1"},
	{"sync_binlog", []string{"1"}, doctor.Warn, "with a binary log, a crash of the machine can leave replicas with other records than this server: set sync_binlog = 1"},
	{"innodb_doublewrite", []string{"1", "ON"}, doctor.Bad, "a crash of the machine can leave half-written pages: set innodb_doublewrite = ON, unless the file system writes each page whole or not at all"},
	{"innodb_flush_method", nil, doctor.OK, ""},
	{"read_only", []string{"0", "OFF"}, doctor.Bad, "the server accepts no writes: connect to the primary, or set read_only = OFF"},
	{"max_allowed_packet", nil, doctor.OK, ""},
	{"max_connections", nil, doctor.OK, ""},
	{"innodb_buffer_pool_size", nil, doctor.OK, ""},
	{"wsrep_on", []string{"0", "OFF"}, doctor.Warn, "the server is a node of a Galera cluster: let all processes of weir connect to one node; locks are not those of the cluster, and a node that crashes with its cluster can lose acknowledged records"},
}

func (x *examination) settings() error {
	for _, a := range advice {
		var name, value string
		err := x.db.QueryRowContext(x.ctx, "SHOW GLOBAL VARIABLES WHERE variable_name = ?", a.name).Scan(&name, &value)
		if err == sql.ErrNoRows {
			continue // this server does not have it
		}
		if err != nil {
			return err
		}
		found := x.add(a.name, value)
		if len(a.good) > 0 && !containsFold(a.good, value) {
			found.Level, found.Advice = a.level, a.advice
		}
		if a.name == "max_allowed_packet" {
			var bytes int
			if _, err := fmt.Sscan(value, &bytes); err == nil && bytes < packetMin {
				found.Level, found.Advice = doctor.Bad, fmt.Sprintf("weir needs at least %d", packetMin)
			}
		}
	}
	return nil
}

func containsFold(list []string, s string) bool {
	for _, one := range list {
		if strings.EqualFold(one, s) {
			return true
		}
	}
	return false
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
