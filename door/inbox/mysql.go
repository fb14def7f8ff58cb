package inbox

import (
	"context"
	"log/slog"
	"strings"

	"github.com/weir-log/weir/store/mysql"
)

// proceduresVersion is the comment of the procedures on MariaDB and MySQL. Raise it with each change of one.
const proceduresVersion = "weir 2"

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

func (m mysqlTables) settle(ctx context.Context) error {
	return m.session.Exec(ctx, "UPDATE weir_inbox_barrier SET n = n + 1")
}

func (m mysqlTables) remove(ctx context.Context, ids []int64) error {
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	return m.session.Exec(ctx, "DELETE FROM weir_inbox WHERE id IN (?"+strings.Repeat(",?", len(ids)-1)+")", args...)
}

func (m mysqlTables) refuse(ctx context.Context, id int64, reason string) error {
	return m.session.Exec(ctx, "START TRANSACTION; INSERT IGNORE INTO weir_inbox_refused SELECT "+columns+", ? FROM weir_inbox WHERE id = ?; DELETE FROM weir_inbox WHERE id = ?; COMMIT", reason, id, id)
}

func (m mysqlTables) install(ctx context.Context, name string, logger *slog.Logger) error {
	statements, version, elsewhere := scripts("mysql"), proceduresVersion, "FALSE"
	if m.shard >= 0 {
		statements = append(statements, script("mysql/barrier.sql"), "INSERT IGNORE INTO weir_inbox_barrier VALUES (1, 0)")
	}
	if m.shard > 0 {
		version, elsewhere = version+", topics elsewhere", "TRUE"
	}
	for _, statement := range statements {
		if err := m.session.Exec(ctx, statement); err != nil {
			return err
		}
	}
	if err := m.session.Exec(ctx, "INSERT IGNORE INTO weir_inbox_identity VALUES (1, ?)", name); err != nil {
		return err
	}
	installed := map[string]string{}
	err := m.query(ctx, func(row []any) error {
		installed[text(row[0])] = text(row[1])
		return nil
	}, "SELECT routine_name, routine_comment FROM information_schema.routines WHERE routine_schema = DATABASE() AND routine_name IN ('weir_publish', 'weir_publish_event')")
	if err != nil {
		return err
	}
	for _, procedure := range []string{"publish_event", "publish"} {
		if installed["weir_"+procedure] == version {
			continue
		}
		err := m.session.Exec(ctx, "DROP PROCEDURE IF EXISTS weir_"+procedure)
		if err == nil {
			err = m.session.Exec(ctx, strings.NewReplacer(":version", version, ":elsewhere", elsewhere).Replace(script("mysql/"+procedure+".sql")))
		}
		if mysql.Refused(err) {
			logger.Warn("the procedures weir_publish and weir_publish_event cannot be created; transactions can only insert into weir_inbox. "+
				"To have them, grant CREATE ROUTINE and ALTER ROUTINE to weir's user (with a binary log, also set log_bin_trust_function_creators), and start weir again", "err", err)
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
