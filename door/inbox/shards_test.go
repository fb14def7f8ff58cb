package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/store/shard"
	"github.com/weir-log/weir/store/storecopy"
	"github.com/weir-log/weir/use/keys"
	"github.com/weir-log/weir/use/publish"
)

// cutOff is a shard whose commits and single keys fail while down is set.
type cutOff struct {
	eventlog.Store
	down atomic.Bool
}

func (c *cutOff) Unwrap() eventlog.Store { return c.Store }

func (c *cutOff) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if c.down.Load() {
		return nil, fmt.Errorf("%w: cut off", eventlog.ErrUnavailable)
	}
	return c.Store.Commit(ctx, flush)
}

// setRig is a log on shards, and a program's connections to each of them.
type setRig struct {
	rig
	kinds  []string
	urls   []string
	shards []*cutOff
	dbs    []*sql.DB
	set    *shard.Set
}

// newSetRig opens stores of these kinds as one. The topic orders has six partitions.
func newSetRig(t *testing.T, kinds ...string) *setRig {
	t.Helper()
	r := &setRig{rig: rig{T: t, said: &syncBuffer{}}, kinds: kinds}
	logger := r.logger()
	var members []shard.Shard
	for _, kind := range kinds {
		url := everystore.URL(t, kind)
		opened, err := store.Open(t.Context(), url, logger)
		if err != nil {
			t.Fatal(err)
		}
		r.shards = append(r.shards, &cutOff{Store: opened})
		members = append(members, shard.Shard{Name: url, Store: r.shards[len(r.shards)-1]})
		r.urls, r.dbs = append(r.urls, strings.ReplaceAll(url, ",", ",,")), append(r.dbs, program(t, url))
	}
	set, err := shard.Open(t.Context(), members, shard.Options{Rules: keys.Rules(), Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set.Close() })
	r.begin(set)
	if _, err := r.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 6}); err != nil {
		t.Fatal(err)
	}
	return r
}

// begin begins the log on a set.
func (r *setRig) begin(set *shard.Set) {
	r.Helper()
	r.set = set
	var err error
	if r.log, err = eventlog.Open(r.Context(), r.set, eventlog.Config{Logger: r.logger()}); err != nil {
		r.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.log.Run(ctx) }()
	r.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			r.Error(err)
		}
	})
	r.publisher = publish.New(r.log, publish.Config{})
}

// movers begins the movers of one process.
func (r *setRig) movers() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = NewShardMovers(r.log, r.set, r.publisher, r.logger(), nil).Run(ctx)
	}()
	stop = func() { cancel(); <-ended }
	r.Cleanup(stop)
	return stop
}

// opened opens the door of each shard, as a mover does.
func (r *setRig) opened() (all ShardMovers) {
	r.Helper()
	all = NewShardMovers(r.log, r.set, r.publisher, r.logger(), nil)
	for _, m := range all {
		if err := m.open(r.Context()); err != nil {
			r.Fatal(err)
		}
	}
	return all
}

// publishes are the statements with which a program publishes topic, key and value on a shard.
var publishes = map[string]string{
	"postgres": "SELECT weir.publish($1::text, $2::text, $3::text)",
	"mysql":    "CALL weir_publish(?, ?, ?)",
	"sqlite":   "INSERT INTO weir_inbox (topic, event_key, event_value) VALUES (?, ?, ?)",
}

// tables are the names of a shard's inbox.
func (r *setRig) table(shard int, name string) string {
	if r.kinds[shard] == "postgres" {
		return "weir." + name
	}
	return name
}

func (r *setRig) rows(shard int, name string) (n int) {
	r.Helper()
	if err := r.dbs[shard].QueryRow("SELECT count(*) FROM " + r.table(shard, name)).Scan(&n); err != nil {
		r.Fatal(err)
	}
	return n
}

// in publishes events to orders in one transaction on a shard.
func (r *setRig) in(shard int, commit bool, keysAndValues ...string) {
	r.Helper()
	tx, err := r.dbs[shard].BeginTx(r.Context(), nil)
	if err != nil {
		r.Fatal(err)
	}
	for i := 0; i < len(keysAndValues); i += 2 {
		if _, err := tx.Exec(publishes[r.kinds[shard]], "orders", keysAndValues[i], keysAndValues[i+1]); err != nil {
			r.Fatal(err)
		}
	}
	end := tx.Rollback
	if commit {
		end = tx.Commit
	}
	if err := end(); err != nil {
		r.Fatal(err)
	}
}

