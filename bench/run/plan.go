package run

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir/bench/limit"
	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
)

// Plan is what is measured.
type Plan struct {
	Systems   []system.System
	Workloads []workload.Workload
	Modes     []system.Mode
	Runs      int
	Seed      uint32
}

// Result is a finished plan: all that is needed to check it, and to repeat it.
type Result struct {
	Schema  string    `json:"schema"` // weir-bench/1
	Began   time.Time `json:"began"`
	Took    string    `json:"took"`
	Command string    `json:"command"`
	Commit  string    `json:"commit"`
	Machine Machine   `json:"machine"`
	Cells   []Cell    `json:"cells"`
}

// Machine is where a plan was measured.
type Machine struct {
	CPUs   int          `json:"cpus"`
	Model  string       `json:"model"`
	Kernel string       `json:"kernel"`
	Memory string       `json:"memory"`
	Limits limit.Limits `json:"limits"`
	Go     string       `json:"go"`
}

// Run measures each cell of a plan, and says on progress what it does. The systems take turns, in
// the other order with every second run, each time on fresh data. Clean reports whether every
// promise was kept.
func (p Plan) Run(ctx context.Context, progress io.Writer) (r Result, clean bool, err error) {
	r = Result{Schema: "weir-bench/1", Began: time.Now().UTC(), Command: strings.Join(os.Args, " "), Commit: commit()}
	if r.Machine, err = machine(); err != nil {
		return r, false, err
	}
	clean = true
	for n := range p.Runs {
		systems := slices.Clone(p.Systems)
		if n%2 == 1 {
			slices.Reverse(systems)
		}
		for _, w := range p.Workloads {
			for _, s := range systems {
				for _, mode := range p.Modes {
					if _, has := s.Modes[mode]; !has {
						continue
					}
					most := 0.0
					for _, rate := range w.Rates {
						cell, err := p.cell(ctx, s, mode, w, rate, &most, n)
						if errors.Is(err, errSkip) {
							continue
						}
						if err != nil {
							return r, false, err
						}
						fmt.Fprintf(progress, "%s %s %s %s, run %d: %s\n", w.Name, s.Name, mode, rate, n+1, summary(cell))
						clean = clean && cell.Verdict.Clean() && cell.Void == ""
						r.Cells = append(r.Cells, cell)
					}
				}
			}
		}
	}
	r.Took = time.Since(r.Began).Round(time.Second).String()
	return r, clean, nil
}

// errSkip: a share of a rate that was not measured.
var errSkip = errors.New("skipped")

// cell measures one rate. most is what rate max gave.
func (p Plan) cell(ctx context.Context, s system.System, mode system.Mode, w workload.Workload, rate workload.Rate, most *float64, n int) (Cell, error) {
	events := rate.Seconds
	if rate.Share > 0 {
		if events = rate.Share * *most; events == 0 {
			return Cell{}, errSkip
		}
	}
	seed := crc32.ChecksumIEEE(fmt.Appendf(nil, "%d/%s/%s/%s/%v/%d", p.Seed, s.Name, mode, w.Name, rate, n))
	c, err := Measure(ctx, s, mode, w, rate, events, seed)
	c.Run = n + 1
	if rate.Max && c.Figures != nil {
		*most = c.Figures.PerSecond
	}
	return c, err
}

func summary(c Cell) string {
	if p := c.Problem(); p != "" {
		return p
	}
	text := fmt.Sprintf("%.0f events/s", c.Figures.PerSecond)
	for _, l := range []struct {
		name string
		of   *Latency
	}{{"answered", c.Figures.Call}, {"end to end", c.Figures.EndToEnd}, {"done", c.Figures.Done}} {
		if l.of != nil {
			text += fmt.Sprintf(", %s p50 %v p99 %v", l.name, l.of.P50, l.of.P99)
		}
	}
	if c.Moved {
		text += " (the machine's limits changed meanwhile)"
	}
	return text
}

func machine() (m Machine, err error) {
	m = Machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), Model: line("/proc/cpuinfo", "model name"), Memory: line("/proc/meminfo", "MemTotal")}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(text))
	}
	m.Limits, err = limit.Measure(os.TempDir())
	return m, err
}

// line returns what a file says after a name and a colon.
func line(file, name string) string {
	text, _ := os.ReadFile(file)
	for _, l := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(l, name); ok {
			return strings.TrimSpace(strings.TrimLeft(rest, " \t:"))
		}
	}
	return "unknown"
}

func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "unknown"
}
