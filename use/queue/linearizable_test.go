package queue_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/keys"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
)

// asked is what a worker asks about one message.
type asked struct {
	verb    string // enqueue, claim, ack, nack or extend
	message queue.MessageID
	receipt string  // of the claim; of a claim: the one that it got, "" if its answer was lost
	attempt int     // that a claim got
	until   int64   // when the lease ends: of a claim and an extend
	free    int64   // when a message that was given back may be claimed
	now     int64   // when the answer came; all in milliseconds since the Unix epoch
	lost    []int64 // when the leases of the claims end whose answer was lost, and which may have got the message before
}

// answer is what the worker was told.
type answer int

const (
	unknown answer = iota // it may have happened, also later
	happened
	stale // another has the message, or nobody
	over  // the message is done
)

// fate is what the model holds of a message.
type fate struct {
	phase   string // "", free, claimed or done
	receipt string // of the claim; "" if its answer was lost
	attempt int
	free    int64 // when it may be claimed, again
}

// searched is how long an order is searched for.
const searched = 15 * time.Second

// slack is how far the clocks of the test and of the store may be apart: both are the machine's,
// rounded.
const slack = 20

// next returns what may have become of a message when a worker was told something; none: it cannot
// have been.
func (f fate) next(a asked, told answer) []fate {
	mine := f.phase == "claimed" && f.receipt == a.receipt && a.receipt != ""
	var after fate
	possible := false
	switch a.verb {
	case "enqueue":
		after, possible = fate{phase: "free"}, f.phase == ""
	case "claim":
		after = fate{phase: "claimed", receipt: a.receipt, attempt: f.attempt + 1, free: a.until}
		possible = (f.phase == "free" || f.phase == "claimed") && f.free <= a.now+slack && a.attempt == after.attempt
		if f.phase == "claimed" && f.receipt == "" && a.attempt == f.attempt { // what nobody got was given back at once
			after.attempt, possible = f.attempt, true
		}
	case "ack":
		after, possible = fate{phase: "done"}, mine
	case "nack":
		after, possible = fate{phase: "free", attempt: f.attempt, free: a.free}, mine
	case "extend":
		after, possible = fate{phase: "claimed", receipt: f.receipt, attempt: f.attempt, free: a.until}, mine
	}
	switch {
	case told == unknown && possible:
		return []fate{f, after}
	case told == unknown:
		return []fate{f}
	case told == happened && possible:
		return []fate{after}
	case told == stale && !possible && f.phase != "done", told == over && f.phase == "done":
		return []fate{f}
	}
	return nil
}

// lost returns what may have become of a message until a worker got an answer: claims whose answer
// was lost may have got it, one after the other. They are no operations of the history, where the
// search for an order takes time exponential in their number.
func (f fate) lost(a asked) []fate {
	fates := []fate{f}
	for n := 1; n <= len(a.lost) && (f.phase == "free" || f.phase == "claimed") && f.free <= a.now+slack; n++ {
		f = fate{phase: "claimed", attempt: f.attempt + 1, free: slices.Min(a.lost)}
		fates = append(fates, f)
	}
	return fates
}

// oneQueue is a queue, message by message: none has to do with another.
func oneQueue() porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
			at := make(map[queue.MessageID]int)
			for _, o := range history {
				id := o.Input.(asked).message
				n, is := at[id]
				if !is {
					n, at[id] = len(parts), len(parts)
					parts = append(parts, nil)
				}
				parts[n] = append(parts[n], o)
			}
			return parts
		},
		Init: func() []any { return []any{fate{}} },
		Step: func(state, input, output any) (next []any) {
			a := input.(asked)
			for _, f := range state.(fate).lost(a) {
				for _, after := range f.next(a, output.(answer)) {
					next = append(next, after)
				}
			}
			return next
		},
		Equal: func(a, b any) bool { return a == b },
		DescribeOperation: func(input, output any) string {
			return fmt.Sprintf("%+v: %v", input, []string{"unknown", "happened", "stale", "over"}[output.(answer)])
		},
		DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
	}).ToModel()
}

// lossy is a store that loses some answers of commits, and does not get some.
type lossy struct {
	eventlog.Store
	away   time.Duration // a commit's way to the store takes so long at most, and so does its answer's way back
	on     atomic.Bool
	mu     sync.Mutex // guards random
	random *rand.Rand
}

func (s *lossy) Unwrap() eventlog.Store { return s.Store }

func (l *lossy) dice() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.random.Float64()
}

// travel is the way to the store, or back.
func (l *lossy) travel() { time.Sleep(time.Duration(l.dice() * float64(l.away))) }