// found reads the values of orders by key, in order, until there are n.
func (r *setRig) found(n int) map[string][]string {
	r.Helper()
	about, err := r.log.Topic(r.Context(), "orders")
	if err != nil {
		r.Fatal(err)
	}
	found, total := map[string][]string{}, 0
	want := eventlog.Want{MaxWait: 20 * time.Millisecond}
	for _, p := range about.Partitions {
		want.Spans = append(want.Spans, eventlog.Span{Partition: p, MaxBytes: 1 << 20})
	}
	for deadline := time.Now().Add(time.Minute); total < n; {
		if time.Now().After(deadline) {
			r.Fatalf("%d of %d events after a minute; what was logged:\n%s", total, n, r.said)
		}
		got, err := r.log.Fetch(r.Context(), want)
		if err != nil && !errors.Is(err, eventlog.ErrUnavailable) { // an epoch begins when stores become a set
			r.Fatal(err)
		}
		for i, slice := range got {
			if slice.Err != nil && !errors.Is(slice.Err, eventlog.ErrUnavailable) {
				r.Fatal(slice.Err)
			}
			for _, b := range slice.Batches {
				for rec, err := range b.Decode() {
					if err != nil {
						r.Fatal(err)
					}
					found[string(rec.Key)] = append(found[string(rec.Key)], string(rec.Value))
					total++
				}
				want.Spans[i].From = b.End()
			}
		}
	}
	return found
}

// empty waits until the movers have deleted what they published.
func (r *setRig) empty() {
	r.Helper()
	for deadline := time.Now().Add(time.Minute); ; <-time.After(time.Millisecond) {
		left := 0
		for n := range r.dbs {
			left += r.rows(n, "weir_inbox")
		}
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("%d rows are left after a minute; what was logged:\n%s", left, r.said)
		}
	}
}

// Sessions on each shard publish under keys whose partitions are on all shards, while the movers of
// two processes run, and those of one begin again and again.
func TestSessionsOfEachShardPublishOnceAndInOrder(t *testing.T) {
	for _, kinds := range [][]string{{"sqlite", "sqlite", "sqlite"}, {"postgres", "mysql", "sqlite"}, {"mysql", "postgres"}} {
		t.Run(strings.Join(kinds, "-"), func(t *testing.T) {
			r := newSetRig(t, kinds...)
			r.opened()
			random := seed.Random(r)
			const transactions, keysOfSession = 30, 8
			counts := make([]map[string]int, len(kinds))
			var wg sync.WaitGroup
			for s := range kinds {
				rolls := random.Uint64()
				counts[s] = map[string]int{}
				wg.Go(func() {
					for n := range transactions {
						commit := rolls>>(n%60)&1 == 0
						var events []string
						next := map[string]int{}
						for i := range 1 + n%7 {
							key := fmt.Sprintf("shard %d, %d", s, (n+i*i)%keysOfSession)
							events = append(events, key, fmt.Sprint(counts[s][key]+next[key]))
							next[key]++
						}
						r.in(s, commit, events...)
						for key, more := range next {
							if commit {
								counts[s][key] += more
							}
						}
					}
				})
			}
			inserted := make(chan struct{})
			go func() { wg.Wait(); close(inserted) }()
			r.movers()
			for more := true; more; {
				stop := r.movers()
				select {
				case <-time.After(time.Duration(random.IntN(60)) * time.Millisecond):
					stop()
				case <-inserted:
					more = false
				}
			}
			r.empty()
			all := 0
			for _, of := range counts {
				for _, n := range of {
					all += n
				}
			}
			got := r.found(all)
			total := 0
			for _, of := range counts {
				for key, n := range of {
					var want []string
					for i := range n {
						want = append(want, fmt.Sprint(i))
					}
					if fmt.Sprint(got[key]) != fmt.Sprint(want) {
						t.Errorf("%s: %v, want %v", key, got[key], want)
					}
					total += len(got[key])
				}
			}
			for n := range kinds {
				if refused := r.rows(n, "weir_inbox_refused"); refused > 0 {
					t.Errorf("%d rows of shard %d were refused: %s", refused, n, r.said)
				}
			}
		})
	}
}

