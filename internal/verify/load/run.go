package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/weir-log/weir/internal/chance"
	"github.com/weir-log/weir/internal/ledger"
)

// Options of a Run. The zero value of a field means its default.
type Options struct {
	Run      uint32        // the number that its events carry; required
	For      time.Duration // how long it writes; default 10 min
	Rate     float64       // events a second, of all protocols together; default RateDefault
	Writers  int           // of each protocol; default 4
	Call     int           // events of a call; default: as many as make some 200 calls a second, at least 5
	Size     int           // bytes of an event; default 100
	Timeout  time.Duration // of a call; default 30 s
	Patience time.Duration // how long nothing may come in the end before what is missing counts as lost, and how long it tries to remove what it made; default 2 min
	Harm     Harm
	Logged   *Logged        // goes into the history; nil: nothing does
	Say      func(string)   // is told what happens, a line each
	Progress func(Progress) // is told every second how far the run has come
}

// RateDefault is a rate at which ten minutes leave some 100 MiB in a store.
const RateDefault = 1000

// callMin and callMax bound the default of Options.Call.
const callMin, callMax = 5, 500

// Progress says how far a run has come.
type Progress struct {
	Passed, Of time.Duration
	Written    int64    // acknowledged events
	Behind     int64    // of them, not read yet
	Unknown    int64    // of unknown outcome
	Refused    int64    // certainly not written
	Troubles   []string // whose calls fail now
}

