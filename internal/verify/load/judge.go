package load

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir/internal/ledger"
)

// Report is what a history proves.
type Report struct {
	Run       uint32   `json:"run"`
	Seconds   float64  `json:"seconds"`
	Protocols []Result `json:"protocols"`
	Harms     int      `json:"harms"` // commands that were run
	// Unjudged says why it is not known whether anything was lost; "": it is.
	Unjudged string `json:"unjudged,omitempty"`
}

// Result is what became of one protocol's events.
type Result struct {
	Protocol string `json:"protocol"`
	ledger.Verdict
	WriteStall float64   `json:"longest_stall_of_writes"` // seconds without an acknowledgement
	ReadStall  float64   `json:"longest_stall_of_reads"`  // seconds without an event, while one came later that could have come
	Troubles   []Trouble `json:"troubles,omitempty"`      // at most troublesMost
}

// Trouble is a time during which calls failed.
type Trouble struct {
	What   string  `json:"what"` // writes or reads
	From   float64 `json:"from"` // seconds since the run began
	To     float64 `json:"to"`   // 0: they failed to the end
	Reason string  `json:"reason"`
}

// troublesMost bounds the troubles of a result.
const troublesMost = 1000

// Clean reports whether no promise was broken, as far as it is known.
func (r Report) Clean() bool {
	return !slices.ContainsFunc(r.Protocols, func(p Result) bool { return !p.Clean() })
}

// Violations names the broken promises of each protocol; "" if there is none.
func (r Report) Violations() string {
	var all []string
	for _, p := range r.Protocols {
		if !p.Clean() {
			all = append(all, fmt.Sprintf("%s: %s, such as: %s", p.Protocol, p.Verdict, p.First))
		}
	}
	return strings.Join(all, "; ")
}

// Judge reads a history, and says what it proves. It returns an error if it is none.
func Judge(history io.Reader) (Report, error) {
	j := newJudge()
	if err := entries(history, j.add); err != nil {
		return Report{}, err
	}
	if j.run == 0 {
		return Report{}, fmt.Errorf("the history has no beginning: is it a file of weir verify --load?")
	}
	return j.report(), nil
}

// judge has heard a history up to some entry.
type judge struct {
	run   uint32
	last  int64
	harms int
	ended bool
	books []*book // in the order in which protocols came
}

// book is about one protocol.
type book struct {
	name           string
	run            uint32
	audited        bool
	ledger         *ledger.Ledger
	stopped        bool
	settled, whole bool
	written        int64 // when an event was acknowledged last, or the writing began
	writeStall     int64
	since          int64 // since when the reader waits for what there is
	readStall      int64
	troubles       []Trouble
	sent           map[uint32]Entry // calls of writers that have no outcome yet
}

func newJudge() *judge { return &judge{} }

func (j *judge) book(protocol string) *book {
	for _, b := range j.books {
		if b.name == protocol {
			return b
		}
	}
	return nil
}

// eventsMost bounds the events of a writer: a judge keeps some bits for each.
const eventsMost = 1 << 32

// live is the reader that reads while events are written.
const live = "reader"

func (j *judge) add(e Entry) error {
	j.last = max(j.last, e.At)
	switch e.Is {
	case isBegin:
		if j.run != 0 || e.Run == 0 {
			return fmt.Errorf("it is not one run's: it begins run %d", e.Run)
		}
		j.run = e.Run
		return nil
	case isHarm:
		if e.Code == nil {
			j.harms++
		}
		return nil
	case isLog:
		return nil
	case isEnd:
		j.ended = true
		return nil
	}
	if j.run == 0 {
		return fmt.Errorf("the history has no beginning")
	}
	if e.Is == isProtocol {
		b := &book{name: e.Protocol, run: j.run, audited: e.Audited, ledger: ledger.New(j.run, e.Ordered), written: e.At, sent: map[uint32]Entry{}}
		b.ledger.AtLeastOnce()
		j.books = append(j.books, b)
		return nil
	}
	if e.N > eventsMost || e.First > eventsMost {
		return fmt.Errorf("events %d and %d more of writer %d: no run has so many", e.First, e.N, e.Writer)
	}
	b := j.book(e.Protocol)
	if b == nil {
		return fmt.Errorf("an entry of the protocol %q, which was not introduced", e.Protocol)
	}
	return b.add(e)
}

