package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir"
)

// shortStream is how many events most streams of the long log have.
const shortStream = 100

// runStreamsLong measures scenario C of the paper: appends, projection, reads and a replay with
// -rows events in the log, beside an empty one. A tenth of the events is in one stream, the others
// in streams of 100.
func runStreamsLong(ctx context.Context, b *bench) error {
	for _, kind := range b.stores {
		if kind == "memory" {
			continue
		}
		if err := b.streamsLong(ctx, kind); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	return nil
}

func (b *bench) streamsLong(ctx context.Context, kind string) error {
	fmt.Printf("On %s:\n\n", kind)
	address, closeStore, err := b.store(kind)
	if err != nil {
		return err
	}
	defer closeStore()
	rate := func(when string) error {
		told, err := b.appendsOn(ctx, kind, address, when)
		fmt.Printf("- 50 writers, 10,000 streams, %s: %s\n", when, told)
		return err
	}
	if err := rate("in an empty log"); err != nil {
		return err
	}
	log, c, closeLog, err := openCategory(ctx, address)
	if err != nil {
		return err
	}
	defer closeLog()
	empty, err := storeBytes(ctx, kind, address)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := fillStreams(ctx, c, b.load.rows); err != nil {
		return err
	}
	took := time.Since(began)
	full, err := storeBytes(ctx, kind, address)
	if err != nil {
		return err
	}
	fmt.Printf("- %d events appended, %d a call, in %v: %.0f a second, %.0f bytes on disk each\n", b.load.rows, shortStream, took.Round(time.Second), float64(b.load.rows)/took.Seconds(), float64(full-empty)/float64(b.load.rows))
	if err := rate(fmt.Sprintf("with %d events in the log", b.load.rows)); err != nil {
		return err
	}
	line, err := projectionLatency(ctx, log, c, kind, address, b.load.length)
	if err != nil {
		return err
	}
	fmt.Printf("- projection (store, appends/s, append p50 and p99, projected p50, p99, longest), which first handles all existing events: %s\n", line)
	for _, read := range []struct {
		what string
		of   func() (string, weir.StreamRange)
	}{
		{"a stream of 100 events", func() (string, weir.StreamRange) {
			return fmt.Sprint("short ", rand.IntN(b.load.rows*9/10/shortStream)), weir.StreamRange{}
		}},
		{"the last 100 of the long stream", func() (string, weir.StreamRange) {
			return "long", weir.StreamRange{From: int64(b.load.rows/10 - shortStream)}
		}},
	} {
		h := hdrhistogram.New(1, 60e6, 3)
		for range 1000 {
			name, r := read.of()
			at, n := time.Now(), 0
			for _, err := range c.Events(ctx, name, r) {
				if err != nil {
					return err
				}
				n++
			}
			if n != shortStream {
				return fmt.Errorf("%s has %d events", name, n)
			}
			_ = h.RecordValue(time.Since(at).Microseconds())
		}
		fmt.Printf("- reading %s: p50 %s, p99 %s\n", read.what, millis(h, 50), millis(h, 99))
	}
	return replay(ctx, log, c)
}

// appendsOn measures appends on a store that has something in it, in a category of its own.
func (b *bench) appendsOn(ctx context.Context, kind, address, when string) (string, error) {
	row := streamsRow{"weir", kind, func(ctx context.Context, address string) (appender, error) {
		return openStreamsIn(ctx, address, "rate-"+strings.ReplaceAll(when, " ", "-"))
	}}
	_, told, err := onStreams(ctx, row, address, pace{callers: 50, warmUp: time.Second, length: b.load.length}, false)
	return told, err
}

// fillStreams appends so many events: a tenth to one stream.
func fillStreams(ctx context.Context, c *weir.Category, rows int) error {
	events := make([]weir.NewStreamEvent, shortStream)
	for i := range events {
		events[i] = weir.NewStreamEvent{Type: "CurrencyInfoAdded", Data: append(binary.BigEndian.AppendUint64(nil, 0), eventData...)}
	}
	var failed error
	var mu sync.Mutex // guards failed
	var next atomic.Int64
	var filling sync.WaitGroup
	add := func(name string, at weir.ExpectedVersion) bool {
		_, err := c.Append(ctx, name, at, events...)
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
		}
		return err == nil
	}
	filling.Go(func() {
		for n := 0; n < rows/10; n += shortStream {
			if !add("long", weir.ExpectedVersion(n)) {
				return
			}
		}
	})
	for range 16 {
		filling.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= rows*9/10/shortStream || !add(fmt.Sprint("short ", n), weir.NoStream) {
					return
				}
			}
		})
	}
	filling.Wait()
	return failed
}

// replay projects all events anew, and counts them.
func replay(ctx context.Context, log *weir.Log, c *weir.Category) error {
	var handled atomic.Int64
	began := time.Now()
	j, err := log.Project(ctx, weir.Projection{
		Name: "replay", Categories: []string{c.Name()}, MaxBatch: 1000,
		BatchHandler: func(_ context.Context, events []weir.ProjectedEvent) error {
			handled.Add(int64(len(events)))
			return nil
		},
	})
	if err != nil {
		return err
	}
	bounds, err := log.Bounds(ctx, c.Name())
	if err != nil {
		return err
	}
	total := int64(0)
	for _, p := range bounds {
		total += p.Next - p.First
	}
	for handled.Load() < total {
		if time.Since(began) > 10*time.Minute {
			return fmt.Errorf("%d of %d events were replayed in %v", handled.Load(), total, time.Since(began))
		}
		time.Sleep(time.Millisecond)
	}
	took := time.Since(began)
	fmt.Printf("- a replay of all %d events by a projection: %v, %.0f a second\n\n", total, took.Round(10*time.Millisecond), float64(total)/took.Seconds())
	return j.Close(ctx)
}

// storeBytes is the size of a store on disk, without its write-ahead log.
func storeBytes(ctx context.Context, kind, address string) (size int64, err error) {
	switch kind {
	case "memory":
		return 0, nil
	case "postgres":
		conn, err := pgx.Connect(ctx, address)
		if err != nil {
			return 0, err
		}
		defer conn.Close(ctx)
		return size, conn.QueryRow(ctx, `SELECT pg_database_size(current_database())`).Scan(&size)
	}
	path, err := url.PathUnescape(strings.TrimPrefix(address, "sqlite:"))
	if err != nil {
		return 0, err
	}
	file, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return file.Size(), nil
}
