package sim

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/judge"
	"github.com/weir-log/weir/internal/node"
	"github.com/weir-log/weir/store/memory"
)

// Options say what a history has. The zero value: all that the seed decides.
type Options struct {
	Seed   uint64
	Length time.Duration // of the part with faults; default 2 min
	Only   []string      // the actors: those whose names begin so; none: all
	Skip   map[int]bool  // steps of the plan that are left out
	Show   io.Writer     // gets the history; nil: nobody
}

// Result is what a history broke, and how long it was in fake time.
type Result struct {
	Found   []judge.Violation
	History []string
	Plan    []Step
	Lasted  time.Duration
}

// settleMax is how long everything may take once nothing is done to anybody any more.
const settleMax = 90 * time.Second

// patience is how long a client waits for an answer.
const patience = 40 * time.Second

type world struct {
	opt     Options
	begin   time.Time
	model   *judge.Model
	history *judge.History
	lines   *lines
	store   *memory.Store
	logger  *slog.Logger

	processes []*process
	over      chan struct{}  // closed when the actors end
	acting    sync.WaitGroup // actors
	late      sync.WaitGroup // commits under way

	mu      sync.Mutex // guards what follows
	weather weather
}

// lines keeps a history in memory.
type lines struct {
	strings.Builder
	also io.Writer
}

func (l *lines) Write(p []byte) (int, error) {
	if l.also != nil {
		_, _ = l.also.Write(p)
	}
	return l.Builder.Write(p)
}

func (l *lines) Close() error { return nil }

func (w *world) now() judge.Moment { return judge.Moment(time.Since(w.begin)) }

func (w *world) weatherNow() weather {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.weather
}

// later does something after a while, whoever asked for it.
func (w *world) later(d time.Duration, do func()) {
	w.late.Go(func() {
		time.Sleep(d)
		do()
	})
}

// random returns the choices of one actor: the same for a seed, whatever others do.
func (w *world) random(actor string) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, c := range []byte(actor) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return rand.New(rand.NewPCG(w.opt.Seed, h))
}

// act runs an actor until the history is over.
func (w *world) act(name string, do func(ctx context.Context, random *rand.Rand)) {
	if len(w.opt.Only) > 0 {
		is := false
		for _, only := range w.opt.Only {
			is = is || strings.HasPrefix(name, only)
		}
		if !is {
			return
		}
	}
	w.acting.Go(func() {
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		go func() {
			select {
			case <-w.over:
				stop()
			case <-ctx.Done():
			}
		}()
		do(ctx, w.random(name))
	})
}

// sleep waits up to a time, unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d)))
}

// Run runs one history. It must be called in a bubble of testing/synctest.
func Run(opt Options) Result {
	if opt.Length == 0 {
		opt.Length = 2 * time.Minute
	}
	w := &world{opt: opt, begin: time.Now(), lines: &lines{also: opt.Show}, store: memory.New(), over: make(chan struct{})}
	w.logger = slog.New(slog.DiscardHandler)
	w.history = judge.NewHistory(w.lines, w.now)
	w.model = judge.NewModel(w.now, w.history)
	w.model.TTLMargin = patience // a process may stand still while it asks for the store's time
	random := w.random("plan")
	for i := range 2 + random.IntN(3) {
		w.processes = append(w.processes, &process{world: w, name: string(rune('A' + i)), index: i})
	}
	plan := makePlan(random, opt.Length, len(w.processes))
	for _, p := range w.processes {
		p.start()
	}
	w.makeAll()
	w.publishers()
	w.readers()
	w.queues()
	w.streams()
	for i, s := range plan {
		if opt.Skip[i] {
			continue
		}
		time.Sleep(s.at - time.Since(w.begin))
		w.do(s)
	}
	time.Sleep(opt.Length - time.Since(w.begin))
	w.history.Add("everything is over")
	close(w.over)
	w.calm()
	w.acting.Wait()
	w.judge()
	for _, p := range w.processes {
		p.close()
	}
	w.late.Wait()
	_ = w.history.Close()
	return Result{Found: w.model.Found(), History: strings.Split(w.lines.String(), "\n"), Plan: plan, Lasted: time.Since(w.begin)}
}

