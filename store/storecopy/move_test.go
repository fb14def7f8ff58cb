package storecopy_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/store/shard"
	"github.com/weir-log/weir/store/storecopy"
)

// shards is the URL of an empty set.
func shards(t *testing.T, kinds ...string) string {
	var all []string
	for _, kind := range kinds {
		all = append(all, strings.ReplaceAll(everystore.URL(t, kind), ",", ",,"))
	}
	return "shard:" + strings.Join(all, ",")
}

// set opens a set for a move.
func set(t *testing.T, url string) *shard.Set {
	t.Helper()
	s, is := eventlog.As[*shard.Set](opened(t, url))
	if !is {
		t.Fatalf("%s is not made of shards", url)
	}
	return s
}

func move(t *testing.T, url string, p eventlog.Partition, to int) {
	t.Helper()
	if err := moving(t.Context(), set(t, url), p, to); err != nil {
		t.Fatal(err)
	}
}

// moving makes the whole move of a partition.
func moving(ctx context.Context, s storecopy.Set, p eventlog.Partition, to int) error {
	m, err := storecopy.BeginMoves(ctx, s, []eventlog.Partition{p}, to, storecopy.MoveOptions{})
	if err != nil {
		return err
	}
	return m.Run(ctx)[0].Err
}

// abandoning gives the move of a partition up.
func abandoning(ctx context.Context, s storecopy.Set, p eventlog.Partition) error {
	done, err := storecopy.AbandonMoves(ctx, s, []eventlog.Partition{p}, nil)
	if err != nil {
		return err
	}
	return done[0].Err
}

