package weir_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/proctest"
	"github.com/weir-log/weir/internal/seed"
)

type job struct{ Do, URL, Topic, Name string }

func TestMain(m *testing.M) {
	proctest.Work(work)
	os.Exit(m.Run())
}

// work does a job, says so on standard output, and waits to be killed.
func work(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	ctx := context.Background()
	w, err := weir.Open(ctx, j.URL, weir.Options{})
	if err != nil {
		return err
	}
	switch j.Do {
	case "publish":
		_, err = w.Publish(ctx, weir.Event{Topic: j.Topic, Value: []byte("acknowledged")})
	case "publish in a transaction":
		var conn *pgx.Conn
		if conn, err = pgx.Connect(ctx, j.URL); err != nil {
			return err
		}
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			return w.PublishTx(ctx, tx, weir.Event{Topic: j.Topic, Value: []byte("acknowledged")})
		})
	case "consume":
		_, err = w.Consume(ctx, weir.Subscription{Group: "g", Name: j.Name, Topics: []string{j.Topic}, Session: 2 * time.Second,
			Handler: func(_ context.Context, e weir.Event) error {
				_, err := fmt.Printf("handled %d %d %s %s\n", e.Partition, e.Offset, e.Key, e.Value)
				return err
			}})
	case "fail":
		_, err = w.Consume(ctx, weir.Subscription{Group: "g", Topics: []string{j.Topic}, Session: 2 * time.Second, Handler: fails,
			DeadLetter: func(_ context.Context, f weir.Failure) ([]weir.Event, error) {
				_, err := fmt.Println("gave up", f.Event.Offset)
				return []weir.Event{f.DeadLetterEvent()}, err
			}})
	case "publish on":
		return publishOn(ctx, w, j.Topic)
	case "publish once, on":
		return publishOnceOn(ctx, w, j.Topic)
	case "bill":
		err = billOn(ctx, w, j)
	case "work a queue":
		_, err = w.Work(ctx, weir.WorkOptions{Queue: j.Topic, Concurrency: queueConcurrency, Handler: func(_ context.Context, j weir.Job) error {
			_, err := fmt.Println("handled", string(j.Value), j.Attempt)
			return err
		}})
	default:
		err = fmt.Errorf("no job %q", j.Do)
	}
	if err != nil {
		return err
	}
	fmt.Println("done")
	select {}
}

func startWorker(t *testing.T, j job) *proctest.Process {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	return proctest.Start(t, string(text))
}

func TestTrapWhatAKilledProcessPublishedArrives(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		for _, do := range []string{"publish", "publish in a transaction"} {
			if do != "publish" && s.kind != "postgres" {
				continue
			}
			topic := strings.ReplaceAll(do, " ", "-")
			w := s.open(t)
			ensure(t, w, topic, 1)
			closeLog(t, w)
			p := startWorker(t, job{Do: do, URL: s.url, Topic: topic})
			if line := next(t, p.Lines); line != "done" {
				t.Fatalf("the publisher says %q", line)
			}
			p.Kill()
			// Nobody publishes again.
			var got seen
			consume(t, s.open(t), weir.Subscription{Group: topic, Topics: []string{topic}, Handler: got.note})
			if v := values(got.wait(t, 1)); v[0] != "acknowledged" {
				t.Errorf("got %q", v)
			}
		}
	}, "sqlite", "postgres")
}

