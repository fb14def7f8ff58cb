package load_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/verify/load"
)

// liar is a protocol in memory that keeps its promises, but for one event in the middle.
type liar struct {
	lie    string
	remove error

	mu    sync.Mutex // guards what follows
	lied  bool
	calls int
	log   [][]byte
	first []int64 // of each event of log: its version
	next  map[int]int64
	more  chan struct{} // closed when log grew
}

func (p *liar) Traits() load.Traits {
	return load.Traits{Name: "liar", Where: "its memory", Ordered: true, Versioned: true, Audited: true}
}

func (p *liar) Create(context.Context) error {
	p.next, p.more = map[int]int64{}, make(chan struct{})
	return nil
}

func (p *liar) Write(_ context.Context, writer int, events [][]byte) (load.Wrote, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	now := ""
	if p.calls == 30 {
		now, p.lied = p.lie, true
	}
	told := p.next[writer]
	put := func(events ...[]byte) {
		for _, e := range events {
			p.log, p.first = append(p.log, e), append(p.first, p.next[writer])
			p.next[writer]++
		}
	}
	var err error
	switch now {
	default:
		put(events...)
	case "drops":
		p.next[writer] += int64(len(events))
	case "doubles":
		put(events...)
		put(events[0])
	case "swaps":
		put(events[1], events[0])
		put(events[2:]...)
	case "refuses and writes":
		put(events...)
		err = load.Refused(errors.New("no"))
	case "damages":
		damaged := slices.Clone(events[0])
		damaged[len(damaged)-1] ^= 1
		put(damaged)
		put(events[1:]...)
	case "tells another version":
		put(events...)
		told++
	case "leaves a gap in versions":
		p.next[writer]++
		told++
		put(events...)
	case "does not know, and writes":
		put(events...)
		err = errors.New("lost the answer")
	case "does not know, and does not write":
		err = errors.New("lost the answer")
	case "refuses":
		err = load.Refused(errors.New("no"))
	}
	close(p.more)
	p.more = make(chan struct{})
	return load.Wrote{Version: told}, err
}

func (p *liar) Read(ctx context.Context, to *load.Reader) error {
	for at := 0; ; {
		p.mu.Lock()
		events, versions, more := p.log[at:], p.first[at:], p.more
		p.mu.Unlock()
		for i, e := range events {
			if err := to.GotAt(e, versions[i]); err != nil {
				return err
			}
		}
		if err := to.Flush(); err != nil {
			return err
		}
		at += len(events)
		select {
		case <-ctx.Done():
			return nil
		case <-more:
		}
	}
}

func (p *liar) Audit(ctx context.Context, to *load.Reader) error {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	return p.Read(ended, to)
}

func (p *liar) Remove(context.Context) error { return p.remove }

// What a protocol does wrong is found by its name at the end of a run, and nothing is found where
// an outcome was unknown or refused as it should be.
func TestARunNamesWhatAProtocolDoesWrong(t *testing.T) {
	for lie, says := range map[string]string{
		"":                          "",
		"does not know, and writes": "", "does not know, and does not write": "", "refuses": "",
		"drops": "lost", "doubles": "again", "swaps": "out of order", "refuses and writes": "refused and there", "damages": "corrupt",
		"tells another version": "gaps in versions", "leaves a gap in versions": "gaps in versions",
	} {
		t.Run(lie, func(t *testing.T) {
			t.Parallel()
			p := &liar{lie: lie}
			ctx, stop := context.WithCancel(t.Context())
			var said []string
			report, remains, err := load.Run(ctx, ledgerFile(t), []load.Protocol{p}, load.Options{
				Run: 7, For: time.Hour, Rate: 2000, Patience: 2 * time.Second,
				Say: func(line string) { said = append(said, line) },
				Progress: func(load.Progress) {
					p.mu.Lock()
					defer p.mu.Unlock()
					if p.calls > 40 {
						stop()
					}
				},
			})
			if err != nil || len(remains) > 0 || report.Unjudged != "" || !p.lied {
				t.Fatal(err, remains, report.Unjudged, p.lied)
			}
			if (says == "") != report.Clean() || !strings.Contains(report.Violations(), says) {
				t.Errorf("it says %q, not %q", report.Violations(), says)
			}
			if failed := strings.HasPrefix(lie, "does not know") || strings.HasPrefix(lie, "refuses"); failed {
				text := strings.Join(said, "\n")
				if !strings.Contains(text, "liar: writes fail: ") || !strings.Contains(text, "liar: writes succeed again after ") || len(report.Protocols[0].Troubles) != 1 {
					t.Errorf("it said %q, and reports %+v", text, report.Protocols[0].Troubles)
				}
			}
		})
	}
}

func TestARunSaysWhatItCouldNotRemoveAndWhatItCouldNotKeep(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	options := load.Options{Run: 7, Patience: 10 * time.Millisecond}
	report, remains, err := load.Run(ctx, ledgerFile(t), []load.Protocol{&liar{remove: errors.New("it is locked")}}, options)
	if err != nil || !report.Clean() || len(remains) != 1 || fmt.Sprint(remains[0]) != "its memory remains: it is locked" {
		t.Errorf("%v, %v, %v", report, remains, err)
	}
	file := ledgerFile(t)
	file.Close()
	if _, _, err := load.Run(t.Context(), file, []load.Protocol{&liar{}}, options); err == nil {
		t.Error("a run without a history succeeds")
	}
}
