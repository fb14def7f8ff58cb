package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/chance"
	"github.com/weir-log/weir/internal/judge"
	"github.com/weir-log/weir/internal/node"
	"github.com/weir-log/weir/use/group"
)

// Options say what a history has. The zero value: all that the seed decides.
type Options struct {
	Seed   uint64
	Store  string        // one of Stores; "": the seed decides
	Length time.Duration // of the part with faults; default 2 min
	Only   []string      // the actors: those whose names begin so; none: all
	Skip   map[int]bool  // steps of the plan that are left out
	Show   io.Writer     // gets the history; nil: nobody
	Back   bool          // copies are put back, more often, and some processes are slow; false: in every fourth history
	Logs   bool          // the history has what processes log

	// Beat is called each 10 s of fake time with how long the history has lasted. nil: nobody asks.
	Beat func(lasted time.Duration)
}

// Result is what a history broke, and how long it was in fake time.
type Result struct {
	Store   string // its kind
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
	model   *judge.Model // of all uses
	counts  *judge.Model // whose violations count: model, or where copies are put back only what the ledger says
	ledger  *ledger      // not nil where copies are put back
	history *judge.History
	lines   *lines
	storage storage
	skies   []*sky // of each member of the store, for all

	processes []*process
	over      chan struct{}  // closed when the actors end
	acting    sync.WaitGroup // actors
	late      sync.WaitGroup // commits under way
	copies    map[int]func() // by number: what puts a copy back; used by the plan only

	keys      [compactedKeys]written // of the compacted topic; used by their writer, and then by judge
	scheduled time.Time              // when the schedule was set first; used by its actor, and then by judge

	ackedMu sync.Mutex // guards acked
	acked   []acked

	holders holders // of the partitions of groups with Kafka clients
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

// isOver reports whether faults and actors have ended.
func (w *world) isOver() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
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

// loggerOf returns the logger of a process.
func (w *world) loggerOf(name string) *slog.Logger {
	if !w.opt.Logs {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(logLines{w, name}, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// logLines puts lines of a log into the history.
type logLines struct {
	w    *world
	name string
}

func (l logLines) Write(line []byte) (int, error) {
	l.w.history.Add("log of " + l.name + ": " + strings.TrimSpace(string(line)))
	return len(line), nil
}

// act runs an actor until the history is over.
func (w *world) act(name string, do func(ctx context.Context, random *rand.Rand)) {
	if !w.acts(name) {
		return
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

// sleep waits for d, or until ctx ends.
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

// summerTime is when clocks are changed in Europe, in the middle of each history. It is after 2025
// began, as leader epochs are numbered by the seconds since then.
var summerTime = time.Date(2026, time.March, 29, 1, 0, 0, 0, time.UTC)

// Run runs one history. It must be called in a bubble of testing/synctest.
func Run(opt Options) Result {
	if opt.Length == 0 {
		opt.Length = 2 * time.Minute
	}
	defer chance.Seed(opt.Seed)()
	time.Sleep(time.Until(summerTime.Add(-opt.Length / 2))) // nothing runs yet
	w := &world{opt: opt, begin: time.Now(), lines: &lines{also: opt.Show}, over: make(chan struct{}), copies: map[int]func(){}, holders: holders{by: map[holding]time.Time{}, doubt: map[holding]doubt{}}}
	w.history = judge.NewHistory(w.lines, w.now)
	w.model = judge.NewModel(w.now, w.history)
	w.counts = w.model
	defer w.beats()()
	random := w.random("plan")
	kind := cmp.Or(opt.Store, Stores[random.IntN(len(Stores))])
	var err error
	if w.storage, err = newStorage(w, kind); err != nil {
		panic(err)
	}
	defer w.storage.close()
	w.history.Add("the store is " + kind)
	for range w.storage.members() {
		w.skies = append(w.skies, &sky{})
	}
	for i := range 2 + random.IntN(3) {
		w.processes = append(w.processes, &process{world: w, name: string(rune('A' + i)), index: i})
	}
	if random.IntN(4) == 0 || opt.Back {
		w.ledger = newLedger(w)
		w.model = judge.NewModel(w.now, judge.NewHistory(&lines{}, w.now)) // nobody knows what uses must do whose events are lost
	}
	w.model.TTLMargin = patience // a process may stand still while it asks for the store's time
	putBacks := 0
	if w.ledger != nil {
		putBacks = 2
	}
	if opt.Back {
		putBacks = 5
	}
	plan := makePlan(random, opt.Length, len(w.processes), len(w.skies), putBacks)
	for _, p := range w.processes {
		p.start()
	}
	w.makeAll()
	w.publishers()
	w.readers()
	w.kafkaClients()
	w.topicsThatChange()
	w.queues()
	w.streams()
	w.movers()
	w.ledger.acts()
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
	time.Sleep(2 * stallMax) // calls under way end, there and back
	w.acting.Wait()
	w.judge()
	for _, p := range w.processes {
		p.close()
	}
	lasted := time.Since(w.begin)
	w.late.Wait()
	_ = w.history.Close()
	return Result{Store: kind, Found: w.counts.Found(), History: strings.Split(w.lines.String(), "\n"), Plan: plan, Lasted: lasted}
}

// beat is how often Options.Beat is called.
const beat = 10 * time.Second

// beats calls Options.Beat until end is called.
func (w *world) beats() (end func()) {
	over := make(chan struct{})
	if w.opt.Beat != nil {
		go func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(beat):
					w.opt.Beat(time.Since(w.begin))
				}
			}
		}()
	}
	return func() { close(over) }
}

// do does a step of the plan.
func (w *world) do(s Step) {
	w.history.Add("--- " + s.String())
	skies := w.skies
	if s.who >= 0 {
		skies = nil
		if l := w.processes[s.who].live(); l != nil {
			skies = l.host.skies
		}
	}
	if s.member >= 0 && skies != nil {
		skies = skies[s.member : s.member+1]
	}
	change := func(set func(*weather)) {
		for _, sky := range skies {
			sky.change(set)
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
			l.host.pause(s.long)
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
		w.storage.failover(s.member)
	case "copy":
		w.copies[s.nth] = w.storage.copied(s.member)
	case "put back":
		if putBack := w.copies[s.nth]; putBack != nil {
			putBack()
			w.ledger.lost(s.member)
		}
	}
}

// calm ends all faults, and starts what does not run.
func (w *world) calm() {
	for _, sky := range w.skies {
		sky.change(func(is *weather) { *is = weather{} })
	}
	for _, p := range w.processes {
		p.start()
		if l := p.live(); l != nil {
			l.host.goOn()
			for _, sky := range l.host.skies {
				sky.change(func(is *weather) { *is = weather{} })
			}
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
	host    *host
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
		l := p.tryStart(fmt.Sprintf("%s%d", p.name, n))
		p.mu.Lock()
		p.now, p.busy = l, false
		p.mu.Unlock()
		if l != nil {
			p.world.joins(l)
		}
	})
}

// startMax is how long a process may take to start while nothing is done to anybody.
const startMax = 3 * time.Minute

// tryStart tries to start until the process runs; nil: it does not start in time.
func (p *process) tryStart(name string) *life {
	w := p.world
	l := &life{process: p, name: name, closed: make(chan struct{})}
	for tries := 0; ; tries++ {
		l.host = w.newHost(fmt.Sprintf("%s try %d", name, tries))
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		store, err := w.storage.open(ctx, l.host, p.name)
		if err == nil {
			var library any
			library, l.parts, err = node.OpenLibrary(ctx, store, node.Config{
				Logger: l.host.logger, Poll: time.Second, Groups: group.Config{ConsumerSession: 6 * time.Second, ConsumerHeartbeat: time.Second},
			})
			if err == nil {
				l.log = library.(*weir.Log)
			} else {
				_ = store.Close()
			}
		}
		cancel()
		if err == nil {
			w.history.Add(name + " runs")
			return l
		}
		l.host.kill()
		w.history.Add(fmt.Sprintf("%s could not start: %v", name, err))
		w.ledger.help(err)
		select {
		case <-w.over:
			if time.Since(w.begin) > w.opt.Length+startMax {
				w.counts.Broken("B1", []string{name}, "%s does not start, and nothing was done to anybody for %v: %v", name, startMax, err)
				return nil
			}
		default:
		}
		time.Sleep(300 * time.Millisecond)
	}
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
	l.host.kill()
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
	within := 30 * time.Second
	if l.host.way > wayUsual {
		within *= 10
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	// A call that takes seconds may cost a member its session, now too: others have its partition.
	if err := l.log.Close(ctx); err != nil && !(errors.Is(err, group.ErrFenced) && ctx.Err() == nil) {
		p.world.counts.Broken("B3", []string{l.name}, "%s did not close in time, while nothing was done to anybody: %v", l.name, err)
		l.host.kill()
		_ = l.log.Close(context.Background())
	}
}

// first returns the first process that runs; nil: none does.
func (w *world) first() *life {
	for _, p := range w.processes {
		if l := p.live(); l != nil {
			return l
		}
	}
	return nil
}

// any returns a process that runs; nil: none does.
func (w *world) any(random *rand.Rand) *life {
	return w.processes[random.IntN(len(w.processes))].live()
}

// said is what a call answered, if the process lived long enough to say so.
func (l *life) said(word judge.Word) judge.Word {
	if l.host.isDead() {
		return judge.Word{Outcome: judge.Unknown, Err: "the process was killed"}
	}
	return word
}

// asks gives a client the time to ask something of a process.
func asks() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

// patiently asks something until it is answered, for settleMax once nothing is done to anybody.
func patiently(ask func(context.Context) error) (err error) {
	for late := time.Now().Add(settleMax); time.Now().Before(late); time.Sleep(time.Second) {
		ctx, cancel := asks()
		err = ask(ctx)
		cancel()
		if err == nil {
			return nil
		}
	}
	return err
}
