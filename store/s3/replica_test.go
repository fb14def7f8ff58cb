package s3

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/s3test"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/store/storetest"
)

// readOnly is the address of a bucket for a process that only reads.
func readOnly(address string) string { return address + "&read_only=true" }

// onlyReads answers like a server to credentials with the rights s3:GetObject and s3:ListBucket.
func onlyReads(r s3test.Request) s3test.Fault {
	return s3test.Fault{Deny: r.Method != http.MethodGet}
}

// following opens a replica of a fake bucket.
func following(t *testing.T, f *fake) *Store {
	t.Helper()
	at := quick
	at.replica = true
	s, err := f.open(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// A replica with the rights to read follows a writer that gathers batches in segments, writes
// snapshots, and deletes what is no longer needed. It sends no other request.
func TestAReplicaNeedsNoRightToWrite(t *testing.T) {
	server := s3test.Start(t)
	address := server.URL()
	writer := openAt(t, address)
	mustPublish(t, writer, "first")
	p := s3test.NewProxy(t, address)
	p.Faults(onlyReads)
	replica := openAt(t, readOnly(p.URL()))
	texts := []string{"first"}
	for round := range 4 {
		for i := range 3 {
			text := fmt.Sprintf("%d/%d", round, i)
			mustPublish(t, writer, text)
			texts = append(texts, text)
			expect(t, replica, texts...)
		}
		if _, err := writer.compact(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if err := writer.snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := filepath.WalkDir(server.Directory(address), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			old := time.Now().Add(-2 * writer.grace) // as if grace had passed
			return os.Chtimes(path, old, old)
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := writer.collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, replica, texts...)
		expect(t, openAt(t, readOnly(p.URL())), texts...)
	}
	if _, err := os.Stat(filepath.Join(server.Directory(address), "log", commitKey(2))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("commit 2 was not deleted (%v): the test tests little", err)
	}
	if err := storetest.Trim(t.Context(), replica, 1, 1); !errors.Is(err, eventlog.ErrReadOnly) {
		t.Errorf("trim: %v", err)
	}
	if _, err := publish(t, replica, "refused"); !errors.Is(err, eventlog.ErrReadOnly) || errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrUnsure) {
		t.Errorf("commit: %v", err)
	}
	if list, err := replica.List(t.Context(), "", "", 1); err != nil {
		t.Errorf("list: %v, %v", list, err)
	}
	behind, is := replica.Replica()
	if !is || behind > time.Minute {
		t.Errorf("it is a replica: %v, %v behind", is, behind)
	}
	for _, r := range p.Requests() {
		if r.Method != http.MethodGet {
			t.Errorf("the replica sent %s %s", r.Method, r.Key)
		}
	}
	_, err := Open(t.Context(), p.URL(), Options{})
	if err == nil || !strings.Contains(err.Error(), "s3:PutObject") || !strings.Contains(err.Error(), "--read-only") {
		t.Errorf("a writer without the right to write is told: %v", err)
	}
}

// In a random history a replica has, whenever it looks, all that was acknowledged before: also
// right after objects that it knew were deleted.
func TestAReplicaHasAllThatWasAcknowledged(t *testing.T) {
	for _, n := range seed.Histories(t, 5) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			random := rand.New(rand.NewPCG(n, 0))
			f := newFake()
			writer := opened(t, f)
			mustPublish(t, writer, "0")
			replicas := []*Store{following(t, f), following(t, f)}
			texts, first := []string{"0"}, 0
			for i := 1; i < 200; i++ {
				switch random.IntN(6) {
				case 0, 1, 2:
					texts = append(texts, fmt.Sprint(i))
					mustPublish(t, writer, fmt.Sprint(i))
				case 3:
					if _, err := writer.compact(t.Context(), 1); err != nil {
						t.Fatal(err)
					}
					if err := writer.snapshot(t.Context()); err != nil {
						t.Fatal(err)
					}
				case 4:
					f.pass(time.Duration(random.IntN(100)) * time.Minute)
					if err := writer.collect(t.Context()); err != nil {
						t.Fatal(err)
					}
				case 5:
					if random.IntN(4) == 0 && len(texts) > first+1 {
						first += 1 + random.IntN(len(texts)-first-1)
						if err := storetest.Trim(t.Context(), writer, 1, eventlog.Offset(first)); err != nil {
							t.Fatal(err)
						}
					}
				}
				if random.IntN(3) > 0 {
					continue
				}
				got, err := replicas[random.IntN(2)].Read(t.Context(), []eventlog.Span{{Partition: 1, From: eventlog.Offset(first), MaxBytes: 1 << 20}}, 1<<20)
				if err != nil || got[0].Err != nil {
					t.Fatalf("at step %d: %v, %v", i, err, got)
				}
				var have []string
				for _, b := range got[0].Batches {
					have = append(have, string(b.Bytes))
				}
				if !slices.Equal(have, texts[first:]) || got[0].Bounds.Next != eventlog.Offset(len(texts)) {
					t.Fatalf("at step %d the replica has %q up to %d, want %q", i, have, got[0].Bounds.Next, texts[first:])
				}
			}
		})
	}
}

