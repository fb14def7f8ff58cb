package group

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/weir-log/weir/eventlog"
)

// topicSize is what the assignment needs to know of a topic.
type topicSize struct {
	name       string
	id         eventlog.TopicID
	partitions int
}

// assignPartitions assigns partitions to members. The same arguments always give the same result.
//
// If the members wish for range (wishRange), deal decides who should have which partition.
// Otherwise the assignment is balanced: no chain of handovers could move a partition from a member
// to one that has at least two fewer. And it is sticky: members keep what they have unless that
// makes it less balanced. After more than searchMax steps no search begins; the next call
// continues, after the handovers so far.
//
// In both cases the assignment is cooperative: a member keeps a partition that another member
// should have, marked as revoking, until it releases the partition; only free partitions are given
// out. Partitions of deleted topics are dropped.
//
// If every partition has a holder, the result depends only on who holds what, and keeps every
// holder. So a second call changes nothing.
func assignPartitions(members []peerMember, topics []topicSize) []peerMember {
	return assign(members, topics).result()
}

func assign(members []peerMember, topics []topicSize) *balance {
	b := newBalance(members, topics)
	if wishRange(members) {
		b.deal()
		return b
	}
	b.giveOut()
	for b.improve() {
	}
	return b
}

// balance is the working state of assignPartitions. Members and topics are identified by their
// index.
type balance struct {
	members  []peerMember
	topics   []topicSize
	index    map[eventlog.TopicID]int
	readers  [][]int                // by topic: the members that read it
	holder   map[TopicPartition]int // who has it now
	owner    map[TopicPartition]int // who should have it
	has      []map[int][]int32      // by member, by topic: the partitions that it should have; it loses the last ones first
	topicsOf [][]int                // by member: the topics of which it has, or had, partitions, in order
	count    []int                  // by member

	rich  []int  // members, those with the most partitions first
	seen  []bool // by member: it is being visited, or a search from it has found nothing to gain
	asked []bool // by topic: its readers are seen
	steps int    // taken by all searches so far
}

// searchMax bounds the steps of all searches of one call of assignPartitions, since the caller
// holds the peer's lock meanwhile. A step takes a few nanoseconds. A move takes at least one step
// per member, and at most five million steps: with 2,000 members that read 1,000 topics each.
const searchMax = 50_000_000

func newBalance(members []peerMember, topics []topicSize) *balance {
	b := &balance{
		members: members, topics: topics, index: make(map[eventlog.TopicID]int),
		readers: make([][]int, len(topics)),
		holder:  make(map[TopicPartition]int), owner: make(map[TopicPartition]int),
		has: make([]map[int][]int32, len(members)), topicsOf: make([][]int, len(members)), count: make([]int, len(members)),
		rich: make([]int, len(members)), seen: make([]bool, len(members)), asked: make([]bool, len(topics)),
	}
	byName := make(map[string]int)
	for t, topic := range topics {
		b.index[topic.id], byName[topic.name] = t, t
	}
	for m, member := range members {
		b.has[m] = make(map[int][]int32)
		b.rich[m] = m
		for _, name := range member.info.Topics {
			if t, ok := byName[name]; ok {
				b.readers[t] = append(b.readers[t], m)
			}
		}
		// own and revoking are sorted together, so that the result depends on who has which
		// partitions, and not on the assignment before.
		for _, tp := range slices.SortedFunc(slices.Values(slices.Concat(member.own, member.revoking)), byPlace) {
			t, there := b.index[tp.Topic]
			if _, taken := b.holder[tp]; there && !taken {
				b.holder[tp] = m
				if n := len(b.readers[t]); n > 0 && b.readers[t][n-1] == m { // a member that is not among the readers no longer reads the topic
					b.give(tp, t, m)
				}
			}
		}
	}
	return b
}

func (b *balance) give(tp TopicPartition, topic, member int) {
	b.owner[tp] = member
	if b.has[member][topic] == nil {
		at, _ := slices.BinarySearch(b.topicsOf[member], topic)
		b.topicsOf[member] = slices.Insert(b.topicsOf[member], at, topic)
	}
	b.has[member][topic] = append(b.has[member][topic], tp.Partition)
	b.count[member]++
}

// giveOut gives each free partition to the reader with the fewest partitions; topics with the
// fewest readers first.
func (b *balance) giveOut() {
	order := make([]int, len(b.topics))
	for t := range order {
		order[t] = t
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(len(b.readers[x]), len(b.readers[y])) })
	for _, t := range order {
		if len(b.readers[t]) == 0 {
			continue
		}
		poor := &poorest{b, slices.Clone(b.readers[t])}
		heap.Init(poor)
		for n := range b.topics[t].partitions {
			tp := TopicPartition{b.topics[t].id, int32(n)}
			if _, taken := b.owner[tp]; !taken {
				b.give(tp, t, poor.members[0])
				heap.Fix(poor, 0)
			}
		}
	}
}

// poorest is a heap of members, the one with the fewest partitions first.
type poorest struct {
	b       *balance
	members []int
}

func (p *poorest) Len() int { return len(p.members) }
func (p *poorest) Less(i, j int) bool {
	x, y := p.members[i], p.members[j]
	return cmp.Or(cmp.Compare(p.b.count[x], p.b.count[y]), cmp.Compare(x, y)) < 0
}
func (p *poorest) Swap(i, j int) { p.members[i], p.members[j] = p.members[j], p.members[i] }
func (p *poorest) Push(any)      { panic("nobody comes") }
func (p *poorest) Pop() any      { panic("nobody goes") }

