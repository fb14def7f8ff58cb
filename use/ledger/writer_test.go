package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/ledger"
)

const key = "sum"

// store is a store whose commits of the key a test can change.
type store struct {
	*memory.Store
	commits atomic.Int64 // of the key
	reads   atomic.Int64 // of the key
	mu      sync.Mutex   // guards next
	next    []commitFunc // what becomes of the next commits of the key
}

type commitFunc func(ctx context.Context, s *store, flush []eventlog.Entry) ([]eventlog.Outcome, error)

func (s *store) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if len(flush) == 0 || len(flush[0].Checks) == 0 || flush[0].Checks[0].Key != key {
		return s.Store.Commit(ctx, flush)
	}
	s.commits.Add(1)
	s.mu.Lock()
	do := commitFunc(committed)
	if len(s.next) > 0 {
		do, s.next = s.next[0], s.next[1:]
	}
	s.mu.Unlock()
	return do(ctx, s, flush)
}

func (s *store) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if prefix == key {
		s.reads.Add(1)
	}
	return s.Store.List(ctx, prefix, after, limit)
}

func (s *store) then(do ...commitFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = append(s.next, do...)
}

func committed(ctx context.Context, s *store, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	return s.Store.Commit(ctx, flush)
}

// lost commits, and loses the answer.
func lost(ctx context.Context, s *store, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if _, err := s.Store.Commit(ctx, flush); err != nil {
		return nil, err
	}
	return nil, eventlog.ErrUnsure
}

// dropped loses a commit that never arrives.
func dropped(context.Context, *store, []eventlog.Entry) ([]eventlog.Outcome, error) {
	return nil, eventlog.ErrUnsure
}

// failing is a commit that fails.
func failing(err error) commitFunc {
	return func(context.Context, *store, []eventlog.Entry) ([]eventlog.Outcome, error) { return nil, err }
}

// refusing refuses an entry.
func refusing(err error) commitFunc {
	return func(_ context.Context, _ *store, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
		return []eventlog.Outcome{{Err: err}}, nil
	}
}

// after calls first before the commit.
func after(first func(), do commitFunc) commitFunc {
	return func(ctx context.Context, s *store, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
		first()
		return do(ctx, s, flush)
	}
}

// add is an operation: it adds n to the sum, if the sum is as wanted. It is answered what the sum
// is then.
type add struct {
	n    int64
	want int64 // at least so much; otherwise it is refused
	bad  bool  // no entry with it can be made
}

var errLow = errors.New("the sum is too low")

type writer = ledger.Writer[int64, add, int64]

type call = ledger.Op[add, int64]

// adder is a process that adds to the sum.
type adder struct {
	*writer
	store *store
	log   *eventlog.Log
	stop  func()
	ids   atomic.Int64
	name  string
}

// begin runs a process until the test ends. change edits its rules.
func begin(t *testing.T, s *store, name string, change func(*ledger.Rules[int64, add, int64])) *adder {
	t.Helper()
	log, err := eventlog.Open(t.Context(), s, eventlog.Config{Poll: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = log.Run(ctx) })
	a := &adder{store: s, log: log, name: name}
	a.stop = func() { cancel(); running.Wait() }
	t.Cleanup(a.stop)
	rules := ledger.Rules[int64, add, int64]{
		Log: log, Key: key, Name: "the sum", Read: a.read, Judge: a.judge, Unknown: ledger.Resolve,
		Start: func(work func(context.Context)) bool {
			if ctx.Err() != nil {
				return false
			}
			running.Go(func() { work(ctx) })
			return true
		},
		Take: func(_ int64, ops iter.Seq[add]) (n int) {
			for range ops {
				n++
			}
			return n
		},
		Size: func(int64) int64 { return 100 },
	}
	if change != nil {
		change(&rules)
	}
	a.writer = ledger.New(rules)
	return a
}

// early makes a process gather early, and report unknown outcomes. prepare may be nil.
func early(prepare func(context.Context, int64, []*call) (int64, []*call, error)) func(*ledger.Rules[int64, add, int64]) {
	if prepare == nil {
		prepare = func(_ context.Context, sum int64, calls []*call) (int64, []*call, error) { return sum, calls, nil }
	}
	return func(r *ledger.Rules[int64, add, int64]) {
		r.Take, r.Size, r.Prepare, r.Unknown, r.Holdable = nil, nil, prepare, ledger.Report, true
	}
}

