package ledger

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// Rules say what a Writer writes: S is the state that the key holds, O an operation, A what is
// answered to it. Functions with a ctx may call the store, and Missed may; the others do not.
type Rules[S, O, A any] struct {
	Log      *eventlog.Log
	Key      string
	Holdable bool   // of the check of the key, see eventlog.Check
	Name     string // the errors of the Writer itself begin with it; "": with nothing

	// Start runs the goroutine that works while there are operations. false: it cannot be started
	// any more, and the operations fail with eventlog.ErrClosed. The end of the ctx that work gets
	// ends calls of the store, not what was sent.
	Start func(work func(ctx context.Context)) bool

	// Read reads the state, and the key that holds it. It also reads again what the entries check
	// besides the key: it is called after an entry was refused as stale.
	Read func(ctx context.Context) (S, eventlog.KeyValue, error)

	// New reports whether an operation expects that the key does not exist; nil: none does. If all
	// the first operations of a Writer do, the zero state is taken for the state, and nothing is
	// read: the entry checks that there is no key.
	New func(o O) bool

	// Judge judges operations, one after the other, by a state. It does not change a state that
	// Read or an earlier call made. It may leave results in the operations; if it is called again,
	// with another state or with more operations, it overwrites them: its last call counts. next is
	// the version that the key gets. With Resolve it is called without operations, too, and puts
	// the same state with a new value.
	Judge func(s S, next eventlog.Version, ops []*Op[O, A]) Judged[S, A]

	// Unknown says what becomes of operations whose entry has an unknown outcome.
	Unknown Unknown

	// Take says how many operations may share an entry. ops has the operations that the entry has
	// already, and then those that are queued. One is always allowed.
	//
	// A Writer with Take gathers late: operations are taken and judged when the log gathers its
	// next flush. Then all writers of the process wait, so Judge must not take long. Size estimates
	// the size of an entry, in bytes.
	Take func(s S, ops iter.Seq[O]) int
	Size func(s S) int64

	// Prepare reads what operations need besides the state, and adds it to the state that it
	// returns. A Writer with Prepare gathers early: all operations that are queued are taken, and
	// no other comes before these are answered. Prepare gets those that are not answered yet. It
	// answers some (Op.Answer), and returns those that are judged now; the rest comes again, after
	// them. An error counts as the error of an entry with the operations in now or, if there are
	// none, with all operations.
	//
	// It must not refuse an operation by a state that is not proven (Op.Proven): eventlog.ErrStale
	// asks for a newer one.
	Prepare func(ctx context.Context, s S, ops []*Op[O, A]) (with S, now []*Op[O, A], err error)

	// Missed is called, in a goroutine of Start, when an operation was carried out after its caller
	// had given up.
	Missed func(o O, a A)
}

// Unknown is how a Writer treats an entry whose outcome is unknown (eventlog.ErrUnsure).
type Unknown int

const (
	// Report: the operations are answered with eventlog.ErrUnsure. Operations for which no caller
	// waits any more are given up: they are not sent again.
	Report Unknown = iota
	// Resolve: the key is read until it tells. If it holds what the entry put, the entry was
	// committed. If it is unchanged, the same state is put again: then the entry, which may still
	// be on its way, is refused. If another process changed it, nobody can tell: the operations are
	// judged again, as ones that are perhaps done (Op.MaybeDone). An operation is carried out even
	// if its caller has given up (Rules.Missed).
	//
	// Each call of Judge must put a value that no other entry puts.
	Resolve
)

// Op is an operation on its way.
type Op[O, A any] struct {
	Do        O
	Proven    bool // the store had the state after the operation was queued
	Stale     bool // an entry with it was refused as stale, and it was not judged since
	MaybeDone bool // an earlier attempt has an unknown outcome

	number   uint64 // counts the operations of the Writer, from 1 on
	answer   Answer[A]
	answered bool
	left     bool // its caller has given up; guarded by Writer.mu
	done     chan struct{}
}

// Answer answers an operation. Only Prepare calls it.
func (o *Op[O, A]) Answer(value A, err error) {
	o.answer, o.answered = Answer[A]{Value: value, Err: err}, true
}

