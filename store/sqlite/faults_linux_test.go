package sqlite

import (
	"errors"
	"os/signal"
	"syscall"
	"testing"

	"github.com/weir-log/weir/eventlog"
)

// The system refuses to write on in the WAL while COMMIT does, as a failing disk would: nobody can
// tell how far it got.
func TestAFailingDiskAtCommitIsUnsure(t *testing.T) {
	s := openTest(t)
	commit(t, s, eventlog.Batch{Partition: 1})
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	limit := syscall.Rlimit{Cur: uint64(size(t, s.path()+"-wal")) + 1_000_000, Max: before.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	n, err := refused(t, s)
	if back := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); back != nil {
		t.Fatal(back)
	}
	if !errors.Is(err, eventlog.ErrUnsure) || errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("commit to a failing disk: %v, want ErrUnsure alone", err)
	}
	if n == 0 {
		t.Errorf("no commit before it: the test tests less than it should")
	}
	holds(t, s, n)
}
