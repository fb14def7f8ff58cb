package main

import (
	"context"
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

// runKafka measures Apache Kafka, then weir on each store, one after the other on this machine.
func runKafka(ctx context.Context, b *bench) error {
	rows := []string{"apache kafka"}
	for _, s := range b.stores {
		rows = append(rows, "weir on "+s)
	}
	results := make(map[string][]throughput)
	memory := make(map[string]float64)
	for run := range b.runs {
		for i, row := range rows {
			var got throughput
			var err error
			if i == 0 {
				got, err = b.apache(ctx)
			} else {
				var peak float64
				got, peak, err = b.perfOnWeir(ctx, b.stores[i-1])
				memory[row] = max(memory[row], peak)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", row, err)
			}
			results[row] = append(results[row], got)
			fmt.Fprintf(os.Stderr, "run %d of %d, %s: %+v\n", run+1, b.runs, row, got)
		}
	}
	fmt.Printf("Medians of %d runs. In brackets: the ratio to Apache Kafka, which does not fsync.\n\n", b.runs)
	fmt.Println("| broker | produce 1 KiB | produce 100 B | consume | peak memory |")
	fmt.Println("| --- | --- | --- | --- | --- |")
	base := middle(results[rows[0]])
	for _, row := range rows {
		m := middle(results[row])
		fmt.Printf("| %s | %.0f MB/s (%.2f) | %.0f records/s (%.2f) | %.0f MB/s (%.2f) | %s |\n", row,
			m.produce1024*1024/1e6, m.produce1024/base.produce1024,
			m.produce100, m.produce100/base.produce100,
			m.consumeMB*1.048576, m.consumeMB/base.consumeMB, mebibytes(memory[row]))
	}
	return nil
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
	if out, err := exec.CommandContext(ctx, b.perf, "start", "19092").CombinedOutput(); err != nil {
		return throughput{}, fmt.Errorf("start Apache Kafka: %w: %s", err, out)
	}
	defer func() { _ = exec.Command(b.perf, "stop").Run() }()
	return b.perfRun(ctx, "127.0.0.1:19092")
}

func (b *bench) perfOnWeir(ctx context.Context, store string) (got throughput, peak float64, err error) {
	w, err := b.start(ctx, store)
	if err != nil {
		return throughput{}, 0, err
	}
	defer w.close()
	if got, err = b.perfRun(ctx, w.kafka); err != nil {
		return throughput{}, 0, err
	}
	_, peak = w.rss()
	return got, peak, nil
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
