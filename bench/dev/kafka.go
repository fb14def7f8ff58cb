package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// throughput is what one run of Kafka's perf tools printed, in records a second.
type throughput struct {
	produce100, produce1024, consume float64
	consumeMB                        float64 // MiB a second
}

// subject is a broker that is measured, and what was measured of it.
type subject struct {
	name, store, weir string // no store: Apache Kafka; weir is the binary

	runs      []throughput
	peak      float64         // of memory, MiB
	processor []time.Duration // of weir's process, in each run
}

// runKafka measures Apache Kafka, then weir on each store, one after the other on this machine.
func runKafka(ctx context.Context, b *bench) error {
	subjects := []*subject{{name: "apache kafka"}}
	for _, s := range b.stores {
		if b.against != "" {
			subjects = append(subjects, &subject{name: "another weir on " + s, store: s, weir: b.against})
		}
		subjects = append(subjects, &subject{name: "weir on " + s, store: s, weir: b.weir})
	}
	for run := range b.runs {
		for _, s := range subjects {
			if err := s.measure(ctx, b); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			fmt.Fprintf(os.Stderr, "run %d of %d, %s: %+v\n", run+1, b.runs, s.name, s.runs[run])
		}
	}
	fmt.Printf("Medians of %d runs. In brackets: the ratio to Apache Kafka, which does not fsync.\n\n", b.runs)
	fmt.Println("| broker | produce 1 KiB | produce 100 B | consume | weir's processor time | peak memory |")
	fmt.Println("| --- | --- | --- | --- | --- | --- |")
	base := middle(subjects[0].runs)
	for _, s := range subjects {
		m, processor := middle(s.runs), "–"
		if len(s.processor) > 0 {
			processor = fmt.Sprintf("%.1f s", median(s.processor).Seconds())
		}
		fmt.Printf("| %s | %.0f MB/s (%.2f) | %.0f records/s (%.2f) | %.0f MB/s (%.2f) | %s | %s |\n", s.name,
			m.produce1024*1024/1e6, m.produce1024/base.produce1024,
			m.produce100, m.produce100/base.produce100,
			m.consumeMB*1.048576, m.consumeMB/base.consumeMB, processor, mebibytes(s.peak))
	}
	return nil
}

func (s *subject) measure(ctx context.Context, b *bench) error {
	if s.store == "" {
		got, err := b.apache(ctx)
		s.runs = append(s.runs, got)
		return err
	}
	w, err := b.startBinary(ctx, s.weir, s.store)
	if err != nil {
		return err
	}
	defer w.closeStore()
	got, err := b.perfRun(ctx, w.kafka)
	_, peak := w.rss()
	err = errors.Join(err, w.stop())
	used := w.cmd.ProcessState
	s.runs, s.peak, s.processor = append(s.runs, got), max(s.peak, peak), append(s.processor, used.UserTime()+used.SystemTime())
	return err
}

func mebibytes(n float64) string {
	if n == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f MiB", n)
}

func middle(runs []throughput) throughput {
	of := func(f func(throughput) float64) float64 {
		var all []float64
		for _, r := range runs {
			all = append(all, f(r))
		}
		return median(all)
	}
	return throughput{
		produce100:  of(func(t throughput) float64 { return t.produce100 }),
		produce1024: of(func(t throughput) float64 { return t.produce1024 }),
		consume:     of(func(t throughput) float64 { return t.consume }),
		consumeMB:   of(func(t throughput) float64 { return t.consumeMB }),
	}
}

func (b *bench) apache(ctx context.Context) (throughput, error) {
	address, stop, err := b.apacheStarted(ctx)
	if err != nil {
		return throughput{}, err
	}
	defer stop()
	return b.perfRun(ctx, address)
}

// apacheStarted starts Apache Kafka, with no data.
func (b *bench) apacheStarted(ctx context.Context) (address string, stop func(), err error) {
	if out, err := exec.CommandContext(ctx, b.perf, "start", "19092").CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("start Apache Kafka: %w: %s", err, out)
	}
	return "127.0.0.1:19092", func() { _ = exec.Command(b.perf, "stop").Run() }, nil
}

var (
	produced = regexp.MustCompile(`produce +(\d+) B: .*?([\d.]+) records/sec`)
	consumed = regexp.MustCompile(`consume all +: (\d+) records, (\d+) records/sec while fetching \(([\d.]+) MB/sec\)`)
)

func (b *bench) perfRun(ctx context.Context, address string) (throughput, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	raw, err := exec.CommandContext(ctx, b.perf, "run", address).Output()
	out := string(raw)
	if err != nil {
		return throughput{}, fmt.Errorf("%s run %s: %w: %s", b.perf, address, err, out)
	}
	var t throughput
	for _, m := range produced.FindAllStringSubmatch(out, -1) {
		rate, _ := strconv.ParseFloat(m[2], 64)
		if m[1] == "100" {
			t.produce100 = rate
		} else {
			t.produce1024 = rate
		}
	}
	if m := consumed.FindStringSubmatch(out); m != nil {
		t.consume, _ = strconv.ParseFloat(m[2], 64)
		t.consumeMB, _ = strconv.ParseFloat(m[3], 64)
	}
	if t.produce100 == 0 || t.produce1024 == 0 || t.consume == 0 {
		return throughput{}, fmt.Errorf("the perf tools' output has no figures: %s", strings.TrimSpace(out))
	}
	return t, nil
}
