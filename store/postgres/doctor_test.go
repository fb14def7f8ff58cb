package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/internal/doctor"
	"github.com/weir-log/weir/internal/pgtest"
)

func find(t *testing.T, findings []doctor.Finding, name string) doctor.Finding {
	t.Helper()
	for _, f := range findings {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no finding about %s in %+v", name, findings)
	return doctor.Finding{}
}

func TestExamineChangesNothing(t *testing.T) {
	address := pgtest.URL(t)
	findings, err := Examine(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	if f := find(t, findings, "schema"); f.Level != doctor.OK || !strings.Contains(f.Value, "does not exist yet") {
		t.Errorf("schema in an empty database: %+v", f)
	}
	if got := pgtest.Value(t, address, `SELECT to_regnamespace('weir') IS NULL`); got != "true" {
		t.Error("the examination made the schema")
	}
}

func TestExamineTellsWhatLosesData(t *testing.T) {
	address := pgtest.URL(t)
	s, err := Open(t.Context(), address, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	pgtest.Exec(t, address, `ALTER DATABASE `+pgtest.Value(t, address, `SELECT current_database()`)+` SET synchronous_commit = off`)
	findings, err := Examine(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]doctor.Level{
		"encoding": doctor.OK, "schema": doctor.OK, "pooler": doctor.OK, "server role": doctor.OK,
		"synchronous_commit": doctor.OK, // for weir sets it
		"autovacuum":         doctor.OK, "open transactions": doctor.OK,
	} {
		if f := find(t, findings, name); f.Level != want {
			t.Errorf("%s is %v, want %v: %+v", name, f.Level, want, f)
		}
	}
	if f := find(t, findings, "synchronous_commit"); f.Value != "off" || !strings.Contains(f.Advice, "weir sets it to on") {
		t.Errorf("synchronous_commit: %+v", f)
	}
	if f := find(t, findings, "fsync"); (f.Level == doctor.Bad) != (pgtest.Value(t, address, `SHOW fsync`) == "off") {
		t.Errorf("fsync: %+v", f)
	}
}

func TestExamineTellsThatAFailoverLosesData(t *testing.T) {
	primary := pgtest.Start(t)
	address := primary.URL()
	standbys := func() doctor.Finding {
		t.Helper()
		findings, err := Examine(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		return find(t, findings, "synchronous_standby_names")
	}
	if f := standbys(); f.Level != doctor.OK || f.Value != "none" {
		t.Errorf("without a standby: %+v", f)
	}
	primary.Standby()
	for pgtest.Value(t, address, `SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'`) != "1" {
	}
	if f := standbys(); f.Level != doctor.Warn || !strings.Contains(f.Value, "1 follow") {
		t.Errorf("with a standby that nobody waits for: %+v", f)
	}
	pgtest.Exec(t, primary.Admin(), `ALTER SYSTEM SET synchronous_standby_names = '*'`)
	pgtest.Exec(t, primary.Admin(), `SELECT pg_reload_conf()`)
	for pgtest.Value(t, address, `SHOW synchronous_standby_names`) != "*" {
	}
	if f := standbys(); f.Level != doctor.OK || f.Value != "*" {
		t.Errorf("with one that commits wait for: %+v", f)
	}
}

func TestExamineNamesLongTransactions(t *testing.T) {
	address := pgtest.URL(t)
	foreign, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close(t.Context())
	if _, err := foreign.PgConn().Exec(t.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1`).ReadAll(); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	x := examination{ctx: t.Context(), conn: conn}
	if err := x.transactions(-time.Second); err != nil {
		t.Fatal(err)
	}
	f := find(t, x.findings, "open transaction")
	if f.Level != doctor.Warn || !strings.Contains(f.Advice, "pg_terminate_backend") {
		t.Errorf("a transaction left open: %+v", f)
	}
}

// Each of these loses acknowledged records, or stops weir.
func TestExamineFindsAServerThatLosesAcknowledgedRecords(t *testing.T) {
	server := pgtest.Start(t)
	address := server.URL()
	pgtest.Exec(t, server.Admin(), `ALTER SYSTEM SET full_page_writes = off`)
	pgtest.Exec(t, server.Admin(), `ALTER SYSTEM SET autovacuum = off`)
	server.WithoutFsync()
	findings, err := Examine(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fsync", "full_page_writes", "autovacuum"} {
		if f := find(t, findings, name); f.Value != "off" || f.Level != doctor.Bad || f.Advice == "" {
			t.Errorf("%s=off is told as %+v", name, f)
		}
	}
}

func TestExamineTellsThatTheNotificationQueueFills(t *testing.T) {
	address := pgtest.URL(t)
	for usage, want := range map[string]doctor.Level{"0.49": doctor.OK, "0.5": doctor.Warn} {
		pgtest.SetNotifyUsage(t, address, usage)
		findings, err := Examine(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		if f := find(t, findings, "notification queue"); f.Level != want {
			t.Errorf("with a usage of %s: %+v", usage, f)
		}
	}
}

func TestTheDoctorKnowsVersionsWithSecurityErrors(t *testing.T) {
	for server, want := range map[int]doctor.Level{
		130022: doctor.Bad, 140022: doctor.Warn, 140023: doctor.OK, 150019: doctor.Warn, 150020: doctor.OK,
		160013: doctor.Warn, 160014: doctor.OK, 170009: doctor.Warn, 170010: doctor.OK, 180003: doctor.Warn, 180004: doctor.OK, 190000: doctor.OK,
	} {
		if level, advice := versionAdvice(server); level != want || (advice == "") != (want == doctor.OK) {
			t.Errorf("version %d: %v, %q; want %v", server, level, advice, want)
		}
	}
}
