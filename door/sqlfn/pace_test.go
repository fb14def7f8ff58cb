package sqlfn

import (
	"testing"
	"time"
)

// traffic lets so many looks a second find so many rows each, for so long, and returns how often
// the mind was changed.
func (p *pace) traffic(now *time.Time, looks, rows int, long time.Duration) (changes int) {
	for end := now.Add(long); now.Before(end); *now = now.Add(time.Second / time.Duration(looks)) {
		before := p.polling
		if p.note(*now, rows); p.polling != before {
			changes++
		}
	}
	return changes
}

func TestTheInboxIsWatchedCloselyWhileManyPublish(t *testing.T) {
	for _, c := range []struct {
		name        string
		woken       bool
		looks, rows int
		closely     bool
		pause       time.Duration // about
	}{
		{"nobody", true, 4, 0, false, pollFast},
		{"one now and then", true, 10, 1, false, pollFast},
		{"a hundred a second", true, 100, 1, false, pollFast},
		{"a large transaction a second", true, 1, 5000, false, 10 * time.Millisecond},
		{"a thousand a second", true, 500, 2, true, pollFast},
		{"five thousand a second", true, 100, 50, true, 10 * time.Millisecond},
		{"a flood", true, 50, 2000, true, pollFastMax},
		{"by polls, a hundred a second", false, 5, 20, false, pollFast},
		{"by polls, five hundred a second", false, 5, 100, true, pollFast},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := pace{woken: c.woken}
			now := time.Now()
			changes := p.traffic(&now, c.looks, c.rows, 30*time.Second)
			if p.polling != c.closely || changes > 1 {
				t.Errorf("watched closely: %v, after %d changes of mind; want %v", p.polling, changes, c.closely)
			}
			if got := p.pause(); got < c.pause/2 || got > c.pause*2 {
				t.Errorf("a pause of %v, want about %v", got, c.pause)
			}
		})
	}
}

func TestTheMindIsChangedSeldom(t *testing.T) {
	p := pace{woken: true}
	now := time.Now()
	changes := 0
	for range 60 { // busy and calm in turn, each for a second
		changes += p.traffic(&now, 500, 2, time.Second)
		changes += p.traffic(&now, 500, 0, time.Second)
	}
	if changes != 1 {
		t.Errorf("%d changes of mind in two minutes of on and off", changes)
	}
	if p.traffic(&now, 500, 0, time.Minute); p.polling {
		t.Error("a minute of silence, and still watched closely")
	}
}

func TestUnderLoadTheMoverLooksLessOften(t *testing.T) {
	const took = 5 * time.Millisecond
	for _, c := range []struct {
		name string
		pace pace
		more bool
		want time.Duration
	}{
		{"a flood", pace{polling: true, rate: 20_000}, false, pollFastMax - took},
		{"five thousand a second", pace{polling: true, rate: 5_000}, false, 10*time.Millisecond - took},
		{"a step that took longer than the pause", pace{polling: true, rate: 1_000}, false, 0},
		{"more is there", pace{polling: true, rate: 20_000}, true, 0},
		{"few publish", pace{}, false, -1},
	} {
		m := &Mover{pace: c.pace}
		if got := m.pauseAfter(c.more, nil, 0, took); got != c.want {
			t.Errorf("%s: the mover waits %v, want %v", c.name, got, c.want)
		}
	}
}