func (b *book) add(e Entry) error {
	l := b.ledger
	switch e.Is {
	case isDone, isRefused, isUnknown:
		delete(b.sent, e.Writer)
	}
	switch e.Is {
	case isSent:
		b.sent[e.Writer] = e
	case isDone:
		if l.Behind(live) == 0 {
			b.since = e.At
		}
		l.Acked(e.Writer, e.First, int(e.N))
		if e.Version != nil {
			l.Told(e.Writer, e.First, int(e.N), *e.Version)
		}
		b.writeStall, b.written = max(b.writeStall, e.At-b.written), e.At
	case isRefused:
		l.Failed(e.Writer, e.First, int(e.N))
	case isUnknown:
		l.Unknown(e.Writer, e.First, int(e.N))
	case isGot:
		b.got(e)
	case isDamaged:
		l.Damaged(e.Reader, int(e.N))
	case isAcked:
		for i := range e.N {
			l.Done(e.Reader, ledger.Stamp{Writer: e.Writer, Seq: e.First + i})
		}
	case isTrouble:
		if len(b.troubles) < troublesMost {
			b.troubles = append(b.troubles, Trouble{What: e.Reader, From: seconds(e.At), Reason: e.Text})
		}
	case isRecovered:
		for i := len(b.troubles) - 1; i >= 0; i-- {
			if t := &b.troubles[i]; t.What == e.Reader && t.To == 0 {
				t.To = seconds(e.At)
				break
			}
		}
	case isStopped:
		b.stopped = true
		b.writeStall = max(b.writeStall, e.At-b.written)
	case isSettled:
		b.settled = e.Reader == live
	case isWhole:
		l.Once(e.Reader)
		if b.stopped { // before that, events may still have come after the audit
			l.Whole(e.Reader)
			b.whole = true
		}
	default:
		return fmt.Errorf("an entry of an unknown kind %q: a newer weir made it?", e.Is)
	}
	return nil
}

func (b *book) got(e Entry) {
	if e.Reader != live {
		b.ledger.Once(e.Reader)
	} else {
		if b.ledger.Behind(live) > 0 {
			b.readStall = max(b.readStall, e.At-b.since)
		}
		b.since = e.At
	}
	run := b.run
	if e.Other != 0 {
		run = e.Other
	}
	for i := range e.N {
		s := ledger.Stamp{Run: run, Writer: e.Writer, Seq: e.First + i}
		b.ledger.Delivered(e.Reader, s)
		if e.Version != nil {
			b.ledger.Found(e.Reader, s, *e.Version+int64(i))
		}
	}
}

func seconds(ms int64) float64 { return (time.Duration(ms) * time.Millisecond).Seconds() }

// report is what the history proves so far.
func (j *judge) report() Report {
	r := Report{Run: j.run, Seconds: seconds(j.last), Harms: j.harms, Protocols: []Result{}}
	var open []string
	for _, b := range j.books {
		for _, e := range b.sent { // the run was killed before it knew
			b.ledger.Unknown(e.Writer, e.First, int(e.N))
		}
		if b.judged() {
			b.ledger.Group(live)
		} else {
			open = append(open, b.name)
		}
		v := b.ledger.Close()
		r.Protocols = append(r.Protocols, Result{Protocol: b.name, Verdict: v, WriteStall: seconds(b.writeStall), ReadStall: seconds(b.readStall), Troubles: b.troubles})
	}
	switch {
	case len(open) > 0:
		r.Unjudged = "not everything was read after the last write, so it is not known whether anything was lost: " + strings.Join(open, ", ")
	case len(j.books) == 0, !j.ended:
		r.Unjudged = "the history has no end: the run was killed, or still goes on"
	}
	return r
}

// judged reports whether all was read that is needed to know what was lost.
func (b *book) judged() bool { return b.stopped && b.settled && (b.whole || !b.audited) }
