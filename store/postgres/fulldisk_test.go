package postgres

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/smalldisk"
	"github.com/weir-log/weir/store/storetest"
)

// The disk with the tables is full, and that with the server's WAL is not: then PostgreSQL refuses,
// and else it stops.
func TestAFullDiskRefusesRecordsAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root alone may mount, and PostgreSQL does not run in a namespace of which it is root")
	}
	smalldisk.Run(t, 64<<20, func(t *testing.T, dir string) {
		server := pgtest.Start(t)
		s, err := Open(t.Context(), server.URLIn(dir), Options{probePause: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		record := func() error {
			outcomes, err := s.Commit(t.Context(), []eventlog.Entry{
				{Batches: []eventlog.Batch{{Partition: 1, Records: 1, Bytes: make([]byte, 200_000)}}},
				{Puts: []eventlog.Put{{Key: "group", Version: 1, Value: []byte("v")}}},
			})
			if err != nil {
				t.Fatalf("the flush failed as a whole: %v", err)
			}
			if outcomes[1].Err != nil {
				t.Errorf("a put beside the record: %v", outcomes[1].Err)
			}
			return outcomes[0].Err
		}
		if _, err := s.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{{Partition: 1}}}}); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if err := record(); err != nil {
				t.Fatal(err)
			}
		}
		if refusal, err := s.Writable(t.Context()); refusal != nil || err != nil {
			t.Errorf("Writable while there is space: %v, %v", refusal, err)
		}
		free := smalldisk.Fill(t, dir)
		check := func(what string, err error) {
			if !errors.Is(err, eventlog.ErrNoSpace) || !strings.Contains(err.Error(), "No space left on device") {
				t.Errorf("%s: %v, want ErrNoSpace and what the server said", what, err)
			}
		}
		check("publish", record())
		for range 3 {
			refusal, err := s.Writable(t.Context()) // each a probe
			if err != nil {
				t.Error(err)
			}
			check("Writable", refusal)
		}
		slices, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1, MaxBytes: 1 << 30}}, 1<<30)
		if err != nil || len(slices[0].Batches) != 10 {
			t.Fatalf("read on a full disk: %d batches, %v", len(slices[0].Batches), err)
		}
		if err := storetest.Trim(t.Context(), s, 1, 5); err != nil {
			t.Errorf("trim on a full disk: %v", err)
		}
		free()
		if refusal, err := s.Writable(t.Context()); refusal != nil || err != nil {
			t.Errorf("Writable when there is space again, though nobody published: %v, %v", refusal, err)
		}
		if err := record(); err != nil {
			t.Errorf("publish when there is space again: %v", err)
		}
	})
}
