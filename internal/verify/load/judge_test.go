package load_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/verify/load"
)

// told is a history of one protocol, that promises everything, with some entries of writers and
// readers in it. Then everything is read that is there.
func told(entries ...load.Entry) string {
	all := append([]load.Entry{
		{Is: "begin", Run: 7},
		{Is: "protocol", Protocol: "p", Ordered: true, Audited: true},
	}, entries...)
	all = append(all, load.Entry{Is: "settled", Reader: "reader"}, load.Entry{Is: "end"})
	text := ""
	for i, e := range all {
		if e.At == 0 {
			e.At = int64(i)
		}
		if e.Is != "begin" && e.Is != "end" {
			e.Protocol = "p"
		}
		line, err := json.Marshal(e)
		if err != nil {
			panic(err)
		}
		text += string(line) + "\n"
	}
	return text
}

func done(first, n uint64) load.Entry    { return load.Entry{Is: "done", First: first, N: n} }
func refused(first, n uint64) load.Entry { return load.Entry{Is: "refused", First: first, N: n} }
func unknown(first, n uint64) load.Entry { return load.Entry{Is: "unknown", First: first, N: n} }
func got(first, n uint64) load.Entry {
	return load.Entry{Is: "got", Reader: "reader", First: first, N: n}
}
func found(first, n uint64) load.Entry {
	return load.Entry{Is: "got", Reader: "audit-1", First: first, N: n}
}
func acked(first, n uint64) load.Entry {
	return load.Entry{Is: "acked", Reader: "reader", First: first, N: n}
}
func at(e load.Entry, version int64) load.Entry { e.Version = &version; return e }

var (
	stopped = load.Entry{Is: "stopped"}
	whole   = load.Entry{Is: "whole", Reader: "audit-1"}
)

func TestEachLieOfAHistoryIsCaughtByName(t *testing.T) {
	for name, c := range map[string]struct {
		history string
		says    string
		unsure  string // part of why it is not judged
	}{
		"the truth":                        {history: told(done(0, 3), got(0, 3), stopped, found(0, 3), whole)},
		"the truth about all outcomes":     {history: told(done(0, 3), refused(3, 2), unknown(5, 2), done(7, 1), got(0, 3), got(5, 1), got(7, 1), stopped, found(0, 3), found(5, 1), found(7, 1), whole)},
		"a read before its ack was noted":  {history: told(got(0, 3), done(0, 3), stopped, found(0, 3), whole)},
		"a redelivery before it was acked": {history: told(done(0, 3), got(0, 3), got(1, 2), stopped, found(0, 3), whole)},
		"unknown, and later than others":   {history: told(unknown(0, 1), done(1, 1), got(1, 1), got(0, 1), stopped, found(1, 1), found(0, 1), whole)},
		"a lost record":                    {history: told(done(0, 3), got(0, 3), stopped, found(0, 1), found(2, 1), whole), says: "1 lost"},
		"a record that the reader missed":  {history: told(done(0, 3), got(0, 2), stopped, found(0, 3), whole), says: "1 lost"},
		"a doubled record":                 {history: told(done(0, 3), got(0, 3), stopped, found(0, 2), found(1, 2), whole), says: "1 again"},
		"swapped records":                  {history: told(done(0, 3), got(0, 3), stopped, found(0, 1), found(2, 1), found(1, 1), whole), says: "1 out of order"},
		"swapped for the reader":           {history: told(done(0, 3), got(1, 2), got(0, 1), stopped, found(0, 3), whole), says: "1 out of order"},
		"a refused record that is there":   {history: told(done(0, 1), refused(1, 1), got(0, 1), stopped, found(0, 2), whole), says: "1 refused and there"},
		"read before it was committed":     {history: told(unknown(0, 1), got(0, 1), stopped, whole), says: "1 vanished"},
		"a record that nobody wrote":       {history: told(done(0, 1), got(0, 1), stopped, found(0, 2), whole), says: "1 invented"},
		"a record of another run":          {history: told(load.Entry{Is: "got", Reader: "reader", N: 1, Other: 8}, stopped, whole), says: "1 invented"},
		"damaged content":                  {history: told(load.Entry{Is: "damaged", Reader: "reader", N: 100}, stopped, whole), says: "1 corrupt"},
		"acknowledged and delivered again": {history: told(done(0, 2), got(0, 2), acked(0, 2), got(1, 1), stopped, found(0, 2), whole), says: "1 again"},
		"another version than was told":    {history: told(at(done(0, 2), 0), at(done(2, 1), 3), at(got(0, 3), 0), stopped, at(found(0, 3), 0), whole), says: "2 gaps in versions"}, // for both readers
		"a gap in versions":                {history: told(done(0, 3), got(0, 3), stopped, at(found(0, 1), 0), at(found(1, 2), 2), whole), says: "1 gaps in versions"},
		"one event at two versions":        {history: told(at(done(0, 1), 0), at(got(0, 1), 0), at(got(0, 1), 1), stopped, found(0, 1), whole), says: "1 gaps in versions"},
		"no audit":                         {history: told(done(0, 3), stopped), unsure: "not everything was read after the last write"},
		"an audit that was broken off":     {history: told(done(0, 3), got(0, 3), stopped, found(0, 1)), unsure: "not everything was read after the last write"},
		"an audit before the last write":   {history: told(done(0, 3), got(0, 3), found(0, 3), whole), unsure: "not everything was read after the last write"},
	} {
		report, err := load.Judge(strings.NewReader(c.history))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		p := report.Protocols[0]
		if p.String() != c.says || !strings.Contains(report.Violations(), c.says) || (c.says == "") != report.Clean() {
			t.Errorf("%s: the verdict is %q, not %q: %s", name, p, c.says, report.Violations())
		}
		if !strings.Contains(report.Unjudged, c.unsure) || c.unsure == "" && report.Unjudged != "" {
			t.Errorf("%s: unjudged %q, not %q", name, report.Unjudged, c.unsure)
		}
	}
}