func (a *adder) read(ctx context.Context) (int64, eventlog.KeyValue, error) {
	kv, err := a.log.Get(ctx, key)
	if err != nil || kv.Version == 0 {
		return 0, kv, err
	}
	text, _, _ := strings.Cut(string(kv.Value), " ")
	sum, err := strconv.ParseInt(text, 10, 64)
	return sum, kv, err
}

func (a *adder) judge(sum int64, _ eventlog.Version, calls []*call) (j ledger.Judged[int64, int64]) {
	for _, o := range calls {
		switch {
		case o.MaybeDone: // nothing in the state tells whether it was added
			j.Answers = append(j.Answers, ledger.Answer[int64]{Err: eventlog.ErrUnsure})
		case o.Do.bad:
			return ledger.Judged[int64, int64]{Err: errors.New("it cannot be encoded")}
		case sum < o.Do.want:
			j.Answers = append(j.Answers, ledger.Answer[int64]{Err: errLow, Refused: true})
		default:
			sum += o.Do.n
			j.Changes = j.Changes || o.Do.n != 0
			j.Answers = append(j.Answers, ledger.Answer[int64]{Value: sum})
		}
	}
	j.Changes = j.Changes || len(calls) == 0
	j.Next, j.Value = sum, fmt.Appendf(nil, "%d %s-%d", sum, a.name, a.ids.Add(1))
	return j
}

type result struct {
	sum int64
	err error
}

// begins begins an operation, and returns when it waits for something.
func (a *adder) begins(ctx context.Context, do add) <-chan result {
	done := make(chan result, 1)
	go func() {
		sum, err := a.Do(ctx, do)
		done <- result{sum, err}
	}()
	synctest.Wait()
	return done
}

// adds is Do, which must succeed.
func (a *adder) adds(t *testing.T, n, want int64) {
	t.Helper()
	if sum, err := a.Do(t.Context(), add{n: n}); err != nil || sum != want {
		t.Errorf("%s adds %d: %d, %v; want %d", a.name, n, sum, err, want)
	}
}

// has checks what the store has.
func (s *store) has(t *testing.T, want int64) {
	t.Helper()
	kvs, err := s.Store.List(context.Background(), key, "", 1)
	if err != nil || len(kvs) != 1 {
		t.Fatal(kvs, err)
	}
	if text, _, _ := strings.Cut(string(kvs[0].Value), " "); text != strconv.FormatInt(want, 10) {
		t.Errorf("the store has %q, want %d", kvs[0].Value, want)
	}
}

// in runs a test in fake time.
func in(t *testing.T, test func(t *testing.T, s *store)) {
	synctest.Test(t, func(t *testing.T) { test(t, &store{Store: memory.New()}) })
}

// both runs a test of a writer that gathers late, and of one that gathers early.
func both(t *testing.T, test func(t *testing.T, s *store, change func(*ledger.Rules[int64, add, int64]))) {
	for name, change := range map[string]func(*ledger.Rules[int64, add, int64]){"late": nil, "early": early(nil)} {
		t.Run(name, func(t *testing.T) { in(t, func(t *testing.T, s *store) { test(t, s, change) }) })
	}
}

func TestOperationsThatWaitShareAnEntry(t *testing.T) {
	both(t, func(t *testing.T, s *store, change func(*ledger.Rules[int64, add, int64])) {
		a := begin(t, s, "a", change)
		go1 := make(chan struct{})
		s.then(after(func() { <-go1 }, committed))
		first := a.begins(t.Context(), add{n: 1})
		var rest []<-chan result
		for range 9 {
			rest = append(rest, a.begins(t.Context(), add{n: 1}))
		}
		close(go1)
		if r := <-first; r.err != nil || r.sum != 1 {
			t.Errorf("the first: %+v", r)
		}
		for i, done := range rest {
			if r := <-done; r.err != nil || r.sum != int64(i+2) {
				t.Errorf("number %d: %+v", i+2, r)
			}
		}
		if commits, reads := s.commits.Load(), s.reads.Load(); commits != 2 || reads != 1 {
			t.Errorf("%d commits and %d reads, want 2 and 1", commits, reads)
		}
		s.has(t, 10)
	})
}

