package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir/internal/ledger"
)

// sessions publish from SQL, one event a transaction.
const sessions = 50

// runSQL measures the door in the database, with a weir process that runs the mover.
func runSQL(ctx context.Context, b *bench) error {
	w, err := b.start(ctx, "postgres")
	if err != nil {
		return err
	}
	defer w.close()
	if err := createTopic(ctx, w.kafka, "sql", 4); err != nil {
		return err
	}
	if err := b.publishCost(ctx, w); err != nil {
		return err
	}
	if err := b.notifyCost(ctx, w); err != nil {
		return err
	}
	return b.delivery(ctx, w)
}

// statements for one event: $1 is the key, $2 the value.
const (
	insertBare = `INSERT INTO public.bare (xact, topic, key, value, size) VALUES (pg_current_xact_id(), '00000000-0000-0000-0000-000000000000', convert_to($1::text, 'UTF8'), $2::bytea, 200)`
	publishOne = `SELECT weir.publish('sql', $1::text, $2::bytea)`
	quiet      = `SET weir.notify = off`
)

// publishCost takes turns: inserts into a plain table with the columns of the inbox and its primary
// key, then weir.publish().
func (b *bench) publishCost(ctx context.Context, w *broker) error {
	if err := execute(ctx, w.store, `CREATE TABLE public.bare (LIKE weir.inbox INCLUDING DEFAULTS INCLUDING IDENTITY, PRIMARY KEY (id))`); err != nil {
		return err
	}
	var bare, published []float64
	for range b.runs {
		for _, sql := range []string{insertBare, publishOne} {
			got, err := transact(ctx, w.store, sql, pace{callers: sessions, warmUp: time.Second, length: b.load.length}, "", newSent())
			if err != nil {
				return err
			}
			if sql == insertBare {
				bare = append(bare, got.perSecond)
			} else {
				published = append(published, got.perSecond)
			}
			if err := w.drained(ctx); err != nil {
				return err
			}
		}
	}
	fmt.Printf("%d connections, one event a transaction, as many as they can; medians of %d runs that took turns. The mover runs at the same time.\n\n", sessions, b.runs)
	fmt.Println("| | transactions/s | ratio |")
	fmt.Println("| --- | --- | --- |")
	fmt.Printf("| bare insert into a table with the same columns | %.0f | 1 |\n", median(bare))
	fmt.Printf("| weir.publish() | %.0f | %.2f |\n\n", median(published), median(published)/median(bare))
	return nil
}

// notifyCost takes turns: weir.publish() as it is, and the same without any notification.
func (b *bench) notifyCost(ctx context.Context, w *broker) error {
	const rate = 5000
	fmt.Printf("%d connections that want %d transactions a second together; medians of %d runs that took turns. The mover runs at the same time.\n\n", sessions, rate, b.runs)
	fmt.Println("| wake-up | | transactions/s | commit p50 | p99 | loss |")
	fmt.Println("| --- | --- | --- | --- | --- | --- |")
	return b.eachWay(ctx, w, func(way string) error { return b.notifyLoss(ctx, w, way, rate) })
}

