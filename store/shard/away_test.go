package shard_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/mytest"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/s3test"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/shard"
	"github.com/weir-log/weir/store/storetest"
	"github.com/weir-log/weir/use/keys"
)

// lines is a slog.Handler that keeps messages, and tells who waits for one.
type lines struct {
	slog.Handler
	mu   sync.Mutex // guards what follows
	all  []string
	more chan struct{} // closed, and replaced, with each message
}

func newLines() *lines { return &lines{Handler: slog.DiscardHandler, more: make(chan struct{})} }

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r.Message)
	close(l.more)
	l.more = make(chan struct{})
	return nil
}

// count returns how many messages have a text, and a channel that is closed with the next message.
func (l *lines) count(text string) (n int, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, message := range l.all {
		if strings.Contains(message, text) {
			n++
		}
	}
	return n, l.more
}

func (l *lines) await(t *testing.T, text string) {
	t.Helper()
	for limit := time.After(time.Minute); ; {
		n, more := l.count(text)
		if n > 0 {
			return
		}
		select {
		case <-more:
		case <-limit:
			t.Fatalf("no line %q in %q", text, l.all)
		}
	}
}

// stopped runs a log on a store until the end of do, and closes both.
func stopped(t *testing.T, s eventlog.Store, do func(*eventlog.Log)) {
	t.Helper()
	log, err := eventlog.Open(t.Context(), s, eventlog.Config{Logger: quiet, Poll: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- log.Run(ctx) }()
	do(log)
	cancel()
	if err := errors.Join(<-done, s.Close()); err != nil {
		t.Fatal(err)
	}
}

func publish1(ctx context.Context, log *eventlog.Log, p eventlog.Partition, value string) error {
	_, err := log.Publish(ctx, p, batch.Record{Value: []byte(value), Timestamp: 1})
	return err
}

// values reads a partition.
func values(t *testing.T, log *eventlog.Log, p eventlog.Partition) (all []string) {
	t.Helper()
	got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, MaxBytes: 1 << 20}}})
	if err != nil || got[0].Err != nil {
		t.Fatal(err, got[0].Err)
	}
	for _, b := range got[0].Batches {
		for rec, err := range b.Decode() {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(rec.Value))
		}
	}
	return all
}

// awayFiles takes a SQLite file away, as a disk that is not mounted.
func awayFiles(t *testing.T, path string) (back func()) {
	move := func(from, to string) {
		for _, end := range []string{"", "-wal", "-shm"} {
			if err := os.Rename(from+end, to+end); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Error(err)
			}
		}
	}
	move(path, path+".away")
	return func() { move(path+".away", path) }
}

