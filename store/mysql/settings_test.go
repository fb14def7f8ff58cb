package mysql

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/doctor"
	"github.com/weir-log/weir/internal/mytest"
)

// Whatever a server's defaults for sessions are, they are not those of weir's sessions.
func TestSettingsOfTheServerDoNotMatter(t *testing.T) {
	server := mytest.Start(t, "--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES", "--autocommit=0", "--completion-type=CHAIN", "--default-time-zone=+05:30",
		"--character-set-server=latin1", "--loose-skip-character-set-client-handshake", "--transaction-isolation=SERIALIZABLE", "--loose-innodb-snapshot-isolation=ON", "--loose-max-statement-time=100")
	address := server.URL()
	wanted := map[string]string{
		"sql_mode": "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION", "autocommit": "1", "completion_type": "NO_CHAIN", "time_zone": "+00:00", "character_set_client": "utf8mb4",
		"character_set_results": "utf8mb4", "sql_select_limit": "18446744073709551615", "sql_safe_updates": "0", "sql_big_selects": "1",
		"sql_auto_is_null": "0", "innodb_lock_wait_timeout": fmt.Sprint(int(lockWaitMax.Seconds())),
	}
	readOnly := "transaction_read_only"
	if strings.Contains(mytest.Value(t, address, "SELECT VERSION()"), "MariaDB") {
		readOnly = "tx_read_only"
		wanted["innodb_snapshot_isolation"], wanted["max_statement_time"] = "0", "0" // MySQL has no such settings
	}
	wanted[readOnly] = "0"
	for _, setting := range []string{"sql_select_limit = 1", "sql_safe_updates = 1", "sql_big_selects = 0", "max_join_size = 1", "sql_auto_is_null = 1", readOnly + " = 1"} {
		mytest.Exec(t, server.Admin(), "SET GLOBAL "+setting)
	}
	s := at(t, address)
	for _, db := range []*sql.DB{s.commits, s.reads, s.Session().db} {
		for name, want := range wanted {
			var got string
			if err := db.QueryRow("SELECT @@session." + name).Scan(&got); err != nil || got != want {
				t.Errorf("%s is %q, %v; want %q", name, got, err, want)
			}
		}
	}
	for i := range eventlog.Partition(3) {
		must(t, s, eventlog.Entry{Batches: []eventlog.Batch{{Partition: i + 1}, {Partition: i + 1, Records: 1, Bytes: []byte(`\'"é`)}}})
	}
	if all, _, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil || len(all) != 3 {
		t.Errorf("%+v, %v; want 3 partitions", all, err)
	}
}

// The hour when summer time ends comes twice.
func TestTheClockDoesNotFollowATimeZone(t *testing.T) {
	t.Setenv("TZ", "Europe/Berlin")
	address := mytest.Start(t).URL()
	for _, at := range []time.Time{time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC), time.Date(2026, 10, 25, 1, 30, 0, 0, time.UTC)} {
		got := mytest.Value(t, address, fmt.Sprintf("SET timestamp = %d; SELECT "+now, at.Unix()))
		if want := fmt.Sprint(at.UnixMilli()); got != want {
			t.Errorf("at %v the clock is %s, want %s", at, got, want)
		}
	}
}

func TestAServerThatLosesUpdatesIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		vars    map[string]string
		oneNode bool
		want    string
	}{
		"alone":                  {map[string]string{"wsrep_on": "OFF", "group_replication_group_name": "", "group_replication_single_primary_mode": "OFF"}, false, ""},
		"Galera":                 {map[string]string{"wsrep_on": "ON"}, false, "one_node=true"},
		"one node of Galera":     {map[string]string{"wsrep_on": "ON"}, true, ""},
		"several primaries":      {map[string]string{"group_replication_group_name": "a", "group_replication_single_primary_mode": "OFF"}, false, "one_node=true"},
		"one of several":         {map[string]string{"group_replication_group_name": "a", "group_replication_single_primary_mode": "OFF"}, true, ""},
		"a single primary":       {map[string]string{"group_replication_group_name": "a", "group_replication_single_primary_mode": "ON"}, false, ""},
		"statements logged":      {map[string]string{"log_bin": "ON", "binlog_format": "STATEMENT"}, true, "binlog_format = ROW"},
		"statements, but no log": {map[string]string{"log_bin": "OFF", "binlog_format": "STATEMENT"}, false, ""},
	} {
		said := ""
		for _, f := range judge(c.vars, c.oneNode) {
			said += f.Advice
		}
		if (said != "") != (c.want != "") || !strings.Contains(said, c.want) {
			t.Errorf("%s: %q, want %q", name, said, c.want)
		}
	}
}

func TestABinaryLogOfStatementsIsRefused(t *testing.T) {
	address := mytest.Start(t, "--log-bin", "--server-id=1", "--binlog-format=STATEMENT").URL()
	s, err := Open(t.Context(), address, Options{})
	if err == nil {
		s.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "binlog_format is STATEMENT") {
		t.Errorf("opened: %v", err)
	}
	findings, err := Examine(t.Context(), address)
	if err != nil || !slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.Name == "binlog_format" && f.Level == doctor.Bad }) {
		t.Errorf("the doctor finds %+v, %v", findings, err)
	}
}

// At once, and not after many attempts.
func TestAReadOnlyServerIsToldAsWhatItIs(t *testing.T) {
	server := mytest.Start(t)
	address := server.URL()
	u, _ := url.Parse(address)
	mytest.Exec(t, address, "CREATE USER app@'%' IDENTIFIED BY 'secret'", "GRANT ALL ON "+u.Path[1:]+".* TO app@'%'")
	u.User = url.UserPassword("app", "secret")
	s := at(t, u.String())
	entry := eventlog.Entry{Batches: []eventlog.Batch{{Partition: 1}}}
	must(t, s, entry)
	mytest.Exec(t, address, "SET GLOBAL read_only = 1")
	outcomes, err := s.Commit(t.Context(), []eventlog.Entry{entry, entry})
	if err != nil || len(outcomes) != 2 || !errors.Is(outcomes[0].Err, eventlog.ErrNotWritable) || !errors.Is(outcomes[1].Err, eventlog.ErrNotWritable) {
		t.Errorf("a commit: %+v, %v", outcomes, err)
	}
	if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); !errors.Is(err, eventlog.ErrNotWritable) {
		t.Errorf("moved: %v", err)
	}
}
