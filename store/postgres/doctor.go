package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/doctor"
)

// openMax is the age from which an open transaction is reported.
const openMax = 10 * time.Minute

// leastMinor is the least minor version of each major version without the known errors by which
// users of the database can become its superuser or overwrite its memory. Sources: the release of
// 14 May 2026,
// https://www.postgresql.org/about/news/postgresql-184-1710-1614-1518-and-1423-released-3297/, and
// for 15 Debian's changelog of 15.20 (13 November 2026), which is the newest one at hand.
var leastMinor = map[int]int{14: 23, 15: 20, 16: 14, 17: 10, 18: 4}

// versionAdvice judges a version, as server_version_num counts. "" if there is nothing to do.
func versionAdvice(server int) (doctor.Level, string) {
	major, minor := server/10000, server%10000
	switch least, known := leastMinor[major]; {
	case server < serverMin:
		return doctor.Bad, "weir needs 14 or later: upgrade the server"
	case known && minor < least:
		return doctor.Warn, fmt.Sprintf("it has known security errors: update it to %d.%d or later, which needs no dump", major, least)
	}
	return doctor.OK, ""
}

// Examine reports what the store in a database is, and whether it keeps what it acknowledges. It
// changes nothing, and may run while the store is in use.
func Examine(ctx context.Context, address string) ([]doctor.Finding, error) {
	x, err := examining(ctx, address)
	if err != nil {
		return nil, err
	}
	defer x.conn.Close(context.WithoutCancel(ctx))
	x.add("store", "PostgreSQL at "+x.at)
	for _, check := range []func() error{x.server, x.pooler, x.settings, x.standbys, x.schema, x.names, x.roles, x.size, x.notifications, func() error { return x.transactions(openMax) }} {
		if err := check(); err != nil {
			return nil, fmt.Errorf("examine PostgreSQL at %s: %w", x.at, readFailed(err))
		}
	}
	return x.findings, nil
}

// Keys lists at most limit keys that begin with prefix, for an examination. It changes nothing. A
// database without weir's tables has none.
func Keys(ctx context.Context, address, prefix string, limit int) ([]eventlog.KeyValue, error) {
	x, err := examining(ctx, address)
	if err != nil {
		return nil, err
	}
	defer x.conn.Close(context.WithoutCancel(ctx))
	list, err := x.keys(prefix, limit)
	if err != nil {
		return nil, fmt.Errorf("examine PostgreSQL at %s: list keys under %q: %w", x.at, prefix, readFailed(err))
	}
	return list, nil
}

func (x *examination) keys(prefix string, limit int) (list []eventlog.KeyValue, err error) {
	if x.facts, err = inspect(x.ctx, x.conn, logPart); err != nil || !x.facts.ours {
		return nil, err
	}
	high, _ := upperBound(prefix)
	rows, err := x.conn.Query(x.ctx, `SELECT key, version, value, age_us FROM weir.list($1, $2, '', $3)`, prefix, high, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (kv eventlog.KeyValue, err error) {
		var age int64
		err = row.Scan(&kv.Key, &kv.Version, &kv.Value, &age)
		kv.Age = max(0, time.Duration(age)*time.Microsecond) // the server's clock may be set back
		return kv, err
	})
}

// examining connects to a database to examine it.
func examining(ctx context.Context, address string) (*examination, error) {
	plain, opts, err := options(address, Options{})
	if err != nil {
		return nil, fmt.Errorf("examine PostgreSQL: %w", err)
	}
	config, err := parse(plain)
	if err != nil {
		return nil, fmt.Errorf("examine PostgreSQL: %w", err)
	}
	// Connect as through a pooler, in case there is one: a pooler would refuse the settings that a
	// store sends.
	configure(config.ConnConfig, Options{Pooled: true})
	conn, err := connect(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("examine PostgreSQL at %s: %w", serverName(config.ConnConfig), readFailed(err))
	}
	return &examination{ctx: ctx, conn: conn, at: serverName(config.ConnConfig), pooled: opts.Pooled}, nil
}