// A process starts while one of three shards is away. The others work, callers of that one are told
// to try again, and it is used when it comes back.
func TestAProcessStartsWhileAShardIsAway(t *testing.T) {
	for name, shard1 := range map[string]func(t *testing.T) (address string, away func() (back func())){
		"SQLite": func(t *testing.T) (string, func() func()) {
			path := filepath.Join(t.TempDir(), "b.db")
			return "sqlite:" + path, func() func() { return awayFiles(t, path) }
		},
		"PostgreSQL stopped": func(t *testing.T) (string, func() func()) {
			server := pgtest.Start(t)
			return server.URL(), func() func() { server.KillImmediate(); return server.Resume }
		},
		"MariaDB stopped": func(t *testing.T) (string, func() func()) {
			server := mytest.Start(t)
			return server.URL(), func() func() { server.Kill(); return server.Resume }
		},
		"S3 stopped": func(t *testing.T) (string, func() func()) {
			server := s3test.Start(t)
			return server.URL(), func() func() { server.Kill(); return server.Resume }
		},
		"PostgreSQL frozen": func(t *testing.T) (string, func() func()) {
			server := pgtest.Start(t)
			return server.URL(), server.Freeze
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, away := shard1(t)
			dir := t.TempDir()
			address = "shard:sqlite:" + filepath.Join(dir, "a.db") + "," + strings.ReplaceAll(address, ",", ",,") + "," + strings.ReplaceAll(pgtest.URL(t), ",", ",,")
			open := func(logger *slog.Logger) eventlog.Store {
				t.Helper()
				s, err := store.Open(t.Context(), address, logger, keys.Rules()...)
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			var of [3]eventlog.Partition
			stopped(t, open(quiet), func(log *eventlog.Log) {
				for _, p := range create(t, log, "topic", 3).Partitions {
					of[p.Shard()] = p
					if err := publish1(t.Context(), log, p, "before"); err != nil {
						t.Fatal(err)
					}
				}
			})
			back := away()
			said := newLines()
			set := open(slog.New(said))
			t.Cleanup(func() { set.Close() })
			log := run(t, set)
			for _, p := range []eventlog.Partition{of[0], of[2]} {
				if err := publish1(t.Context(), log, p, "meanwhile"); err != nil {
					t.Errorf("shard %d: %v", p.Shard(), err)
				}
				if got := values(t, log, p); fmt.Sprint(got) != "[before meanwhile]" {
					t.Errorf("shard %d has %q", p.Shard(), got)
				}
			}
			if err := publish1(t.Context(), log, of[1], "meanwhile"); !errors.Is(err, eventlog.ErrUnavailable) {
				t.Errorf("publish to the shard that is away: %v", err)
			}
			if got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: of[1], MaxBytes: 100}}}); !errors.Is(err, eventlog.ErrUnavailable) {
				t.Errorf("fetch from the shard that is away: %+v, %v", got, err)
			}
			if got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: of[1], MaxBytes: 100}, {Partition: of[2], MaxBytes: 100}}}); err != nil || !errors.Is(got[0].Err, eventlog.ErrUnavailable) || len(got[1].Batches) == 0 {
				t.Errorf("fetch from two shards: %+v, %v", got, err)
			}
			if err := storetest.Trim(t.Context(), set, of[1], 1); !errors.Is(err, eventlog.ErrUnavailable) {
				t.Errorf("trim: %v", err)
			}
			if n, _ := said.count("a shard does not answer"); n != 1 {
				t.Errorf("%d lines say that the shard does not answer: %q", n, said.all)
			}
			back()
			said.await(t, "the shard answers again")
			for until := time.Now().Add(time.Minute); ; {
				err := publish1(t.Context(), log, of[1], "after")
				if err == nil {
					break
				}
				if !errors.Is(err, eventlog.ErrUnavailable) || time.Now().After(until) {
					t.Fatal(err)
				}
			}
			if got := values(t, log, of[1]); fmt.Sprint(got) != "[before after]" {
				t.Errorf("the shard that is back has %q", got)
			}
			if n, _ := said.count("a shard does not answer"); n != 1 {
				t.Errorf("%d lines say that the shard does not answer: %q", n, said.all)
			}
		})
	}
}

// Without shard 0, without a shard of a set that is new or grows, and after an error that is no
// loss, a process does not start.
func TestAProcessDoesNotStartWithoutSomeShards(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return "sqlite:" + filepath.Join(dir, name) }
	gone := "postgres://weir@127.0.0.1:1/weir?sslmode=disable" // nothing listens there
	server := pgtest.URL(t)
	wrong, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	wrong.User = url.UserPassword(wrong.User.Username(), "wrong")
	wrong.Path = "/no_such_database" // if the server takes any password
	open := func(addresses ...string) (eventlog.Store, error) {
		for i := range addresses {
			addresses[i] = strings.ReplaceAll(addresses[i], ",", ",,")
		}
		return store.Open(t.Context(), "shard:"+strings.Join(addresses, ","), quiet, keys.Rules()...)
	}
	s, err := open(file("a.db"), server)
	if err != nil {
		t.Fatal(err)
	}
	stopped(t, s, func(*eventlog.Log) {})
	refused := func(what string, lost bool, says string, addresses ...string) {
		t.Helper()
		s, err := open(addresses...)
		if err == nil {
			s.Close()
		}
		away := errors.Is(err, eventlog.ErrUnavailable) && !errors.Is(err, eventlog.ErrUpgraded) // else it answers, and refuses
		if err == nil || away != lost || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want that it says %q", what, err, says)
		}
	}
	refused("shard 0 is away", true, "shard 0 (postgres://weir@127.0.0.1:1", gone, server)
	refused("the set is new", true, "Every shard must answer when a set is made", file("new.db"), gone)
	refused("the set gets another shard", true, "or gets more shards", file("a.db"), server, gone)
	refused("the set gets another shard, and another one is away", true, "or gets more shards", file("a.db"), gone, file("c.db"))
	refused("the list is too short", false, "has 2 shards, and the list has 1", file("a.db"))
	refused("wrong credentials", false, "shard 1", file("a.db"), wrong.String())
	maria, err := url.Parse(mytest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	maria.User = url.UserPassword("nobody", "wrong")
	refused("wrong credentials for MariaDB", false, "Access denied", file("a.db"), maria.String())
	pgtest.Exec(t, server, `UPDATE weir.migration SET number = number + 1000 WHERE number = (SELECT max(number) FROM weir.migration)`)
	refused("the schema of a newer weir", false, "run the newer weir", file("a.db"), server)
}