func (l *lossy) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	dice := l.dice()
	if !l.on.Load() {
		dice = 1
	}
	if dice < 0.05 {
		return nil, fmt.Errorf("%w: for the test", eventlog.ErrUnavailable)
	}
	l.travel()
	out, err := l.Store.Commit(ctx, flush)
	l.travel()
	if dice < 0.1 && err == nil {
		return nil, fmt.Errorf("%w: the answer is lost for the test", eventlog.ErrUnsure)
	}
	return out, err
}

// worker makes random calls in one process, and writes down what it was told.
type worker struct {
	t       *testing.T
	name    int
	q       func() *queue.Queue
	random  *rand.Rand
	began   time.Time
	history *[]porcupine.Operation
	mu      *sync.Mutex // guards history, messages and lost
	known   *[]queue.MessageID
	lost    *[]porcupine.Operation // claims of which nobody knows what they got
	got     []asked                // claims of this worker
}

// note writes down a call that is over. One of unknown outcome may still happen.
func (w *worker) note(a asked, told answer, called int64) {
	returned := time.Since(w.began).Nanoseconds()
	a.now = time.Now().UnixMilli()
	if told == unknown {
		returned = 1 << 62
		a.now = 1 << 62
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.verb == "enqueue" && told == happened {
		*w.known = append(*w.known, a.message)
	}
	o := porcupine.Operation{ClientId: w.name, Input: a, Output: told, Call: called, Return: returned}
	if a.verb == "claim" && told == unknown { // of which message?
		*w.lost = append(*w.lost, o)
		return
	}
	*w.history = append(*w.history, o)
}

// act makes one call.
func (w *worker) act(ctx context.Context) {
	q := w.q()
	called, now := time.Since(w.began).Nanoseconds(), time.Now().UnixMilli()
	lease := time.Duration(100+w.random.IntN(300)) * time.Millisecond
	var err error
	switch w.random.IntN(8) {
	case 0, 1:
		var out []queue.Enqueued
		if out, err = q.Enqueue(ctx, queue.NewMessage{Value: []byte("x")}); err == nil {
			w.note(asked{verb: "enqueue", message: out[0].ID}, happened, called)
		} // else nobody knows its id: it comes as a message that nobody enqueued
	case 2, 3, 4:
		var messages []queue.Message
		most := 1 + w.random.IntN(2)
		messages, err = q.Claim(ctx, queue.Claim{Max: most, Lease: lease, Wait: 20 * time.Millisecond})
		for _, m := range messages {
			a := asked{verb: "claim", message: m.ID, receipt: m.Receipt, attempt: m.Attempt, until: m.Until.UnixMilli()}
			w.got = append(w.got, a)
			w.note(a, happened, called)
		}
		tookLong := time.Since(w.began).Nanoseconds()-called >= lease.Nanoseconds() // it may have claimed what it gave back, as the lease was over before it could tell
		if err != nil || tookLong || len(messages) > 0 && len(messages) < most {    // it may have claimed what it then could not read, or was not told of
			w.note(asked{verb: "claim", until: now + lease.Milliseconds()}, unknown, called)
		}
	default:
		if len(w.got) == 0 {
			return
		}
		claim := w.got[len(w.got)-1-min(w.random.IntN(6), w.random.IntN(len(w.got)))] // mostly a new one
		a := asked{verb: "ack", message: claim.message, receipt: claim.receipt}
		var errs []error
		switch w.random.IntN(4) {
		case 0, 1:
			errs, err = q.Ack(ctx, claim.receipt)
		case 2:
			delay := time.Duration(w.random.IntN(100)) * time.Millisecond
			a.verb, a.free = "nack", now+delay.Milliseconds()
			errs, err = q.Nack(ctx, queue.Nack{Delay: delay, SetDelay: true}, claim.receipt)
		default:
			a.verb, a.until = "extend", now+lease.Milliseconds()
			errs, err = q.Extend(ctx, lease, claim.receipt)
		}
		if err == nil {
			err = errs[0]
		}
		var refused *queue.StaleReceiptError
		switch {
		case err == nil:
			w.note(a, happened, called)
		case errors.Is(err, eventlog.ErrUnsure):
			w.note(a, unknown, called)
		case errors.As(err, &refused) && refused.Done:
			w.note(a, over, called)
		case errors.As(err, &refused):
			w.note(a, stale, called)
		}
	}
	switch {
	case err == nil, errors.Is(err, eventlog.ErrUnavailable), errors.Is(err, eventlog.ErrUnsure), errors.Is(err, eventlog.ErrClosed), errors.Is(err, queue.ErrStaleReceipt):
	default:
		w.t.Errorf("%v", err)
	}
}

// host is a log and its queues, which may stop and be followed by another.
type host struct {
	mu   sync.RWMutex // guards what follows
	q    *queue.Queue
	stop func()
}

func (h *host) queue() *queue.Queue {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.q
}

// begin runs a host on a store, in the place of the one before.
func (h *host) begin(ctx context.Context, under eventlog.Store) error {
	log, err := eventlog.Open(ctx, under, eventlog.Config{Poll: 10 * time.Millisecond})
	if err != nil {
		return err
	}
	qs := queue.New(log, publish.New(log, publish.Config{}), queue.Config{})
	running, cancel := context.WithCancel(context.Background())
	var both sync.WaitGroup
	both.Go(func() { _ = log.Run(running) })
	both.Go(func() { _ = qs.Run(running) })
	stop := func() { cancel(); both.Wait() }
	var q *queue.Queue
	if _, err = qs.Create(ctx, queue.Spec{Name: "mail", Partitions: 2}); err == nil || errors.Is(err, queue.ErrQueueExists) {
		q, err = qs.Open(ctx, "mail")
	}
	if err != nil {
		stop()
		return err
	}
	h.mu.Lock()
	before := h.stop
	h.q, h.stop = q, stop
	h.mu.Unlock()
	if before != nil {
		before()
	}
	return nil
}

// Two processes share a queue, lose answers of the store, stop and start again. Message by message,
// the answers that workers got are those of a queue that does one thing at a time (Q11). Stores in
// this process are used in fake time, where commits take as long as the test says. Others take as
// long as the machine is slow: the more answers come too late, the longer an order is searched for.
//
// WEIR_SEEDS says how many histories to run; WEIR_SEED one of them.
func TestWhatWorkersAreToldIsLinearizable(t *testing.T) {
	if storeUnderTest != "memory" {
		t.Skip("it names its stores itself, in one run of the tests")
	}
	for _, kind := range everystore.Kinds() {
		t.Run(kind, func(t *testing.T) {
			var url func(*testing.T) string
			if kind != "memory" {
				url = func(t *testing.T) string { return everystore.URL(t, kind) }
			}
			for _, number := range seed.Histories(t, 2) {
				if kind == "memory" || kind == "sqlite" {
					synctest.Test(t, func(t *testing.T) { oneHistory(t, number, url, 20*time.Millisecond) })
				} else {
					oneHistory(t, number, url, 0)
				}
			}
		})
	}
}

func oneHistory(t *testing.T, seed uint64, url func(*testing.T) string, away time.Duration) {
	t.Helper()
	random := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }
	hosts := make([]host, 2)
	stores := make([]*lossy, len(hosts))
	shared, address := eventlog.Store(memory.New()), ""
	if url != nil {
		address = url(t)
	}
	for n := range hosts {
		under := shared
		if address != "" {
			opened, err := store.Open(t.Context(), address, nil, keys.Rules()...)
			if err != nil {
				t.Fatal(err)
			}
			defer opened.Close()
			under = opened
		}
		stores[n] = &lossy{Store: under, away: away, random: random(uint64(100 + n))}
		if err := hosts[n].begin(t.Context(), stores[n]); err != nil {
			t.Fatal(err)
		}
		defer func() { hosts[n].stop() }()
		stores[n].on.Store(true)
	}
	var (
		mu      sync.Mutex
		history []porcupine.Operation
		lost    []porcupine.Operation
		known   []queue.MessageID
		working sync.WaitGroup
	)
	began := time.Now()
	for n := range 6 {
		w := &worker{t: t, name: n, q: hosts[n%2].queue, random: random(uint64(n)), began: began, history: &history, lost: &lost, mu: &mu, known: &known}
		working.Go(func() {
			for step := range 60 {
				if n == 0 && step == 30 {
					working.Go(func() {
						for hosts[1].begin(t.Context(), stores[1]) != nil {
						}
					})
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+w.random.IntN(200))*time.Millisecond)
				w.act(ctx)
				cancel()
			}
		})
	}
	working.Wait()
	model := oneQueue()
	parts, undecided := model.Partition(complete(history, lost, known)), 0
	for _, part := range parts {
		result := porcupine.CheckOperationsTimeout(model, part, searched)
		if result == porcupine.Unknown { // not in fake time, which stands still while the search goes on
			undecided++
		}
		if result == porcupine.Illegal {
			slices.SortFunc(part, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
			told := ""
			for _, o := range part {
				told += fmt.Sprintf("%6d … %6d µs, worker %d: %s\n", o.Call/1000, o.Return/1000, o.ClientId, model.DescribeOperation(o.Input, o.Output))
			}
			t.Errorf("seed %d: what was told of a message is not what any queue tells (%v):\n%s", seed, result, told)
		}
	}
	if undecided > len(parts)/10 { // one that the search does not decide says nothing
		t.Errorf("seed %d: of %d messages, no order was found in %v for %d", seed, len(parts), searched, undecided)
	}
	t.Logf("seed %d: %d answers about %d messages, %d lost claims; %d were not decided", seed, len(history), len(known), len(lost), undecided)
}

