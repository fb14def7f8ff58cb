package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/use/stream"
)

// appender is an event store under test. Append appends one event to a stream that must be at a
// version. If it is at another one it returns false, and that version. Length reads a stream whole,
// in order, and fails where a version is missing, twice, or out of order.
type appender interface {
	Append(ctx context.Context, stream string, version int64, data []byte) (actual int64, done bool, err error)
	Length(ctx context.Context, stream string) (int64, error)
	Close()
}

// streamsRow is an event store that is measured, on a store of its own.
type streamsRow struct {
	name, store string
	open        func(ctx context.Context, address string) (appender, error)
}

// Scenario A of the paper: writers append events of some 200 bytes, one a call, at the version that
// they expect.
const (
	manyStreams = 10_000
	eventData   = `{"pair":"EURUSD","bid":1.08412,"ask":1.08415,"bidVolume":1200000,"askVolume":900000,"time":"2024-03-01T12:00:00.123456Z","source":"feed-7","sequence":1234567,"comment":"................"}`
)

// runStreams measures appends to one hot stream, where writers conflict and try again, and to
// 10,000 streams, where they do not, with more and more writers.
func runStreams(ctx context.Context, b *bench) error {
	rows := []streamsRow{
		{"as message-db", "postgres", openMessageDB},
		{"as Marten's quick append", "postgres", openMarten},
	}
	for _, s := range b.stores {
		rows = append(rows, streamsRow{"weir", s, openStreams})
	}
	for _, hot := range []bool{false, true} {
		fmt.Printf("%s, appends a second at an expected version (p50, p99; conflicts for each append; bytes on disk for each):\n\n| writers |", map[bool]string{false: "10,000 streams", true: "One stream"}[hot])
		for _, row := range rows {
			fmt.Printf(" %s on %s |", row.name, row.store)
		}
		fmt.Printf("\n| --- |%s\n", strings.Repeat(" --- |", len(rows)))
		for _, writers := range []int{1, 2, 4, 8, 16, 32, 50, 64} {
			fmt.Printf("| %d |", writers)
			for _, row := range rows {
				a, err := b.appends(ctx, row, writers, hot)
				if err != nil {
					return fmt.Errorf("%s on %s with %d writers: %w", row.name, row.store, writers, err)
				}
				fmt.Printf(" %s |", a)
			}
			fmt.Println()
		}
		fmt.Println()
	}
	return nil
}

// appends measures on a fresh store, as often as the benchmark runs, and tells the median run.
func (b *bench) appends(ctx context.Context, row streamsRow, writers int, hot bool) (string, error) {
	var rates []float64
	told := make(map[float64]string)
	for range b.runs {
		address, closeStore, err := b.store(row.store)
		if err != nil {
			return "", err
		}
		rate, text, err := onStreams(ctx, row, address, pace{callers: writers, warmUp: time.Second, length: b.load.length}, hot)
		closeStore()
		if err != nil {
			return "", err
		}
		rates, told[rate] = append(rates, rate), text
	}
	m := median(rates)
	text, is := told[m]
	if !is { // of two in the middle
		text = fmt.Sprintf("%.0f", m)
	}
	return text, nil
}

func onStreams(ctx context.Context, row streamsRow, address string, p pace, hot bool) (rate float64, told string, err error) {
	a, err := row.open(ctx, address)
	if err != nil {
		return 0, "", err
	}
	defer a.Close()
	before, err := storeBytes(ctx, row.store, address)
	if err != nil {
		return 0, "", err
	}
	var conflicts, appended atomic.Int64
	known := make([][]int64, p.callers) // by writer: the versions that its streams are at, as far as it knows
	for w := range known {
		known[w] = make([]int64, max(manyStreams/p.callers, 1))
	}
	result, err := p.run(ctx, func(writer, n int, _ time.Time) error {
		name, version := "hot", &known[writer][0]
		if !hot {
			own := n % len(known[writer])
			name, version = streamOf(writer, own), &known[writer][own]
		}
		for {
			actual, done, err := a.Append(ctx, name, *version, []byte(eventData))
			if err != nil {
				return err
			}
			if *version = actual; done {
				*version++
				appended.Add(1)
				return nil
			}
			conflicts.Add(1)
		}
	})
	if err := errors.Join(err, result.clean()); err != nil {
		return 0, "", err
	}
	after, err := storeBytes(ctx, row.store, address)
	if err != nil {
		return 0, "", err
	}
	want := map[string]int64{"hot": appended.Load()}
	if !hot {
		clear(want)
		for writer := range known {
			for own, version := range known[writer] {
				want[streamOf(writer, own)] = version
			}
		}
	}
	if err := checkLengths(ctx, a, want, appended.Load()); err != nil {
		return 0, "", err
	}
	each := func(n int64) float64 { return float64(n) / float64(max(appended.Load(), 1)) }
	return result.perSecond, fmt.Sprintf("%.0f (%s, %s; %.1f; %.0f B)", result.perSecond, millis(result.took, 50), millis(result.took, 99), each(conflicts.Load()), each(after-before)), nil
}

func streamOf(writer, own int) string { return fmt.Sprintf("stream %d of %d", own, writer) }

// checkLengths reads all streams: each has what was appended to it, and together they have all.
func checkLengths(ctx context.Context, a appender, want map[string]int64, appended int64) error {
	sum := int64(0)
	var reading errgroup.Group
	reading.SetLimit(16)
	for name, length := range want {
		sum += length
		reading.Go(func() error {
			if n, err := a.Length(ctx, name); err != nil || n != length {
				return fmt.Errorf("%s has %d events (%v), but %d were appended", name, n, err, length)
			}
			return nil
		})
	}
	if err := reading.Wait(); err != nil {
		return err
	}
	if sum != appended {
		return fmt.Errorf("the streams have %d events, but %d were appended", sum, appended)
	}
	return nil
}

// streams is weir's library.
type streams struct {
	*stream.Category
	closeAll func()
}

func openStreams(ctx context.Context, address string) (appender, error) {
	return openStreamsIn(ctx, address, "currency")
}

func openStreamsIn(ctx context.Context, address, category string) (appender, error) {
	s, err := store.Open(ctx, address, warnings())
	if err != nil {
		return nil, err
	}
	log, err := eventlog.Open(ctx, s, eventlog.Config{Logger: warnings()})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() { defer close(ended); _ = log.Run(running) }()
	closeAll := func() { stop(); <-ended; _ = s.Close() }
	c, err := stream.New(log, stream.Config{Logger: warnings()}).CreateCategory(ctx, stream.Spec{Name: category})
	if err != nil {
		closeAll()
		return nil, err
	}
	return streams{c, closeAll}, nil
}

func (s streams) Close() { s.closeAll() }

func (s streams) Append(ctx context.Context, name string, version int64, data []byte) (int64, bool, error) {
	_, err := s.Category.Append(ctx, name, stream.Expected(version), stream.NewEvent{Type: "CurrencyInfoAdded", Data: data})
	if conflict, is := errors.AsType[*stream.ConflictError](err); is {
		return conflict.Actual, false, nil
	}
	return version, err == nil, err
}

func (s streams) Length(ctx context.Context, name string) (n int64, err error) {
	for e, err := range s.Events(ctx, name, stream.Range{}) {
		if err == nil && e.Version != n {
			err = fmt.Errorf("version %d comes after %d events", e.Version, n)
		}
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
