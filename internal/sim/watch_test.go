package sim_test

import (
	"bytes"
	"fmt"
	"io"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/internal/sim"
)

const (
	// lastsMax is more than a history lasts, in fake time: a DELETE may arrive three hours late.
	lastsMax = 6 * time.Hour
	// standsMax is for how long fake time may stand still. A beat of it takes some milliseconds.
	standsMax = 5 * time.Minute
	// lastLines bounds the end of a history that is told of one that does not end, in bytes.
	lastLines = 8 << 10
)

// watch sees that a history ends. One that does not fails, with its seed, its last lines and what
// its goroutines wait for.
type watch struct {
	opt  sim.Options
	fail func(why string)
	over chan struct{}

	mu    sync.Mutex // guards what follows
	beats int
	last  []byte // lines of the history
}

// watched returns a history's options with which it is watched, until end is called.
func watched(opt sim.Options, fail func(why string)) (_ sim.Options, end func()) {
	w := &watch{opt: opt, fail: fail, over: make(chan struct{})}
	opt.Beat, opt.Show = w.beat, w
	if w.opt.Show != nil {
		opt.Show = io.MultiWriter(w, w.opt.Show)
	}
	go w.stands()
	return opt, func() { close(w.over) }
}

// Write implements io.Writer.
func (w *watch) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = append(w.last, line...)
	w.last = w.last[max(0, len(w.last)-lastLines):]
	return len(line), nil
}

func (w *watch) beat(lasted time.Duration) {
	w.mu.Lock()
	w.beats++
	w.mu.Unlock()
	if lasted > lastsMax {
		w.fail(w.stuck("it has lasted %v of fake time", lasted))
	}
}

// stands fails the history if fake time stands still: a goroutine runs in circles, or waits for
// something that is not of the history.
func (w *watch) stands() {
	beats, still := 0, time.Duration(0)
	for still < standsMax {
		select {
		case <-w.over:
			return
		case <-time.After(time.Second): // a machine that is suspended does not count
		}
		w.mu.Lock()
		if still += time.Second; w.beats > beats {
			beats, still = w.beats, 0
		}
		w.mu.Unlock()
	}
	w.fail(w.stuck("its time has stood still for %v", standsMax))
}

// stuck tells of a history that does not end.
func (w *watch) stuck(format string, args ...any) string {
	var waits bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&waits, 1) // to memory
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("seed %d does not end: %s. Its options: %+v\nThe last lines of its history:\n%s\nIts goroutines:\n%s", w.opt.Seed, fmt.Sprintf(format, args...), w.opt, w.last, &waits)
}

func TestAHistoryThatDoesNotEndSaysWhatItWaitsFor(t *testing.T) {
	for name, happens := range map[string]func(sim.Options){
		"time stands still":    func(sim.Options) { time.Sleep(standsMax + time.Minute) },
		"time passes for ever": func(o sim.Options) { o.Beat(lastsMax + 1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said string
				opt, end := watched(sim.Options{Seed: 42}, func(why string) { said = why })
				_, _ = opt.Show.Write([]byte("the last line\n"))
				happens(opt)
				end()
				synctest.Wait() // for what says it
				for _, want := range []string{"seed 42 does not end", "the last line", "TestAHistoryThatDoesNotEnd"} {
					if !strings.Contains(said, want) {
						t.Errorf("it says nothing of %q: %s", want, said)
					}
				}
			})
		})
	}
}

func TestAHistoryThatGoesOnIsLetAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opt, end := watched(sim.Options{}, func(why string) { t.Error(why) })
		for range 10 {
			time.Sleep(standsMax - time.Minute)
			opt.Beat(time.Hour)
		}
		end()
	})
}
