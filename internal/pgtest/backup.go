package pgtest

import (
	"net/url"
	"strings"
	"testing"
)

// Backup copies a database, and returns a function that puts the copy in its place. As with every
// way to do that, connections break.
func Backup(t *testing.T, address string) (restore func()) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	u.Path = "/postgres"
	admin := u.String()
	alone := func(statements ...string) {
		t.Helper()
		Exec(t, admin, `ALTER DATABASE `+name+` ALLOW_CONNECTIONS false`)
		Value(t, admin, `SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE datname = '`+name+`'`)
		for _, sql := range statements {
			Exec(t, admin, sql)
		}
		Exec(t, admin, `ALTER DATABASE `+name+` ALLOW_CONNECTIONS true`)
	}
	alone(`CREATE DATABASE ` + name + `_copy TEMPLATE ` + name)
	return func() {
		t.Helper()
		alone(`ALTER DATABASE `+name+` RENAME TO `+name+`_lost`, `ALTER DATABASE `+name+`_copy RENAME TO `+name)
		t.Cleanup(func() { Exec(t, admin, `DROP DATABASE `+name+`_lost`) })
	}
}