type examination struct {
	ctx      context.Context
	conn     *pgx.Conn
	at       string // the server's name
	facts    facts
	pooled   bool // the URL says that there is a pooler
	findings []doctor.Finding
}

func (x *examination) add(name, value string) *doctor.Finding {
	x.findings = append(x.findings, doctor.Finding{Name: name, Value: value})
	return &x.findings[len(x.findings)-1]
}

func (x *examination) server() (err error) {
	if x.facts, err = inspect(x.ctx, x.conn, logPart); err != nil {
		return err
	}
	version := x.add("PostgreSQL version", x.facts.serverText)
	version.Level, version.Advice = versionAdvice(x.facts.server)
	encoding := x.add("encoding", x.facts.encoding)
	if x.facts.encoding != "UTF8" {
		encoding.Level, encoding.Advice = doctor.Bad, "weir needs a database with ENCODING 'UTF8'"
	}
	role := x.add("server role", "primary")
	if x.facts.standby {
		role.Value, role.Level, role.Advice = "standby", doctor.Bad, "it accepts no writes: connect to the primary"
	}
	return nil
}

// pooler checks for a pooler. Through a transaction pooler the answering process is not always the
// one that the connection began with.
func (x *examination) pooler() error {
	var pid uint32
	if err := x.conn.QueryRow(x.ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		return err
	}
	found := x.add("pooler", "none found")
	switch {
	case pid == x.conn.PgConn().PID():
	case x.pooled:
		found.Value = "found, and the URL has weir_pooled=true"
	default:
		found.Value, found.Level = "found", doctor.Warn
		found.Advice = "add weir_pooled=true to the URL, or connect to the server directly, which is faster"
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

var advice = []advised{
	{"fsync", []string{"on"}, doctor.Bad, "a crash of the machine loses acknowledged records and may ruin the database: set fsync = on"},
	{"full_page_writes", []string{"on"}, doctor.Bad, "a crash of the machine can leave half-written pages: set full_page_writes = on, unless the file system writes each page whole or not at all"},
	{"synchronous_commit", []string{"on", "remote_apply"}, doctor.OK, "weir sets it to on for its own commits"},
	{"data_checksums", []string{"on"}, doctor.Warn, "damaged pages are not detected: stop the server and run pg_checksums --enable"},
	{"wal_sync_method", nil, doctor.OK, ""},
	{"shared_buffers", nil, doctor.OK, ""},
	{"max_connections", nil, doctor.OK, ""},
	{"autovacuum", []string{"on"}, doctor.Bad, "the small tables of the log grow without limit: set autovacuum = on"},
	{"default_transaction_read_only", []string{"off"}, doctor.Bad, "weir cannot write: ALTER ROLE … SET default_transaction_read_only = off"},
	{"session_replication_role", []string{"origin", "local"}, doctor.Bad, "triggers do not run, and weir refuses to write: ALTER ROLE … SET session_replication_role = origin"},
}

func (x *examination) settings() error {
	for _, a := range advice {
		var value string
		if err := x.conn.QueryRow(x.ctx, `SELECT current_setting($1)`, a.name).Scan(&value); err != nil {
			return err
		}
		found := x.add(a.name, value)
		if value == "" {
			found.Value = "none"
		}
		good := len(a.good) == 0
		for _, g := range a.good {
			good = good || value == g
		}
		if !good {
			found.Level, found.Advice = a.level, a.advice
		}
	}
	// A checkpoint starts before the WAL reaches max_wal_size. After it, the first change of each
	// page writes the whole page to the WAL.
	var megabytes int64
	if err := x.conn.QueryRow(x.ctx, `SELECT setting::bigint FROM pg_settings WHERE name = 'max_wal_size'`).Scan(&megabytes); err != nil {
		return err
	}
	wal := x.add("max_wal_size", fmt.Sprintf("%d MB", megabytes))
	if megabytes < 4096 {
		wal.Level, wal.Advice = doctor.Warn, "if more than a few MB are written per second, checkpoints come too often and slow producers down: set max_wal_size to 4GB or more"
	}
	return nil
}

// standbys warns if a failover may lose what was acknowledged: the server waits for none of those
// that follow it before it answers a commit. A role without the rights of pg_monitor sees only how
// many follow; archivers and those that get single tables (logical slots) are no standbys.
func (x *examination) standbys() error {
	var names string
	var following int
	err := x.conn.QueryRow(x.ctx, `SELECT current_setting('synchronous_standby_names'), count(*) FROM pg_stat_replication r
		WHERE coalesce(r.state, 'streaming') = 'streaming' AND coalesce(r.application_name, '') NOT IN ('pg_basebackup', 'pg_receivewal', 'barman_receive_wal')
		AND NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.slot_type = 'logical' AND s.active_pid = r.pid)`).Scan(&names, &following)
	if code(err) == "42501" { // insufficient privilege
		x.add("synchronous_standby_names", "unknown: this role may not read who follows the server")
		return nil
	}
	if err != nil {
		return err
	}
	found := x.add("synchronous_standby_names", names)
	switch {
	case names != "":
	case following > 0:
		found.Value = fmt.Sprintf("none, and %d follow this server", following)
		found.Level, found.Advice = doctor.Warn, "if one of them may be promoted, it may lack records that were acknowledged then: name it in synchronous_standby_names"
	default:
		found.Value = "none"
	}
	return nil
}

func (x *examination) schema() error {
	schema := x.add("schema", fmt.Sprintf("weir, version %d of %d", x.facts.version, logPart.newest()))
	err := x.facts.suitable(logPart)
	switch {
	case !x.facts.schema && err == nil:
		schema.Value = "does not exist yet: weir serve creates it"
	case !x.facts.ours && err == nil:
		schema.Value = "empty: weir serve creates its tables"
	case err != nil && !x.facts.standby:
		schema.Level, schema.Advice = doctor.Bad, err.Error()
	case x.facts.version < logPart.newest():
		schema.Level, schema.Advice = doctor.Warn, "weir serve of this version upgrades it when it starts"
	}
	return nil
}

// names warns if tables that the role creates without naming a schema come among weir's own.
func (x *examination) names() error {
	var first, role string
	if err := x.conn.QueryRow(x.ctx, `SELECT coalesce(current_schema()::text, 'none'), current_user::text`).Scan(&first, &role); err != nil {
		return err
	}
	found := x.add("first schema of the search path", first)
	if first == "weir" {
		found.Level = doctor.Warn
		found.Advice = fmt.Sprintf("tables that role %[1]s creates without naming a schema are among weir's own: move those that are there with ALTER TABLE … SET SCHEMA, "+
			"and run ALTER ROLE %[1]s IN DATABASE %[2]s SET search_path = public", pgx.Identifier{role}.Sanitize(), pgx.Identifier{x.facts.database}.Sanitize())
	}
	return nil
}

// roles warns if programs that publish or consume with SQL lack their rights, as after a restore
// into another server.
func (x *examination) roles() error {
	const missing = "weir.missing_rights()" // a function of door/sqlfn
	var may bool
	err := x.conn.QueryRow(x.ctx, `SELECT coalesce(has_schema_privilege(to_regnamespace('weir')::oid, 'USAGE') AND has_function_privilege(to_regprocedure($1)::oid, 'EXECUTE'), false)`,
		missing).Scan(&may)
	if err != nil || !may {
		return err
	}
	rows, err := x.conn.Query(x.ctx, `SELECT role, lack FROM `+missing)
	if err != nil {
		return err
	}
	var role, lack string
	tag, err := pgx.ForEachRow(rows, []any{&role, &lack}, func() error {
		found := x.add("SQL role", role+" "+lack)
		found.Level = doctor.Warn
		found.Advice = fmt.Sprintf("programs that publish or consume with SQL are refused: CREATE ROLE %[1]s NOLOGIN if it is missing, start weir again, and GRANT %[1]s to the roles of programs", role)
		return nil
	})
	if err == nil && tag.RowsAffected() == 0 {
		x.add("SQL roles", "all four exist")
	}
	return err
}

func (x *examination) size() error {
	var database, log, segments int64
	if err := x.conn.QueryRow(x.ctx, `
		SELECT pg_database_size(current_database()),
		       coalesce(sum(pg_total_relation_size(c.oid)) FILTER (WHERE c.relkind = 'r'), 0)::bigint,
		       count(*) FILTER (WHERE c.relkind = 'r' AND c.relname ~ '^batch_[0-9]+$')
		FROM pg_class c WHERE c.relnamespace = to_regnamespace('weir')`).Scan(&database, &log, &segments); err != nil {
		return err
	}
	x.add("size", fmt.Sprintf("%d MB in %d segments; the whole database has %d MB", log>>20, segments, database>>20))
	x.add("free disk space", "unknown: PostgreSQL does not report it; check on the server")
	return nil
}

// notifications tells how full the server's notification queue is: a transaction that notified
// cannot commit once it is full.
func (x *examination) notifications() error {
	var usage float64
	if err := x.conn.QueryRow(x.ctx, `SELECT pg_notification_queue_usage()`).Scan(&usage); err != nil {
		return err
	}
	found := x.add("notification queue", fmt.Sprintf("%.0f %% used", usage*100))
	if usage >= usageMax {
		found.Level, found.Advice = doctor.Warn, "weir does not notify while half of it is used, and polls instead. "+queueAdvice
	}
	return nil
}

// transactions warns of transactions that keep vacuum from removing old versions of rows.
func (x *examination) transactions(older time.Duration) error {
	rows, err := x.conn.Query(x.ctx, `
		SELECT coalesce(pid, 0), coalesce(usename, '?'), coalesce(application_name, ''), coalesce(state, '?'),
		       extract(epoch FROM clock_timestamp() - xact_start)::bigint, age(backend_xmin)::bigint
		FROM pg_stat_activity
		WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND clock_timestamp() - xact_start > make_interval(secs => $1)
		ORDER BY xact_start LIMIT 5`, older.Seconds())
	if err != nil {
		return err
	}
	type open struct {
		pid                int32
		role, name, state  string
		seconds, staleness int64
	}
	long, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (o open, err error) {
		err = row.Scan(&o.pid, &o.role, &o.name, &o.state, &o.seconds, &o.staleness)
		return o, err
	})
	if err != nil {
		return err
	}
	for _, o := range long {
		found := x.add("open transaction", fmt.Sprintf("pid %d (%s), %s for %v, %d transactions behind",
			o.pid, strings.TrimSpace(o.role+" "+o.name), o.state, time.Duration(o.seconds)*time.Second, o.staleness))
		found.Level = doctor.Warn
		found.Advice = fmt.Sprintf("vacuum cannot remove old versions of rows while it is open: end it, or run SELECT pg_terminate_backend(%d)", o.pid)
	}
	if len(long) == 0 {
		x.add("open transactions", fmt.Sprintf("none older than %v", older))
	}
	var prepared int64
	err = x.conn.QueryRow(x.ctx, `SELECT count(*) FROM pg_prepared_xacts WHERE clock_timestamp() - prepared > make_interval(secs => $1)`,
		older.Seconds()).Scan(&prepared)
	if err != nil || prepared == 0 {
		return err
	}
	found := x.add("prepared transactions", fmt.Sprintf("%d older than %v", prepared, older))
	found.Level, found.Advice = doctor.Warn, "vacuum cannot remove old versions of rows while they exist: find them in pg_prepared_xacts, and run COMMIT PREPARED or ROLLBACK PREPARED"
	return nil
}
