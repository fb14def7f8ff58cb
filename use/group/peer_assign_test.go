package group

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weir-log/weir/eventlog"
)

// crowd is members and topics that change at random, and hand over what they are asked for at
// random.
type crowd struct {
	r       *rand.Rand
	members []peerMember
	topics  []topicSize
	names   int
	wishes  []string // the assignors that members ask for, or "" for none; nil: all are of other kinds
}

func (c *crowd) join(topics ...string) {
	c.names++
	m := peerMember{id: fmt.Sprintf("m%03d", c.names), info: storedPeer{Topics: topics}}
	if c.wishes != nil {
		m.kafka.assignor = c.wishes[c.r.IntN(len(c.wishes))]
		if c.r.IntN(3) == 0 {
			m.kafka.instance = fmt.Sprintf("i%03d", 999-c.names) // in another order than the ids
		}
	}
	c.members = append(c.members, m)
}

func (c *crowd) someTopics() (out []string) {
	for _, t := range c.topics {
		if c.r.IntN(3) > 0 {
			out = append(out, t.name)
		}
	}
	return append(out, "absent")
}

func (c *crowd) release(all bool) {
	for m := range c.members {
		s := &c.members[m]
		s.revoking = slices.DeleteFunc(slices.Clone(s.revoking), func(TopicPartition) bool { return all || c.r.IntN(2) == 0 })
	}
}

func topicOf(name string, id byte, partitions int) topicSize {
	return topicSize{name: name, id: eventlog.TopicID{id}, partitions: partitions}
}

// Whatever happens, nobody gets what another has, members give back only what others should have,
// and once all is handed over, all is shared out, in balance, and stays so.
func TestArrangementsAreSafeBalancedAndStay(t *testing.T) {
	seed := rand.Uint64()
	for round := range uint64(60) {
		t.Run(fmt.Sprint(seed, round), func(t *testing.T) { arrangeAtRandom(t, seed, round) })
		t.Run(fmt.Sprint(seed, round, " with assignors"), func(t *testing.T) { arrangeAtRandom(t, seed, round, rangeAssignor, rangeAssignor, uniformAssignor, "") })
	}
	// Which partition a member was to give up once depended on which ones it had been asked for:
	// two answers took turns for ever.
	t.Run("14969619096253598056 45", func(t *testing.T) { arrangeAtRandom(t, 14969619096253598056, 45) })
}

func arrangeAtRandom(t *testing.T, seed, round uint64, wishes ...string) {
	c := &crowd{r: rand.New(rand.NewPCG(seed, round)), wishes: wishes}
	for i := range 1 + c.r.IntN(5) {
		c.topics = append(c.topics, topicOf(fmt.Sprint("t", i), byte(i+1), 1+c.r.IntN(12)))
	}
	for range 20 {
		switch c.r.IntN(5) {
		case 0, 1:
			c.join(c.someTopics()...)
		case 2:
			if len(c.members) > 0 {
				c.members = slices.Delete(c.members, 0, 1)
			}
		case 3:
			c.topics[c.r.IntN(len(c.topics))].partitions++
		case 4:
			c.topics[c.r.IntN(len(c.topics))].id[1]++ // deleted, and made again
		}
		c.step(t)
		c.release(false)
		c.step(t)
	}
	for range 3 {
		c.release(true)
		c.step(t)
	}
	votes := 0
	for _, m := range c.members {
		votes += map[string]int{rangeAssignor: 1, uniformAssignor: -1}[m.kafka.assignor]
	}
	if votes > 0 {
		c.wantBlocks(t)
	} else {
		c.wantBalance(t)
	}
}

func (c *crowd) step(t *testing.T) {
	t.Helper()
	held := make(map[TopicPartition]string)
	for _, m := range c.members {
		for _, tp := range slices.Concat(m.own, m.revoking) {
			held[tp] = m.id
		}
	}
	next := assignStable(c.members, c.topics)
	if again := assignStable(c.members, c.topics); !reflect.DeepEqual(next, again) {
		t.Fatalf("arranged as %v, and as %v", next, again)
	}
	if more := assignPartitions(next, c.topics); !reflect.DeepEqual(next, more) {
		t.Fatalf("nothing happened, and %v became %v", next, more)
	}
	there := make(map[TopicPartition]bool)
	for _, topic := range c.topics {
		for n := range topic.partitions {
			there[TopicPartition{topic.id, int32(n)}] = true
		}
	}
	now := make(map[TopicPartition]string)
	for i, m := range next {
		if m.id != c.members[i].id {
			t.Fatalf("member %q became %q", c.members[i].id, m.id)
		}
		for _, tp := range slices.Concat(m.own, m.revoking) {
			switch {
			case now[tp] != "":
				t.Fatalf("%s and %s have %v", now[tp], m.id, tp)
			case held[tp] != "" && held[tp] != m.id:
				t.Fatalf("%s has %v, and %s got it", held[tp], tp, m.id)
			case !there[tp]:
				t.Fatalf("%s has %v, which is gone", m.id, tp)
			}
			now[tp] = m.id
		}
	}
	for tp, m := range held {
		if now[tp] == "" && there[tp] {
			t.Fatalf("%v was taken from %s", tp, m)
		}
	}
	c.members = next
}