// The model takes what a queue may tell, and nothing else.
func TestTheModelTellsAQueueFromOthers(t *testing.T) {
	claim := func(receipt string, attempt int, now int64) asked {
		return asked{verb: "claim", receipt: receipt, attempt: attempt, until: now + 1000, now: now}
	}
	ack := func(receipt string, now int64) asked { return asked{verb: "ack", receipt: receipt, now: now} }
	put := asked{verb: "enqueue"}
	for name, c := range map[string]struct {
		history []asked
		told    []answer
		lost    int64 // when the lease of a claim ends whose answer was lost right after the enqueue; 0: there is none
		want    porcupine.CheckResult
	}{
		"claimed and done":                       {[]asked{put, claim("a", 1, 0), ack("a", 500)}, nil, 0, porcupine.Ok},
		"claimed again after the lease":          {[]asked{put, claim("a", 1, 0), claim("b", 2, 1100)}, nil, 0, porcupine.Ok},
		"claimed by two":                         {[]asked{put, claim("a", 1, 0), claim("b", 2, 500)}, nil, 0, porcupine.Illegal},
		"claimed by two, and a claim was lost":   {[]asked{put, claim("a", 1, 0), claim("b", 2, 500)}, nil, 900, porcupine.Illegal},
		"an attempt is left out":                 {[]asked{put, claim("a", 2, 0)}, nil, 0, porcupine.Illegal},
		"the attempt of a lost claim":            {[]asked{put, claim("a", 2, 1000)}, nil, 900, porcupine.Ok},
		"a lost claim has it":                    {[]asked{put, claim("a", 2, 500)}, nil, 900, porcupine.Illegal},
		"two attempts of lost claims":            {[]asked{put, claim("a", 3, 2000)}, nil, 900, porcupine.Illegal},
		"comes back after its ack":               {[]asked{put, claim("a", 1, 0), ack("a", 500), claim("b", 2, 1100)}, nil, 0, porcupine.Illegal},
		"a stale ack is taken":                   {[]asked{put, claim("a", 1, 0), claim("b", 2, 1100), ack("a", 1200)}, nil, 0, porcupine.Illegal},
		"a stale ack is refused":                 {[]asked{put, claim("a", 1, 0), claim("b", 2, 1100), ack("a", 1200)}, []answer{happened, happened, happened, stale}, 0, porcupine.Ok},
		"an ack is refused without a reason":     {[]asked{put, claim("a", 1, 0), ack("a", 1200)}, []answer{happened, happened, stale}, 0, porcupine.Illegal},
		"an ack is refused for a lost claim":     {[]asked{put, claim("a", 1, 0), ack("a", 1200)}, []answer{happened, happened, stale}, 2200, porcupine.Ok},
		"an ack is refused before the lease end": {[]asked{put, claim("a", 1, 0), ack("a", 500)}, []answer{happened, happened, stale}, 1500, porcupine.Illegal},
	} {
		t.Run(name, func(t *testing.T) {
			var history, lost []porcupine.Operation
			for i, a := range c.history {
				told := happened
				if c.told != nil {
					told = c.told[i]
				}
				history = append(history, porcupine.Operation{Input: a, Output: told, Call: int64(2 * i), Return: int64(2*i + 1)})
			}
			if c.lost > 0 {
				lost = append(lost, porcupine.Operation{Input: asked{verb: "claim", until: c.lost}, Output: unknown, Call: 2})
			}
			known := []queue.MessageID{{}}
			if got := porcupine.CheckOperationsTimeout(oneQueue(), complete(history, lost, known), 0); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// complete adds what the workers do not know: messages that were enqueued though nobody was told,
// and which lost claims may have got a message.
func complete(history, lost []porcupine.Operation, known []queue.MessageID) []porcupine.Operation {
	there := make(map[queue.MessageID]bool)
	for _, id := range known {
		there[id] = true
	}
	for _, o := range history {
		if id := o.Input.(asked).message; !there[id] {
			there[id] = true
			history = append(history, porcupine.Operation{ClientId: 99, Input: asked{verb: "enqueue", message: id}, Output: happened, Call: 0, Return: o.Return})
		}
	}
	for i, o := range history {
		a := o.Input.(asked)
		for _, l := range lost {
			if l.Call <= o.Return {
				a.lost = append(a.lost, l.Input.(asked).until)
			}
		}
		history[i].Input = a
	}
	return history
}
