package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/store/shard"
	"github.com/weir-log/weir/store/storecopy"
	"github.com/weir-log/weir/use/keys"
)

func twoFiles(t *testing.T) string {
	dir := t.TempDir()
	return "shard:sqlite:" + filepath.Join(dir, "a.db") + ",sqlite:" + filepath.Join(dir, "b.db")
}

// Idempotent producers and a group work through two servers while partitions move between shards,
// by the command line. Nothing acknowledged is lost, twice in the log or out of order. The group
// gets every record, and its committed offsets stay.
func TestPartitionsMoveUnderKafkaClients(t *testing.T) {
	for name, address := range map[string]string{"sqlite": twoFiles(t), "postgres": "shard:" + pgtest.URL(t) + "," + pgtest.URL(t)} {
		t.Run(name, func(t *testing.T) {
			var servers []*server
			for range 2 {
				servers = append(servers, serve(t, "--store", address, "--cache-dir", t.TempDir(), "--tail", "1KiB"))
			}
			weir(t, "", "topic", "create", "orders", "--partitions", "2").want(t, exitOK)
			client := func(options ...kgo.Opt) *kgo.Client {
				c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(servers[0].kafka, servers[1].kafka), kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second)}, options...)...)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(c.Close)
				return c
			}
			var producing, grouping sync.WaitGroup
			ctx, stop := context.WithCancel(t.Context())
			var acked [2]atomic.Int64
			news := make(chan struct{}, 1) // something was acknowledged or consumed, or the test has failed
			tell := func() {
				select {
				case news <- struct{}{}:
				default:
				}
			}
			for p := range acked {
				producer := client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.DefaultProduceTopic("orders"))
				producing.Go(func() {
					defer tell()
					for n := 0; ctx.Err() == nil; n++ {
						r, err := producer.ProduceSync(t.Context(), &kgo.Record{Partition: int32(p), Value: fmt.Append(nil, n)}).First()
						if err != nil || r.Offset != int64(n) {
							t.Errorf("record %d of partition %d got offset %d (%v)", n, p, r.Offset, err)
							return
						}
						acked[p].Add(1)
						tell()
					}
				})
			}
			consuming, stopConsuming := context.WithCancel(t.Context())
			var got [2]atomic.Int64
			consumer := client(kgo.ConsumerGroup("billing"), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
			grouping.Go(func() {
				for {
					fetches := consumer.PollFetches(consuming)
					if consuming.Err() != nil {
						return
					}
					fetches.EachRecord(func(r *kgo.Record) {
						if want := got[r.Partition].Load(); r.Offset != want || string(r.Value) != fmt.Sprint(want) {
							t.Errorf("the group got record %s at offset %d of partition %d, expected %d", r.Value, r.Offset, r.Partition, want)
						}
						got[r.Partition].Store(r.Offset + 1)
					})
					if err := consumer.CommitUncommittedOffsets(t.Context()); err != nil {
						t.Errorf("the group cannot commit: %v", err)
					}
					tell()
				}
			})
			until := func(what string, reached func() bool) {
				t.Helper()
				for late := time.After(time.Minute); !reached(); {
					over := false
					select {
					case <-news:
					case <-late:
						over = true
					}
					if t.Failed() || over {
						t.Fatalf("%s: acknowledged %d and %d, the group has %d and %d", what, acked[0].Load(), acked[1].Load(), got[0].Load(), got[1].Load())
					}
				}
			}
			more := func(n int64) {
				t.Helper()
				a, b := acked[0].Load()+n, acked[1].Load()+n
				until("the load goes on", func() bool {
					return acked[0].Load() >= a && acked[1].Load() >= b && got[0].Load() >= a && got[1].Load() >= b
				})
			}
			more(20)
			for _, m := range [][2]string{{"0", "1"}, {"1", "0"}, {"0", "0"}, {"1", "1"}} {
				r := weir(t, "", "shard", "move", "--store", address, "--topic", "orders", "--partition", m[0], "--to", m[1])
				if r.code == exitFailed && strings.Contains(r.err, "is on that shard") {
					continue // it was created there
				}
				r.want(t, exitOK, "partition "+m[0]+" of topic orders is on shard "+m[1], "all are the same")
				more(20)
			}
			weir(t, "", "shard", "move", "--store", address, "--topic", "orders", "--to", "1").want(t, exitOK, "partition 0 of topic orders is on shard 1", "all are the same")
			more(20)
			weir(t, "", "shard", "move", "--store", address, "--from", "1", "--to", "0").want(t, exitOK, "partition 0 of topic orders is on shard 0", "partition 1 of topic orders is on shard 0")
			more(20)
			weir(t, "", "shard", "list", "--store", address, "--output", "json").want(t, exitOK, `"partition": 0,`, `"shard": 0`)
			stop()
			producing.Wait()
			until("the group ends", func() bool { return got[0].Load() >= acked[0].Load() && got[1].Load() >= acked[1].Load() })
			stopConsuming()
			grouping.Wait()
			if all := weir(t, "", "consume", "orders"); all.code != exitOK || int64(len(strings.Fields(all.out))) != acked[0].Load()+acked[1].Load() {
				t.Errorf("a new consumer gets %d records (exit code %d: %s)", len(strings.Fields(all.out)), all.code, all.err)
			}
			admin := kadm.NewClient(client())
			committed, err := admin.FetchOffsets(t.Context(), "billing")
			ends, endsErr := admin.ListEndOffsets(t.Context(), "orders")
			for p := range acked {
				at, _ := committed.Lookup("orders", int32(p))
				end, _ := ends.Lookup("orders", int32(p))
				if n := acked[p].Load(); at.At != n || end.Offset != n || got[p].Load() != n || err != nil || endsErr != nil {
					t.Errorf("partition %d: %d records were acknowledged, it ends at %d, the group got %d and has committed %d (%v, %v)", p, n, end.Offset, got[p].Load(), at.At, err, endsErr)
				}
			}
		})
	}
}

