package judge

import (
	"fmt"
	"maps"
	"slices"
)

// PutBack is what was done to a store: a copy was taken, and put back later, under processes that
// went on. What was acknowledged in between is lost, or may be.
//
//	Copied ......................... Back
//	ended before: kept | may be lost | called later: kept
type PutBack struct{ Copied, Back Moment }

// JudgePutBacks judges what is in partition 0 of a topic whose store was put back, as each process
// shows it: all values, in the order of their offsets. Nothing is written meanwhile. The topic is
// none that Begins was told of.
//
// A record that was acknowledged before a copy was taken, or to a call that began after the last
// one was put back, is there (L1), where its acknowledgement said, and no other has its place (L3);
// what is there was published (L2); and all processes show the same (D3).
func (m *Model) JudgePutBacks(topic string, backs []PutBack, views map[string][]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := map[Place]*Record{}
	names := slices.Sorted(maps.Keys(views))
	records := slices.Collect(maps.Values(m.records))
	slices.SortFunc(records, func(a, b *Record) int { return a.n - b.n })
	for _, r := range records {
		if r.Topic != topic || !r.stays(backs) {
			continue
		}
		if r.at != nil {
			if other := at[*r.at]; other != nil {
				m.violate("L3", []string{topic}, "%s and %s were both acknowledged at %v of %s, after the last copy was put back", r.Value, other.Value, *r.at, topic)
			}
			at[*r.at] = r
		}
		for _, who := range names {
			place := slices.Index(views[who], r.Value)
			switch {
			case place < 0:
				m.violate("L1", []string{topic, who}, "%s was acknowledged to %s %s at %v, and %s does not show it; %s", r.Value, r.session, r.where(), r.ended, who, told(backs))
			case r.at != nil && r.at.Offset != int64(place):
				m.violate("L3", []string{topic, who}, "%s was acknowledged %s of %s, and %s shows it at %d", r.Value, r.where(), topic, who, place)
			}
		}
	}
	for _, who := range names {
		seen := map[string]bool{}
		for offset, value := range views[who] {
			if r := m.records[value]; r == nil || r.Topic != topic || r.outcome == Refused {
				m.violate("L2", []string{topic, who}, "%s shows %s at %d of %s: it was not published there", who, value, offset, topic)
			}
			if seen[value] {
				m.violate("L3", []string{topic, who}, "%s shows %s twice in %s", who, value, topic)
			}
			seen[value] = true
		}
		if first := names[0]; !slices.Equal(views[who], views[first]) {
			m.violate("D3", []string{topic, who}, "%s shows %d records of %s, and %s shows %d, or others: %s", who, len(views[who]), topic, first, len(views[first]), apart(views[who], views[first]))
		}
	}
}

// stays says that a record was acknowledged, and that no put-back took it away.
func (r *Record) stays(backs []PutBack) bool {
	return r.outcome == Done && !slices.ContainsFunc(backs, func(b PutBack) bool { return r.ended >= b.Copied && r.invoked <= b.Back })
}

func told(backs []PutBack) (text string) {
	for _, b := range backs {
		text += fmt.Sprintf("a copy of %v was put back at %v; ", b.Copied, b.Back)
	}
	return text
}

// apart says where two lists begin to differ.
func apart(a, b []string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("at %d they show %s and %s", i, a[i], b[i])
		}
	}
	return "one has more"
}
