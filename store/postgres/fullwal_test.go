package postgres

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/smalldisk"
	"github.com/weir-log/weir/store/postgres/wire"
)

// Where the WAL finds no space PostgreSQL panics: it restarts by itself, or stops for good. No
// commit is told as done that is not, readiness says what is wrong, and once there is space and the
// server runs, publishing goes on.
func TestAFullWALIsNeverToldAsDone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root alone may mount, and PostgreSQL does not run in a namespace of which it is root")
	}
	smalldisk.Run(t, 64<<20, func(t *testing.T, dir string) {
		server := pgtest.StartWithWAL(t, dir)
		s, err := Open(t.Context(), server.URL(), Options{probePause: 1, answerMax: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		body := func(n int) []byte {
			return fmt.Appendf(make([]byte, 0, 200_100), "%06d%s", n, strings.Repeat("x", 200_000))
		}
		acked := map[eventlog.Offset]int{}
		never := map[int]bool{} // certainly not done
		n := 0
		commit := func() error {
			n++
			out, err := s.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{{Partition: 1, Records: 1, Bytes: body(n)}}}})
			if err == nil {
				err = out[0].Err
			}
			switch {
			case err == nil:
				acked[out[0].Base[0]] = n
			case errors.Is(err, eventlog.ErrUnavailable):
				never[n] = true
			case !errors.Is(err, eventlog.ErrUnsure):
				t.Errorf("commit %d: %v, which says neither unavailable nor unsure", n, err)
			}
			return err
		}
		if _, err := s.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{{Partition: 1}}}}); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if err := commit(); err != nil {
				t.Fatal(err)
			}
		}
		free := smalldisk.Fill(t, dir)
		for err = nil; err == nil; err = commit() {
			if n > 1000 {
				t.Fatal("a thousand commits of 200 KB went through on a full disk")
			}
		}
		t.Logf("commit %d: %v", n, err)
		refusal, err := s.Writable(t.Context())
		if err != nil || !errors.Is(refusal, eventlog.ErrNoSpace) || !strings.Contains(refusal.Error(), "No space left on device") {
			t.Errorf("Writable: %v (%v), want ErrNoSpace and what the server said", refusal, err)
		}
		for range 5 {
			if err := commit(); err == nil {
				t.Log("the server came back and found a little space in its last file")
			}
		}
		t.Logf("the server runs: %v", server.Running())
		free()
		for late := time.Now().Add(time.Minute); ; {
			if !server.Running() {
				server.Resume() // as an operator would, or systemd
			}
			if err = commit(); err == nil {
				break
			}
			if time.Now().After(late) {
				t.Fatalf("a minute after there was space again: %v", err)
			}
		}
		if refusal, err := s.Writable(t.Context()); refusal != nil || err != nil {
			t.Errorf("Writable when there is space again: %v, %v", refusal, err)
		}
		found := map[eventlog.Offset]int{}
		for at := eventlog.Offset(0); ; {
			slices, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1, From: at, MaxBytes: 1 << 20}}, 1<<20)
			if err != nil || slices[0].Err != nil {
				t.Fatal(err, slices[0].Err)
			}
			for _, b := range slices[0].Batches {
				var number int
				if _, err := fmt.Sscanf(string(b.Bytes[:6]), "%d", &number); err != nil || b.Base != at || string(b.Bytes) != string(body(number)) {
					t.Fatalf("at %d there is a batch of offset %d and %d bytes that begins with %.10q (%v)", at, b.Base, len(b.Bytes), b.Bytes, err)
				}
				found[at] = number
				if never[number] {
					t.Errorf("commit %d was said not to have happened, and is at %d", number, at)
				}
				at++
			}
			if at == slices[0].Bounds.Next {
				break
			}
		}
		for at, number := range acked {
			if found[at] != number {
				t.Errorf("commit %d was acknowledged at %d, and there is %d", number, at, found[at])
			}
		}
		t.Logf("%d commits, %d acknowledged, %d in the log, %d certainly not", n, len(acked), len(found), len(never))
	})
}

// Keyed state alone may find space where records find none: it says nothing of records.
func TestAPutThatSucceedsDoesNotEndARefusal(t *testing.T) {
	s, err := Open(t.Context(), pgtest.URL(t), Options{probePause: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.refused.Store(&refusal{err: eventlog.ErrNoSpace, at: time.Now()})
	commit := func(e eventlog.Entry) {
		t.Helper()
		if out, err := s.Commit(t.Context(), []eventlog.Entry{e}); err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
	}
	commit(eventlog.Entry{Puts: []eventlog.Put{{Key: "group", Version: 1, Value: []byte("v")}}})
	if refusal, _ := s.Writable(t.Context()); refusal == nil {
		t.Error("a commit without records was taken, and the store says that it takes records")
	}
	commit(eventlog.Entry{Batches: []eventlog.Batch{{Partition: 1}, {Partition: 1, Records: 1, Bytes: []byte("b")}}})
	if refusal, _ := s.Writable(t.Context()); refusal != nil {
		t.Errorf("a record was taken, and the store says: %v", refusal)
	}
}

// A probe would fell the server again: the refusal holds for a minute, or until a commit is taken.
func TestAFullWALIsNotProbed(t *testing.T) {
	s, err := Open(t.Context(), pgtest.URL(t), Options{probePause: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.remember(&pgconn.PgError{SeverityUnlocalized: "PANIC", Code: "53100"})
	if refusal, _ := s.Writable(t.Context()); !errors.Is(refusal, eventlog.ErrNoSpace) {
		t.Errorf("Writable: %v, want ErrNoSpace: the server has space, which only a probe can tell", refusal)
	}
	s.refused.Load().at = time.Now().Add(-walPause)
	if refusal, _ := s.Writable(t.Context()); refusal != nil {
		t.Errorf("Writable after %v: %v", walPause, refusal)
	}
}

// A database that SQL alone feeds is ready again with the first commit of the mover's session.
func TestACommitOfASessionEndsARefusal(t *testing.T) {
	s, err := Open(t.Context(), pgtest.URL(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if outcomes, err := s.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{{Partition: 1}}}}); err != nil || outcomes[0].Err != nil {
		t.Fatal(err, outcomes)
	}
	by := wire.Statement{Name: "commit", SQL: `
		SELECT true
		FROM weir.commit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, '{}') AS c
		WHERE weir.still($19, $20, $21)`}
	if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil {
		t.Fatal(err)
	}
	c, err := s.Session(by)
	if err != nil {
		t.Fatal(err)
	}
	commit := func(e eventlog.Entry) {
		t.Helper()
		done, _, err := c.Commit(t.Context(), s.lastIncarnation.now(), by, nil, []eventlog.Entry{e})
		if err != nil || !done {
			t.Fatal(done, err)
		}
	}
	s.remember(&pgconn.PgError{SeverityUnlocalized: "PANIC", Code: "53100"})
	commit(eventlog.Entry{})
	if refusal, _ := s.Writable(t.Context()); !errors.Is(refusal, eventlog.ErrNoSpace) {
		t.Errorf("a commit of nothing ended the refusal: %v", refusal)
	}
	commit(eventlog.Entry{Batches: []eventlog.Batch{{Partition: 1, Records: 1, Bytes: []byte("b")}}})
	if refusal, _ := s.Writable(t.Context()); refusal != nil {
		t.Errorf("a session committed a record, and the store says: %v", refusal)
	}
}