// A mover ends after it published a chunk to some shards, before it deleted the rows.
func TestWhatAMoverOfAShardPublishedAndDidNotDeleteIsThereOnce(t *testing.T) {
	for _, kinds := range [][]string{{"sqlite", "sqlite"}, {"postgres", "mysql"}} {
		t.Run(strings.Join(kinds, "-"), func(t *testing.T) {
			r := newSetRig(t, kinds...)
			m := r.opened()[1]
			var events []string
			for i := range 20 {
				events = append(events, fmt.Sprint("key ", i), "0")
			}
			r.in(1, true, events...)
			for range kinds { // it gets to know the key of each shard
				if _, err := m.step(t.Context()); !errors.Is(err, errLearned) {
					break
				}
			}
			r.in(1, true, events...)
			m.door.database = failing{m.door.database}
			if _, err := m.step(t.Context()); !errors.Is(err, errDied) {
				t.Fatal(err)
			}
			if r.rows(1, "weir_inbox") < 20 {
				t.Fatal("rows were deleted")
			}
			r.movers()
			r.empty()
			for key, values := range r.found(40) {
				if fmt.Sprint(values) != "[0 0]" {
					t.Errorf("%s: %v", key, values)
				}
			}
		})
	}
}

// The partitions of what was published, and not deleted, move to the other shard: the new movers
// find there what was published.
func TestWhatWasPublishedBeforeItsPartitionMovedIsThereOnce(t *testing.T) {
	for _, kinds := range [][]string{{"sqlite", "sqlite"}, {"mysql", "postgres"}} {
		t.Run(strings.Join(kinds, "-"), func(t *testing.T) {
			r := newSetRig(t, kinds...)
			m := r.opened()[0]
			var events []string
			for i := range 20 {
				events = append(events, fmt.Sprint("key ", i), "0")
			}
			r.in(0, true, events...)
			if _, err := m.step(t.Context()); !errors.Is(err, errLearned) {
				t.Fatal(err)
			}
			m.door.database = failing{m.door.database}
			if _, err := m.step(t.Context()); !errors.Is(err, errDied) {
				t.Fatal(err)
			}
			about, err := r.log.Topic(t.Context(), "orders")
			if err != nil {
				t.Fatal(err)
			}
			other, is := eventlog.As[*shard.Set](everystore.Open(t, "shard:"+strings.Join(r.urls, ",")))
			if !is {
				t.Fatal("no set")
			}
			for _, p := range about.Partitions {
				moves, err := storecopy.BeginMoves(t.Context(), other, []eventlog.Partition{p}, 1-other.ShardWith(p), storecopy.MoveOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if err := moves.Run(t.Context())[0].Err; err != nil {
					t.Fatal(err)
				}
			}
			r.movers()
			r.empty()
			for key, values := range r.found(20) {
				if fmt.Sprint(values) != "[0]" {
					t.Errorf("%s: %v", key, values)
				}
			}
		})
	}
}

func TestAShardThatIsLostHoldsUpOnlyItsOwnRows(t *testing.T) {
	r := newSetRig(t, "sqlite", "sqlite", "sqlite")
	r.opened()
	about, err := r.log.Topic(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	const lost = 2
	elsewhere := 0
	r.shards[lost].down.Store(true)
	var events []string
	for i := range 60 {
		key := fmt.Sprint("key ", i)
		events = append(events, key, "0")
	}
	r.in(0, true, events...)
	r.movers()
	held := 0
	for deadline := time.Now().Add(time.Minute); ; <-time.After(time.Millisecond) {
		held = r.rows(0, "weir_inbox")
		elsewhere = 0
		got, err := r.log.Bounds(t.Context(), about.Partitions...)
		if err != nil && !errors.Is(err, eventlog.ErrUnavailable) {
			t.Fatal(err)
		}
		for _, b := range got {
			elsewhere += int(b.Bounds.Next)
		}
		if held > 0 && held < 60 && held+elsewhere == 60 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d rows are held, and %d events are there; what was logged:\n%s", held, elsewhere, r.said)
		}
	}
	r.in(1, true, "key 0", "1", "key 1", "1", "key 2", "1", "key 3", "1", "key 4", "1", "key 5", "1")
	r.shards[lost].down.Store(false)
	r.empty()
	for key, values := range r.found(66) {
		if fmt.Sprint(values) != "[0]" && fmt.Sprint(values) != "[0 1]" && fmt.Sprint(values) != "[1 0]" {
			t.Errorf("%s: %v", key, values)
		}
	}
}

// Each kind of database refuses what can be known to be wrong there; the rest is kept beside, with
// the reason.
func TestWaitingCountsTheRowsOfAllShards(t *testing.T) {
	r := newSetRig(t, "postgres", "mysql", "sqlite")
	if n, err := Waiting(t.Context(), r.set); err != nil || n != 0 {
		t.Errorf("without the tables: %d, %v", n, err)
	}
	r.opened()
	for n := range r.kinds {
		r.in(n, true, "k", "0", "k", "1")
	}
	if n, err := Waiting(t.Context(), r.set); err != nil || n != 6 {
		t.Errorf("%d, %v, want 6", n, err)
	}
}

// aimless cannot make durable what it reads.
type aimless struct{ database }

func (a aimless) aim(context.Context, string, []target) error { return errDied }

// What another shard publishes must not be undone by a crash of the database where it was read.
func TestNothingIsPublishedToAShardBeforeItIsDurableWhereItWasRead(t *testing.T) {
	r := newSetRig(t, "postgres", "mysql", "sqlite")
	for n, m := range r.opened() {
		r.in(n, true, "k", "0")
		if _, err := m.step(t.Context()); !errors.Is(err, errLearned) {
			t.Fatal(err)
		}
		m.door.database = aimless{m.door.database}
		if rows, err := m.step(t.Context()); !errors.Is(err, errDied) || rows > 0 || r.rows(n, "weir_inbox") != 1 {
			t.Errorf("shard %d published %d rows: %v", n, rows, err)
		}
	}
}

// keylessly publishes events without a key in one transaction on a shard.
func (r *setRig) keylessly(shard int, values ...string) {
	r.Helper()
	statement := strings.NewReplacer("$2::text", "NULL::text", "$3", "$2").Replace(publishes[r.kinds[shard]])
	if r.kinds[shard] != "postgres" {
		statement = strings.Replace(statement, "?, ?, ?", "?, NULL, ?", 1)
	}
	tx, err := r.dbs[shard].BeginTx(r.Context(), nil)
	if err != nil {
		r.Fatal(err)
	}
	for _, v := range values {
		if _, err := tx.Exec(statement, "orders", v); err != nil {
			r.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		r.Fatal(err)
	}
}

// once checks that there are events with the values 0 to n-1, each once.
func (r *setRig) once(n int) {
	r.Helper()
	seen := map[string]int{}
	for _, values := range r.found(n) {
		for _, v := range values {
			seen[v]++
		}
	}
	for i := range n {
		if seen[fmt.Sprint(i)] != 1 {
			r.Errorf("%d is there %d times", i, seen[fmt.Sprint(i)])
		}
	}
	if len(seen) > n {
		r.Errorf("%d values, want %d", len(seen), n)
	}
}

// An event without a key may go to any partition: whoever tries again must take the one that was
// chosen first. Movers of two processes, with partitioners of their own, begin and end all the
// time.
func TestAnEventWithoutAKeyIsPublishedOnce(t *testing.T) {
	for _, kinds := range [][]string{{"sqlite", "sqlite"}, {"postgres", "mysql"}} {
		t.Run(strings.Join(kinds, "-"), func(t *testing.T) {
			r := newSetRig(t, kinds...)
			r.opened()
			random := seed.Random(r)
			const all = 600
			inserted := make(chan struct{})
			go func() {
				defer close(inserted)
				for i := 0; i < all; i += 3 {
					r.keylessly(i%len(kinds), fmt.Sprint(i), fmt.Sprint(i+1), fmt.Sprint(i+2))
				}
			}()
			const rounds = 50 // each mover has a connection of its own until the test ends, and MariaDB allows 151
			for n, more := 0, true; more && n < rounds; n++ {
				one, two := r.movers(), r.movers()
				select {
				case <-time.After(time.Duration(random.IntN(40)) * time.Millisecond):
				case <-inserted:
					more = false
				}
				one()
				two()
			}
			<-inserted
			r.movers()
			r.empty()
			r.once(all)
		})
	}
}

// A mover reads rows, and another one publishes and deletes them before the first has chosen their
// partitions. It must not choose others: the keys of these would not tell.
func TestRowsThatAnotherMoverPublishedGetNoOtherPartition(t *testing.T) {
	r := newSetRig(t, "postgres", "mysql", "sqlite")
	slow, fast := r.opened(), r.opened()
	for n := range slow {
		r.keylessly(n, fmt.Sprint(3*n), fmt.Sprint(3*n+1), fmt.Sprint(3*n+2))
		chunk, err := slow[n].read(t.Context())
		if err != nil || len(chunk) != 3 {
			t.Fatalf("shard %d: %d rows, %v", n, len(chunk), err)
		}
		for r.rows(n, "weir_inbox") > 0 {
			if _, err := fast[n].step(t.Context()); err != nil && !errors.Is(err, errLearned) {
				t.Fatal(err)
			}
		}
		if chunk, err = slow[n].aim(t.Context(), chunk); err != nil || len(chunk) > 0 {
			t.Errorf("shard %d: %d rows that were published are published again: %v", n, len(chunk), err)
		}
		if left := r.rows(n, "weir_inbox_target"); left > 0 {
			t.Errorf("shard %d: %d targets of rows that are gone", n, left)
		}
	}
	r.once(9)
}

// On shard 0, which knows the topics, an event is for the topic that there was when it was
// published, not for one with the same name.
func TestARowOnShard0DoesNotReachANamesakeOfItsTopic(t *testing.T) {
	for _, kind := range []string{"postgres", "mysql", "sqlite"} {
		t.Run(kind, func(t *testing.T) {
			r := newSetRig(t, kind, "sqlite")
			r.opened()
			r.keylessly(0, "old")
			if err := r.log.DeleteTopic(t.Context(), "orders"); err != nil {
				t.Fatal(err)
			}
			if _, err := r.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 6}); err != nil {
				t.Fatal(err)
			}
			r.keylessly(0, "0")
			r.movers()
			r.empty()
			r.once(1)
			if refused := r.rows(0, "weir_inbox_refused"); refused != 1 {
				t.Errorf("%d rows were refused, want 1", refused)
			}
		})
	}
}