func TestAWriterThatWasOvertakenJudgesAgain(t *testing.T) {
	both(t, func(t *testing.T, s *store, change func(*ledger.Rules[int64, add, int64])) {
		a, b := begin(t, s, "a", change), begin(t, s, "b", change)
		a.adds(t, 1, 1)
		b.adds(t, 10, 11)
		a.adds(t, 100, 111)
		b.adds(t, 1, 112)              // it knows the state now
		for i := range int64(3 * 16) { // far more often than without a pause
			s.then(after(func() {
				if sum, err := b.Do(t.Context(), add{n: 1}); err != nil {
					t.Error(i, sum, err)
				}
			}, committed))
			s.then(committed)
		}
		s.then(committed)
		a.adds(t, 1000, 112+3*16+1000)
		s.has(t, 112+3*16+1000)
	})
}

func TestAnEntryHasNoMoreOperationsThanMayShareIt(t *testing.T) {
	in(t, func(t *testing.T, s *store) {
		a := begin(t, s, "a", func(r *ledger.Rules[int64, add, int64]) { r.Take = func(int64, iter.Seq[add]) int { return 3 } })
		wait := make(chan struct{})
		s.then(after(func() { <-wait }, committed))
		first := a.begins(t.Context(), add{n: 1})
		var rest []<-chan result
		for range 7 {
			rest = append(rest, a.begins(t.Context(), add{n: 1}))
		}
		s.then(refusing(eventlog.ErrStale)) // no other joins those that are judged again
		close(wait)
		<-first
		for i, done := range rest {
			if r := <-done; r.err != nil || r.sum != int64(i+2) {
				t.Errorf("number %d: %+v", i+2, r)
			}
		}
		if n := s.commits.Load(); n != 5 {
			t.Errorf("%d commits, want 1 of one, 2 of three, one of them refused before, and 1 of one", n)
		}
	})
}

// A state that is remembered may be old: by it nothing is refused.
func TestARefusalIsByAStateThatTheStoreHadAfterTheOperationCame(t *testing.T) {
	in(t, func(t *testing.T, s *store) {
		a, b := begin(t, s, "a", nil), begin(t, s, "b", nil)
		a.adds(t, 1, 1)
		b.adds(t, 10, 11)
		if sum, err := a.Do(t.Context(), add{want: 11}); err != nil || sum != 11 {
			t.Errorf("it is refused by an old state: %d, %v", sum, err)
		}
		reads, commits := s.reads.Load(), s.commits.Load()
		if _, err := a.Do(t.Context(), add{want: 12}); !errors.Is(err, errLow) {
			t.Errorf("%v, want the refusal", err)
		}
		if reads, commits := s.reads.Load()-reads, s.commits.Load()-commits; reads != 1 || commits != 0 {
			t.Errorf("the refusal cost %d reads and %d commits", reads, commits)
		}
		// A commit proves the state, too.
		wait := make(chan struct{})
		s.then(after(func() { <-wait }, committed))
		first := a.begins(t.Context(), add{n: 1})
		adds, refused := a.begins(t.Context(), add{n: 1}), a.begins(t.Context(), add{want: 100})
		reads = s.reads.Load()
		close(wait)
		if r := <-refused; !errors.Is(r.err, errLow) || s.reads.Load() != reads {
			t.Errorf("beside one that was committed: %+v after %d reads", r, s.reads.Load()-reads)
		}
		<-first
		<-adds
	})
}

