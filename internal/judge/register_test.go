package judge

import (
	"errors"
	"testing"
)

func TestTheModelFindsAGroupThatDoesNotGoOnWhereItCommitted(t *testing.T) {
	p := Partition{"a", 0}
	commit := func(r *rig, generation int32, offset int64, err error) {
		r.m.Committed([]*Commit{r.m.Commits("g", "m", generation, p, offset)}, err)
	}
	lost := errors.New("the connection was lost")
	for name, c := range map[string]struct {
		do    func(*rig)
		finds []string
	}{
		"it goes on": {do: func(r *rig) {
			commit(r, 1, 5, nil)
			commit(r, 1, 9, nil)
			r.m.Resumes("g", "n", p, r.m.now(), 9)
		}},
		"it begins": {do: func(r *rig) { r.m.Resumes("g", "n", p, r.m.now(), 0) }},
		"it skips": {finds: []string{"G2"}, do: func(r *rig) {
			commit(r, 1, 5, nil)
			r.m.Resumes("g", "n", p, r.m.now(), 6)
		}},
		"it goes back": {finds: []string{"G2"}, do: func(r *rig) {
			commit(r, 1, 5, nil)
			commit(r, 1, 9, nil)
			r.m.Resumes("g", "n", p, r.m.now(), 5)
		}},
		"it goes back to the beginning": {finds: []string{"G2"}, do: func(r *rig) {
			commit(r, 1, 5, nil)
			r.m.Resumes("g", "n", p, r.m.now(), 0)
		}},
		"a commit whose answer was lost": {do: func(r *rig) {
			commit(r, 1, 5, nil)
			commit(r, 1, 9, lost)
			r.m.Resumes("g", "n", p, r.m.now(), 9)
			r.m.Resumes("g", "n", p, r.m.now(), 5)
		}},
		"a commit whose answer was lost lands in a later generation": {finds: []string{"G2"}, do: func(r *rig) {
			commit(r, 1, 5, lost)
			commit(r, 2, 9, nil)
			r.m.Resumes("g", "n", p, r.m.now(), 5)
		}},
		"a commit under way in a group that was deleted, and whose generations began anew": {do: func(r *rig) {
			commit(r, 7, 5, nil)
			r.m.SetsBack("g")
			commit(r, 1, 8, nil)
			r.m.Commits("g", "m", 1, p, 9)
			r.m.Resumes("g", "n", p, r.m.now(), 9)
		}},
		"a commit that came while the member waited for its first record": {do: func(r *rig) {
			commit(r, 1, 5, nil)
			since := r.m.now()
			commit(r, 1, 9, nil)
			r.m.Resumes("g", "n", p, since, 5)
		}},
		"what was committed was trimmed": {do: func(r *rig) {
			commit(r, 1, 5, nil)
			r.m.Trims(r.m.lives["a"][0], 0, 7)
			r.m.Resumes("g", "n", p, r.m.now(), 7)
		}},
		"it was reset": {do: func(r *rig) {
			commit(r, 1, 5, nil)
			r.m.SetsBack("g")
			r.m.Resumes("g", "n", p, r.m.now(), 0)
		}},
		"a process says another offset": {finds: []string{"G3"}, do: func(r *rig) {
			commit(r, 1, 5, nil)
			commit(r, 1, 9, nil)
			r.m.ReadsCommitted("b", "g", p, r.m.now(), 5)
		}},
		"a partition has two owners": {finds: []string{"G5"}, do: func(r *rig) {
			r.m.Owns("g", "m", 3, p)
			r.m.Owns("g", "n", 4, p)
			r.m.Owns("g", "n", 3, p)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.topic("a")
			c.do(r)
			r.broke(c.finds...)
		})
	}
}
