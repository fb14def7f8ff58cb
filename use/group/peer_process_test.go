package group_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/proctest"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/postgres"
	"github.com/weir-log/weir/store/sqlite"
	"github.com/weir-log/weir/use/group"
)

func TestMain(m *testing.M) {
	proctest.Work(peerAlone)
	os.Exit(m.Run())
}

// peerAlone handles events until it is killed, and says so: "<partition> <offset>" before each
// commit.
func peerAlone(place string) error {
	ctx := context.Background()
	store, err := openPlace(ctx, place)
	if err != nil {
		return err
	}
	log, err := eventlog.Open(ctx, store, eventlog.Config{Logger: quiet})
	if err != nil {
		return err
	}
	go func() { _ = log.Run(ctx) }()
	return handleAll(ctx, log, peerOf(4*time.Second), func(a group.Assigned) { fmt.Println(a.Partition, a.Position) })
}

func openPlace(ctx context.Context, place string) (eventlog.Store, error) {
	if strings.HasPrefix(place, "postgres") {
		return postgres.Open(ctx, place, postgres.Options{})
	}
	return sqlite.Open(ctx, place, sqlite.Options{})
}

// peerOf is a peer whose session is as short as the test can wait for, and long where the test
// needs it to live on a busy machine.
func peerOf(session time.Duration) group.PeerConfig {
	return group.PeerConfig{Group: "g", Topics: []string{"orders"}, Session: session, Heartbeat: 300 * time.Millisecond, Look: 100 * time.Millisecond, Logger: quiet}
}

// handleAll is an application: a peer that tells of each event, one at a time, commits it, and
// gives back what is asked for.
func handleAll(ctx context.Context, log *eventlog.Log, cfg group.PeerConfig, tell func(group.Assigned)) error {
	p, err := group.New(log, group.Config{}).JoinPeer(ctx, cfg)
	if err != nil {
		return err
	}
	over := make(chan error, 1)
	go func() { over <- p.Run(ctx) }()
	for ctx.Err() == nil {
		a := p.Assignment()
		if err := p.Release(ctx, places(a.Revoking)...); err != nil && ctx.Err() == nil {
			return err
		}
		for _, own := range a.Own {
			if err := handleOne(ctx, log, p, own, tell); err != nil && ctx.Err() == nil {
				return err
			}
		}
		select {
		case err := <-over:
			return err
		case <-p.Changed():
		case <-time.After(5 * time.Millisecond): // it asks for events again, as a poll does
		}
	}
	return <-over
}

func handleOne(ctx context.Context, log *eventlog.Log, p *group.Peer, a group.Assigned, tell func(group.Assigned)) error {
	got, err := log.Fetch(ctx, eventlog.Want{Spans: []eventlog.Span{{Partition: a.Log, From: a.Position, MaxBytes: 1}}})
	if err != nil || a.Position >= got[0].Bounds.Next {
		return err
	}
	tell(a)
	return p.Commit(ctx, []group.Committed{{TopicPartition: a.TopicPartition, Offset: a.Position + 1, LeaderEpoch: -1}})
}

// realPlaces are stores that several processes can open.
func realPlaces(t *testing.T) map[string]string {
	return map[string]string{"sqlite": filepath.Join(t.TempDir(), "weir.db"), "postgres": pgtest.URL(t)}
}