// placement returns where a partition is.
func placement(t *testing.T, s *shard.Set, p eventlog.Partition) eventlog.Placement {
	t.Helper()
	all, err := s.Placements(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all.Of(p)
}

// onlyOn fails unless one shard has the partition with its keys, and no shard has anything else of
// a move.
func onlyOn(t *testing.T, url string, p eventlog.Partition, want int) {
	t.Helper()
	s := set(t, url)
	if at := placement(t, s, p); want >= 0 && at.Shard != want || at.Move != "" {
		t.Errorf("partition %d is placed at %+v, want it on shard %d", p, at, want)
	}
	for n := range s.Shards() {
		raw := opened(t, strings.ReplaceAll(strings.Split(strings.ReplaceAll(strings.TrimPrefix(url, "shard:"), ",,", "\x00"), ",")[n], "\x00", ","))
		held, _, err := raw.Changes(t.Context(), eventlog.Mark{})
		if err != nil {
			t.Fatal(err)
		}
		has := slices.ContainsFunc(held, func(b eventlog.Bounds) bool { return b.Partition.On(0) == p.On(0) })
		if has != (n == want) {
			t.Errorf("shard %d has partition %d: %v", n, p, has)
		}
		kvs, err := raw.List(t.Context(), "", "", 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range kvs {
			ofPartition := strings.HasSuffix(kv.Key, fmt.Sprintf("/%d", p)) && !strings.HasPrefix(kv.Key, "shard/placed/")
			if ofPartition && n != want || strings.HasPrefix(kv.Key, "shard/guard/") {
				t.Errorf("shard %d still has the key %s", n, kv.Key)
			}
		}
	}
}

// sequenced is an entry with one record of an idempotent producer.
func sequenced(t *testing.T, p eventlog.Partition, id int64, sequence int32) eventlog.Entry {
	t.Helper()
	raw, err := batch.Seal([]batch.Record{{Value: fmt.Appendf(nil, "%d-%d", id, sequence), Timestamp: 1}}, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint64(raw[43:], uint64(id))
	binary.BigEndian.PutUint16(raw[51:], 0)
	binary.BigEndian.PutUint32(raw[53:], uint32(sequence))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	h, err := batch.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return eventlog.Entry{Batches: []eventlog.Batch{{Partition: p, Records: 1, MaxTime: 1, Bytes: raw, Producer: &h}}}
}

// Idempotent producers in two processes append, and readers in both follow, while the partition
// goes to another shard, to a third, and back. Each record is there once, in the order of its
// producer, and no reader is sent back or misses one.
func TestAPartitionMovesWhileItIsInUse(t *testing.T) {
	for name, kinds := range map[string][]string{"sqlite": {"sqlite", "sqlite", "sqlite"}, "postgres": {"postgres", "postgres", "sqlite"}, "mysql": {"mysql", "sqlite", "mysql"}} {
		t.Run(name, func(t *testing.T) {
			url := shards(t, kinds...)
			var logs []*eventlog.Log
			for range 2 {
				log, _ := run(t, url)
				logs = append(logs, log)
			}
			topic := makeTopic(t, logs[0], "orders", 3)
			if err := logs[1].RefreshTopics(t.Context()); err != nil {
				t.Fatal(err)
			}
			p := topic.Partitions[slices.IndexFunc(topic.Partitions, func(p eventlog.Partition) bool { return p.Shard() == 0 })]
			stop := make(chan struct{})
			var producers, readers sync.WaitGroup
			var sent [2]atomic.Int32
			news := make(chan struct{}, 1) // a record was acknowledged, or the test has failed
			tell := func() {
				select {
				case news <- struct{}{}:
				default:
				}
			}
			for i, log := range logs {
				producers.Go(func() {
					defer tell()
					for n := int32(0); ; n++ {
						select {
						case <-stop:
							return
						default:
						}
						for {
							out, err := log.Append(t.Context(), sequenced(t, p, int64(i), n))
							if err == nil && len(out.Base) == 1 {
								break
							}
							if !errors.Is(err, eventlog.ErrUnavailable) && !errors.Is(err, eventlog.ErrUnsure) {
								t.Errorf("producer %d, record %d: %+v, %v", i, n, out, err)
								return
							}
						}
						sent[i].Store(n + 1)
						tell()
					}
				})
			}
			ended := make(chan struct{})
			read := make([][]string, 2)
			for i, log := range logs {
				readers.Go(func() {
					epoch, from := log.LeaderEpoch(), eventlog.Offset(0)
					for {
						got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: from, MaxBytes: 1 << 20}}, MaxWait: 10 * time.Second, Stop: ended, Epoch: &epoch})
						if errors.Is(err, eventlog.ErrUnavailable) {
							continue
						}
						if err != nil || got[0].Err != nil && !errors.Is(got[0].Err, eventlog.ErrUnavailable) {
							t.Errorf("reader %d at %d: %v, %v", i, from, err, got)
							return
						}
						for _, b := range got[0].Batches {
							for r, err := range b.Decode() {
								if err != nil || r.Offset != int64(from) {
									t.Errorf("reader %d at %d got %d (%v)", i, from, r.Offset, err)
									return
								}
								read[i] = append(read[i], string(r.Value))
								from++
							}
						}
						select {
						case <-ended:
							if int(from) == int(sent[0].Load()+sent[1].Load()) {
								return
							}
						default:
						}
					}
				})
			}
			await := func(more int32) {
				from := [2]int32{sent[0].Load(), sent[1].Load()}
				for sent[0].Load() < from[0]+more || sent[1].Load() < from[1]+more {
					if <-news; t.Failed() {
						return
					}
				}
			}
			await(20)
			for _, to := range []int{1, 2, 0, 1} {
				move(t, url, p, to)
				await(20)
				onlyOn(t, url, p, to)
			}
			close(stop)
			producers.Wait()
			close(ended)
			readers.Wait()
			if !slices.Equal(read[0], read[1]) || len(read[0]) != int(sent[0].Load()+sent[1].Load()) {
				t.Errorf("%d records were acknowledged; the readers have %d and %d, the same: %v", sent[0].Load()+sent[1].Load(), len(read[0]), len(read[1]), slices.Equal(read[0], read[1]))
			}
			next := [2]int{}
			for _, value := range read[0] {
				var id, n int
				if _, err := fmt.Sscanf(value, "%d-%d", &id, &n); err != nil || n != next[id] {
					t.Fatalf("%s comes after %d records of its producer (%v)", value, next[id], err)
				}
				next[id]++
			}
			if moved, err := logs[0].CreateTopic(t.Context(), eventlog.TopicSpec{Name: "later", Partitions: 3}); err != nil || len(moved.Partitions) != 3 {
				t.Error(moved, err)
			}
		})
	}
}

// errDied is what a process gets that has died: it does nothing more.
var errDied = errors.New("the process has died")