func TestWhatCannotMoveIsRefused(t *testing.T) {
	address := twoFiles(t)
	s := serve(t, "--store", address)
	server := "--server=http://" + s.http
	weir(t, "", "topic", "create", "orders", "--partitions", "2").want(t, exitOK)
	weir(t, "", "queue", "create", "mails", server).want(t, exitOK)
	weir(t, "", "stream", "category", "create", "carts", server).want(t, exitOK)
	moves := func(topic, partition, to string) result {
		return weir(t, "", "shard", "move", "--store", address, "--topic", topic, "--partition", partition, "--to", to)
	}
	list := weir(t, "", "shard", "list", "--store", address, "--topic", "orders")
	list.want(t, exitOK, "TOPIC", "orders  0")
	moves("mails", "0", "1").want(t, exitFailed, "cannot move", `the queue "mails" uses it`)
	moves("carts", "0", "1").want(t, exitFailed, "cannot move", "streams")
	moves("orders", "7", "1").want(t, exitUsage, "it has the partitions 0 to 1")
	moves("orders", "0", "2").want(t, exitUsage, "the set has the shards 0 to 1")
	moves("nothing", "0", "1").want(t, exitFailed, "nothing")
	weir(t, "", "shard", "move", "--store", address, "--topic", "orders", "--partition", "0").want(t, exitUsage, "give it with --to")
	weir(t, "", "shard", "move", "--store", address, "--topic", "orders", "--partition", "0", "--abandon").want(t, exitFailed, "does not move")
	var rows []placed
	decode(t, weir(t, "", "shard", "list", "--store", address, "--topic", "orders", "--output", "json"), &rows)
	for _, row := range rows {
		moves("orders", fmt.Sprint(row.Partition), fmt.Sprint(row.Shard)).want(t, exitFailed, "is on that shard")
	}
	move := func(args ...string) result {
		return weir(t, "", append([]string{"shard", "move", "--store", address}, args...)...)
	}
	move("--to", "1").want(t, exitUsage, "which partitions move")
	move("--partition", "1", "--to", "1").want(t, exitUsage, "the topic of the partitions is missing")
	move("--from", "1", "--to", "1").want(t, exitUsage, "both shard 1")
	move("--from", "2", "--to", "1").want(t, exitUsage, "there is no shard 2")
	move("--topic", "orders", "--partition", "0", "--from", "0", "--to", "1").want(t, exitUsage)
	move("--topic", "orders", "--partition", "0", "--partition", "7", "--to", "1").want(t, exitUsage, "it has the partitions 0 to 1")
	move("--abandon").want(t, exitFailed, "does not move")

	weir(t, "", "topic", "create", "bills", "--partitions", "5").want(t, exitOK)
	for _, p := range []string{"0", "3"} {
		weir(t, "one\ntwo\n", "produce", "bills", "--partition", p).want(t, exitOK)
	}
	move("--topic", "bills", "--partition", "3", "--partition", "0", "--to", "1").want(t, exitOK, "partition 0 of topic bills", "partition 3 of topic bills", "on shard 1")
	move("--topic", "bills", "--to", "1").want(t, exitOK, "is on shard 1", "all are the same")
	move("--topic", "bills", "--to", "1").want(t, exitOK, "no partition has to move")
	emptied := move("--from", "0", "--to", "1", "--output", "json")
	emptied.want(t, exitOK, `"topic": "mails"`, `the queue \"mails\" uses it`)
	var all moveResult
	decode(t, emptied, &all)
	decode(t, weir(t, "", "shard", "list", "--store", address, "--output", "json"), &rows)
	for _, row := range rows {
		if row.Shard == 0 && !slices.ContainsFunc(all.Stay, func(s stays) bool { return s.Topic == row.Topic }) {
			t.Errorf("partition %d of topic %s is still on shard 0: %s", row.Partition, row.Topic, emptied.out)
		}
	}
	move("--from", "0", "--to", "1").want(t, exitOK, "the partitions of topic mails stay on shard 0", "no partition has to move")
	weir(t, "", "consume", "bills").want(t, exitOK, "one", "two")

	weir(t, "later\n", "queue", "send", "mails", "--delay", "1h", server).want(t, exitOK)
	moves("__weir_later", "0", "1").want(t, exitFailed, "weir's own")
	s.stop()

	single := "sqlite:" + filepath.Join(t.TempDir(), "weir.db")
	serve(t, "--store", single).stop()
	weir(t, "", "shard", "move", "--store", single, "--topic", "orders", "--partition", "0", "--to", "1").want(t, exitConfig, "is not made of shards")
	weir(t, "", "shard", "list", "--store", single).want(t, exitConfig, "is not made of shards")
	weir(t, "", "shard", "list", "--store", "memory:").want(t, exitConfig)
}

