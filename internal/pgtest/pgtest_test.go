package pgtest_test

import (
	"bufio"
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/internal/pgtest"
)

func TestEveryTestHasADatabaseOfItsOwn(t *testing.T) {
	a, b := pgtest.URL(t), pgtest.URL(t)
	pgtest.Exec(t, a, `CREATE TABLE mine ()`)
	if got := pgtest.Value(t, b, `SELECT count(*) FROM pg_class WHERE relname = 'mine'`); got != "0" {
		t.Fatalf("a table made in one database is seen in the other")
	}
}

func TestServerComesBackAfterACrash(t *testing.T) {
	s := pgtest.Start(t)
	u := s.URL()
	pgtest.Exec(t, u, `CREATE TABLE kept AS SELECT 7 AS n`)
	s.KillImmediate()
	s.Resume()
	if got := pgtest.Value(t, u, `SELECT n FROM kept`); got != "7" {
		t.Fatalf("after a crash: %s", got)
	}
	s.Restart()
	if got := pgtest.Value(t, u, `SHOW fsync`); got != "on" {
		t.Fatalf("fsync is %s, and crash tests need it on", got)
	}
}

// The test runs itself as a second process, kills it with SIGKILL, and sees its server go.
func TestServerDiesWithTheTestProcess(t *testing.T) {
	if os.Getenv("WEIR_PGTEST_CHILD") == "1" {
		os.Stdout.WriteString("url " + pgtest.Start(t).Admin() + "\n")
		select {} // until killed
	}
	ctx := t.Context()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestServerDiesWithTheTestProcess$")
	child.Env = append(os.Environ(), "WEIR_PGTEST_CHILD=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || len(line) < 4 {
		t.Fatalf("the child said %q: %v", line, err)
	}
	conn, err := pgx.Connect(ctx, line[4:len(line)-1])
	if err != nil {
		t.Fatalf("connect to the child's server: %v", err)
	}
	defer conn.Close(ctx)
	child.Process.Kill()
	child.Wait()
	// A whole session, and not only a socket: a server that stops serves a connection that it takes
	// at that moment until the startup packet comes, and is there as long.
	if _, err := conn.Exec(ctx, `SELECT pg_sleep(300)`); err == nil {
		t.Fatal("the server outlived the process that started it")
	}
}