func (o Options) filled() Options {
	o.For, o.Timeout, o.Patience = cmp.Or(o.For, 10*time.Minute), cmp.Or(o.Timeout, 30*time.Second), cmp.Or(o.Patience, 2*time.Minute)
	o.Rate = cmp.Or(o.Rate, RateDefault)
	o.Writers, o.Size = cmp.Or(o.Writers, 4), cmp.Or(o.Size, 100)
	o.Call = cmp.Or(o.Call, min(max(callMin, int(o.Rate/200)), callMax))
	if o.Say == nil {
		o.Say = func(string) {}
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	return o
}

// Run writes through protocols and reads from them until Options.For has passed or ctx ends, reads
// all that is there, and removes it. The report is that of the history in the file. remains
// says what could not be removed.
func Run(ctx context.Context, file *os.File, protocols []Protocol, o Options) (_ Report, remains []error, _ error) {
	o = o.filled()
	r := &run{Options: o, history: NewHistory(file), limit: &limit{every: time.Duration(float64(time.Second) / o.Rate)}}
	if err := r.history.Keep(Entry{Is: isBegin, Run: o.Run, Text: fmt.Sprintf("%v at %v events a second, harm seed %d", o.For, o.Rate, o.Harm.Seed)}); err != nil {
		return Report{}, nil, err
	}
	if o.Logged != nil {
		o.Logged.to.Store(r.history)
	}
	for _, p := range protocols {
		r.lines = append(r.lines, newLine(r, p))
	}
	failed := r.all(ctx)
	remains = r.remove(ctx)
	if err := r.history.Keep(); err != nil {
		return Report{}, remains, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return Report{}, remains, errors.Join(failed, err)
	}
	report, err := Judge(file)
	return report, remains, errors.Join(failed, err)
}

// run is a Run under way.
type run struct {
	Options
	history *History
	limit   *limit
	lines   []*line
}

// line is a protocol that is being used.
type line struct {
	*run
	Traits
	protocol      Protocol
	writes, reads *trouble
	created       bool
}

func newLine(r *run, p Protocol) *line {
	l := &line{run: r, Traits: p.Traits(), protocol: p}
	l.writes = &trouble{protocol: l.Name, what: "writes", history: r.history, say: r.Say}
	l.reads = &trouble{protocol: l.Name, what: "reads", history: r.history, say: r.Say}
	return l
}

// all is the run but for its end.
func (r *run) all(ctx context.Context) error {
	for _, l := range r.lines {
		l.created = true // in part, if there is an error
		if err := l.protocol.Create(ctx); err != nil {
			return fmt.Errorf("%s: create %s: %w", l.Name, l.Where, err)
		}
		if err := r.history.Keep(Entry{Is: isProtocol, Protocol: l.Name, Ordered: l.Ordered, Audited: l.Audited, Text: l.Where}); err != nil {
			return err
		}
	}
	began := time.Now()
	// An end of ctx ends the writing alone: what was written is read and judged.
	after, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	writing, stop := context.WithTimeout(ctx, r.For)
	defer stop()
	reading, stopReading := context.WithCancel(after)
	defer stopReading()
	var writers, readers, others sync.WaitGroup
	defer others.Wait()
	defer readers.Wait()
	defer cancel(nil)
	for _, l := range r.lines {
		readers.Go(func() { l.read(reading, cancel) })
		writers.Go(func() { l.write(writing, cancel) })
	}
	others.Go(func() { r.tell(after, began) })
	if r.Harm.Command != "" {
		writers.Go(func() { r.harm(writing) })
	}
	writers.Wait()
	if err := context.Cause(after); err != nil {
		return err
	}
	if err := r.each(func(l *line) error { return l.settle(after) }); err != nil {
		return err
	}
	stopReading() // audits must find all that the readers have read until now
	readers.Wait()
	if err := r.each(func(l *line) error { return l.audit(after) }); err != nil {
		return err
	}
	return r.history.Keep(Entry{Is: isEnd})
}

// each does something with all protocols concurrently.
func (r *run) each(do func(*line) error) error {
	errs := make([]error, len(r.lines))
	var all sync.WaitGroup
	for i, l := range r.lines {
		all.Go(func() { errs[i] = do(l) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// pause waits a little after what failed, so that a storage that is away is not asked all the time.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(100*time.Millisecond + chance.N(200*time.Millisecond)):
	}
}

// write lets all writers of a protocol write until ctx ends. broken is told that the history cannot
// be kept.
func (l *line) write(ctx context.Context, broken context.CancelCauseFunc) {
	var writers sync.WaitGroup
	for w := range l.Writers {
		writers.Go(func() {
			for seq := uint64(0); l.limit.wait(ctx, l.Call); seq += uint64(l.Call) {
				if err := l.call(ctx, w, seq); err != nil {
					broken(err)
					return
				}
			}
		})
	}
	writers.Wait()
	if err := l.history.Keep(Entry{Is: isStopped, Protocol: l.Name}); err != nil {
		broken(err)
	}
}

// call makes one call, and keeps its outcome. It is made to its end, also if the run ends
// meanwhile.
func (l *line) call(ctx context.Context, w int, first uint64) error {
	events := make([][]byte, l.Call)
	for i := range events {
		events[i] = ledger.Payload(ledger.Stamp{Run: l.Run, Writer: uint32(w), Seq: first + uint64(i)}, l.Size)
	}
	e := Entry{Is: isSent, Protocol: l.Name, Writer: uint32(w), First: first, N: uint64(l.Call)}
	if err := l.history.Note(e); err != nil { // before a reader can get it
		return err
	}
	calling, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.Timeout)
	defer cancel()
	wrote, err := l.protocol.Write(calling, w, events)
	e.Is = isDone
	switch {
	case err == nil && l.Versioned:
		e.Version = &wrote.Version
	case wasRefused(err):
		e.Is = isRefused
	case err != nil:
		e.Is = isUnknown
	}
	if kept := l.history.Keep(e); kept != nil {
		return kept
	}
	if err == nil {
		l.writes.succeeded(w)
		return nil
	}
	l.writes.failed(w, err)
	pause(ctx)
	return nil
}

// read reads until ctx ends, and again after each error.
func (l *line) read(ctx context.Context, broken context.CancelCauseFunc) {
	to := &Reader{history: l.history, run: l.Run, protocol: l.Name, name: live, came: func() { l.reads.succeeded(0) }}
	for ctx.Err() == nil {
		err := l.protocol.Read(ctx, to)
		if kept := to.write(to.history.Note); kept != nil {
			broken(kept)
			return
		}
		if err != nil && ctx.Err() == nil {
			l.reads.failed(0, err)
			pause(ctx)
		}
	}
}

// settle waits until the reader has all that was acknowledged, or nothing more came for some time.
func (l *line) settle(ctx context.Context) error {
	for last, since := int64(-1), time.Now(); ; {
		var behind int64
		l.history.now(func(j *judge) { behind = j.book(l.Name).ledger.Behind(live) })
		switch {
		case behind == 0:
		case behind != last:
			last, since = behind, time.Now()
			fallthrough
		case time.Since(since) < l.Patience:
			pause(ctx)
			if err := context.Cause(ctx); err != nil {
				return err
			}
			continue
		case l.reads.now():
			return nil // nobody can say what would have come: the report says that it is not judged
		}
		return l.history.Keep(Entry{Is: isSettled, Protocol: l.Name, Reader: live})
	}
}

// audit reads all that is there. It tries until that works, or nothing did for some time.
func (l *line) audit(ctx context.Context) error {
	if !l.Audited {
		return nil
	}
	began := time.Now()
	for try := 1; ; try++ {
		to := &Reader{history: l.history, run: l.Run, protocol: l.Name, name: fmt.Sprintf("audit-%d", try)}
		err := l.protocol.Audit(ctx, to)
		if kept := to.Flush(); kept != nil {
			return kept
		}
		if err == nil {
			l.reads.succeeded(auditor)
			return l.history.Keep(Entry{Is: isWhole, Protocol: l.Name, Reader: to.name})
		}
		l.reads.failed(auditor, err)
		if time.Since(began) > l.Patience {
			return nil // the report says that it is not judged
		}
		pause(ctx)
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
}

// auditor is the number of the caller that audits, among those that read a protocol; the reader has
// 0.
const auditor = 1

// remove deletes what was created, also if ctx has ended.
func (r *run) remove(ctx context.Context) (remains []error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.Patience)
	defer cancel()
	for _, l := range r.lines {
		var err error
		for l.created {
			if err = l.protocol.Remove(ctx); err == nil || ctx.Err() != nil {
				break
			}
			pause(ctx)
		}
		if err != nil {
			remains = append(remains, fmt.Errorf("%s remains: %w", l.Where, err))
		}
	}
	return remains
}

// tell says how far the run has come, every second.
func (r *run) tell(ctx context.Context, began time.Time) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p := Progress{Passed: time.Since(began), Of: r.For}
		r.history.now(func(j *judge) {
			for _, b := range j.books {
				noted := b.ledger.Noted()
				p.Written, p.Unknown, p.Refused = p.Written+noted.Acked, p.Unknown+noted.Unknown, p.Refused+noted.Failed
				p.Behind += b.ledger.Behind(live)
			}
		})
		for _, l := range r.lines {
			for _, t := range []*trouble{l.writes, l.reads} {
				if t.now() {
					p.Troubles = append(p.Troubles, t.protocol+" "+t.what)
				}
			}
		}
		r.Progress(p)
	}
}

func (p Progress) String() string {
	text := fmt.Sprintf("%s of %s: %d written, %d of them not read yet, %d of unknown outcome, %d refused", p.Passed.Round(time.Second), p.Of, p.Written, p.Behind, p.Unknown, p.Refused)
	if len(p.Troubles) > 0 {
		text += "; these fail now: " + strings.Join(p.Troubles, ", ")
	}
	return text
}

// limit lets events pass at a rate.
type limit struct {
	every time.Duration // between two events
	mu    sync.Mutex    // guards due
	due   time.Time     // of the next event
}

// wait waits until n events are due. It reports false if ctx ends before. After a time in which
// nobody came, those who come do not make up for it.
func (l *limit) wait(ctx context.Context, n int) bool {
	l.mu.Lock()
	now := time.Now()
	if l.due.Before(now) {
		l.due = now
	}
	mine := l.due
	l.due = l.due.Add(time.Duration(n) * l.every)
	l.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	timer := time.NewTimer(time.Until(mine))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