func TestALostAnswerIsResolved(t *testing.T) {
	for name, c := range map[string]struct {
		then   func(other func()) []commitFunc
		unsure bool
		want   int64
	}{
		"it was committed":                     {func(func()) []commitFunc { return []commitFunc{lost} }, false, 2},
		"it was not committed":                 {func(func()) []commitFunc { return []commitFunc{dropped} }, false, 2},
		"so was what was put to find that out": {func(func()) []commitFunc { return []commitFunc{dropped, lost} }, false, 2},
		"that was not committed, either":       {func(func()) []commitFunc { return []commitFunc{dropped, dropped, dropped, lost, lost} }, false, 2},
		"the store is away while it looks":     {func(func()) []commitFunc { return []commitFunc{dropped, failing(eventlog.ErrUnavailable)} }, false, 2},
		"what it puts is refused at first":     {func(func()) []commitFunc { return []commitFunc{dropped, refusing(eventlog.ErrStale)} }, false, 2},
		"another was first":                    {func(other func()) []commitFunc { return []commitFunc{after(other, dropped), committed} }, true, 11},
		"another came after it":                {func(other func()) []commitFunc { return []commitFunc{then(lost, other), committed} }, true, 12},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, s *store) {
				a, b := begin(t, s, "a", nil), begin(t, s, "b", nil)
				a.adds(t, 1, 1)
				s.then(c.then(func() { b.adds(t, 10, c.want) })...)
				_, err := a.Do(t.Context(), add{n: 1})
				if errors.Is(err, eventlog.ErrUnsure) != c.unsure || err != nil && !c.unsure {
					t.Errorf("it answers %v; nobody can tell: %v", err, c.unsure)
				}
				s.has(t, c.want)
				a.adds(t, 100, c.want+100)
			})
		})
	}
}

// then is a commit after whose end another function is called.
func then(do commitFunc, last func()) commitFunc {
	return func(ctx context.Context, s *store, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
		defer last()
		return do(ctx, s, flush)
	}
}

// A commit whose answer was lost may arrive late. It is refused then, even if its operation changes
// nothing when it is judged again.
func TestALostEntryThatArrivesLateIsRefused(t *testing.T) {
	in(t, func(t *testing.T, s *store) {
		judged := 0
		a := begin(t, s, "a", func(r *ledger.Rules[int64, add, int64]) {
			judge := r.Judge
			r.Judge = func(sum int64, next eventlog.Version, calls []*call) ledger.Judged[int64, int64] {
				for _, o := range calls {
					if judged++; judged > 2 {
						o.Do.n = 0
					}
				}
				return judge(sum, next, calls)
			}
		})
		a.adds(t, 1, 1)
		var late []eventlog.Entry
		s.then(func(_ context.Context, _ *store, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
			late = flush
			return nil, eventlog.ErrUnsure
		})
		a.adds(t, 1, 1)
		if out, err := s.Store.Commit(t.Context(), late); err != nil || !errors.Is(out[0].Err, eventlog.ErrStale) {
			t.Errorf("it is committed: %v, %v", out, err)
		}
		s.has(t, 1)
	})
}

func TestAnOutcomeThatIsNeverFoundOutIsReported(t *testing.T) {
	in(t, func(t *testing.T, s *store) {
		gone := errors.New("there is nothing to be read any more")
		broken := atomic.Bool{}
		a := begin(t, s, "a", func(r *ledger.Rules[int64, add, int64]) {
			read := r.Read
			r.Read = func(ctx context.Context) (int64, eventlog.KeyValue, error) {
				if broken.Load() {
					return 0, eventlog.KeyValue{}, gone
				}
				return read(ctx)
			}
		})
		a.adds(t, 1, 1)
		broken.Store(true)
		s.then(lost)
		if _, err := a.Do(t.Context(), add{n: 1}); !errors.Is(err, eventlog.ErrUnsure) || !errors.Is(err, gone) {
			t.Errorf("%v", err)
		}
		broken.Store(false)
		a.adds(t, 1, 3)
	})
}

func TestALostAnswerIsReported(t *testing.T) {
	in(t, func(t *testing.T, s *store) {
		a := begin(t, s, "a", early(nil))
		s.then(lost, dropped)
		for range 2 {
			if _, err := a.Do(t.Context(), add{n: 1}); !errors.Is(err, eventlog.ErrUnsure) {
				t.Errorf("%v, want that the outcome is unknown", err)
			}
		}
		a.adds(t, 10, 11)
	})
}