// mortal is a set whose process dies in a step of a move: a commit to a shard, or a change of the
// placement.
type mortal struct {
	*shard.Set
	steps, at int  // the step in which it dies
	done      bool // the step happens
	dead      bool
}

func (m *mortal) step(do func() error) error {
	if m.dead {
		return errDied
	}
	m.steps++
	if m.steps != m.at {
		return do()
	}
	if m.done {
		_ = do()
	}
	m.dead = true
	return errDied
}

func (m *mortal) Place(ctx context.Context, changes []eventlog.Placing) (made []eventlog.Placement, err error) {
	err = m.step(func() error { made, err = m.Set.Place(ctx, changes); return err })
	return made, err
}

func (m *mortal) Placements(ctx context.Context) (eventlog.Placements, error) {
	if m.dead {
		return nil, errDied
	}
	return m.Set.Placements(ctx)
}

func (m *mortal) View(n int, p, on eventlog.Partition) eventlog.Store {
	return mortalShard{m.Set.View(n, p, on), m}
}

type mortalShard struct {
	eventlog.Store
	of *mortal
}

func (s mortalShard) Commit(ctx context.Context, flush []eventlog.Entry) (out []eventlog.Outcome, err error) {
	err = s.of.step(func() error { out, err = s.Store.Commit(ctx, flush); return err })
	return out, err
}

func (s mortalShard) Trim(ctx context.Context, trims []eventlog.Trim) (errs []error, err error) {
	err = s.of.step(func() error { errs, err = s.Store.Trim(ctx, trims); return err })
	return errs, err
}

// A move whose process died in any step is completed by the next one, or abandoned. Nothing is lost
// or there twice, a producer goes on with its next number, and a repeat of its last batch is found
// out.
func TestAMoveThatDiedIsCompletedOrAbandoned(t *testing.T) {
	for _, abandon := range []bool{false, true} {
		for _, done := range []bool{false, true} {
			t.Run(fmt.Sprintf("abandoned %v, the step happened %v", abandon, done), func(t *testing.T) {
				steps := 0
				for at := 1; ; at++ {
					url := shards(t, "sqlite", "sqlite")
					log, stop := run(t, url)
					topic := makeTopic(t, log, "orders", 2)
					p := topic.Partitions[0]
					from := p.Shard()
					for n := range int32(5) {
						if _, err := log.Append(t.Context(), sequenced(t, p, 7, n)); err != nil {
							t.Fatal(err)
						}
					}
					if err := log.Trim(t.Context(), p, 2); err != nil {
						t.Fatal(err)
					}
					want := "2:7-2 3:7-3 4:7-4"
					died := &mortal{Set: set(t, url), at: at, done: done}
					err := moving(t.Context(), died, p, 1-from)
					if !died.dead {
						if err != nil {
							t.Fatal(err)
						}
						steps = at
						break
					}
					if err == nil {
						t.Errorf("step %d: a process that died says that it has moved the partition", at)
					}
					if got := records(t, log, p); got != want {
						t.Errorf("step %d: between the moves a reader gets %s", at, got)
					}
					now := 1 - from
					if abandon {
						switch err := abandoning(t.Context(), set(t, url), p); {
						case err == nil, errors.Is(err, storecopy.ErrNotMoving):
						case errors.Is(err, storecopy.ErrMoved): // it can only be completed
							move(t, url, p, now)
						default:
							t.Fatal(err)
						}
						now = placement(t, set(t, url), p).Shard
					} else if err := moving(t.Context(), set(t, url), p, now); err != nil && !errors.Is(err, storecopy.ErrThere) {
						t.Fatalf("step %d: %v", at, err)
					}
					onlyOn(t, url, p, now)
					for _, c := range []struct {
						n         int32
						duplicate bool
					}{{4, true}, {5, false}} {
						for {
							out, err := log.Append(t.Context(), sequenced(t, p, 7, c.n))
							if errors.Is(err, eventlog.ErrUnavailable) {
								continue
							}
							if err != nil || out.Duplicate != c.duplicate || out.Base[0] != eventlog.Offset(c.n) {
								t.Errorf("step %d: record %d: %+v, %v", at, c.n, out, err)
							}
							break
						}
					}
					if got := records(t, log, p); got != want+" 5:7-5" {
						t.Errorf("step %d: the partition holds %s", at, got)
					}
					stop()
				}
				if steps < 12 {
					t.Errorf("the whole move had %d steps", steps)
				}
			})
		}
	}
}