func (c *crowd) wantBalance(t *testing.T) {
	t.Helper()
	reads := func(m peerMember, topic topicSize) bool { return slices.Contains(m.info.Topics, topic.name) }
	has := make(map[TopicPartition]int)
	reach := make([][]bool, len(c.members)) // a partition can be handed on from one to another
	for i, m := range c.members {
		reach[i] = make([]bool, len(c.members))
		if len(m.revoking) > 0 {
			t.Fatalf("%s is still asked for %v", m.id, m.revoking)
		}
		for _, tp := range m.own {
			has[tp] = i
			topic := c.topics[slices.IndexFunc(c.topics, func(s topicSize) bool { return s.id == tp.Topic })]
			if !reads(m, topic) {
				t.Fatalf("%s has %v, which it does not read", m.id, tp)
			}
			for j, other := range c.members {
				reach[i][j] = reach[i][j] || reads(other, topic)
			}
		}
	}
	for k := range reach {
		for i := range reach {
			for j := range reach {
				reach[i][j] = reach[i][j] || reach[i][k] && reach[k][j]
			}
		}
	}
	for i, a := range c.members {
		for j, b := range c.members {
			if reach[i][j] && len(a.own) > len(b.own)+1 {
				t.Fatalf("%s has %d and %s has %d, and could be given one", a.id, len(a.own), b.id, len(b.own))
			}
		}
	}
	for _, topic := range c.topics {
		wanted := slices.ContainsFunc(c.members, func(m peerMember) bool { return reads(m, topic) })
		for n := range topic.partitions {
			if _, ok := has[TopicPartition{topic.id, int32(n)}]; ok != wanted {
				t.Fatalf("%s/%d is shared out: %v, and somebody reads it: %v", topic.name, n, ok, wanted)
			}
		}
	}
}

// wantBlocks sees that each topic's readers have one block of it each, in the order of their names,
// and the first ones the larger ones. So topics of the same size and readers are assigned alike.
func (c *crowd) wantBlocks(t *testing.T) {
	t.Helper()
	for _, topic := range c.topics {
		var readers []string
		has := make(map[string][]int32)
		for _, m := range c.members {
			name := cmp.Or(m.kafka.instance, m.id)
			if slices.Contains(m.info.Topics, topic.name) {
				readers = append(readers, name)
			}
			for _, tp := range m.own {
				if tp.Topic == topic.id {
					has[name] = append(has[name], tp.Partition)
				}
			}
			if len(m.revoking) > 0 {
				t.Fatalf("%s is still asked for %v", m.id, m.revoking)
			}
		}
		slices.Sort(readers)
		next := int32(0)
		for i, name := range readers {
			var want []int32
			for range (topic.partitions + len(readers) - 1 - i) / len(readers) {
				want, next = append(want, next), next+1
			}
			if !slices.Equal(has[name], want) {
				t.Fatalf("%s has %v of %s, which has %d partitions and the readers %v; want %v", name, has[name], topic.name, topic.partitions, readers, want)
			}
			delete(has, name)
		}
		if len(has) > 0 {
			t.Fatalf("of %s, which they do not read, %v have partitions", topic.name, has)
		}
	}
}

// By range a member has the same partitions of two topics that can be joined, and a static member
// that comes back under another id has its old ones: nobody gives up anything for that.
func TestRangeKeepsTopicsTogetherAndStaticMembersWhereTheyWere(t *testing.T) {
	c := &crowd{topics: []topicSize{topicOf("orders", 1, 8), topicOf("payments", 2, 8)}, r: rand.New(rand.NewPCG(1, 2)), wishes: []string{rangeAssignor}}
	for range 3 {
		c.join("orders", "payments")
		c.members[len(c.members)-1].kafka.instance = fmt.Sprint("i", len(c.members))
		c.step(t)
		c.release(true)
		c.step(t)
		c.wantBlocks(t)
		for _, m := range c.members {
			half := len(m.own) / 2
			for i, tp := range m.own[:half] {
				if other := m.own[half+i]; tp.Topic == other.Topic || tp.Partition != other.Partition {
					t.Errorf("of %d members %s has %v", len(c.members), m.id, m.own)
				}
			}
		}
	}
	had := slices.Clone(c.members[0].own)
	c.members[0].id = "z"
	slices.SortFunc(c.members, byMemberID)
	c.step(t)
	c.wantBlocks(t)
	if back := c.members[len(c.members)-1]; !slices.Equal(back.own, had) {
		t.Errorf("it had %v, and has %v when it is back", had, back.own)
	}
}