// Answer is what an operation is answered.
type Answer[A any] struct {
	Value A
	Err   error
	// Refused: the operation changes nothing because of the state, which may be old. It counts if
	// the state is proven, or the entry with the other operations is committed. Otherwise the state
	// is read, and the operation is judged again.
	Refused bool
}

// Judged is what Judge makes of a state and of operations.
type Judged[S, A any] struct {
	Changes bool           // false: nothing is put, and the fields before Answers do not matter
	Next    S              // the state after the operations
	Value   []byte         // the state as the key holds it
	Entry   eventlog.Entry // what changes besides the key. The Writer adds the key's check and put
	Answers []Answer[A]    // of each operation
	Err     error          // there can be no entry with these operations
}

// Writer changes the state in one key for the callers of this process.
//
//	Do ─► queued ─────► taken ─────► judged ─────► sent ─────► answered
//	        │ ▲          ▲ ▲            │           │
//	        │ │          │ └────────────┘           │
//	        │ │          │ refused by a state that  │
//	        │ │          │ is not proven: read it   │
//	        │ │          │                          │
//	        │ │          └── stale: read the state ─┤
//	        │ ├───────── held: after a pause ───────┤
//	        │ └─ refused, several: one by one ──────┤
//	        ▼                                       │
//	   withdrawn: ctx ended                         └─ unknown: Resolve or Report
//
// One entry is on its way at a time; what comes meanwhile shares the next one.
//
// An operation is answered by a state that the store had after the operation was queued, unless it
// changes nothing and is not refused. While it is queued, its caller may withdraw it: it is
// certainly not done (eventlog.ErrUnavailable). After that its outcome may be unknown. An operation
// of which an earlier attempt may have succeeded never fails with an error that says that it
// certainly did not happen.
type Writer[S, O, A any] struct {
	rules Rules[S, O, A]

	mu       sync.Mutex // guards what follows
	queued   []*Op[O, A]
	count    uint64      // how many operations were queued so far
	taken    []*Op[O, A] // and not answered. Only work changes it
	awaited  int         // how many callers wait for operations in taken
	oneByOne int         // how many of the first queued operations have an entry of their own, because an entry with all of them was refused
	held     bool        // the last entry was refused because a transaction holds a key
	giveUp   context.CancelCauseFunc
	working  bool
	asked    bool             // the state was read, or taken to be the zero state, before
	known    bool             // what follows is known
	state    S                // as this process last read or wrote it. It is never changed, only replaced
	version  eventlog.Version // of the key
	asOf     uint64           // the store had the state after so many operations were queued

	// What follows belongs to work.
	lost     *lostEntry[A]
	stales   int // how often entries were refused as stale in a row
	failures int // how often the outcome of lost could not be found out, in a row
}

// lostEntry is an entry whose outcome is to be found out. All operations in taken are in it, and
// are not judged again before that: so what Judge has left in the operations belongs to this entry.
type lostEntry[A any] struct {
	from    eventlog.Version // of the key, as it checks
	value   []byte           // that it puts
	answers []Answer[A]
	fence   []byte // what was put last so that the store refuses it; nil: nothing was
}

const (
	// staleMax is how often operations are judged again without a pause, after others changed what
	// their entry checks.
	staleMax = 16
	// giveUpTime is how long a caller still waits for the outcome after its ctx ended, if a
	// transaction holds a key; and then as long again if no other caller waits for the entry.
	giveUpTime = time.Second
	// heldPause is the first pause before a held key is tried again, heldPauseMax the longest.
	heldPause    = 2 * time.Millisecond
	heldPauseMax = 50 * time.Millisecond
)

// New returns a Writer. It calls the store when the first operation comes.
func New[S, O, A any](rules Rules[S, O, A]) *Writer[S, O, A] {
	if (rules.Take == nil) == (rules.Prepare == nil) {
		panic("ledger: a Writer has either Take or Prepare")
	}
	return &Writer[S, O, A]{rules: rules}
}