// suspended is a shard of a process that is suspended before its next commit, until it may go on.
type suspended struct {
	eventlog.Store
	armed         atomic.Bool
	before, again chan struct{}
}

func (s *suspended) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if len(flush) > 0 && len(flush[0].Batches) > 0 && s.armed.CompareAndSwap(true, false) {
		s.before <- struct{}{}
		<-s.again
	}
	return s.Store.Commit(ctx, flush)
}

// turning is a set of the process that makes a move: it calls after when a partition was placed.
type turning struct {
	*shard.Set
	after func(eventlog.Placement)
}

func (s turning) Place(ctx context.Context, changes []eventlog.Placing) ([]eventlog.Placement, error) {
	made, err := s.Set.Place(ctx, changes)
	for _, at := range made {
		s.after(at)
	}
	return made, err
}

// A process is suspended after it has found the partition's shard, and commits when the partition
// is closed, or is on another shard and not yet forgotten. Whatever it is told, a record that it
// was acknowledged is there.
func TestACommitFromBeforeTheFenceIsRefused(t *testing.T) {
	for _, when := range []eventlog.MoveState{eventlog.MoveClosed, eventlog.MoveLeft} {
		t.Run(string(when), func(t *testing.T) {
			files := []string{everystore.URL(t, "sqlite"), everystore.URL(t, "sqlite")}
			open := func(wrap func(int, eventlog.Store) eventlog.Store) *shard.Set {
				var members []shard.Shard
				for i, file := range files {
					one, err := store.Open(t.Context(), file, nil)
					if err != nil {
						t.Fatal(err)
					}
					members = append(members, shard.Shard{Name: fmt.Sprint(i), Store: wrap(i, one)})
				}
				s, err := shard.Open(t.Context(), members, shard.Options{Rules: eventlog.KeyRules()})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				return s
			}
			plain := func(_ int, s eventlog.Store) eventlog.Store { return s }
			slow := make([]*suspended, 2)
			late, err := eventlog.Open(t.Context(), open(func(i int, s eventlog.Store) eventlog.Store {
				slow[i] = &suspended{Store: s, before: make(chan struct{}), again: make(chan struct{})}
				return slow[i]
			}), eventlog.Config{Poll: 5 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			stopped := make(chan struct{})
			go func() { defer close(stopped); late.Run(ctx) }()
			t.Cleanup(func() { cancel(); <-stopped })
			topic := makeTopic(t, late, "orders", 1)
			p := topic.Partitions[0]
			publish(t, late, p, "first")

			slow[0].armed.Store(true)
			answered := make(chan error, 1)
			go func() {
				_, err := late.Publish(t.Context(), p, batch.Record{Value: []byte("late"), Timestamp: 1})
				answered <- err
			}()
			<-slow[0].before
			refused := false
			err = moving(t.Context(), turning{open(plain), func(at eventlog.Placement) {
				if at.Move != when {
					return
				}
				close(slow[0].again)
				// The process has committed, or was refused, before the move goes on. A refused
				// record waits in its queue, and gets an answer once the process has read the
				// table.
				if err := <-answered; err == nil && when == eventlog.MoveClosed {
					t.Error("a closed partition has taken a record")
				} else {
					refused = err != nil
				}
			}}, p, 1)
			if err != nil {
				t.Fatal(err)
			}
			reader, err := eventlog.Open(t.Context(), open(plain), eventlog.Config{})
			if err != nil {
				t.Fatal(err)
			}
			want := "0:first 1:late"
			if refused {
				want = "0:first"
			}
			if got := records(t, reader, p); got != want {
				t.Errorf("the writer was refused: %v, and the partition holds %s", refused, got)
			}
			if when == eventlog.MoveClosed && !refused {
				t.Error("the writer was not refused")
			}
		})
	}
}

// Of two processes that move a partition, the one that began first does nothing more: it deletes
// nothing on a shard to which the partition has come back.
func TestAMoveThatWasTakenOverDoesNothingMore(t *testing.T) {
	url := shards(t, "sqlite", "sqlite")
	log, _ := run(t, url)
	p := makeTopic(t, log, "orders", 1).Partitions[0]
	publish(t, log, p, "a", "b")
	for _, back := range []bool{false, true} {
		for _, when := range []eventlog.MoveState{eventlog.MoveCopying, eventlog.MoveClosed, eventlog.MoveLeft} {
			err := moving(t.Context(), turning{set(t, url), func(at eventlog.Placement) {
				if at.Move != when {
					return
				}
				move(t, url, p, 1)
				if back {
					move(t, url, p, 0)
				}
			}}, p, 1)
			if !errors.Is(err, storecopy.ErrMoveTaken) && !errors.Is(err, storecopy.ErrTaken) {
				t.Errorf("overtaken when %s: %v", when, err)
			}
			now := 1
			if back {
				now = 0
			}
			if got := records(t, log, p); got != "0:a 1:b" {
				t.Fatalf("overtaken when %s: the partition holds %s", when, got)
			}
			onlyOn(t, url, p, now)
			if !back {
				move(t, url, p, 0)
			}
		}
	}
}

func TestWhatCannotBeMovedIsRefused(t *testing.T) {
	url := shards(t, "sqlite", "sqlite", "sqlite")
	log, _ := run(t, url)
	p := makeTopic(t, log, "orders", 1).Partitions[0]
	s := set(t, url)
	var invalid *eventlog.InvalidError
	if err := moving(t.Context(), s, p, 3); !errors.As(err, &invalid) {
		t.Errorf("a shard that does not exist: %v", err)
	}
	if err := moving(t.Context(), s, p, p.Shard()); !errors.Is(err, storecopy.ErrThere) {
		t.Errorf("the shard where it is: %v", err)
	}
	if err := moving(t.Context(), s, p+1, 1); !errors.Is(err, eventlog.ErrNoPartition) {
		t.Errorf("a partition that does not exist: %v", err)
	}
	if err := abandoning(t.Context(), s, p); !errors.Is(err, storecopy.ErrNotMoving) {
		t.Errorf("abandoned without a move: %v", err)
	}
	if _, err := storecopy.BeginMoves(t.Context(), s, []eventlog.Partition{p}, 1, storecopy.MoveOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := moving(t.Context(), s, p, 2); !errors.Is(err, storecopy.ErrMovesElsewhere) {
		t.Errorf("while it moves to another shard: %v", err)
	}
	if err := abandoning(t.Context(), s, p); err != nil {
		t.Fatal(err)
	}
	onlyOn(t, url, p, p.Shard())
}

// A move that is stopped while the partition is closed opens it again.
func TestAMoveThatIsStoppedOpensThePartition(t *testing.T) {
	url := shards(t, "sqlite", "sqlite")
	log, _ := run(t, url)
	p := makeTopic(t, log, "orders", 1).Partitions[0]
	publish(t, log, p, "a")
	ctx, cancel := context.WithCancel(t.Context())
	err := moving(ctx, turning{set(t, url), func(at eventlog.Placement) {
		if at.Move == eventlog.MoveClosed {
			cancel()
		}
	}}, p, 1)
	if !errors.Is(err, context.Canceled) && !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("the move was stopped: %v", err)
	}
	if at := placement(t, set(t, url), p); at.Move != eventlog.MoveCopying || at.Shard != 0 {
		t.Errorf("the partition is placed at %+v", at)
	}
	publishable(t, log, p, "b")
	move(t, url, p, 1)
	if got := records(t, log, p); got != "0:a 1:b" {
		t.Errorf("the partition holds %s", got)
	}
	onlyOn(t, url, p, 1)
}

// A topic that is deleted while its partition is copied is gone, and so is the copy.
func TestATopicIsDeletedWhileItsPartitionMoves(t *testing.T) {
	url := shards(t, "sqlite", "sqlite")
	log, _ := run(t, url)
	p := makeTopic(t, log, "orders", 1).Partitions[0]
	publish(t, log, p, "a")
	m, err := storecopy.BeginMoves(t.Context(), set(t, url), []eventlog.Partition{p}, 1, storecopy.MoveOptions{Report: func(storecopy.Progress) {
		if _, err := log.Topic(t.Context(), "orders"); err != nil {
			return
		}
		if err := log.DeleteTopic(t.Context(), "orders"); err != nil {
			t.Error(err)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if done := m.Run(t.Context()); !errors.Is(done[0].Err, eventlog.ErrNoPartition) {
		t.Errorf("the move of a deleted partition: %v", done[0].Err)
	}
	onlyOn(t, url, p, -1)
}

// A topic is deleted after a move of its partition died. What the move left can still be deleted,
// whatever it had done.
func TestWhatAMoveOfADeletedTopicLeftIsDeleted(t *testing.T) {
	found := map[eventlog.MoveState]bool{}
	for at := 1; ; at++ {
		url := shards(t, "sqlite", "sqlite")
		log, stop := run(t, url)
		p := makeTopic(t, log, "orders", 1).Partitions[0]
		if _, err := log.Append(t.Context(), sequenced(t, p, 7, 0)); err != nil {
			t.Fatal(err)
		}
		died := &mortal{Set: set(t, url), at: at, done: true}
		_ = moving(t.Context(), died, p, 1)
		if !died.dead {
			break
		}
		state := placement(t, set(t, url), p).Move
		found[state] = true
		if state != eventlog.MoveClosed { // else its topic cannot be deleted
			if err := log.DeleteTopic(t.Context(), "orders"); err != nil {
				t.Fatalf("step %d, %s: %v", at, state, err)
			}
			if _, err := storecopy.AbandonMoves(t.Context(), set(t, url), []eventlog.Partition{p}, func(eventlog.Partition) bool { return true }); err != nil && (state != "" || !errors.Is(err, storecopy.ErrNotMoving)) {
				t.Errorf("step %d, %s: %v", at, state, err)
			}
			moved := set(t, url)
			if at := placement(t, moved, p); at.Move != "" {
				t.Errorf("the partition is %+v", at)
			}
			for n := range 2 {
				raw := opened(t, strings.Split(strings.TrimPrefix(url, "shard:"), ",")[n])
				held, _, err := raw.Changes(t.Context(), eventlog.Mark{})
				if err != nil || slices.ContainsFunc(held, func(b eventlog.Bounds) bool { return b.Partition.On(0) == p.On(0) }) {
					t.Errorf("step %d, %s: shard %d still has the partition (%v)", at, state, n, err)
				}
				kvs, err := raw.List(t.Context(), "shard/guard/", "", 10)
				if err != nil || len(kvs) > 0 {
					t.Errorf("step %d, %s: shard %d has %v (%v)", at, state, n, kvs, err)
				}
			}
		}
		stop()
	}
	if !found[eventlog.MoveCopying] || !found[eventlog.MoveLeft] {
		t.Errorf("the moves died when the partition was %v", found)
	}
}

// A compacted partition keeps its holes; who keeps copies of its batches reads them again, and
// compaction begins anew.
func TestACompactedPartitionMoves(t *testing.T) {
	dir := t.TempDir()
	url := "shard:sqlite:" + filepath.Join(dir, "a.db") + ",sqlite:" + filepath.Join(dir, "b.db")
	log, _ := run(t, url)
	topic, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 1, Config: map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "max.compaction.lag.ms": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	p := topic.Partitions[0]
	for _, key := range []string{"a", "b", "a", "c", "a"} {
		publish(t, log, p, key)
	}
	var before eventlog.KeyValue
	for until := time.Now().Add(time.Minute); ; {
		if before, err = log.Get(t.Context(), eventlog.ReplacedKey(p)); err != nil || time.Now().After(until) {
			t.Fatal("no compaction", err)
		}
		if records(t, log, p) == "1:b 3:c 4:a" {
			break
		}
	}
	move(t, url, p, 1)
	onlyOn(t, url, p, 1)
	other, _ := run(t, url)
	if got := records(t, other, p); got != "1:b 3:c 4:a" {
		t.Errorf("the partition holds %s", got)
	}
	if after, err := other.Get(t.Context(), eventlog.ReplacedKey(p)); err != nil || after.Version <= before.Version {
		t.Errorf("the state of compaction was %+v and is %+v (%v)", before, after, err)
	}
}
