package judge

import (
	"fmt"
	"strings"
)

// Held is what a topic holds at the end, by partition: offsets from first on.
type Held struct {
	Life  *Life
	First []int64
	Value [][]string
}

// JudgeHeld compares what a topic has at the end with what was published, acknowledged and read.
func (m *Model) JudgeHeld(h Held) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := h.Life
	at := map[string]Place{}
	for n, values := range h.Value {
		last := map[string]int{} // of each session: the number of its last record
		for i, value := range values {
			p := Place{int32(n), h.First[n] + int64(i)}
			if other, is := at[value]; is {
				m.violate("L3", []string{l.Name}, "%s is in %s twice: at %v and at %v", value, l, other, p)
			}
			at[value] = p
			r, in := m.read("the last reader", Sight{l.Name, p, value})
			if r == nil {
				continue
			}
			if in != nil && in != l {
				m.violate("L10", []string{l.Name}, "%s was published to %s, and is in %s at %v", value, in, l, p)
			}
			if r.inOrder && r.n < last[r.session] {
				m.violate("L4", []string{l.Name}, "%s is at %v, behind a later record of its publisher", value, p)
			}
			last[r.session] = r.n
		}
	}
	for _, r := range m.records {
		if r.Topic != l.Name || r.outcome != Done || m.lifeOf(r) != l {
			continue
		}
		_, is := at[r.Value]
		switch {
		case is || l.lossy():
		case r.at == nil && len(l.trimmed) > 0: // it may have been trimmed
		case r.at != nil && l.MayMiss(r.at.Partition, r.at.Offset+1):
		default:
			m.violate("L1", []string{l.Name}, "%s was acknowledged to %s %s at %v, and is not in %s", r.Value, r.session, r.where(), r.ended, l)
		}
	}
}

// JudgeDelivered is G1: a group has handled everything below what it committed, which is said by
// topic/partition. billed: the model was not told what the group handled, and judges nothing.
func (m *Model) JudgeDelivered(group string, h Held, said map[string]int64, billed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n, values := range h.Value {
		committed := said[fmt.Sprintf("%s/%d", h.Life.Name, n)]
		for i, value := range values {
			offset := h.First[n] + int64(i)
			if offset >= committed {
				break
			}
			if m.delivered[group][value] == 0 && !h.Life.MayMiss(int32(n), offset+1) && !billed {
				m.violate("G1", []string{group, h.Life.Name}, "group %s committed %d of %s/%d, and nobody in it handled offset %d, %s",
					group, committed, h.Life, n, offset, value)
				break
			}
		}
	}
}

// SettleMarkers tells which transactions were committed: those of the values that they wrote.
func (m *Model) SettleMarkers(values []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	committed := map[string]bool{}
	for _, v := range values {
		committed[v] = true
		if r := m.records[v]; r != nil && r.outcome == Unknown {
			r.outcome = Done // r.ended stays the time at which its client gave up
		}
	}
	for _, r := range m.records {
		inTx := strings.HasPrefix(r.session, "sql") || strings.HasPrefix(r.session, "go-tx") || strings.HasPrefix(r.session, "rows")
		if inTx && !committed[r.Value] && r.outcome == Unknown {
			r.outcome = Refused
			m.judgeEnd(r)
		}
		if inTx && r.outcome == Done && !committed[r.Value] {
			m.violate("L1", []string{r.Topic}, "the transaction of %s was committed, and its marker is not there", r.Value)
		}
	}
}

// KnownBelow lists what is known to be in the partitions of a topic below some offsets, and is
// still there for sure.
func (m *Model) KnownBelow(l *Life, offsets map[int32]int64) (list []Sight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n, to := range offsets {
		for o := range to {
			p := Place{n, o}
			if value, is := m.slots[slot{l, p}]; is && !l.MayMiss(n, o+1) {
				list = append(list, Sight{l.Name, p, value})
			}
		}
	}
	return list
}
