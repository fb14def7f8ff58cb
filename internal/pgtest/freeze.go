package pgtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Freeze stops all of the server's processes where they are (SIGSTOP): connections stay open, the
// system accepts new ones, and nobody answers. The freeze ends with the test, or when the returned
// function is called.
func (s *Server) Freeze() (thaw func()) {
	s.t.Helper()
	thaw, err := s.Suspend()
	if err != nil {
		s.t.Fatalf("freeze PostgreSQL: %v", err)
	}
	s.t.Cleanup(thaw)
	return thaw
}

// Suspend is Freeze for a program that is not a test.
func (s *Server) Suspend() (resume func(), err error) {
	pids, err := s.pids()
	if err != nil {
		return nil, err
	}
	for _, pid := range pids { // the postmaster first, so that it starts no more processes
		_ = syscall.Kill(pid, syscall.SIGSTOP) // it may have ended
	}
	return sync.OnceFunc(func() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGCONT) // it may have ended
		}
	}), nil
}

// pids lists the processes of the server, the postmaster first.
func (s *Server) pids() ([]int, error) {
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return nil, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	postmaster, err := strconv.Atoi(first)
	if err != nil {
		return nil, fmt.Errorf("postmaster.pid: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.admin)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, `SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()`)
	if err != nil {
		return nil, err
	}
	others, err := pgx.CollectRows(rows, pgx.RowTo[int])
	return append([]int{postmaster}, others...), err
}