// improve moves one partition from a rich member towards a poor one, through other members if need
// be, and reports whether it did.
func (b *balance) improve() bool {
	// All members but two are still in order from the last call.
	slices.SortFunc(b.rich, func(x, y int) int { return cmp.Or(cmp.Compare(b.count[y], b.count[x]), cmp.Compare(x, y)) })
	b.steps += len(b.rich)
	for _, from := range b.rich {
		if b.steps > searchMax {
			return false
		}
		if !b.seen[from] && b.shift(from) {
			return true
		}
	}
	return false
}

// step is how a search reached a member: by a partition of the topic with the index topic, which
// the member of queue[from] has. from is -1 for the member with which the search begins.
type step struct{ member, from, topic int }

// shift searches for the poorest member that a chain of moves from this member can give a
// partition, and makes the moves. Members that were seen without success stay marked: moves among
// the other members change nothing for them.
func (b *balance) shift(from int) bool {
	least := b.count[b.rich[len(b.rich)-1]]
	b.seen[from] = true
	queue, poorest := []step{{member: from, from: -1}}, 0
	var asked []int
search:
	for i := 0; i < len(queue); i++ {
		m := queue[i].member
		for _, t := range b.topicsOf[m] {
			b.steps++
			if b.asked[t] || len(b.has[m][t]) == 0 {
				continue
			}
			b.asked[t] = true
			asked = append(asked, t)
			b.steps += len(b.readers[t])
			for _, reader := range b.readers[t] {
				if b.seen[reader] {
					continue
				}
				b.seen[reader] = true
				queue = append(queue, step{reader, i, t})
				if b.count[reader] < b.count[queue[poorest].member] {
					poorest = len(queue) - 1
				}
				if b.count[reader] == least {
					break search // nobody is poorer
				}
			}
		}
	}
	if b.count[queue[poorest].member] > b.count[from]-2 {
		return false
	}
	for at := queue[poorest]; at.from >= 0; at = queue[at.from] {
		b.move(at.topic, queue[at.from].member, at.member)
	}
	for _, s := range queue {
		b.seen[s.member] = false
	}
	for _, t := range asked {
		b.asked[t] = false
	}
	return true
}

func (b *balance) move(topic, from, to int) {
	list := b.has[from][topic]
	n := list[len(list)-1]
	b.has[from][topic] = list[:len(list)-1]
	b.count[from]--
	b.give(TopicPartition{b.topics[topic].id, n}, topic, to)
}

// result returns the members with their new partitions.
func (b *balance) result() []peerMember {
	out := make([]peerMember, len(b.members))
	for m, member := range b.members {
		out[m] = peerMember{id: member.id, info: member.info, kafka: member.kafka, names: make(map[eventlog.TopicID]string), since: make(map[TopicPartition]int32)}
	}
	name := func(m int, tp TopicPartition) *peerMember {
		out[m].names[tp.Topic] = b.topics[b.index[tp.Topic]].name
		return &out[m]
	}
	for tp, holder := range b.holder {
		s := name(holder, tp)
		if since, had := b.members[holder].since[tp]; had {
			s.since[tp] = since
		}
		if owner, is := b.owner[tp]; is && owner == holder {
			s.own = append(s.own, tp)
		} else {
			s.revoking = append(s.revoking, tp)
		}
	}
	for tp, owner := range b.owner {
		if _, held := b.holder[tp]; !held {
			s := name(owner, tp)
			s.own = append(s.own, tp)
		}
	}
	for m := range out {
		slices.SortFunc(out[m].own, byPlace)
		slices.SortFunc(out[m].revoking, byPlace)
	}
	return out
}

// The assignors that members of Kafka's consumer protocol may wish for, as in Kafka
// (group.consumer.assignors).
const (
	uniformAssignor = "uniform" // assignPartitions as described there
	rangeAssignor   = "range"   // each topic in blocks, so that topics with as many partitions are assigned alike
)

// wishRange reports whether more members wish for range than for uniform. As in Kafka, those that
// name no assignor do not count (ConsumerGroup.preferredServerAssignor).
func wishRange(members []peerMember) bool {
	votes := 0
	for _, m := range members {
		switch m.kafka.assignor {
		case rangeAssignor:
			votes++
		case uniformAssignor:
			votes--
		}
	}
	return votes > 0
}

// deal gives each topic's readers one block of its partitions each, in the order of their ids: the
// first readers get one more if the number of partitions is not a multiple of the number of
// readers. Static members are in the order of their instance ids, so that they keep their blocks
// when they come back.
func (b *balance) deal() {
	clear(b.owner)
	for t, topic := range b.topics {
		readers := slices.SortedFunc(slices.Values(b.readers[t]), func(x, y int) int {
			return cmp.Or(cmp.Compare(b.members[x].order(), b.members[y].order()), cmp.Compare(x, y))
		})
		next := 0
		for i, m := range readers {
			block := topic.partitions / len(readers)
			if i < topic.partitions%len(readers) {
				block++
			}
			for range block {
				b.owner[TopicPartition{topic.id, int32(next)}] = m
				next++
			}
		}
	}
}

func (s peerMember) order() string { return cmp.Or(s.kafka.instance, s.id) }
