package inbox

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/weir-log/weir/store/mysql"
)

// proceduresVersion is in the comment of the procedures on MariaDB and MySQL. Raise it with each
// change of one.
const proceduresVersion = 8

// procedures are those of MariaDB and MySQL, without "weir_". What one calls comes before it. A
// shard has only the first proceduresOnShards of them.
var procedures = []string{"publish_event", "publish", "is_codeword", "read_events", "events", "consume", "partitions"}

const proceduresOnShards = 2

type mysqlTables struct {
	session *mysql.Session
	shard   int
}

func (m mysqlTables) table(name string) string { return name }

func (m mysqlTables) exists(name string) string {
	return "SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = '" + name + "'"
}

func (m mysqlTables) query(ctx context.Context, each func([]any) error, statement string) error {
	return m.session.Query(ctx, each, statement)
}

func (m mysqlTables) queryIn(ctx context.Context, each func([]any) error, statement string) (in string, err error) {
	return m.session.QueryIn(ctx, each, statement)
}

func (m mysqlTables) aim(ctx context.Context, in string, targets []target) error {
	list, err := listOf(targets)
	if err != nil {
		return err
	}
	// The lock keeps the rows there until their targets are: who deletes a row then deletes its
	// target, too. Only committed rows are locked, by their ids, so no publisher waits for it.
	// MySQL refuses a lock on all tables, as a JSON_TABLE cannot be locked, and MariaDB knows no
	// OF: each reads its own comment (MariaDB's documentation, "Comment Syntax").
	return m.session.ExecIn(ctx, in, `
		INSERT IGNORE INTO weir_inbox_target
		SELECT t.* FROM JSON_TABLE(?, '$[*]' COLUMNS (
			id BIGINT PATH '$[0]', topic_id CHAR(32) CHARACTER SET ascii PATH '$[1]', partition_number INT PATH '$[2]', partition_id BIGINT PATH '$[3]')) AS t
		STRAIGHT_JOIN weir_inbox AS i FORCE INDEX (PRIMARY) ON i.id = t.id
		/*M! LOCK IN SHARE MODE */ /*!80000 FOR SHARE OF i */;
		UPDATE weir_inbox_barrier SET n = n + 1`, list)
}

func (m mysqlTables) removeTargets(ctx context.Context) error {
	return m.session.Exec(ctx, "DELETE FROM weir_inbox_target WHERE id NOT IN (SELECT id FROM weir_inbox)")
}

func (m mysqlTables) remove(ctx context.Context, in string, ids, times []int64) error {
	oneOf := func(list []int64) string { return " IN (?" + strings.Repeat(",?", len(list)-1) + ")" }
	numbers := make([]any, 0, 2*len(ids)+len(times))
	add := func(list []int64) {
		for _, n := range list {
			numbers = append(numbers, n)
		}
	}
	add(ids)
	rows := "DELETE FROM weir_inbox WHERE id" + oneOf(ids)
	if len(times) > 0 {
		rows += " AND published_at" + oneOf(times)
		add(times)
	}
	if m.shard != noSet {
		rows += "; DELETE FROM weir_inbox_target WHERE id" + oneOf(ids)
		add(ids)
	}
	return m.session.ExecIn(ctx, in, rows, numbers...)
}

func (m mysqlTables) refuse(ctx context.Context, in string, id int64, reason string) error {
	return m.session.ExecIn(ctx, in, "SELECT id FROM weir_inbox WHERE id = ? FOR UPDATE; "+ // another mover may be refusing it
		"INSERT INTO weir_inbox_refused SELECT "+refusedColumns("")+", ? FROM weir_inbox i WHERE id = ?; DELETE FROM weir_inbox WHERE id = ?", id, reason, id, id)
}

func (m mysqlTables) install(ctx context.Context, name string, logger *slog.Logger) error {
	statements := scripts("mysql")
	if m.shard != noSet {
		statements = append(statements, script("mysql/target.sql"), script("mysql/barrier.sql"), "INSERT IGNORE INTO weir_inbox_barrier VALUES (1, 0)")
	}
	for _, statement := range statements {
		if err := m.session.Exec(ctx, statement); err != nil {
			return err
		}
	}
	if err := m.session.Exec(ctx, "INSERT IGNORE INTO weir_inbox_identity VALUES (1, ?)", name); err != nil {
		return err
	}
	return m.installProcedures(ctx, logger)
}

