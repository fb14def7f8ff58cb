package ledger_test

import (
	"testing"

	"github.com/weir-log/weir/internal/ledger"
)

const run, size = 7, 64

func stamp(writer uint32, seq uint64) ledger.Stamp {
	return ledger.Stamp{Run: run, Writer: writer, Seq: seq}
}

func TestAPayloadSaysWhatItIsUnlessAByteIsAnother(t *testing.T) {
	b := ledger.Payload(stamp(3, 4), size)
	if s, err := ledger.Read(b); err != nil || s != stamp(3, 4) {
		t.Fatalf("it says %+v, %v", s, err)
	}
	for i := range b {
		b[i] ^= 1
		if s, err := ledger.Read(b); err == nil {
			t.Errorf("with byte %d changed it says %+v", i, s)
		}
		b[i] ^= 1
	}
	if _, err := ledger.Read(b[:ledger.StampSize-1]); err == nil {
		t.Error("its beginning counts as a payload")
	}
}

func TestEachViolationIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(l *ledger.Ledger)
		says string
	}{
		"clean": {func(l *ledger.Ledger) {
			l.Acked(1, 0, 2)
			l.Delivered("g", stamp(1, 0))
			l.Delivered("g", stamp(1, 1))
		}, ""},
		"lost":                 {func(l *ledger.Ledger) { l.Acked(1, 0, 3); l.Delivered("g", stamp(1, 1)) }, "2 lost"},
		"unknown may be lost":  {func(l *ledger.Ledger) { l.Unknown(1, 0, 3) }, ""},
		"unknown may be there": {func(l *ledger.Ledger) { l.Unknown(1, 0, 1); l.Delivered("g", stamp(1, 0)) }, ""},
		"again": {func(l *ledger.Ledger) {
			l.Acked(1, 0, 1)
			l.Delivered("g", stamp(1, 0))
			l.Delivered("g", stamp(1, 0))
		}, "1 again"},
		"out of order": {func(l *ledger.Ledger) {
			l.Acked(1, 0, 2)
			l.Delivered("g", stamp(1, 1))
			l.Delivered("g", stamp(1, 0))
		}, "1 out of order"},
		"refused and delivered": {func(l *ledger.Ledger) { l.Failed(1, 0, 1); l.Delivered("g", stamp(1, 0)) }, "1 refused and there"},
		"never sent":            {func(l *ledger.Ledger) { l.Acked(1, 0, 1); l.Delivered("g", stamp(1, 0)); l.Delivered("g", stamp(1, 1)) }, "1 invented"},
		"delivered before it was committed": {func(l *ledger.Ledger) {
			l.Unknown(1, 0, 1)
			l.Delivered("g", stamp(1, 0))
			l.Whole("end")
		}, "1 vanished"},
		"of unknown outcome, and still there in the end": {func(l *ledger.Ledger) {
			l.Unknown(1, 0, 1)
			l.Delivered("g", stamp(1, 0))
			l.Delivered("end", stamp(1, 0))
			l.Whole("end")
		}, ""},
		"of unknown outcome, and late": {func(l *ledger.Ledger) {
			l.Unknown(1, 0, 1)
			l.Acked(1, 1, 1)
			l.Delivered("g", stamp(1, 1))
			l.Delivered("g", stamp(1, 0))
		}, ""},
		"again for a reader of the log, although something happened": {func(l *ledger.Ledger) {
			l.AtLeastOnce()
			l.Once("g")
			l.Acked(1, 0, 1)
			l.Delivered("g", stamp(1, 0))
			l.Delivered("g", stamp(1, 0))
		}, "1 again"},
		"at the versions that were told": {func(l *ledger.Ledger) {
			l.Acked(1, 0, 2)
			l.Told(1, 0, 2, 0)
			l.Failed(1, 2, 3)
			l.Acked(1, 5, 1)
			l.Told(1, 5, 1, 2)
			for i, seq := range []uint64{0, 1, 5} {
				l.Delivered("g", stamp(1, seq))
				l.Found("g", stamp(1, seq), int64(i))
			}
		}, ""},
		"at another version than was told": {func(l *ledger.Ledger) {
			l.Acked(1, 0, 1)
			l.Told(1, 0, 1, 1)
			l.Delivered("g", stamp(1, 0))
			l.Found("g", stamp(1, 0), 0)
		}, "1 gaps in versions"},
		"a version is missing": {func(l *ledger.Ledger) {
			l.Acked(1, 0, 2)
			l.Delivered("g", stamp(1, 0))
			l.Found("g", stamp(1, 0), 0)
			l.Delivered("g", stamp(1, 1))
			l.Found("g", stamp(1, 1), 2)
		}, "1 gaps in versions"},
		"of another run": {func(l *ledger.Ledger) {
			l.Delivered("g", ledger.Stamp{Run: run + 1})
		}, "1 invented"},
		"corrupt": {func(l *ledger.Ledger) {
			l.Unknown(1, 0, 1)
			l.Damaged("g", size)
		}, "1 corrupt"},
		"again after a fault, before it was acknowledged": {func(l *ledger.Ledger) {
			l.AtLeastOnce()
			l.Acked(1, 0, 1)
			l.Delivered("g", stamp(1, 0))
			l.Delivered("g", stamp(1, 0))
		}, ""},
		"again after a fault, although it was acknowledged": {func(l *ledger.Ledger) {
			l.AtLeastOnce()
			l.Acked(1, 0, 1)
			l.Delivered("g", stamp(1, 0))
			l.Done("g", ledger.Stamp{Run: run, Writer: 1})
			l.Delivered("g", stamp(1, 0))
		}, "1 again"},
		"an older one that comes first after a newer one, after a fault": {func(l *ledger.Ledger) {
			l.AtLeastOnce()
			l.Acked(1, 0, 2)
			l.Delivered("g", stamp(1, 1))
			l.Delivered("g", stamp(1, 0))
		}, "1 out of order"},
		"lost in both groups":       {func(l *ledger.Ledger) { l.Group("h"); l.Acked(1, 0, 1) }, "1 lost"},
		"lost in one of two groups": {func(l *ledger.Ledger) { l.Group("h"); l.Acked(1, 0, 1); l.Delivered("h", stamp(1, 0)) }, "1 lost"},
	} {
		l := ledger.New(run, true)
		l.Group("g")
		c.do(l)
		if v := l.Close(); v.String() != c.says || (c.says != "") != (v.First != "") {
			t.Errorf("%s: the verdict is %q (%s), not %q", name, v.String(), v.First, c.says)
		}
	}
}

func TestBehindCountsWhatAGroupHasNotGotOfWhatWasAcknowledged(t *testing.T) {
	l := ledger.New(run, true)
	l.Acked(1, 0, 3)
	l.Group("g")
	l.Delivered("g", stamp(1, 5)) // before its writer knows the outcome
	l.Acked(1, 5, 1)
	l.Delivered("g", stamp(1, 1))
	l.Delivered("g", stamp(1, 1))
	if n := l.Behind("g"); n != 2 || l.Missing() != 2 {
		t.Errorf("behind %d, missing %d, not 2", n, l.Missing())
	}
}
