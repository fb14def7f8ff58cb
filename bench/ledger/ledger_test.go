package ledger_test

import (
	"testing"

	"github.com/weir-log/weir/bench/ledger"
	"github.com/weir-log/weir/bench/load"
)

const run, size = 7, 64

func payload(writer uint32, seq uint64) []byte {
	return load.Payload(load.Stamp{Run: run, Writer: writer, Seq: seq}, size)
}

func TestEachViolationIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(l *ledger.Ledger)
		says string
	}{
		"clean": {func(l *ledger.Ledger) {
			l.Acked(1, 0, 2)
			l.Delivered("g", payload(1, 0))
			l.Delivered("g", payload(1, 1))
		}, ""},
		"lost":                 {func(l *ledger.Ledger) { l.Acked(1, 0, 3); l.Delivered("g", payload(1, 1)) }, "2 lost"},
		"unknown may be lost":  {func(l *ledger.Ledger) { l.Unknown(1, 0, 3) }, ""},
		"unknown may be there": {func(l *ledger.Ledger) { l.Unknown(1, 0, 1); l.Delivered("g", payload(1, 0)) }, ""},
		"again": {func(l *ledger.Ledger) {
			l.Acked(1, 0, 1)
			l.Delivered("g", payload(1, 0))
			l.Delivered("g", payload(1, 0))
		}, "1 again"},
		"out of order": {func(l *ledger.Ledger) {
			l.Acked(1, 0, 2)
			l.Delivered("g", payload(1, 1))
			l.Delivered("g", payload(1, 0))
		}, "1 out of order"},
		"refused and delivered": {func(l *ledger.Ledger) { l.Failed(1); l.Delivered("g", payload(1, 0)) }, "1 invented"},
		"of another run": {func(l *ledger.Ledger) {
			l.Delivered("g", load.Payload(load.Stamp{Run: run + 1}, size))
		}, "1 invented"},
		"corrupt": {func(l *ledger.Ledger) {
			b := payload(1, 0)
			b[size-1] ^= 1
			l.Unknown(1, 0, 1)
			l.Delivered("g", b)
		}, "1 corrupt"},
		"again after a fault, before it was acknowledged": {func(l *ledger.Ledger) {
			l.AtLeastOnce()
			l.Acked(1, 0, 1)
			l.Delivered("g", payload(1, 0))
			l.Delivered("g", payload(1, 0))
		}, ""},
		"again after a fault, although it was acknowledged": {func(l *ledger.Ledger) {
			l.AtLeastOnce()
			l.Acked(1, 0, 1)
			l.Delivered("g", payload(1, 0))
			l.Done("g", load.Stamp{Run: run, Writer: 1})
			l.Delivered("g", payload(1, 0))
		}, "1 again"},
		"an older one that comes first after a newer one, after a fault": {func(l *ledger.Ledger) {
			l.AtLeastOnce()
			l.Acked(1, 0, 2)
			l.Delivered("g", payload(1, 1))
			l.Delivered("g", payload(1, 0))
		}, "1 out of order"},
		"lost in one of two groups": {func(l *ledger.Ledger) { l.Group("h"); l.Acked(1, 0, 1); l.Delivered("h", payload(1, 0)) }, "1 lost"},
	} {
		l := ledger.New(run, true)
		l.Group("g")
		c.do(l)
		if v := l.Close(); v.String() != c.says || (c.says != "") != (v.First != "") && c.says != "1 invented" {
			t.Errorf("%s: the verdict is %q (%s), not %q", name, v.String(), v.First, c.says)
		}
	}
}