// What a replica reads while it is too slow for grace may be deleted under it. It says so, and does
// not take the log for shorter.
func TestAReplicaThatIsTooSlowSaysSo(t *testing.T) {
	f := newFake()
	writer := opened(t, f)
	mustPublish(t, writer, "a")
	replica := following(t, f)
	expect(t, replica, "a")
	mustPublish(t, writer, "b", "c")
	f.answerGets(func(key string) {
		if strings.HasPrefix(key, "commit/") {
			f.pass(quick.grace / 2)
		}
	})
	for range 3 {
		got, err := replica.Read(t.Context(), []eventlog.Span{{Partition: 1, MaxBytes: 1 << 20}}, 1<<20)
		if !errors.Is(err, eventlog.ErrUnavailable) || !strings.Contains(err.Error(), "raise grace") {
			t.Errorf("%v, %+v", err, got)
		}
		if _, _, err := replica.Changes(t.Context(), eventlog.Mark{}); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("moved: %v", err)
		}
	}
	f.answerGets(nil)
	expect(t, replica, "a", "b", "c")
}

// The objects that a replica wants are deleted between two of its requests: it looks again, and
// finds the records where they are now.
func TestAReplicaFindsWhatWasMovedUnderIt(t *testing.T) {
	f := newFake()
	writer := opened(t, f)
	mustPublish(t, writer, "a", "b")
	replica := following(t, f)
	moved := false
	f.answerGets(func(key string) {
		if key != commitKey(1) || moved {
			return
		}
		moved = true
		tended(t, writer, f, "c", "d", "e")
		if len(f.Keys(key)) > 0 {
			t.Fatalf("%s was not deleted: the test tests nothing", key)
		}
	})
	expect(t, replica, "a", "b", "c", "d", "e")
	if !moved {
		t.Error("the test tests nothing")
	}
	f.answerGets(nil)
	for _, key := range f.Keys("segment/") { // now they are lost
		f.change(key, func([]byte) []byte { return nil })
	}
	got, err := replica.Read(t.Context(), []eventlog.Span{{Partition: 1, MaxBytes: 1 << 20}}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, damaged := errors.AsType[*eventlog.DamagedError](got[0].Err); !damaged || got[0].Bounds.Next != 5 {
		t.Errorf("the segments are gone: %+v", got[0])
	}
}

// A bucket that was rewound is another incarnation for a replica, which cannot write that down; and
// it is still the same one when it looks again.
func TestAReplicaNoticesThatTheBucketWasRewound(t *testing.T) {
	f := newFake()
	writer := opened(t, f)
	mustPublish(t, writer, "a")
	copied := maps.Clone(f.Objects)
	mustPublish(t, writer, "lost")
	replica := following(t, f)
	_, mark, err := replica.Changes(t.Context(), eventlog.Mark{})
	if err != nil {
		t.Fatal(err)
	}
	f.Mu.Lock()
	f.Objects = maps.Clone(copied)
	f.Mu.Unlock()
	if _, _, err := replica.Changes(t.Context(), mark); !errors.Is(err, eventlog.ErrRewound) {
		t.Errorf("moved: %v", err)
	}
	_, now, err := replica.Changes(t.Context(), eventlog.Mark{})
	if err != nil || now.Incarnation == mark.Incarnation {
		t.Errorf("incarnation %v, before %v, %v", now.Incarnation, mark.Incarnation, err)
	}
	expect(t, replica, "a")
	if _, again, err := replica.Changes(t.Context(), now); err != nil || again.Incarnation != now.Incarnation {
		t.Errorf("incarnation %v, then %v, %v", now.Incarnation, again.Incarnation, err)
	}
	if !maps.EqualFunc(f.Objects, copied, func(a, b stored) bool { return string(a.Body) == string(b.Body) }) {
		t.Errorf("the replica changed the bucket: %v", f.Keys(""))
	}
	mustPublish(t, opened(t, f), "new")
	expect(t, replica, "a", "new")
}

// Whatever part of the store writes by itself, of a replica it cannot.
func TestTheUpkeepOfAReplicaCannotWrite(t *testing.T) {
	f := newFake()
	writer := opened(t, f)
	replica := following(t, f)
	mustPublish(t, writer, "a")
	tended(t, writer, f, "b", "c", "d")
	f.pass(2 * time.Hour)
	mustPublish(t, writer, "more")
	expect(t, replica, "a", "b", "c", "d", "more")
	before := f.Keys("")
	replica.mu.Lock()
	replica.newest = 0
	replica.mu.Unlock()
	for name, do := range map[string]func() error{
		"compact":  func() error { _, err := replica.compact(t.Context(), 1); return err },
		"snapshot": func() error { return replica.snapshot(t.Context()) },
		"remove":   func() error { return replica.bucket.remove(t.Context(), commitKey(replica.st.number)) },
	} {
		if err := do(); !errors.Is(err, eventlog.ErrReadOnly) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := f.Keys(""); len(after) != len(before) {
		t.Errorf("the replica changed the bucket: %v, before %v", after, before)
	}
}

// Where there is no log, a replica says so and begins none.
func TestAReplicaBeginsNoLog(t *testing.T) {
	f := newFake()
	at := quick
	at.replica = true
	_, err := f.open(context.Background(), at)
	if err == nil || !strings.Contains(err.Error(), "there is no log yet") || errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if keys := f.Keys(""); len(keys) > 0 {
		t.Errorf("it wrote %v", keys)
	}
	if _, err := parse("s3://bucket?alone=true&read_only=true"); err == nil || !strings.Contains(err.Error(), "leave one of them out") {
		t.Errorf("%v", err)
	}
}