// What a move that was interrupted left of a partition is listed after its topic was deleted, and
// is deleted with --abandon.
func TestWhatAMoveOfADeletedTopicLeftIsFound(t *testing.T) {
	for name, address := range map[string]string{"sqlite": twoFiles(t), "postgres": "shard:" + pgtest.URL(t) + "," + pgtest.URL(t)} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "--store", address)
			weir(t, "", "topic", "create", "orders", "--partitions", "2").want(t, exitOK)
			weir(t, "", "topic", "create", "bills", "--partitions", "2").want(t, exitOK)
			weir(t, "one\n", "produce", "orders", "--partition", "0").want(t, exitOK)
			opened, err := store.Open(t.Context(), address, slog.New(slog.DiscardHandler), keys.Rules()...)
			if err != nil {
				t.Fatal(err)
			}
			defer opened.Close()
			set, _ := eventlog.As[*shard.Set](opened)
			log, err := eventlog.Open(t.Context(), opened, eventlog.Config{})
			if err != nil {
				t.Fatal(err)
			}
			begun := map[string]eventlog.Partition{}
			for _, topic := range []string{"orders", "bills"} {
				about, err := log.Topic(t.Context(), topic)
				if err != nil {
					t.Fatal(err)
				}
				p := about.Partitions[0]
				if _, err := storecopy.BeginMoves(t.Context(), set, []eventlog.Partition{p}, 1-p.Shard(), storecopy.MoveOptions{}); err != nil {
					t.Fatal(err)
				}
				begun[topic] = p
			}
			weir(t, "", "topic", "delete", "orders", "--yes").want(t, exitOK)
			number := fmt.Sprint(int64(begun["orders"]))
			weir(t, "", "shard", "list", "--store", address).want(t, exitOK, "its topic was deleted", number, "copying, to shard")
			weir(t, "", "shard", "list", "--store", address, "--output", "json").want(t, exitOK, `"partition": `+number, `"deleted": true`)
			weir(t, "", "shard", "move", "--store", address, "--abandon").want(t, exitOK, "partition "+number+" of a deleted topic: what its move had left is deleted", "partition 0 of topic bills stays on shard")
			if left := weir(t, "", "shard", "list", "--store", address); left.code != exitOK || strings.Contains(left.out, "deleted") || strings.Contains(left.out, "copying") {
				t.Errorf("the list has\n%s", left.out)
			}
			s.stop()
		})
	}
}