// A process is killed in the middle of its work, and another takes its partitions over. Nothing is
// lost, and what was committed is not handled again.
func TestAPeerThatIsKilledIsTakenOver(t *testing.T) {
	for name, place := range realPlaces(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, err := openPlace(t.Context(), place)
			b := startFollowing(t, opened(t, store, err), group.Config{}, 50*time.Millisecond)
			const partitions, before, after = 4, 40, 20
			b.topic(t, "orders", partitions)
			topic, err := b.log.Topic(t.Context(), "orders")
			check(t, err)
			record := func(n int) {
				for range n {
					for _, p := range topic.Partitions {
						_, err := b.log.Publish(t.Context(), p, batch.Record{Value: []byte("event")})
						check(t, err)
					}
				}
			}
			record(before)

			other := proctest.Start(t, place)
			told := map[position]int{}
			read := func() bool {
				line, more := <-other.Lines
				if !more {
					return false
				}
				var at position
				if _, err := fmt.Sscan(line, &at.partition, &at.offset); err != nil {
					t.Errorf("the peer said %q", line)
				}
				told[at]++
				return true
			}
			for len(told) < partitions*before/2 && read() {
			}
			var mu sync.Mutex
			here := map[position]int{}
			ctx, stop := context.WithCancel(t.Context())
			all := make(chan struct{})
			var peer sync.WaitGroup
			peer.Go(func() {
				check(t, handleAll(ctx, b.log, peerOf(30*time.Second), func(a group.Assigned) {
					mu.Lock()
					defer mu.Unlock()
					here[position{a.Partition, a.Position}]++
					if a.Position == before+after-1 {
						if countLast(here, before+after-1) == partitions {
							close(all)
						}
					}
				}))
			})
			for len(told) < partitions*before*3/4 && read() {
			}
			other.Kill()
			for read() { // what it said before it died counts
			}
			record(after)
			select {
			case <-all:
			case <-time.After(time.Minute):
				t.Error("the dead one's partitions are not taken over")
			}
			stop()
			peer.Wait()
			judge(t, partitions, before+after, told, here)
		})
	}
}

type position struct {
	partition int32
	offset    eventlog.Offset
}

func countLast(seen map[position]int, last eventlog.Offset) (n int) {
	for at := range maps.Keys(seen) {
		if at.offset == last {
			n++
		}
	}
	return n
}

// judge checks that every event was handled, once, but for the one of each partition that the dead
// may have been at.
func judge(t *testing.T, partitions, events int, dead, alive map[position]int) {
	t.Helper()
	for p := range int32(partitions) {
		twice := 0
		for o := range eventlog.Offset(events) {
			at := position{p, o}
			switch n := dead[at] + alive[at]; {
			case n == 0:
				t.Errorf("event %d of partition %d was never handled", o, p)
			case n > 1:
				twice++
			}
		}
		if twice > 1 {
			t.Errorf("%d events of partition %d were handled twice; one could be on its way when its peer was killed", twice, p)
		}
	}
	if len(dead) == 0 || len(alive) == 0 {
		t.Errorf("%d events were handled there and %d here: both should have had work", len(dead), len(alive))
	}
}

// A peer that stood still for longer than its session comes back, and believes that it has what it
// had. The store knows better.
func TestAZombieIsFencedOnEveryStore(t *testing.T) {
	stores := map[string]func(t *testing.T) eventlog.Store{"memory": func(*testing.T) eventlog.Store { return memory.New() }}
	for name, place := range realPlaces(t) {
		stores[name] = func(t *testing.T) eventlog.Store {
			store, err := openPlace(t.Context(), place)
			return opened(t, store, err)
		}
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startFollowing(t, open(t), group.Config{}, 50*time.Millisecond)
			o := b.topic(t, "orders", 1)[0]
			zombie, err := b.JoinPeer(t.Context(), peerOf(time.Second)) // nothing keeps it alive
			check(t, err)
			check(t, zombie.Commit(t.Context(), []group.Committed{at(o, 5)}))
			heir := joinPeer(t, b, peerOf(30*time.Second))
			deadline := time.After(time.Minute)
			for len(heir.Assignment().Own) == 0 {
				select {
				case <-heir.Changed():
				case <-deadline:
					t.Fatal("the silent one is not taken over")
				}
			}
			if got := heir.Assignment().Own[0].Position; got != 5 {
				t.Errorf("the heir begins at %d, and 5 was committed", got)
			}
			check(t, heir.Commit(t.Context(), []group.Committed{at(o, 10)}))
			for range 2 {
				wantErr(t, zombie.Commit(t.Context(), []group.Committed{at(o, 6)}), group.ErrFenced)
			}
			wantErr(t, zombie.Run(t.Context()), group.ErrFenced)
			wantHas(t, zombie, "")
			wantOffset(t, b, "g", o.TopicPartition, 10)
			check(t, heir.stop())
		})
	}
}