// Do carries out an operation and returns its answer. If ctx ends while the operation is queued, it
// is withdrawn: eventlog.ErrHeld if a transaction holds a key, else eventlog.ErrUnavailable or
// eventlog.ErrOverloaded. If ctx ends later, its outcome may be unknown (eventlog.ErrUnsure). With
// Report, Do then still waits for up to a second if a transaction holds a key, and for up to a
// second if no other caller waits for the entry: as a rule the outcome is known then.
func (w *Writer[S, O, A]) Do(ctx context.Context, do O) (A, error) {
	if ctx.Err() != nil {
		return *new(A), w.named(fmt.Errorf("%w: it was not sent (%w)", eventlog.ErrUnavailable, context.Cause(ctx)))
	}
	began := time.Now()
	o := &Op[O, A]{Do: do, done: make(chan struct{})}
	w.mu.Lock()
	w.count++
	o.number = w.count
	w.queued = append(w.queued, o)
	start := !w.working
	w.working = true
	w.mu.Unlock()
	if start && !w.rules.Start(w.work) {
		w.mu.Lock()
		w.working = false
		w.mu.Unlock()
		w.failQueued(eventlog.ErrClosed)
	}
	select {
	case <-o.done:
		return o.answer.Value, o.answer.Err
	case <-ctx.Done():
		return w.leave(o, began, context.Cause(ctx))
	}
}

// leave is called when the caller of an operation waits no longer.
func (w *Writer[S, O, A]) leave(o *Op[O, A], began time.Time, cause error) (A, error) {
	w.mu.Lock()
	held, giveUp, last := w.held, w.giveUp, false
	i := slices.Index(w.queued, o)
	switch {
	case i >= 0:
		w.queued = slices.Delete(w.queued, i, i+1)
	case !o.isDone():
		o.left = true
		w.awaited--
		last = w.awaited == 0
	}
	w.mu.Unlock()
	if i < 0 && w.rules.Unknown == Report {
		if held {
			o.await(giveUpTime)
		}
		if last {
			giveUp(cause)
			o.await(giveUpTime)
		}
	}
	var err error
	switch {
	case i >= 0 && o.MaybeDone:
		err = fmt.Errorf("%w: an earlier attempt may have succeeded (%w)", eventlog.ErrUnsure, cause)
	case i >= 0 && held:
		err = fmt.Errorf("%w: gave up while it is held (%w)", eventlog.ErrHeld, cause)
	case i >= 0:
		err = fmt.Errorf("%w: gave up before it was sent (%w)", w.rules.Log.Late(began), cause)
	case o.isDone():
		return o.answer.Value, o.answer.Err
	default:
		err = fmt.Errorf("%w: gave up while waiting for the store (%w)", eventlog.ErrUnsure, cause)
	}
	return *new(A), w.named(err)
}

func (o *Op[O, A]) isDone() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// await waits until the operation is answered, at most for d.
func (o *Op[O, A]) await(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-o.done:
	case <-timer.C:
	}
}

func (w *Writer[S, O, A]) named(err error) error {
	if w.rules.Name != "" {
		err = fmt.Errorf("%s: %w", w.rules.Name, err)
	}
	return err
}

// Known returns the state that the Writer remembers; false: none.
func (w *Writer[S, O, A]) Known() (S, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.known {
		return *new(S), false
	}
	return w.state, true
}

// Idle reports whether no operation is on its way.
func (w *Writer[S, O, A]) Idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.working
}

// Learn tells the Writer that the key was found at a version. Unless an operation is on its way, or
// the Writer knows that version, it calls parse, and remembers the state that parse returns, if use
// is true.
func (w *Writer[S, O, A]) Learn(version eventlog.Version, parse func() (s S, use bool, err error)) error {
	w.mu.Lock()
	news := !w.working && (!w.known || w.version != version)
	w.mu.Unlock()
	if !news {
		return nil
	}
	s, use, err := parse()
	if err != nil || !use {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.working {
		w.state, w.version, w.known = s, version, true
	}
	return nil
}

// Forget makes the Writer read the state before the next operation.
func (w *Writer[S, O, A]) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known = false; !w.working { // while it is working, an entry is being made of the state
		w.state = *new(S)
	}
}

func (w *Writer[S, O, A]) keep(s S, version eventlog.Version, asOf uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state, w.version, w.known, w.asOf = s, version, true, asOf
}

func (w *Writer[S, O, A]) counted() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// IsRefusal reports whether an error is for good: the same entry would be refused again.
func IsRefusal(err error) bool {
	return !errors.Is(err, eventlog.ErrUnavailable) && !errors.Is(err, eventlog.ErrClosed) && !errors.Is(err, eventlog.ErrUnsure)
}