// In the place of a shard that the set has, nothing is created: a backup that is restored there
// finds the place empty.
func TestNothingIsCreatedInThePlaceOfAShard(t *testing.T) {
	file := "sqlite:" + filepath.Join(t.TempDir(), "a.db")
	s, err := store.Open(t.Context(), "shard:"+file+",sqlite:"+filepath.Join(t.TempDir(), "b.db"), quiet, keys.Rules()...)
	if err != nil {
		t.Fatal(err)
	}
	stopped(t, s, func(*eventlog.Log) {})
	database, other, bucketServer := pgtest.URL(t), mytest.URL(t), s3test.Start(t)
	bucket := bucketServer.URL()
	for address, held := range map[string]func() string{
		database: func() string {
			return pgtest.Value(t, database, `SELECT count(*) FROM pg_namespace WHERE nspname = 'weir'`)
		},
		other: func() string {
			return mytest.Value(t, other, `SELECT count(*) FROM information_schema.tables WHERE table_schema = database()`)
		},
		bucket: func() string {
			files, err := os.ReadDir(bucketServer.Directory(bucket))
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(len(files))
		},
	} {
		s, err := store.Open(t.Context(), "shard:"+file+","+strings.ReplaceAll(address, ",", ",,"), quiet, keys.Rules()...)
		if err == nil {
			s.Close()
		}
		if err == nil || errors.Is(err, eventlog.ErrUnavailable) || !strings.Contains(err.Error(), "restore a backup") {
			t.Errorf("%s: %v", address, err)
		}
		if n := held(); n != "0" {
			t.Errorf("%s holds %s things", address, n)
		}
	}
}

// A start waits only so long for a shard that hangs while it is opened; opening goes on.
func TestAStartDoesNotWaitForAShardThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := []*memory.Store{memory.New(), memory.New(), memory.New()}
		stopped(t, openSet(t, kept{stores[0]}, kept{stores[1]}, kept{stores[2]}), func(*eventlog.Log) {})
		answers, said := make(chan struct{}), newLines()
		began := time.Now()
		set := openAt(t, said, kept{stores[0]}, nil, kept{stores[2]}, func(ctx context.Context) (eventlog.Store, error) {
			select {
			case <-answers:
				return kept{stores[1]}, nil
			case <-ctx.Done():
				return nil, fmt.Errorf("%w: %w", eventlog.ErrUnavailable, ctx.Err())
			}
		})
		if took := time.Since(began); took != 12*time.Second {
			t.Errorf("the start took %v", took)
		}
		run(t, set)
		close(answers)
		said.await(t, "the shard answers again")
	})
}

// A set that is closed, or whose start is given up, while a shard hangs does not wait for it, and
// leaves nothing open.
func TestAShardThatIsBeingOpenedIsClosedWithTheSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := []*memory.Store{memory.New(), memory.New(), memory.New()}
		stopped(t, openSet(t, kept{stores[0]}, kept{stores[1]}, kept{stores[2]}), func(*eventlog.Log) {})
		for _, whole := range []bool{true, false} {
			opened := &closes{Store: stores[1]}
			list := []shard.Shard{{Name: "a", Store: kept{stores[0]}}, {Name: "b"}, {Name: "c", Store: kept{stores[2]}}}
			if !whole {
				list[2].Store = nil // which fails
			}
			set, err := shard.Open(t.Context(), list, shard.Options{Rules: keys.Rules(), Logger: quiet, Open: func(ctx context.Context, number int, _ bool) (eventlog.Store, error) {
				if number == 2 {
					return nil, errors.New("wrong password")
				}
				<-ctx.Done()
				return opened, nil // it opened just then
			}})
			switch {
			case (err == nil) != whole:
				t.Fatal(err)
			case whole:
				if err := set.Close(); err != nil {
					t.Error(err)
				}
			}
			if n := opened.closed.Load(); n != 1 {
				t.Errorf("whole %v: the shard was closed %d times", whole, n)
			}
		}
	})
}