func TestAHistoryWhoseWriterWasKilledIsJudgedAsFarAsItGoes(t *testing.T) {
	text := told(done(0, 3), got(0, 3), stopped, found(0, 3), whole)
	end := strings.LastIndex(text[:len(text)-1], "\n") + 1
	for _, cut := range []int{end, end + 5} { // without its last line, and with a part of it
		report, err := load.Judge(strings.NewReader(text[:cut]))
		if err != nil || !report.Clean() || !strings.Contains(report.Unjudged, "no end") {
			t.Errorf("cut at %d: %+v, %v", cut, report, err)
		}
	}
	text = told(load.Entry{Is: "sent", First: 3, N: 5}, got(3, 5))
	report, err := load.Judge(strings.NewReader(text))
	if err != nil || !report.Clean() || report.Protocols[0].Unknown != 5 {
		t.Errorf("what was sent without an outcome may be there: %+v, %v", report, err)
	}
	text = told(done(0, 3), got(0, 3), got(7, 1), stopped)
	report, err = load.Judge(strings.NewReader(text))
	if err != nil || report.Violations() == "" || report.Unjudged == "" || report.Protocols[0].Lost > 0 {
		t.Errorf("what is certain is told, and what is not is not: %+v, %v", report, err)
	}
}

func TestWhatIsNoHistoryIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":               "",
		"text":                  "hello\n",
		"no beginning":          `{"at":1,"is":"done","protocol":"p","n":3}` + "\n",
		"an unknown protocol":   `{"is":"begin","run":7}` + "\n" + `{"is":"done","protocol":"q","n":3}` + "\n",
		"an unknown entry":      told(load.Entry{Is: "dreamt"}),
		"more events than fit":  told(done(1<<40, 1)),
		"more events in a call": told(done(0, 1<<40)),
		"two runs":              told() + told(),
	} {
		if report, err := load.Judge(strings.NewReader(text)); err == nil {
			t.Errorf("%s is judged: %+v", name, report)
		}
	}
}

func TestStallsAreMeasuredWhileThereWasSomethingToDo(t *testing.T) {
	when := func(at int64, e load.Entry) load.Entry { e.At = at; return e }
	report, err := load.Judge(strings.NewReader(told(
		when(1000, done(0, 1)), when(1100, got(0, 1)), // the reader has all
		when(9000, done(1, 1)), when(9500, got(1, 1)), // 8 s without an ack, and the reader was fast
		when(10000, done(2, 1)), when(13000, done(3, 1)), when(14000, got(2, 2)),
		when(14500, stopped), when(14600, found(0, 4)), when(14700, whole),
	)))
	if err != nil {
		t.Fatal(err)
	}
	if p := report.Protocols[0]; p.WriteStall != 8 || p.ReadStall != 4 {
		t.Errorf("writes stalled for %v s, reads for %v s; not 8 and 4", p.WriteStall, p.ReadStall)
	}
}
