package ledger

import "sort"

// versions are those of a writer's events, in the order in which they were noted. Events in a row
// whose versions are in a row share a run, so a writer whose appends succeed has one.
type versions struct{ runs []versionRun }

type versionRun struct {
	first, n uint64 // events
	version  int64  // of the first of them
}

func (v *versions) add(first, n uint64, version int64) {
	if last := len(v.runs) - 1; last >= 0 {
		r := &v.runs[last]
		if first == r.first+r.n && version == r.version+int64(r.n) {
			r.n += n
			return
		}
	}
	v.runs = append(v.runs, versionRun{first, n, version})
}

// of returns an event's version. It relies on the order of events; of events that were noted out of
// order it may not find some, and their order is judged elsewhere.
func (v *versions) of(seq uint64) (version int64, found bool) {
	i := sort.Search(len(v.runs), func(i int) bool { return v.runs[i].first > seq }) - 1
	if i < 0 || seq >= v.runs[i].first+v.runs[i].n {
		return 0, false
	}
	return v.runs[i].version + int64(seq-v.runs[i].first), true
}