// closes counts how often a store is closed.
type closes struct {
	eventlog.Store
	closed atomic.Int64
}

func (c *closes) Close() error {
	c.closed.Add(1)
	return nil
}

// An epoch that begins while a shard is away does not make readers of that shard read again what
// they have read; one that finds the shard rewound does.
func TestEpochsOfAShardThatWasAway(t *testing.T) {
	for _, rewound := range []bool{false, true} {
		t.Run(fmt.Sprint("rewound ", rewound), func(t *testing.T) {
			dir := t.TempDir()
			path := func(i int) string { return filepath.Join(dir, fmt.Sprint(i, ".db")) }
			open := func(logger *slog.Logger) eventlog.Store {
				t.Helper()
				s, err := store.Open(t.Context(), fmt.Sprintf("shard:sqlite:%s,sqlite:%s,sqlite:%s", path(0), path(1), path(2)), logger, keys.Rules()...)
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			// replace puts a copy of a file in its place: the store is in another incarnation then.
			replace := func(with, path string) {
				t.Helper()
				bytes, err := os.ReadFile(with)
				if err == nil {
					err = os.WriteFile(path+".new", bytes, 0o600) // exists together with the old one, so its inode is another
				}
				if err == nil {
					err = os.Rename(path+".new", path)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			var p eventlog.Partition
			epoch := int32(0)
			publish := func(log *eventlog.Log, n int) {
				t.Helper()
				for range n {
					if err := publish1(t.Context(), log, p, "v"); err != nil {
						t.Fatal(err)
					}
				}
				epoch = log.LeaderEpoch()
			}
			stopped(t, open(quiet), func(log *eventlog.Log) {
				for _, p = range create(t, log, "topic", 3).Partitions {
					if p.Shard() == 1 {
						break
					}
				}
				publish(log, 2)
			})
			backup := path(1) + ".backup"
			replace(path(1), backup)
			stopped(t, open(quiet), func(log *eventlog.Log) { publish(log, 3) })
			read := epoch // a consumer has read five records in it
			back := awayFiles(t, path(1))
			replace(path(2), path(2)) // so an epoch must begin
			said := newLines()
			set := open(slog.New(said))
			t.Cleanup(func() { set.Close() })
			log := run(t, set)
			meanwhile := log.LeaderEpoch()
			if meanwhile <= read {
				t.Fatalf("no epoch began: %d, then %d", read, meanwhile)
			}
			changed := log.IncarnationChanged()
			back()
			if rewound {
				replace(backup, path(1))
			}
			said.await(t, "the shard answers again")
			if rewound {
				select {
				case <-changed:
				case <-time.After(time.Minute):
					t.Fatal("the log did not notice that the shard was rewound")
				}
			}
			ends := eventlog.Offset(5)
			if rewound {
				ends = 2
			}
			for until := time.Now().Add(time.Minute); ; {
				if bounds, err := log.Bounds(t.Context(), p); err == nil && bounds[0].Bounds.Next == ends {
					break
				} else if time.Now().After(until) {
					t.Fatalf("%+v, %v", bounds, err)
				}
			}
			if _, end, known := log.EpochEnd(p, read, ends); end != ends || !known {
				t.Errorf("a reader of epoch %d is told that it ended at %d (%v), not %d", read, end, known, ends)
			}
			in := read
			got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: 5, MaxBytes: 100}}, Epoch: &in})
			if lost := new(eventlog.RangeError); err != nil || errors.As(got[0].Err, &lost) != rewound {
				t.Errorf("a reader at 5: %+v, %v", got, err)
			} else if rewound && lost.Next != 2 {
				t.Errorf("a reader at 5 is told to go to %d", lost.Next)
			}
			publish(log, 1)
			if epoch != log.LeaderEpoch() || (epoch > meanwhile) != rewound {
				t.Errorf("epochs %d, %d while the shard was away, and %d", read, meanwhile, epoch)
			}
			// What is written now counts for the epoch that began on this shard last, and the next
			// start knows that, too.
			for range 2 {
				if at := log.EpochAt(p, ends); rewound && at != epoch || !rewound && at >= meanwhile {
					t.Errorf("a record after the shard was back is of epoch %d", at)
				}
				again := open(quiet)
				t.Cleanup(func() { again.Close() })
				log = run(t, again)
			}
		})
	}
}

