package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/bench/dev/queueload"
)

// runSnapshot puts the load of the part queue on weir's queue and on its peers for -minutes and two
// more. After two minutes a foreign transaction takes a snapshot, and keeps it: vacuum removes
// nothing of what is deleted from then on.
func runSnapshot(ctx context.Context, b *bench) error {
	fmt.Println("| queue | minute | snapshot | messages/s | disk |")
	fmt.Println("| --- | --- | --- | --- | --- |")
	const before = 2 * time.Minute
	for _, row := range []queueRow{{"weir, claim and ack", "postgres", onClaims}, {"the article's", "postgres", onArticle}, {"River", "postgres", b.onRiver}} {
		address, closeStore, err := b.store("postgres")
		if err != nil {
			return err
		}
		l := queueload.Load{Writers: 10, Workers: 15, Batch: 1, Size: 1024, Length: before + time.Duration(b.load.minutes)*time.Minute, Window: time.Minute}
		sizes, stop := make(chan []int64, 1), make(chan struct{})
		go func() { sizes <- holdSnapshot(ctx, address, before, stop) }()
		r, err := row.measure(ctx, address, l)
		close(stop)
		disk := <-sizes
		closeStore()
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		for i, n := range r.Windows {
			state, size := "none", "–"
			if time.Duration(i)*time.Minute >= before {
				state = "open"
			}
			if i < len(disk) {
				size = fmt.Sprintf("%d MB", disk[i]/1e6)
			}
			fmt.Printf("| %s | %d | %s | %.0f | %s |\n", row.name, i+1, state, float64(n)/60, size)
		}
		first, last := mean(r.Windows[1:2]), mean(r.Windows[max(len(r.Windows)-3, 2):])
		fmt.Printf("\n%s: %.0f messages/s in minute 2, %.0f in the last three: %+.0f %%\n\n", row.name, first/60, last/60, 100*(last/first-1))
	}
	return nil
}

func mean(of []int64) (m float64) {
	for _, n := range of {
		m += float64(n) / float64(len(of))
	}
	return m
}

// holdSnapshot takes a snapshot after a while and keeps it until stop is closed. It returns the
// size of the database at the end of each minute.
func holdSnapshot(ctx context.Context, address string, after time.Duration, stop <-chan struct{}) (sizes []int64) {
	begin := time.Now()
	open := func() *pgx.Conn {
		conn, err := pgx.Connect(ctx, address)
		if err != nil {
			panic(err)
		}
		return conn
	}
	sizer := open()
	defer sizer.Close(ctx)
	var holder *pgx.Conn
	for n := time.Duration(1); ; n++ {
		select {
		case <-stop:
			if holder != nil {
				_ = holder.Close(ctx)
			}
			return sizes
		case <-time.After(time.Until(begin.Add(n * time.Minute))):
		}
		var size int64
		if err := sizer.QueryRow(ctx, `SELECT pg_database_size(current_database())`).Scan(&size); err != nil {
			panic(err)
		}
		sizes = append(sizes, size)
		if holder == nil && n*time.Minute >= after {
			holder = open()
			if _, err := holder.Exec(ctx, `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class`); err != nil {
				panic(err)
			}
		}
	}
}
