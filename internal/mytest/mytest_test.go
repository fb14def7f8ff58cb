package mytest_test

import (
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/mytest"
)

func TestEveryTestHasADatabaseOfItsOwn(t *testing.T) {
	a, b := mytest.URL(t), mytest.URL(t)
	mytest.Exec(t, a, "CREATE TABLE t (n INT)", "INSERT INTO t VALUES (7)")
	if got := mytest.Value(t, a, "SELECT n FROM t"); got != "7" {
		t.Errorf("the table holds %s", got)
	}
	if got := mytest.Value(t, b, "SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE()"); got != "0" {
		t.Errorf("a fresh database has %s tables", got)
	}
}

func TestAServerKeepsWhatWasCommittedWhenItIsKilled(t *testing.T) {
	s := mytest.Start(t)
	a := s.URL()
	mytest.Exec(t, a, "CREATE TABLE t (n INT)", "INSERT INTO t VALUES (7)")
	s.Kill()
	s.Resume()
	if got := mytest.Value(t, a, "SELECT n FROM t"); got != "7" {
		t.Errorf("the table holds %s", got)
	}
}

func TestAServerThatDoesNotStartSaysWhy(t *testing.T) {
	s, err := mytest.Launch("", "--nonsense=1")
	if err == nil {
		_ = s.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "unknown variable 'nonsense=1'") {
		t.Errorf("it says: %v", err)
	}
}