func (m mysqlTables) installProcedures(ctx context.Context, logger *slog.Logger) error {
	of, err := m.adapted(ctx)
	if err != nil {
		return err
	}
	installed := map[string]string{}
	found := 0
	err = m.query(ctx, func(row []any) error {
		installed[text(row[0])] = text(row[1])
		has := 0
		_, _ = fmt.Sscanf(text(row[1]), "weir %d", &has)
		found = max(found, has)
		return nil
	}, "SELECT routine_name, routine_comment FROM information_schema.routines WHERE routine_schema = DATABASE() AND routine_name LIKE 'weir\\_%'")
	if err != nil {
		return err
	}
	if found > proceduresVersion { // a newer weir is beside this one, and its procedures work for both
		return nil
	}
	if found == proceduresVersion {
		return m.replaceProcedures(ctx, logger, installed, of)
	}
	return m.session.Upgrade("procedures", found, proceduresVersion, func() error {
		return m.replaceProcedures(ctx, logger, installed, of)
	})
}

// replaceProcedures creates the procedures that are not there in this version.
func (m mysqlTables) replaceProcedures(ctx context.Context, logger *slog.Logger, installed map[string]string, of adaptation) error {
	for i, procedure := range procedures {
		version := of.version
		if m.shard != noSet && i >= proceduresOnShards || procedure == "is_codeword" && !of.needsCRC {
			version = ""
		}
		if installed["weir_"+procedure] == version {
			continue
		}
		err := m.session.Exec(ctx, "DROP PROCEDURE IF EXISTS weir_"+procedure)
		if err == nil && version != "" {
			err = m.session.Exec(ctx, of.replace.Replace(script("mysql/"+procedure+".sql")))
		}
		if mysql.Refused(err) {
			logger.Warn("the procedures weir_"+strings.Join(procedures, ", weir_")+" cannot be created; programs can only insert into weir_inbox. "+
				"To have them, grant CREATE ROUTINE and ALTER ROUTINE to weir's user, and start weir again", "err", err)
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// adaptation makes the procedures those of one server.
type adaptation struct {
	replace  *strings.Replacer
	version  string // the comment that they then have
	needsCRC bool   // the server has no CRC-32C, and can compute it with is_codeword
}

// adapted returns the adaptation to this server.
func (m mysqlTables) adapted(ctx context.Context) (adaptation, error) {
	// MySQL has no @@in_transaction, but refuses to set what holds for the next transaction while
	// one is open. To set it to what the session has changes nothing.
	inside := "IF NOT inside THEN SET @@:isolation = @@:isolation; END IF;"
	// MySQL has no CRC32C. It can XOR strings, and MariaDB cannot.
	check, needsCRC := "CALL weir_is_codeword(raw, sound);", true
	isolation, latest, version := "tx_isolation", "", fmt.Sprint("weir ", proceduresVersion)
	err := m.query(ctx, func(row []any) error {
		if text(row[0]) == "transaction_isolation" { // MySQL 8.0, and MariaDB 11.1
			isolation = "transaction_isolation"
			return nil
		}
		if text(row[0]) == "innodb_snapshot_isolation" {
			// A position that was changed since the transaction's snapshot is locked and read as it
			// is now, as without this setting, and not refused (error 1020).
			latest = "SET STATEMENT innodb_snapshot_isolation = OFF FOR"
			return nil
		}
		if !strings.Contains(text(row[1]), "MariaDB") {
			return nil
		}
		inside = "SET inside = inside OR @@in_transaction;"
		check, needsCRC, version = "", false, version+" on MariaDB"
		var major, minor int
		_, _ = fmt.Sscanf(text(row[1]), "%d.%d", &major, &minor)
		if major > 10 || major == 10 && minor >= 8 {
			check, version = "SET sound = CONV(HEX(SUBSTR(raw, 18, 4)), 16, 10) = CRC32C(SUBSTR(raw, 22));", version+" with CRC32C"
		}
		return nil
	}, "SHOW VARIABLES WHERE variable_name IN ('version', 'transaction_isolation', 'innodb_snapshot_isolation')")
	version += ", " + isolation
	if latest != "" {
		version += ", latest"
	}
	elsewhere := "FALSE"
	if m.shard > 0 {
		version, elsewhere = version+", topics elsewhere", "TRUE"
	}
	inside = strings.ReplaceAll(inside, ":isolation", isolation)
	replace := strings.NewReplacer(":version", version, ":elsewhere", elsewhere, ":isolation", isolation, ":check", check, ":inside", inside, ":latest ", strings.TrimPrefix(latest+" ", " "))
	return adaptation{replace, version, needsCRC}, err
}