// placing is the set of a process that moves partitions: it calls after when they were placed.
type placing struct {
	*shard.Set
	after func(eventlog.Placement)
}

func (s placing) Place(ctx context.Context, changes []eventlog.Placing) ([]eventlog.Placement, error) {
	made, err := s.Set.Place(ctx, changes)
	for _, at := range made {
		s.after(at)
	}
	return made, err
}

// A queue may get a topic while its partition is copied: then the partition stays. While the
// partition is closed, and after it was moved, no queue gets it.
func TestAQueueGetsATopicWhileItMoves(t *testing.T) {
	address := twoFiles(t)
	s := serve(t, "--store", address)
	server := "--server=http://" + s.http
	for _, when := range []eventlog.MoveState{eventlog.MoveCopying, eventlog.MoveClosed, eventlog.MoveLeft} {
		t.Run(string(when), func(t *testing.T) {
			topic := "orders-" + string(when)
			weir(t, "", "topic", "create", topic, "--partitions", "1").want(t, exitOK)
			weir(t, "one\n", "produce", topic).want(t, exitOK)
			opened, err := store.Open(t.Context(), address, slog.New(slog.DiscardHandler), keys.Rules()...)
			if err != nil {
				t.Fatal(err)
			}
			defer opened.Close()
			log, err := eventlog.Open(t.Context(), opened, eventlog.Config{})
			if err != nil {
				t.Fatal(err)
			}
			about, err := log.Topic(t.Context(), topic)
			if err != nil {
				t.Fatal(err)
			}
			set, _ := eventlog.As[*shard.Set](opened)
			options := storecopy.MoveOptions{Refused: func(ctx context.Context, some []eventlog.Partition) (map[eventlog.Partition]error, error) {
				return mustStay(ctx, log, some)
			}}
			if about.Partitions[0].Shard() == 1 { // bring it to shard 0, where a queue can use it
				home, err := storecopy.BeginMoves(t.Context(), set, about.Partitions, 0, options)
				if err != nil {
					t.Fatal(err)
				}
				if err := home.Run(t.Context())[0].Err; err != nil {
					t.Fatal(err)
				}
			}
			var created *result
			moves, err := storecopy.BeginMoves(t.Context(), placing{set, func(at eventlog.Placement) {
				if at.Move != when || created != nil {
					return
				}
				for {
					r := weir(t, "", "queue", "create", "q-"+string(when), "--topic", topic, server)
					created = &r
					if r.code != exitUnreachable || when != eventlog.MoveLeft { // else the server does not know yet that the partition is moved
						return
					}
				}
			}}, about.Partitions, 1, options)
			if err != nil {
				t.Fatal(err)
			}
			done := moves.Run(t.Context())[0]
			at := set.ShardWith(about.Partitions[0])
			switch when {
			case eventlog.MoveCopying:
				created.want(t, exitOK)
				if !errors.Is(done.Err, errStays) || !strings.Contains(done.Err.Error(), `the queue "q-copying" uses it`) || at != 0 {
					t.Errorf("the partition is on shard %d: %v", at, done.Err)
				}
				weir(t, "two\n", "queue", "send", "q-copying", server).want(t, exitOK)
				weir(t, "", "shard", "move", "--store", address, "--topic", topic, "--abandon").want(t, exitOK, "stays on shard 0")
			case eventlog.MoveClosed:
				created.want(t, exitUnreachable, "Nothing happened; try again")
			default:
				created.want(t, exitFailed, "needs all partitions of topic", "is on shard 1")
			}
			if when != eventlog.MoveCopying && (done.Err != nil || at != 1) {
				t.Errorf("the partition is on shard %d: %v", at, done.Err)
			}
		})
	}
}