// A store that is not the shard stays lost, whatever it is, and nothing is written to it. The shard
// is used when it is there again.
func TestAnotherStoreInThePlaceOfAShardThatWasAwayStaysLost(t *testing.T) {
	filled := memory.New()
	stopped(t, kept{filled}, func(log *eventlog.Log) { create(t, log, "own", 1) })
	others := []*memory.Store{memory.New(), memory.New()}
	stopped(t, openSet(t, kept{others[0]}, kept{others[1]}), func(*eventlog.Log) {})
	for name, test := range map[string]struct {
		strange *memory.Store
		says    string
	}{
		"an empty store":         {memory.New(), "restore its backup"},
		"a store of its own":     {filled, "belongs to no set"},
		"a shard of another set": {others[1], "belongs to the set"},
		"another shard":          {nil, "in the place of shard 1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stores := []*memory.Store{memory.New(), memory.New(), memory.New()}
				strange := test.strange
				if strange == nil {
					strange = stores[2]
				}
				var p eventlog.Partition
				stopped(t, openSet(t, kept{stores[0]}, kept{stores[1]}, kept{stores[2]}), func(log *eventlog.Log) {
					for _, p = range create(t, log, "topic", 3).Partitions {
						if p.Shard() == 1 {
							break
						}
					}
					if err := publish1(t.Context(), log, p, "before"); err != nil {
						t.Fatal(err)
					}
				})
				before := dump(t, strange)
				var there atomic.Pointer[eventlog.Store]
				said := newLines()
				set := openAt(t, said, kept{stores[0]}, nil, kept{stores[2]}, func(context.Context) (eventlog.Store, error) {
					if s := there.Load(); s != nil {
						return *s, nil
					}
					return nil, errCut
				})
				log := run(t, set)
				put := func(s eventlog.Store) { s = kept{s}; there.Store(&s) }
				put(strange)
				said.await(t, "cannot be used")
				time.Sleep(time.Minute) // of fake time: it is tried again, and again
				synctest.Wait()
				err := publish1(t.Context(), log, p, "meanwhile")
				if !errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, shard.ErrList) || !strings.Contains(err.Error(), test.says) {
					t.Errorf("publish: %v; want that it says %q", err, test.says)
				}
				if now := dump(t, strange); test.strange != nil && now != before {
					t.Errorf("the store in its place had\n%s\nand has\n%s", before, now)
				}
				if n, _ := said.count("cannot be used"); n != 1 {
					t.Errorf("%d lines: %q", n, said.all)
				}
				put(stores[1])
				said.await(t, "the shard answers again")
				time.Sleep(time.Second)
				if err := publish1(t.Context(), log, p, "after"); err != nil {
					t.Error(err)
				}
				if got := values(t, log, p); fmt.Sprint(got) != "[before after]" {
					t.Errorf("the shard has %q", got)
				}
			})
		})
	}
}

// kept is a store that stays open after it was closed: what memory holds ends with it otherwise.
type kept struct{ eventlog.Store }

func (kept) Close() error { return nil }

// openAt opens a set; a store that is nil is opened by open.
func openAt(t *testing.T, said *lines, a, b, c eventlog.Store, open func(context.Context) (eventlog.Store, error)) *shard.Set {
	t.Helper()
	set, err := shard.Open(t.Context(), []shard.Shard{{Name: "a", Store: a}, {Name: "b", Store: b}, {Name: "c", Store: c}}, shard.Options{
		Rules: keys.Rules(), Logger: slog.New(said), Open: func(ctx context.Context, _ int, _ bool) (eventlog.Store, error) { return open(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	})
	return set
}

// dump shows what a store holds.
func dump(t *testing.T, s eventlog.Store) string {
	t.Helper()
	all, _, err := s.Changes(t.Context(), eventlog.Mark{})
	if err != nil {
		t.Fatal(err)
	}
	kvs, err := s.List(t.Context(), "", "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b eventlog.Bounds) int { return cmp.Compare(a.Partition, b.Partition) })
	text := ""
	for _, b := range all {
		text += fmt.Sprintln(b)
	}
	for _, kv := range kvs {
		text += fmt.Sprintln(kv.Key, kv.Version, string(kv.Value))
	}
	return text
}