func TestOneOperationDoesNotHaveTheOthersRefused(t *testing.T) {
	both(t, func(t *testing.T, s *store, change func(*ledger.Rules[int64, add, int64])) {
		a := begin(t, s, "a", change)
		wait := make(chan struct{})
		s.then(after(func() { <-wait }, committed), refusing(eventlog.ErrTooLarge)) // the second is of three together
		first := a.begins(t.Context(), add{n: 1})
		three := []<-chan result{a.begins(t.Context(), add{n: 1}), a.begins(t.Context(), add{n: 1}), a.begins(t.Context(), add{n: 1})}
		close(wait)
		<-first
		for i, done := range three {
			if r := <-done; r.err != nil || r.sum != int64(i+2) {
				t.Errorf("number %d: %+v", i, r)
			}
		}
		wait = make(chan struct{})
		s.then(after(func() { <-wait }, committed))
		first = a.begins(t.Context(), add{n: 1})
		good, bad := a.begins(t.Context(), add{n: 1}), a.begins(t.Context(), add{bad: true})
		close(wait)
		if g, b := <-good, <-bad; g.err != nil || b.err == nil || errors.Is(b.err, eventlog.ErrUnsure) {
			t.Errorf("beside one of which no entry can be made: %+v; that one: %+v", g, b)
		}
		<-first
		s.has(t, 6)
	})
}

func TestWhatIsWithdrawnIsCertainlyNotDone(t *testing.T) {
	both(t, func(t *testing.T, s *store, change func(*ledger.Rules[int64, add, int64])) {
		a := begin(t, s, "a", change)
		ended, end := context.WithCancel(t.Context())
		end()
		if _, err := a.Do(ended, add{n: 100}); !errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrUnsure) {
			t.Errorf("whose time was over before: %v", err)
		}
		wait := make(chan struct{})
		s.then(after(func() { <-wait }, committed))
		ctx, cancel := context.WithCancel(t.Context())
		sent := a.begins(ctx, add{n: 1})
		queued := a.begins(ctx, add{n: 10})
		cancel()
		if r := <-queued; !errors.Is(r.err, eventlog.ErrUnavailable) || errors.Is(r.err, eventlog.ErrUnsure) {
			t.Errorf("what was queued: %+v", r)
		}
		if r := <-sent; !errors.Is(r.err, eventlog.ErrUnsure) {
			t.Errorf("what was sent: %+v", r)
		}
		close(wait)
		synctest.Wait()
		s.has(t, 1)
		a.adds(t, 1, 2)
	})
}

// An operation may be queued again after an attempt of unknown outcome.
func TestWhatIsWithdrawnAfterAnAttemptMayBeDone(t *testing.T) {
	in(t, func(t *testing.T, s *store) {
		b := begin(t, s, "b", nil)
		asked := make(chan struct{})
		a := begin(t, s, "a", func(r *ledger.Rules[int64, add, int64]) {
			judge := r.Judge
			r.Judge = func(sum int64, next eventlog.Version, calls []*call) ledger.Judged[int64, int64] {
				for _, o := range calls {
					if o.MaybeDone && len(calls) > 1 {
						return ledger.Judged[int64, int64]{Err: errors.New("not together")}
					}
				}
				if len(calls) == 1 && calls[0].MaybeDone {
					<-asked
				}
				return judge(sum, next, calls)
			}
		})
		a.adds(t, 1, 1)
		wait := make(chan struct{})
		s.then(after(func() { <-wait }, committed), then(lost, func() { b.adds(t, 10, 14) }), committed)
		first := a.begins(t.Context(), add{n: 1})
		ctx, cancel := context.WithCancel(t.Context())
		one, two := a.begins(t.Context(), add{n: 1}), a.begins(ctx, add{n: 1})
		close(wait)
		<-first
		synctest.Wait() // they are tried one by one, and the first is being judged
		cancel()
		if r := <-two; !errors.Is(r.err, eventlog.ErrUnsure) {
			t.Errorf("what was queued after an attempt: %+v", r)
		}
		close(asked)
		<-one
	})
}