// eachWay restarts weir for each way in which it can hear of events, and measures.
func (b *bench) eachWay(ctx context.Context, w *broker, measure func(way string) error) error {
	address := w.store
	for _, way := range []struct{ name, option string }{{"LISTEN", ""}, {"polls only", "&weir_pooled=true"}} {
		if err := w.stop(); err != nil {
			return err
		}
		w.store = address + way.option
		err := w.run(ctx, b.weir)
		w.store = address
		if err != nil {
			return err
		}
		if err := measure(way.name); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) notifyLoss(ctx context.Context, w *broker, way string, rate int) error {
	seen := map[string][]paced{}
	for range b.runs {
		for _, setting := range []string{quiet, ""} {
			got, err := transact(ctx, w.store, publishOne, pace{callers: sessions, rate: rate, warmUp: time.Second, length: b.load.length}, setting, newSent())
			if err != nil {
				return err
			}
			seen[setting] = append(seen[setting], got)
			if err := w.drained(ctx); err != nil {
				return err
			}
		}
	}
	without := medianOf(seen[quiet], func(p paced) float64 { return p.perSecond })
	for _, row := range []struct{ name, setting string }{{"without any notification", quiet}, {"weir.publish()", ""}} {
		runs := seen[row.setting]
		rate := medianOf(runs, func(p paced) float64 { return p.perSecond })
		p50 := medianOf(runs, func(p paced) float64 { return float64(p.took.ValueAtQuantile(50)) / 1000 })
		p99 := medianOf(runs, func(p paced) float64 { return float64(p.took.ValueAtQuantile(99)) / 1000 })
		fmt.Printf("| %s | %s | %.0f | %.1f ms | %.1f ms | %.1f %% |\n", way, row.name, rate, p50, p99, 100*(1-rate/without))
	}
	return nil
}

func medianOf(runs []paced, of func(paced) float64) float64 {
	var all []float64
	for _, r := range runs {
		all = append(all, of(r))
	}
	return median(all)
}

// delivery measures from when a transaction was meant to begin until a Kafka consumer has its
// event, with LISTEN and by polls alone.
func (b *bench) delivery(ctx context.Context, w *broker) error {
	fmt.Print("\nTransactions at their times, with one weir.publish() each: until it is committed, and until a Kafka consumer has the event. Few are not worth looking for all the time: " +
		"then a poll finds them.\n\n")
	fmt.Println("| wake-up | transactions/s | commit p50 | p99 | delivery p50 | p99 | max | delivered |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- |")
	return b.eachWay(ctx, w, func(way string) error {
		for _, rate := range []int{100, 1000} {
			for range b.runs {
				if err := b.deliver(ctx, w, way, rate); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (b *bench) deliver(ctx context.Context, w *broker, way string, rate int) error {
	const warmUp = 2 * time.Second
	admin, err := kgo.NewClient(kgo.SeedBrokers(w.kafka))
	if err != nil {
		return err
	}
	defer admin.Close()
	ends, err := kadm.NewClient(admin).ListEndOffsets(ctx, "sql")
	if err = errors.Join(err, ends.Error()); err != nil {
		return err
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(w.kafka), kgo.ConsumePartitions(ends.KOffsets()), kgo.FetchMinBytes(1))
	if err != nil {
		return err
	}
	defer reader.Close()
	seen, sent := newLatencies(), newSent()
	sent.book.Group("reader")
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var readers sync.WaitGroup
	readers.Go(func() { seen.readAll(reading, reader, sent.book, time.Now().Add(warmUp)) })
	got, err := transact(ctx, w.store, publishOne, pace{callers: sessions, rate: rate, warmUp: warmUp, length: b.load.length}, "", sent)
	if err != nil {
		return err
	}
	seen.await(ctx, sent.book)
	stop()
	readers.Wait()
	if err := seen.judge(sent.book); err != nil {
		return err
	}
	fmt.Printf("| %s | %d | %s | %s | %s | %s | %s | %d, each once, in order |\n", way, rate, millis(got.took, 50), millis(got.took, 99),
		millis(seen.endToEnd, 50), millis(seen.endToEnd, 99), millis(seen.endToEnd, 100), seen.delivered)
	return nil
}

// sent is what a load of transactions has sent.
type sent struct {
	run  uint32
	book *ledger.Ledger
}

func newSent() *sent {
	run := rand.Uint32()
	return &sent{run, ledger.New(run, true)}
}

// transact runs a statement in transactions of its own, on a connection for each caller, whose key
// it is.
func transact(ctx context.Context, address, sql string, p pace, setting string, s *sent) (paced, error) {
	conns := make([]*pgx.Conn, p.callers)
	for i := range conns {
		conn, err := pgx.Connect(ctx, address)
		if err != nil {
			return paced{}, err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		if _, err := conn.Exec(ctx, setting); err != nil {
			return paced{}, fmt.Errorf("%s: %w", setting, err)
		}
		conns[i] = conn
	}
	got, err := p.run(ctx, func(caller, n int, meant time.Time) error {
		value := ledger.Payload(ledger.Stamp{Run: s.run, Writer: uint32(caller), Seq: uint64(n), Due: meant.UnixNano()}, eventSize)
		if _, err := conns[caller].Exec(ctx, sql, "key-"+strconv.Itoa(caller), value); err != nil {
			s.book.Unknown(uint32(caller), uint64(n), 1)
			return err
		}
		s.book.Acked(uint32(caller), uint64(n), 1)
		return nil
	})
	return got, errors.Join(err, got.clean())
}

// drained waits until the mover has moved everything.
func (w *broker) drained(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, w.store)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for late := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		var left bool
		if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM weir.inbox)`).Scan(&left); err != nil || !left {
			return err
		}
		if time.Now().After(late) {
			return errors.New("after two minutes there are still rows in the inbox")
		}
	}
}

// execute runs statements on a connection of their own.
func execute(ctx context.Context, address string, sql ...string) error {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, strings.Join(sql, "; ")); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(sql, "; "), err)
	}
	return nil
}