// The same as TestARowOfATopicThatIsNewToTheProcessIsMoved, on shards.
func TestARowOfATopicThatIsNewToTheProcessOfASetIsMoved(t *testing.T) {
	r := newSetRig(t, "sqlite", "sqlite")
	r.opened()
	set, err := store.Open(t.Context(), "shard:"+strings.Join(r.urls, ","), r.logger(), keys.Rules()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set.Close() })
	log, publisher := behind(t, set)
	r.anew("orders")
	r.in(0, true, "k", "0")
	m := NewShardMovers(log, set, publisher, r.logger(), nil)[0]
	for r.rows(0, "weir_inbox") > 0 {
		if _, err := m.step(t.Context()); err != nil && !errors.Is(err, errLearned) {
			t.Fatal(err)
		}
	}
	if n := r.rows(0, "weir_inbox_refused"); n > 0 {
		t.Fatalf("%d rows were refused", n)
	}
	r.once(1)
}

// Between the publishing of rows and their deletion the topic gets more partitions, so that another
// one would be chosen for each.
func TestMorePartitionsDoNotPublishARowTwice(t *testing.T) {
	r := newSetRig(t, "sqlite", "sqlite")
	m := r.opened()[1]
	var events []string
	for i := range 40 {
		events = append(events, fmt.Sprint("key ", i), fmt.Sprint(i))
	}
	r.in(1, true, events...)
	if _, err := m.step(t.Context()); !errors.Is(err, errLearned) {
		t.Fatal(err)
	}
	m.door.database = failing{m.door.database}
	if _, err := m.step(t.Context()); !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	if _, err := r.log.ChangeTopic(t.Context(), "orders", eventlog.TopicChange{Partitions: 13}); err != nil {
		t.Fatal(err)
	}
	r.movers()
	r.empty()
	r.once(40)
}