func TestACallerThatLeftIsToldOf(t *testing.T) {
	in(t, func(t *testing.T, s *store) {
		missed := make(chan int64, 1)
		a := begin(t, s, "a", func(r *ledger.Rules[int64, add, int64]) { r.Missed = func(_ add, sum int64) { missed <- sum } })
		wait := make(chan struct{})
		s.then(after(func() { <-wait }, committed))
		ctx, cancel := context.WithCancel(t.Context())
		sent := a.begins(ctx, add{n: 7})
		cancel()
		<-sent
		close(wait)
		if sum := <-missed; sum != 7 {
			t.Errorf("the answer that its caller missed is %d", sum)
		}
	})
}

// With Report, what nobody waits for has no effect later, and does not keep others waiting.
func TestWhatNobodyWaitsForIsGivenUp(t *testing.T) {
	in(t, func(t *testing.T, s *store) {
		a := begin(t, s, "a", early(nil))
		a.adds(t, 1, 1)
		away := func(ctx context.Context, _ *store, _ []eventlog.Entry) ([]eventlog.Outcome, error) {
			return nil, fmt.Errorf("%w: for the test", eventlog.ErrUnavailable)
		}
		for range 100 {
			s.then(away)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.Do(ctx, add{n: 10}); !errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrUnsure) {
			t.Errorf("%v", err)
		}
		time.Sleep(5 * time.Minute) // of fake time
		s.has(t, 1)
		a.adds(t, 1, 2)
	})
}

func TestPreparingAnswersAndHasTheOthersWait(t *testing.T) {
	in(t, func(t *testing.T, s *store) {
		var asked []string
		a := begin(t, s, "a", early(func(_ context.Context, sum int64, calls []*call) (int64, []*call, error) {
			said := ""
			for _, o := range calls {
				said += fmt.Sprint(o.Do.n, " ", o.Stale, "; ")
			}
			asked = append(asked, said)
			for _, o := range calls {
				switch {
				case o.Do.n == 13:
					o.Answer(-13, nil)
				case o.Do.n == 14 && !o.Proven:
					return sum, nil, eventlog.ErrStale
				case o.Do.n == 15:
					return sum, nil, errLow
				default:
					return sum, []*call{o}, nil
				}
			}
			return sum, nil, nil
		}))
		b := begin(t, s, "b", nil)
		a.adds(t, 1, 1)
		b.adds(t, 1, 2)
		if sum, err := a.Do(t.Context(), add{n: 13}); sum != -13 || err != nil {
			t.Errorf("what is answered before it is judged: %d, %v", sum, err)
		}
		if _, err := a.Do(t.Context(), add{n: 15}); !errors.Is(err, errLow) {
			t.Errorf("an error: %v", err)
		}
		a.adds(t, 14, 16) // by a new state: it is not refused
		b.adds(t, 1, 17)
		asked = nil
		a.adds(t, 2, 19)
		if want := "[2 false;  2 true; ]"; fmt.Sprint(asked) != want {
			t.Errorf("one whose entry is refused is prepared: %v, want %v", asked, want)
		}
		wait := make(chan struct{})
		s.then(after(func() { <-wait }, committed))
		first := a.begins(t.Context(), add{n: 1})
		second, third := a.begins(t.Context(), add{n: 2}), a.begins(t.Context(), add{n: 3})
		asked = nil
		close(wait)
		r, r2, r3 := <-first, <-second, <-third
		if want := "[2 false; 3 false;  3 false; ]"; fmt.Sprint(asked) != want || r.sum != 20 || r2.sum != 22 || r3.sum != 25 {
			t.Errorf("two that cannot share an entry: %v, %v, %v; prepared %v, want %v", r, r2, r3, asked, want)
		}
		wait = make(chan struct{})
		s.then(after(func() { <-wait }, committed))
		first = a.begins(t.Context(), add{n: 1})
		second, third = a.begins(t.Context(), add{n: 2}), a.begins(t.Context(), add{n: 14})
		reads := s.reads.Load()
		close(wait)
		<-first
		<-second
		if r := <-third; r.sum != 42 || s.reads.Load() != reads {
			t.Errorf("one that waited for a commit: %+v after %d reads; the commit proves the state", r, s.reads.Load()-reads)
		}
	})
}