// Two processes share a group, and one is killed: the other goes on where it was. Nothing is left
// out, the order within a partition holds but for the step back to what was committed, and what was
// committed before the kill does not come again.
func TestAKilledProcessIsTakenOverFrom(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		const partitions, before, during, after = 4, 200, 200, 200
		ensure(t, w, "orders", partitions)
		a := startWorker(t, job{Do: "consume", URL: s.url, Topic: "orders", Name: "a"})
		b := startWorker(t, job{Do: "consume", URL: s.url, Topic: "orders", Name: "b"})
		eventually(t, "both are in the group", func() bool {
			g, err := w.Group(t.Context(), "g")
			return err == nil && len(g.Members) == 2
		})
		handled := map[string]int{} // by value
		last := map[string]int64{}  // offset by worker and partition
		read := func(name, line string) {
			var partition, key, value string
			var offset int64
			if line == "done" {
				return
			}
			if _, err := fmt.Sscanf(line, "handled %s %d %s %s", &partition, &offset, &key, &value); err != nil {
				t.Fatalf("worker %s says %q (%v)", name, line, err)
			}
			handled[value]++
			if at, seen := last[name+partition]; seen && offset <= at {
				t.Errorf("worker %s: offset %d of partition %s came after %d", name, offset, partition, at)
			}
			last[name+partition] = offset
		}
		until := func(n int) {
			t.Helper()
			for late := time.After(limit); len(handled) < n; {
				select {
				case line := <-a.Lines:
					read("a", line)
				case line := <-b.Lines:
					read("b", line)
				case <-late:
					t.Fatalf("%d of %d events came", len(handled), n)
				}
			}
		}
		var sent []weir.Placed
		send := func(n int) {
			for range n {
				sent = append(sent, publish(t, w, "orders", fmt.Sprintf("key%d=%d", len(sent), len(sent)))...)
			}
		}
		send(before)
		until(before)
		committed(t, w, "g") // by themselves, while both work
		send(during)
		until(before + during/2)
		g, err := w.Group(t.Context(), "g")
		if err != nil {
			t.Fatal(err)
		}
		a.Kill()
		for line := range a.Lines {
			read("a", line)
		}
		a.Lines = nil
		send(after)
		until(before + during + after)
		committed(t, w, "g")
		passed := map[int32]int64{} // what the group had committed before the kill
		for _, o := range g.Offsets {
			passed[o.Partition] = o.Committed
		}
		twice := 0
		for i, at := range sent {
			times := handled[fmt.Sprint(i)]
			if times > 2 || times == 2 && at.Offset < passed[at.Partition] {
				t.Errorf("event %d, of partition %d and offset %d, came %d times, and the group had committed %d there", i, at.Partition, at.Offset, times, passed[at.Partition])
			}
			twice += times - 1
		}
		t.Logf("%d of %d events came twice", twice, len(sent))
	}, "sqlite", "postgres")
}