// A failover of a shard's database lost a row whose event is published, and gives its id to another
// one.
func TestARowWithTheIDOfALostOneIsPublished(t *testing.T) {
	r := newSetRig(t, "sqlite", "sqlite")
	m := r.opened()[1]
	r.in(1, true, "k", "0")
	if _, err := m.step(t.Context()); !errors.Is(err, errLearned) {
		t.Fatal(err)
	}
	if n, err := m.step(t.Context()); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := r.dbs[1].Exec("INSERT INTO weir_inbox (id, topic, event_key, event_value, published_at) VALUES (1, 'orders', 'k', '1', 7)"); err != nil {
		t.Fatal(err)
	}
	r.movers()
	r.empty()
	r.once(2)
}

// An event that can never be published does not hold up others while a shard is lost.
func TestARefusedRowHoldsNobodyUpWhileAShardIsLost(t *testing.T) {
	r := newSetRig(t, "sqlite", "sqlite", "sqlite")
	r.opened()
	r.shards[2].down.Store(true)
	var events []string
	for i := range 30 {
		events = append(events, fmt.Sprint("key ", i), fmt.Sprint(i))
	}
	r.in(1, true, events...)
	if _, err := r.dbs[1].Exec(publishes["sqlite"], "nobody", "k", "v"); err != nil {
		t.Fatal(err)
	}
	r.in(1, true, "key 0", "30", "key 1", "31", "key 2", "32", "key 3", "33")
	r.movers()
	about, err := r.log.Topic(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for i := range 34 {
		key := fmt.Sprint("key ", i)
		if i >= 30 {
			key = fmt.Sprint("key ", i-30)
		}
		_, number, err := r.publisher.Choose(t.Context(), &publish.Event{Topic: "orders", Key: []byte(key)})
		if err != nil {
			t.Fatal(err)
		}
		if about.Partitions[number].Shard() == 2 {
			want++
		}
	}
	for deadline := time.Now().Add(time.Minute); r.rows(1, "weir_inbox") != want || r.rows(1, "weir_inbox_refused") != 1; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d rows are held, want %d; what was logged:\n%s", r.rows(1, "weir_inbox"), want, r.said)
		}
	}
	r.shards[2].down.Store(false)
	r.empty()
	r.once(34)
}