// Members keep what they have: a newcomer takes no more than its share, and what one leaves goes to
// the others without a shuffle.
func TestArrangementsAreSticky(t *testing.T) {
	c := &crowd{topics: []topicSize{topicOf("a", 1, 7), topicOf("b", 2, 6)}, r: rand.New(rand.NewPCG(1, 2))}
	for _, c0 := range []struct{ members, moved int }{{1, 0}, {2, 6}, {3, 4}, {4, 3}, {5, 2}} {
		c.join("a", "b")
		c.step(t)
		moved := 0
		for _, m := range c.members {
			moved += len(m.revoking)
		}
		if moved != c0.moved {
			t.Errorf("member %d comes: %d partitions move, want %d", c0.members, moved, c0.moved)
		}
		c.release(true)
		c.step(t)
		c.wantBalance(t)
	}
	c.members = slices.Delete(c.members, 1, 3)
	c.step(t)
	for _, m := range c.members {
		if len(m.revoking) > 0 {
			t.Errorf("two left, and %s must give up %v", m.id, m.revoking)
		}
	}
	c.wantBalance(t)
}

// The largest group that there may be is arranged in no time to speak of.
func TestTheLargestGroupIsArranged(t *testing.T) {
	c := &crowd{r: rand.New(rand.NewPCG(1, 2))}
	for i := range 20 {
		c.topics = append(c.topics, topicOf(fmt.Sprint("t", i), byte(i+1), 500))
	}
	for range peersMax {
		c.join(c.someTopics()...)
	}
	c.members = assignPartitions(c.members, c.topics)
	for _, m := range c.members {
		if n := len(m.own); len(m.info.Topics) > 1 && n != 5 {
			t.Fatalf("%s has %d of 10,000 partitions, and there are %d members", m.id, n, len(c.members))
		}
	}
}

// Half of the largest group that there may be has everything. Each round takes so many steps and no
// more, and the rounds come to an end.
func TestTheLargestGroupIsBalancedInBoundedRounds(t *testing.T) {
	c := &crowd{r: rand.New(rand.NewPCG(1, 2))}
	var names []string
	for i := range peerTopicsMax {
		topic := topicOf(fmt.Sprint("t", i), byte(i), 12)
		topic.id[1] = byte(i >> 8)
		c.topics, names = append(c.topics, topic), append(names, topic.name)
	}
	for range peersMax / 2 {
		c.join(names...)
	}
	c.members = assignPartitions(c.members, c.topics)
	for range peersMax / 2 {
		c.join(names...)
	}
	for round := 1; ; round++ {
		b := newBalance(c.members, c.topics)
		b.giveOut()
		for b.improve() {
		}
		if most := searchMax + 5_000_000; b.steps > most {
			t.Fatalf("round %d took %d steps, more than %d", round, b.steps, most)
		}
		c.members = b.result()
		if !slices.ContainsFunc(c.members, func(s peerMember) bool { return len(s.revoking) > 0 }) {
			break
		}
		c.release(true)
	}
	for _, m := range c.members {
		if len(m.own) != 6 {
			t.Fatalf("%s has %d of 12,000 partitions, and there are %d members", m.id, len(m.own), len(c.members))
		}
	}
}

// A member that gets its partitions one after the other has a share in the state for few of the
// generations that gave them.
func TestTheStateNamesFewGenerations(t *testing.T) {
	topic := eventlog.TopicID{1}
	m := []peerMember{{id: "m", kafka: kafkaMember{host: "h"}, names: map[eventlog.TopicID]string{topic: "orders"}}}
	for n := range int32(20) {
		m[0].own = append(m[0].own, TopicPartition{topic, n})
		grantedBy(n+1, m)
	}
	shares := m[0].shares()
	if len(shares) != sincesMax+1 || len(shares[0].Own) != 20-sincesMax || shares[0].Since != 0 || shares[sincesMax].Since != 20 {
		t.Errorf("the state has %+v", shares)
	}
}

// A state that is too large with the generations that gave partitions is written without them.
func TestAStateThatIsTooLargeNamesNoGenerations(t *testing.T) {
	r := membership{generation: 9}
	for n := range 400 {
		m := peerMember{id: fmt.Sprint("m", n), kafka: kafkaMember{host: "h"}, names: map[eventlog.TopicID]string{}, since: map[TopicPartition]int32{}}
		for k := range byte(16) {
			topic := eventlog.TopicID{k}
			m.names[topic] = strings.Repeat("t", 249)
			for given := range int32(5) {
				tp := TopicPartition{topic, int32(n)*5 + given}
				m.own, m.since[tp] = append(m.own, tp), given+1
			}
		}
		r.members = append(r.members, m)
	}
	value, err := r.encode("g")
	if err != nil || len(value) > stateMax || strings.Contains(string(value), `"since"`) {
		t.Errorf("%d bytes, %v", len(value), err)
	}
	r.members = r.members[:10]
	if value, err = r.encode("g"); err != nil || !strings.Contains(string(value), `"since"`) {
		t.Errorf("a small state has no generations: %v", err)
	}
}
