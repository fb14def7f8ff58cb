package mysql

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/mytest"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/store/storetest"
)

// The contract once more, on a server whose defaults are as odd as they can be.
func TestStoreOnAnOddServer(t *testing.T) {
	server := mytest.Start(t, "--max-allowed-packet=4M", "--transaction-isolation=SERIALIZABLE", "--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT",
		"--character-set-server=latin1", "--lower-case-table-names=1", "--autocommit=0", "--default-time-zone=-05:00")
	storetest.Run(t, storetest.Harness{
		Place: func(t *testing.T) string {
			u, _ := url.Parse(server.Admin())
			made, _ := url.Parse(server.URL())
			u.Path = made.Path
			return u.String()
		},
		Open: open,
	})
}

func at(t *testing.T, address string) *Store {
	t.Helper()
	s, err := Open(t.Context(), address, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func commit(ctx context.Context, s eventlog.Store, e eventlog.Entry) ([]eventlog.Offset, error) {
	out, err := s.Commit(ctx, []eventlog.Entry{e})
	if err != nil {
		return nil, err
	}
	return out[0].Base, out[0].Err
}

func must(t *testing.T, s eventlog.Store, e eventlog.Entry) []eventlog.Offset {
	t.Helper()
	base, err := commit(t.Context(), s, e)
	if err != nil {
		t.Fatal(err)
	}
	return base
}

func held(t *testing.T, s eventlog.Store, p eventlog.Partition) eventlog.Slice {
	t.Helper()
	slices, err := s.Read(t.Context(), []eventlog.Span{{Partition: p, MaxBytes: 1 << 30}}, 1<<30)
	if err != nil || slices[0].Err != nil {
		t.Fatal(err, slices)
	}
	return slices[0]
}

// The server is killed under writers and started again. What was acknowledged is there, what
// certainly did not happen is not, and the store goes on in another incarnation.
func TestAServerThatIsKilledKeepsWhatWasAcknowledged(t *testing.T) {
	server := mytest.Start(t)
	s := at(t, server.URL())
	const writers = 4
	for w := range writers {
		must(t, s, eventlog.Entry{Batches: []eventlog.Batch{{Partition: eventlog.Partition(w)}}})
	}
	_, mark, err := s.Changes(t.Context(), eventlog.Mark{})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	var acked atomic.Int64
	warm := make(chan struct{}, writers)
	keys := make([]map[string]error, writers) // what became of each
	for w := range writers {
		keys[w] = map[string]error{}
		running.Go(func() {
			for n := 0; ; n++ {
				key := fmt.Sprintf("w/%d/%d", w, n)
				_, err := commit(t.Context(), s, eventlog.Entry{
					Batches: []eventlog.Batch{{Partition: eventlog.Partition(w), Records: 1, Bytes: []byte(key)}},
					Puts:    []eventlog.Put{{Key: key, Version: 1, Value: []byte("v")}},
				})
				keys[w][key] = err
				if err != nil {
					return
				}
				acked.Add(1)
				if n == 20 {
					warm <- struct{}{}
				}
			}
		})
	}
	for range writers {
		<-warm
	}
	server.Kill()
	running.Wait()
	server.Resume()
	if _, _, err := s.Changes(t.Context(), mark); !errors.Is(err, eventlog.ErrRewound) {
		t.Errorf("moved after the server began anew: %v", err)
	}
	if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil {
		t.Fatal(err)
	}
	for w := range writers {
		there := map[string]bool{}
		for _, b := range held(t, s, eventlog.Partition(w)).Batches {
			there[string(b.Bytes)] = true
		}
		for key, err := range keys[w] {
			list, listed := s.List(t.Context(), key, "", 1)
			if listed != nil {
				t.Fatal(listed)
			}
			put := len(list) > 0 && list[0].Key == key
			switch {
			case put != there[key]:
				t.Errorf("of the entry of %s, only a part is there", key)
			case err == nil && !put:
				t.Errorf("%s was acknowledged, and is not there", key)
			case err != nil && !errors.Is(err, eventlog.ErrUnsure) && put:
				t.Errorf("%s is there, but its writer was told: %v", key, err)
			}
		}
	}
	must(t, s, eventlog.Entry{Batches: []eventlog.Batch{{Partition: 0, Records: 1, Bytes: []byte("x")}}})
	t.Logf("%d acknowledged", acked.Load())
}

// proxy forwards connections to a server, until it has forwarded so many answers; then it closes a
// connection instead of forwarding one.
type proxy struct {
	net.Listener
	to   string
	left atomic.Int64
}

func startProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, to: to}
	p.left.Store(1 << 60)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
			go func() {
				defer client.Close()
				buffer := make([]byte, 64<<10)
				for {
					n, err := server.Read(buffer)
					if err != nil || p.left.Add(-1) < 0 {
						return
					}
					if _, err := client.Write(buffer[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return p
}

// A connection is cut after a random number of answers while a commit is in progress: its outcome
// is never told wrong.
func TestALostAnswerIsUnknown(t *testing.T) {
	random := seed.Random(t)
	address := mytest.URL(t)
	u, _ := url.Parse(address)
	p := startProxy(t, u.Host)
	u.Host = p.Addr().String()
	u.RawQuery = "tls=false"
	s, judge := at(t, u.String()), at(t, address)
	must(t, judge, eventlog.Entry{Batches: []eventlog.Batch{{Partition: 1}}})
	unsure, refused, done := 0, 0, 0
	for n := range 300 {
		key := fmt.Sprintf("k/%d", n)
		p.left.Store(random.Int64N(16)) // a new connection takes some
		_, err := commit(t.Context(), s, eventlog.Entry{
			Batches: []eventlog.Batch{{Partition: 1, Records: 1, Bytes: []byte(key)}}, Puts: []eventlog.Put{{Key: key, Version: 1, Value: []byte("v")}},
		})
		list, failed := judge.List(t.Context(), key, "", 1)
		if failed != nil {
			t.Fatal(failed)
		}
		there := len(list) > 0 && list[0].Key == key
		switch {
		case err == nil:
			if done++; !there {
				t.Errorf("%s was acknowledged, and is not there", key)
			}
		case errors.Is(err, eventlog.ErrUnsure):
			unsure++
		default:
			if refused++; there || !errors.Is(err, eventlog.ErrUnavailable) {
				t.Errorf("%s (there: %v): %v", key, there, err)
			}
		}
	}
	if got := held(t, judge, 1); got.Bounds.Next != eventlog.Offset(len(got.Batches)) {
		t.Errorf("%d batches in %+v", len(got.Batches), got.Bounds)
	}
	t.Logf("%d done, %d unknown, %d refused", done, unsure, refused)
	if unsure == 0 || done == 0 {
		t.Error("the cuts came at no interesting time")
	}
}

// The server answers that a commit was the victim of a deadlock; it is repeated.
func TestADeadlockIsRepeated(t *testing.T) {
	address := mytest.URL(t)
	s := at(t, address)
	must(t, s, eventlog.Entry{Batches: []eventlog.Batch{{Partition: 1}}})
	other, err := s.reads.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	exec := func(statement string) error { _, err := other.ExecContext(t.Context(), statement); return err }
	metric := func(name string) string {
		return mytest.Value(t, address, "SELECT count FROM information_schema.innodb_metrics WHERE name = '"+name+"'")
	}
	before := metric("lock_deadlocks")
	for range 5 {
		if err := errors.Join(exec("START TRANSACTION"), exec("UPDATE weir_partition SET replaced = replaced WHERE id = 1"), exec("SELECT id FROM weir_partition WHERE id = 1 FOR UPDATE")); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := commit(t.Context(), s, eventlog.Entry{Batches: []eventlog.Batch{{Partition: 1, Records: 1, Bytes: []byte("x")}}})
			done <- err
		}()
		for metric("lock_row_lock_current_waits") == "0" {
		}
		err := exec("SELECT id FROM weir_guard WHERE id = 0 FOR UPDATE") // the commit has it, and waits for us
		if err != nil && code(err) != errDeadlock {
			t.Fatal(err)
		}
		_ = exec("ROLLBACK")
		if err := <-done; err != nil {
			t.Errorf("a commit beside a deadlock: %v", err)
		}
	}
	if after := metric("lock_deadlocks"); after == before {
		t.Error("there was no deadlock")
	}
	if got := held(t, s, 1); len(got.Batches) != 5 {
		t.Errorf("%d batches, want 5", len(got.Batches))
	}
}

// Batches and flushes larger than max_allowed_packet.
func TestBatchesAreLargerThanAPacket(t *testing.T) {
	server := mytest.Start(t, "--max-allowed-packet=4M")
	s := at(t, server.URL())
	random := seed.Random(t)
	big := make([]byte, 20<<20)
	for i := range big {
		big[i] = "\x00\\'\"\n\x1ax"[random.IntN(7)] // what must be escaped
	}
	must(t, s, eventlog.Entry{Batches: []eventlog.Batch{{Partition: 1}, {Partition: 1, Records: 1, Bytes: big}, {Partition: 1, Records: 1, Bytes: []byte("after")}}})
	got := held(t, s, 1)
	if len(got.Batches) != 2 || !bytes.Equal(got.Batches[0].Bytes, big) || string(got.Batches[1].Bytes) != "after" {
		t.Errorf("read back: %d batches", len(got.Batches))
	}
	if _, err := commit(t.Context(), s, eventlog.Entry{Puts: []eventlog.Put{{Key: "k", Version: 1, Value: big}}}); !errors.Is(err, eventlog.ErrTooLarge) {
		t.Errorf("a value larger than a packet: %v", err)
	}
}

func TestAReadOnlyServerIsUnavailable(t *testing.T) {
	server := mytest.Start(t)
	address := server.URL()
	u, _ := url.Parse(address)
	mytest.Exec(t, address, "CREATE USER app@'%' IDENTIFIED BY 'p@ss:word'", "GRANT ALL ON "+u.Path[1:]+".* TO app@'%'")
	u.User = url.UserPassword("app", "p@ss:word")
	s := at(t, u.String()) // a user with rights on one database only
	must(t, s, eventlog.Entry{Batches: []eventlog.Batch{{Partition: 1}}})
	if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil {
		t.Fatal(err)
	}
	mytest.Exec(t, address, "SET GLOBAL read_only = 1")
	if _, err := commit(t.Context(), s, eventlog.Entry{Batches: []eventlog.Batch{{Partition: 1, Records: 1, Bytes: []byte("x")}}}); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("a commit: %v", err)
	}
	if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("moved: %v", err)
	}
	mytest.Exec(t, address, "SET GLOBAL read_only = 0")
	must(t, s, eventlog.Entry{Batches: []eventlog.Batch{{Partition: 1, Records: 1, Bytes: []byte("x")}}})
	if got := held(t, s, 1); len(got.Batches) != 1 {
		t.Errorf("%d batches, want 1", len(got.Batches))
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	server := mytest.Start(t, "--max-allowed-packet=1M")
	small := server.URL()
	newer := mytest.URL(t)
	at(t, newer)
	mytest.Exec(t, newer, "INSERT INTO weir_migration VALUES (900)")
	u, _ := url.Parse(newer)
	with := func(change func(*url.URL)) string { v := *u; change(&v); return v.String() }
	for name, c := range map[string]struct{ address, want string }{
		"a small packet":     {small, "max_allowed_packet is 1048576"},
		"newer tables":       {newer, "version 900"},
		"no database":        {"mysql://root:s3cret@127.0.0.1:1/", "names no database"},
		"an unknown option":  {"mysql://root:s3cret@127.0.0.1:1/d?timeout=1", "unknown option"},
		"a wrong tls":        {"mysql://root:s3cret@127.0.0.1:1/d?tls=maybe", "tls=maybe"},
		"no server":          {"mysql://root:s3cret@127.0.0.1:1/d", "connect"},
		"a missing CA":       {"mysql://root:s3cret@127.0.0.1:1/d?tls-ca=/nowhere", "tls-ca"},
		"a wrong password":   {with(func(v *url.URL) { v.User = url.UserPassword("root", "s3cret") }), "Access denied"},
		"a missing database": {with(func(v *url.URL) { v.Path = "/nowhere" }), "nowhere"},
		"an invalid URL":     {"mysql://root:s3cret@127.0.0.1:x/d", "form mysql://"},
		"TLS demanded":       {with(func(v *url.URL) { v.RawQuery = "tls=true" }), "TLS"}, // MariaDB has none; the certificate of MySQL is its own
	} {
		_, err := Open(t.Context(), c.address, Options{})
		if err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(c.want)) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

// Processes that open an empty database concurrently all find their tables.
func TestManyOpenAnEmptyDatabase(t *testing.T) {
	address := mytest.URL(t)
	var opening sync.WaitGroup
	for n := range 8 {
		opening.Go(func() {
			s, err := Open(t.Context(), address, Options{})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if _, err := commit(t.Context(), s, eventlog.Entry{Batches: []eventlog.Batch{{Partition: eventlog.Partition(rand.IntN(3))}}, Puts: []eventlog.Put{{Key: fmt.Sprint(n), Version: 1, Value: []byte("v")}}}); err != nil {
				t.Error(err)
			}
		})
	}
	opening.Wait()
}

func TestExamineNamesWhatLosesRecords(t *testing.T) {
	server := mytest.Start(t, "--innodb-flush-log-at-trx-commit=2")
	address := server.URL()
	for range 2 { // without tables, and with them
		findings, err := Examine(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%+v", findings)
		for _, want := range []string{"acknowledged records: set innodb_flush_log_at_trx_commit = 1", "MariaDB", "tables"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in %s", want, text)
			}
		}
		at(t, address)
	}
}

// InnoDB shows a commit to others before it is durable. A server that does not flush (0) stands for
// the moment between the two.
func TestNothingThatWasReadIsUndoneByACrash(t *testing.T) {
	for name, read := range map[string]func(s *Store) (end eventlog.Offset){
		"Moved": func(s *Store) eventlog.Offset {
			all, _, err := s.Changes(t.Context(), eventlog.Mark{})
			if err != nil {
				t.Fatal(err)
			}
			return all[0].Next
		},
		"Read": func(s *Store) eventlog.Offset { return held(t, s, 1).Bounds.Next },
		"Seek": func(s *Store) eventlog.Offset {
			end, err := s.Seek(t.Context(), []eventlog.Goal{{Partition: 1, At: 1 << 60}})
			if err != nil {
				t.Fatal(err)
			}
			return end[0].At
		},
		"List": func(s *Store) eventlog.Offset {
			found, err := s.List(t.Context(), "end", "", 1)
			if err != nil || len(found) != 1 {
				t.Fatal(found, err)
			}
			return eventlog.Offset(found[0].Value[0] - '0') // the value: the version stays, as that of a group's offsets
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := mytest.Start(t, "--innodb-flush-log-at-timeout=2700")
			address := server.URL()
			writer, reader := at(t, address), at(t, address)
			record := []eventlog.Batch{{Partition: 1, Records: 1, MaxTime: 1, Bytes: []byte("x")}}
			must(t, writer, eventlog.Entry{Batches: []eventlog.Batch{{Partition: 1}}})
			must(t, writer, eventlog.Entry{Batches: record, Puts: []eventlog.Put{{Key: "end", Version: 1, Value: []byte("1")}}})
			if end := read(reader); end != 1 {
				t.Fatalf("the reader sees %d as the end, want 1", end)
			}
			mytest.Exec(t, server.Admin(), "SET GLOBAL innodb_flush_log_at_trx_commit = 0")
			must(t, writer, eventlog.Entry{Batches: record, Puts: []eventlog.Put{{Key: "end", Version: 1, Value: []byte("2")}}})
			mytest.Exec(t, server.Admin(), "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
			if end := read(reader); end != 2 {
				t.Fatalf("the reader sees %d as the end, want 2", end)
			}
			server.Kill()
			server.Resume()
			after := at(t, address)
			if end := read(after); end != 2 {
				t.Errorf("the reader had seen 2 as the end, after a crash it is %d", end)
			}
		})
	}
}