// A MariaDB that was a store by itself becomes shard 0: what reads only its own tables is gone, and
// what was published and not deleted there is not published again.
func TestAMariaDBInUseBecomesShard0(t *testing.T) {
	url := everystore.URL(t, "mysql")
	before := newRig(t, url)
	before.insert("orders", "k", true, "0", "1")
	dying := *before.door
	dying.database = failing{before.door.database}
	if _, err := NewMover(before.log, &dying, before.publisher, before.logger(), nil).step(t.Context()); !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	if _, err := before.db.Exec("CALL weir_partitions('orders')"); err != nil {
		t.Fatal(err)
	}
	r := &setRig{rig: rig{T: t, said: &syncBuffer{}}, kinds: []string{"mysql", "sqlite"}, dbs: []*sql.DB{before.db, program(t, everystore.URL(t, "sqlite"))}}
	set, is := eventlog.As[*shard.Set](everystore.Open(t, "shard:"+url+","+everystore.URL(t, "sqlite")))
	if !is {
		t.Fatal("no set")
	}
	r.begin(set)
	r.movers()
	for deadline := time.Now().Add(time.Minute); r.rows(0, "weir_inbox") > 0; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("rows are left: %s", r.said)
		}
	}
	r.in(0, true, "k", "2")
	if got := fmt.Sprint(r.found(3)["k"]); got != "[0 1 2]" {
		t.Error(got)
	}
	if _, err := r.dbs[0].Exec("CALL weir_partitions('orders')"); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("weir_partitions on a shard: %v", err)
	}
}