// billOn writes a bill for each event, and publishes that it did, in the transaction that commits
// the offset.
func billOn(ctx context.Context, w *weir.Log, j job) error {
	conns, err := pgxpool.New(ctx, j.URL)
	if err != nil {
		return err
	}
	_, err = w.Consume(ctx, weir.Subscription{Group: "billing", Topics: []string{j.Topic}, Session: time.Second, Handler: func(ctx context.Context, e weir.Event) error {
		err := pgx.BeginFunc(ctx, conns, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO bills VALUES ($1)`, string(e.Value)); err != nil {
				return err
			}
			if err := w.PublishTx(ctx, tx, weir.Event{Topic: "billed", Key: e.Key, Value: e.Value}); err != nil {
				return err
			}
			return e.CommitTx(ctx, tx)
		})
		fmt.Println("billed", string(e.Value), err)
		return err
	}})
	return err
}

// Processes are killed one after the other in the middle of their transactions: what they write
// there, rows and events, is there once.
func TestWhatKilledProcessesCommitInTransactionsIsThereOnce(t *testing.T) {
	random := seed.Random(t)
	s := newSite(t, "postgres")
	pgtest.Exec(t, s.url, `CREATE TABLE bills (value text NOT NULL)`) // no unique key: it would hide what is written twice
	w := s.open(t)
	const n, kills = 300, 3
	ensure(t, w, "orders", 3)
	ensure(t, w, "billed", 1)
	for i := range n {
		publish(t, w, "orders", fmt.Sprintf("key%d=%d", i, i))
	}
	for range kills {
		p := startWorker(t, job{Do: "bill", URL: s.url, Topic: "orders"})
		for range 2 + random.IntN(50) {
			next(t, p.Lines)
		}
		p.Kill()
	}
	p := startWorker(t, job{Do: "bill", URL: s.url, Topic: "orders"})
	go func() {
		for range p.Lines { // else it would wait
		}
	}()
	eventually(t, "all events are billed", func() bool {
		return pgtest.Value(t, s.url, `SELECT count(DISTINCT value) FROM bills`) == fmt.Sprint(n)
	})
	committed(t, w, "billing")
	if rows := pgtest.Value(t, s.url, `SELECT count(*) FROM bills`); rows != fmt.Sprint(n) {
		t.Errorf("%s rows for %d events", rows, n)
	}
	var billed seen
	consume(t, w, weir.Subscription{Group: "audit", Topics: []string{"billed"}, Handler: billed.note})
	publish(t, w, "billed", "end")
	times := map[string]int{}
	for _, v := range values(billed.wait(t, n+1)) {
		times[v]++
	}
	for v, k := range times {
		if k != 1 {
			t.Errorf("that %s was billed is there %d times", v, k)
		}
	}
	if len(times) != n+1 {
		t.Errorf("%d different events say what was billed, want %d", len(times)-1, n)
	}
}

// publishersOn is how many goroutines of a process publish at the same time, each with a key of its
// own.
const publishersOn = 4

// publishOn publishes events without end, and says of each where it is.
func publishOn(ctx context.Context, w *weir.Log, topic string) error {
	return publishEndless(func(key string, i int) (weir.Placed, error) {
		placed, err := w.Publish(ctx, weir.Event{Topic: topic, Key: []byte(key), Value: fmt.Append(nil, i)})
		if err != nil {
			return weir.Placed{}, err
		}
		return placed[0], nil
	})
}

// publishOnceOn does so under idempotency keys.
func publishOnceOn(ctx context.Context, w *weir.Log, topic string) error {
	return publishEndless(func(key string, i int) (weir.Placed, error) {
		placed, _, err := w.PublishOnce(ctx, fmt.Sprint(key, "-", i), weir.Event{Topic: topic, Key: []byte(key), Value: fmt.Append(nil, i)})
		if err != nil {
			return weir.Placed{}, err
		}
		return placed[0], nil
	})
}

func publishEndless(publish func(key string, i int) (weir.Placed, error)) error {
	failed := make(chan error)
	for p := range publishersOn {
		go func() {
			key := fmt.Sprint("key", p)
			for i := 0; ; i++ {
				at, err := publish(key, i)
				if err != nil {
					failed <- err
					return
				}
				fmt.Println("acknowledged", key, i, at.Partition, at.Offset)
			}
		}()
	}
	return <-failed
}

// killedPublisher starts a process that publishes, kills it after some acknowledgements, and
// returns the places that it named, by key.
func killedPublisher(t *testing.T, j job, after int) map[string][]weir.Placed {
	t.Helper()
	acknowledged := map[string][]weir.Placed{}
	read := func(line string) {
		var key string
		var i int
		var at weir.Placed
		if _, err := fmt.Sscanf(line, "acknowledged %s %d %d %d", &key, &i, &at.Partition, &at.Offset); err != nil || i != len(acknowledged[key]) {
			t.Fatalf("the publisher says %q (%v)", line, err)
		}
		acknowledged[key] = append(acknowledged[key], at)
	}
	p := startWorker(t, j)
	for range after {
		read(next(t, p.Lines))
	}
	p.Kill()
	for line := range p.Lines {
		read(line)
	}
	return acknowledged
}

// published reads what is in the partitions of orders, by key: each key's events must be there
// once, and in order.
func published(t *testing.T, w *weir.Log, partitions int) map[string][]weir.Placed {
	t.Helper()
	there := map[string][]weir.Placed{}
	for p := range partitions {
		for e, err := range w.Read(t.Context(), weir.TopicPartition{Topic: "orders", Partition: int32(p)}, weir.Earliest) {
			if err != nil {
				t.Fatal(err)
			}
			key := string(e.Key)
			if want := fmt.Sprint(len(there[key])); string(e.Value) != want {
				t.Fatalf("%s: event %s is there where %s is next", key, e.Value, want)
			}
			there[key] = append(there[key], weir.Placed{Partition: e.Partition, Offset: e.Offset})
		}
	}
	return there
}

// What a publisher that was killed under load had heard of is there, once and in order, and at most
// one event of each goroutine behind it.
func TestWhatAKilledPublisherHeardAcknowledgedIsThereOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 2)
		acknowledged := killedPublisher(t, job{Do: "publish on", URL: s.url, Topic: "orders"}, 200)
		there := published(t, s.open(t), 2)
		for key, placed := range acknowledged {
			if got := there[key]; len(got) < len(placed) || len(got) > len(placed)+1 || !slices.Equal(got[:len(placed)], placed) {
				t.Errorf("%s: %d events are there, and %d were acknowledged:\n%v\n%v", key, len(got), len(placed), got, placed)
			}
		}
	}, "sqlite", "postgres")
}

// Whoever repeats what a killed process had published once gets the first answer; what that one had
// not heard of is there afterwards, too, and once.
func TestPublishOnceTellsWhatAKilledPublisherDid(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 2)
		acknowledged := killedPublisher(t, job{Do: "publish once, on", URL: s.url, Topic: "orders"}, 100)
		w = s.open(t)
		again := map[string][]weir.Placed{}
		for key, placed := range acknowledged {
			for i := range len(placed) + 1 {
				got, repeated, err := w.PublishOnce(t.Context(), fmt.Sprint(key, "-", i), weir.Event{Topic: "orders", Key: []byte(key), Value: fmt.Append(nil, i)})
				if err != nil {
					t.Fatal(err)
				}
				if i < len(placed) && (!repeated || got[0] != placed[i]) {
					t.Errorf("%s, event %d: %v, repeated %v; the first answer was %v", key, i, got, repeated, placed[i])
				}
				again[key] = append(again[key], got[0])
			}
		}
		for key, got := range published(t, w, 2) {
			if !slices.Equal(got, again[key]) {
				t.Errorf("%s: what is there is not what was answered:\n%v\n%v", key, got, again[key])
			}
		}
	}, "sqlite", "postgres")
}
