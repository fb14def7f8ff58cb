package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/weir-log/weir/internal/doctor"
)

// sessionSettings sets all settings of a session that weir relies on, in one trip: those that the
// server's and the user's defaults (init_connect) may change. Settings that programs have are
// theirs: the procedures of door/inbox rely on none of them.
func sessionSettings(isolation string) string {
	return strings.Join([]string{
		"SET NAMES utf8mb4",
		"SET SESSION TRANSACTION ISOLATION LEVEL " + isolation + ", READ WRITE",
		"SET SESSION " + strings.Join([]string{
			// Without NO_BACKSLASH_ESCAPES and ANSI_QUOTES: literals are escaped by the driver.
			// STRICT: nothing is cut to fit.
			"sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
			"autocommit = 1",
			"completion_type = 0", // COMMIT begins no other transaction
			"innodb_lock_wait_timeout = " + fmt.Sprint(int(lockWaitMax.Seconds())),
			"time_zone = '+00:00'",
			"sql_select_limit = 18446744073709551615", // none; DEFAULT would be the server's
			"sql_safe_updates = 0",                    // or a change of all rows of a table fails
			"sql_big_selects = 1",                     // or a join fails that might read max_join_size rows
			"sql_auto_is_null = 0",
		}, ", "),
		// MariaDB. The end of a statement's time may leave a text unanswered: concluding says why.
		// answerMax bounds a text.
		"SET SESSION max_statement_time = 0",
		// MariaDB since 10.6.18. If it is on, a transaction fails that locks a row which was
		// changed since its snapshot.
		"SET SESSION innodb_snapshot_isolation = OFF",
	}, "; ")
}

// advised is what a global setting should be, and what happens if it is not.
type advised struct {
	name   string
	good   []string // any of these; empty: any value is reported as OK
	level  doctor.Level
	advice string
}

// From MariaDB's "InnoDB System Variables", "Replication and Binary Log System Variables" and
// "Galera Cluster System Variables".
var advice = []advised{
	{"innodb_flush_log_at_trx_commit", []string{"1", "3"}, doctor.Bad, "a crash loses up to a second of acknowledged records: set innodb_flush_log_at_trx_commit = 1"},
	{"sync_binlog", []string{"1"}, doctor.Warn, "with a binary log, a crash of the machine can leave replicas with other records than this server: set sync_binlog = 1"},
	{"innodb_doublewrite", []string{"1", "ON"}, doctor.Bad, "a crash of the machine can leave half-written pages: set innodb_doublewrite = ON, unless the file system writes each page whole or not at all"},
	{"innodb_flush_method", nil, doctor.OK, ""},
	{"read_only", []string{"0", "OFF"}, doctor.Bad, "the server accepts no writes: connect to the primary, or set read_only = OFF"},
	{"max_allowed_packet", nil, doctor.OK, ""},
	{"max_connections", nil, doctor.OK, ""},
	{"innodb_buffer_pool_size", nil, doctor.OK, ""},
}

// unfitness is a state of the server in which Open refuses it. Doctor reports it.
type unfitness struct {
	name, value, advice string
}

// asked are the variables that judge and unfit read, besides those of advice.
var asked = []string{"log_bin", "binlog_format", "wsrep_on", "group_replication_group_name", "group_replication_single_primary_mode"}

// unfit returns why weir does not work on a server with these variables. oneNode: the operator says
// that all processes of weir, and all that publish with SQL, use this node of the cluster.
func unfit(vars map[string]string, oneNode bool) (all []unfitness) {
	on := func(name string) bool { return containsFold([]string{"ON", "1"}, vars[name]) }
	if on("log_bin") && strings.EqualFold(vars["binlog_format"], "STATEMENT") {
		all = append(all, unfitness{"binlog_format", "STATEMENT", "InnoDB refuses changes under READ COMMITTED with it (error 1665): set binlog_format = ROW or MIXED"})
	}
	const clustered = "on several nodes that are written, a commit does not see what another node commits, and updates get lost: let all processes of weir, and all " +
		"programs that publish with SQL, use one node, and say so with one_node=true in the URL"
	if on("wsrep_on") && !oneNode {
		all = append(all, unfitness{"wsrep_on", "ON", "the server is a node of a Galera cluster. " + clustered})
	}
	if vars["group_replication_group_name"] != "" && !on("group_replication_single_primary_mode") && !oneNode {
		all = append(all, unfitness{"group_replication_single_primary_mode", "OFF", "the server is in a replication group with several primaries. " + clustered + "; or set the group to single-primary mode"})
	}
	return all
}

// judge returns what doctor says of a server's variables.
func judge(vars map[string]string, oneNode bool) (found []doctor.Finding) {
	for _, a := range advice {
		value, is := vars[a.name]
		if !is {
			continue // this server does not have it
		}
		f := doctor.Finding{Name: a.name, Value: value}
		if len(a.good) > 0 && !containsFold(a.good, value) {
			f.Level, f.Advice = a.level, a.advice
		}
		if a.name == "max_allowed_packet" {
			var bytes int
			if _, err := fmt.Sscan(value, &bytes); err == nil && bytes < packetMin {
				f.Level, f.Advice = doctor.Bad, fmt.Sprintf("weir needs at least %d", packetMin)
			}
		}
		found = append(found, f)
	}
	for _, u := range unfit(vars, oneNode) {
		found = append(found, doctor.Finding{Name: u.name, Value: u.value, Level: doctor.Bad, Advice: u.advice})
	}
	return found
}

// variables reads the global variables that judge and unfit need. No right is needed for it.
func variables(ctx context.Context, db *sql.DB) (map[string]string, error) {
	var names []any
	for _, a := range advice {
		names = append(names, a.name)
	}
	for _, name := range asked {
		names = append(names, name)
	}
	rows, err := db.QueryContext(ctx, "SHOW GLOBAL VARIABLES WHERE variable_name IN "+list(len(names)), names...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	vars := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		vars[strings.ToLower(name)] = value
	}
	return vars, rows.Err()
}

func containsFold(list []string, s string) bool {
	for _, one := range list {
		if strings.EqualFold(one, s) {
			return true
		}
	}
	return false
}