// While a transaction holds the key, operations are queued between two attempts.
func TestAHeldKeyIsTriedAgainUntilItIsFree(t *testing.T) {
	in(t, func(t *testing.T, s *store) {
		a := begin(t, s, "a", early(nil))
		for range 40 {
			s.then(refusing(eventlog.ErrHeld))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		leaves, waits := a.begins(ctx, add{n: 1}), a.begins(t.Context(), add{n: 10})
		if r := <-leaves; !errors.Is(r.err, eventlog.ErrHeld) || errors.Is(r.err, eventlog.ErrUnsure) {
			t.Errorf("who gave up: %+v", r)
		}
		if r := <-waits; r.err != nil || r.sum != 10 {
			t.Errorf("who waits: %+v", r)
		}
		if n := s.commits.Load(); n != 41 {
			t.Errorf("%d attempts, want 41", n)
		}
		s.has(t, 10)
	})
}

// Callers give up in the moment in which the others' operations are queued again, because a
// transaction holds the key. What they have given up is not done later.
func TestWhoGivesUpWhileTheKeyIsHeldHasNoEffectLater(t *testing.T) {
	for round := range 12 {
		in(t, func(t *testing.T, s *store) {
			const callers = 2000
			a := begin(t, s, "a", early(nil))
			a.adds(t, 1, 1)
			ctx, cancel := context.WithCancel(t.Context())
			free := time.Now().Add(10 * time.Second)
			var held commitFunc
			held = func(ctx context.Context, s *store, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
				if time.Now().After(free) {
					return committed(ctx, s, flush)
				}
				s.then(held)
				return refusing(eventlog.ErrHeld)(ctx, s, flush)
			}
			wait := make(chan struct{})
			s.then(after(func() { <-wait }, refusing(eventlog.ErrHeld)), after(func() {
				go cancel()
				for range 3 * round {
					runtime.Gosched()
				}
			}, held))
			stays := a.begins(t.Context(), add{n: 10}) // its entry is on its way: the others come together
			var all []<-chan result
			for range callers {
				done := make(chan result, 1)
				go func() {
					sum, err := a.Do(ctx, add{n: 1000})
					done <- result{sum, err}
				}()
				all = append(all, done)
			}
			synctest.Wait()
			close(wait)
			for _, done := range all {
				if r := <-done; r.err == nil {
					t.Errorf("the key is held, but %+v", r)
				}
			}
			if r := <-stays; r.err != nil || r.sum != 11 {
				t.Errorf("who stays: %+v, want 11", r)
			}
			a.adds(t, 1, 12)
			s.has(t, 12)
		})
	}
}

func TestWhatIsLearntIsUsedWhileNothingIsOnItsWay(t *testing.T) {
	in(t, func(t *testing.T, s *store) {
		a, b := begin(t, s, "a", nil), begin(t, s, "b", nil)
		b.adds(t, 5, 5)
		_, kv, err := b.read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Learn(kv.Version, func() (int64, bool, error) { return 5, true, nil }); err != nil {
			t.Fatal(err)
		}
		if sum, known := a.Known(); sum != 5 || !known || !a.Idle() {
			t.Errorf("it knows %d, %v", sum, known)
		}
		if err := a.Learn(kv.Version, func() (int64, bool, error) { t.Error("it is parsed again"); return 0, true, nil }); err != nil {
			t.Fatal(err)
		}
		reads := s.reads.Load()
		a.adds(t, 1, 6)
		if s.reads.Load() != reads {
			t.Error("what was learnt is read again")
		}
		if a.Forget(); s.reads.Load() != reads {
			t.Error("forgetting reads")
		}
		if _, known := a.Known(); known {
			t.Error("it knows what was forgotten")
		}
		a.adds(t, 1, 7)
	})
}

func TestAWriterThatCannotStartFailsItsOperations(t *testing.T) {
	in(t, func(t *testing.T, s *store) {
		a := begin(t, s, "a", nil)
		a.stop()
		if _, err := a.Do(context.Background(), add{n: 1}); !errors.Is(err, eventlog.ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}
