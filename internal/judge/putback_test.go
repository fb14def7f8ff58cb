package judge

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPutBacksAreJudged(t *testing.T) {
	for name, c := range map[string]struct {
		shown [2][]string // by two processes
		want  []string    // the invariants that are broken
	}{
		"all is there":                      {[2][]string{{"early", "late"}, {"early", "late"}}, nil},
		"what a put-back took may be there": {[2][]string{{"early", "late", "lost"}, {"early", "late", "lost"}}, nil},
		"an early one is lost":              {[2][]string{{"late"}, {"late"}}, []string{"L1", "L1", "L3", "L3"}},
		"a late one is lost in a process":   {[2][]string{{"early", "late"}, {"early"}}, []string{"D3", "L1"}},
		"two chains":                        {[2][]string{{"early", "late"}, {"early", "other"}}, []string{"D3", "L1", "L1", "L3"}},
		"a refused one is there":            {[2][]string{{"early", "late", "refused"}, {"early", "late", "refused"}}, []string{"L2", "L2"}},
		"one is there twice":                {[2][]string{{"early", "late", "late"}, {"early", "late", "late"}}, []string{"L3", "L3"}},
	} {
		t.Run(name, func(t *testing.T) {
			file, err := os.Create(filepath.Join(t.TempDir(), "history"))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			now := Moment(0)
			m := NewModel(func() Moment { return now }, NewHistory(file, func() Moment { return now }))
			values := map[string]string{}
			publish := func(name string, o Outcome, at int64) {
				now++
				r := m.Invoke(name, "t", 1, false)
				now++
				values[name] = r[0].Value
				m.End(r, o, []Place{{0, at}})
			}
			publish("early", Done, 0)
			now++
			back := PutBack{Copied: now}
			publish("lost", Done, 1)
			now++
			back.Back = now
			publish("late", Done, 1)
			if name == "two chains" {
				publish("other", Done, 1)
			}
			publish("refused", Refused, 5)
			views := map[string][]string{}
			for i, shown := range c.shown {
				for _, name := range shown {
					who := []string{"a", "b"}[i]
					views[who] = append(views[who], values[name])
				}
			}
			m.JudgePutBacks("t", []PutBack{back}, views)
			var found []string
			for _, v := range m.Found() {
				found = append(found, v.Invariant)
			}
			want := map[string]int{}
			for _, id := range c.want {
				want[id]++
			}
			for _, id := range found {
				want[id]--
			}
			for id, n := range want {
				if n != 0 {
					t.Errorf("broken are %v, want %v: %s", found, c.want, id)
				}
			}
		})
	}
}