// do does a step of the plan.
func (w *world) do(s Step) {
	w.history.Add(fmt.Sprintf("--- %s of %d for %v", s.what, s.who, s.long))
	change := func(set func(*weather)) {
		if s.who < 0 {
			w.mu.Lock()
			defer w.mu.Unlock()
			set(&w.weather)
			return
		}
		if l := w.processes[s.who].live(); l != nil {
			l.link.mu.Lock()
			defer l.link.mu.Unlock()
			set(&l.link.weather)
		}
	}
	during := func(set, unset func(*weather)) {
		change(set)
		time.AfterFunc(s.long, func() { change(unset) })
	}
	switch s.what {
	case "crash":
		p := w.processes[s.who]
		p.crash()
		w.late.Go(func() { time.Sleep(s.long); p.start() })
	case "pause":
		if l := w.processes[s.who].live(); l != nil {
			l.link.pause(s.long)
		}
	case "away", "away one":
		during(func(w *weather) { w.away = true }, func(w *weather) { w.away = false })
	case "slow":
		during(func(w *weather) { w.slow = 20 }, func(w *weather) { w.slow = 0 })
	case "unsure":
		during(func(w *weather) { w.unsure = 0.4 }, func(w *weather) { w.unsure = 0 })
	case "fails":
		during(func(w *weather) { w.fails = 0.3 }, func(w *weather) { w.fails = 0 })
	case "full":
		during(func(w *weather) { w.full = true }, func(w *weather) { w.full = false })
	case "incarnation": // a failover that loses nothing
		w.store.Backup()(false)
	}
}

// calm ends all faults, and starts what does not run.
func (w *world) calm() {
	w.mu.Lock()
	w.weather = weather{}
	w.mu.Unlock()
	for _, p := range w.processes {
		p.start()
		if l := p.live(); l != nil {
			l.link.mu.Lock()
			l.link.weather = weather{}
			l.link.mu.Unlock()
		}
	}
}

// process is one of those that use the store. It may be killed and start again.
type process struct {
	world *world
	name  string
	index int

	starting sync.WaitGroup
	mu       sync.Mutex // guards what follows
	now      *life
	began    int // how often it was started
	busy     bool
}

// life is a process from its start to its end.
type life struct {
	process *process
	name    string
	link    *link
	log     *weir.Log
	parts   *node.Node
	closed  chan struct{} // after it was killed: its goroutines have ended
}

func (p *process) live() *life {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// start starts the process, if it does not run, and tries until it runs.
func (p *process) start() {
	p.mu.Lock()
	if p.now != nil || p.busy {
		p.mu.Unlock()
		return
	}
	p.busy = true
	p.began++
	n := p.began
	p.mu.Unlock()
	p.starting.Go(func() {
		l := &life{process: p, name: fmt.Sprintf("%s%d", p.name, n), closed: make(chan struct{})}
		for {
			l.link = &link{store: p.world.store.Again(), world: p.world, random: p.world.random(l.name), dead: make(chan struct{})}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			library, parts, err := node.OpenLibrary(ctx, l.link, node.Config{Logger: p.world.logger, Poll: time.Second})
			cancel()
			if err == nil {
				l.log, l.parts = library.(*weir.Log), parts
				break
			}
			p.world.history.Add(fmt.Sprintf("%s could not start: %v", l.name, err))
			time.Sleep(300 * time.Millisecond)
		}
		p.world.history.Add(l.name + " runs")
		p.mu.Lock()
		p.now, p.busy = l, false
		p.mu.Unlock()
		p.world.joins(l)
	})
}

// crash kills the process: nothing that it does arrives any more, but for what is under way.
func (p *process) crash() {
	p.mu.Lock()
	l := p.now
	p.now = nil
	p.mu.Unlock()
	if l == nil {
		return
	}
	l.link.kill()
	p.world.late.Go(func() { l.end() })
}

// end closes what is left of a process.
func (l *life) end() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = l.log.Close(ctx)
	_ = l.log.Close(context.Background())
	close(l.closed)
}

// close ends the process as SIGTERM does.
func (p *process) close() {
	p.starting.Wait()
	l := p.live()
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := l.log.Close(ctx); err != nil {
		p.world.model.Broken("B3", []string{l.name}, "%s did not close in 30 s, while nothing was done to anybody: %v", l.name, err)
		l.link.kill()
		_ = l.log.Close(context.Background())
	}
}

// any returns a process that runs; nil: none does.
func (w *world) any(random *rand.Rand) *life {
	return w.processes[random.IntN(len(w.processes))].live()
}

// said is what a call answered, if the process lived long enough to say so.
func (l *life) said(word judge.Word) judge.Word {
	if l.link.isDead() {
		return judge.Word{Outcome: judge.Unknown, Err: "the process was killed"}
	}
	return word
}

// asks gives a client the time to ask something of a process.
func asks() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}
