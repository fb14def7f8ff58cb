package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir/internal/judge"
)

// runKafka is a group with two members at one broker: a Kafka client finds its coordinator by the
// broker that it knows. They run until the world rests, and so read what is left when everything
// else has ended.
func runKafka(home int, speaks func(name string) []kgo.Opt) func(context.Context, *world, group) {
	return func(ctx context.Context, w *world, g group) {
		for i := range 2 {
			name := fmt.Sprintf("%s-%d", g.name, i)
			m, client, err := w.kafkaMember(w.brokers[home], g, name, speaks(name)...)
			if err != nil {
				w.model.Broken("B1", []string{g.name}, "%s: %v", g.name, err)
				return
			}
			w.members.Go(func() { m.run(client, w.handling) })
		}
		<-ctx.Done()
	}
}

// The ways to be a member of a group.

func static(name string) []kgo.Opt {
	return []kgo.Opt{kgo.InstanceID(name), kgo.Balancers(kgo.RangeBalancer())}
}

func eager(string) []kgo.Opt { return []kgo.Opt{kgo.Balancers(kgo.RangeBalancer())} }

func cooperates(string) []kgo.Opt { return []kgo.Opt{kgo.Balancers(kgo.CooperativeStickyBalancer())} }

// serverAssigns is the consumer protocol (KIP-848).
func serverAssigns(string) []kgo.Opt { return []kgo.Opt{kgo.ServerSideBalancer()} }

// runMixed is a group with members of every kind: Go consumers, a member over HTTP, and two Kafka
// clients that leave now and then, and come back with another protocol.
func runMixed(ctx context.Context, w *world, g group) {
	for i := range 2 {
		name := fmt.Sprintf("%s-kafka-%d", g.name, i)
		random := w.random("protocols of " + name)
		w.members.Go(func() {
			for w.handling() {
				speaks := []func(string) []kgo.Opt{eager, cooperates, serverAssigns}[random.IntN(3)]
				m, client, err := w.kafkaMember(w.brokers[0], g, name, speaks(name)...)
				if err != nil {
					w.model.Broken("B1", []string{g.name}, "%s: %v", g.name, err)
					return
				}
				until := time.Now().Add(time.Duration(2+random.IntN(15)) * time.Second)
				m.run(client, func() bool { return w.handling() && (ctx.Err() != nil || time.Now().Before(until)) })
				client.CloseAllowingRebalance()
				w.counts.add("members that change their protocol")
			}
		})
	}
	w.members.Go(func() { w.httpMember(w.brokers[len(w.brokers)-1], g, g.name+"-http") })
	runGo("single")(ctx, w, g)
}

// kafkaMember joins a group at one broker.
func (w *world) kafkaMember(b *broker, g group, name string, opts ...kgo.Opt) (*kafkaMember, *kgo.Client, error) {
	m := &kafkaMember{w: w, group: g, name: name, held: map[judge.Partition]judge.Moment{}, owed: map[judge.Partition]*kgo.Record{}, got: map[judge.Partition]int32{}}
	client, err := w.kafkaClient([]*broker{b}, append([]kgo.Opt{
		kgo.ConsumerGroup(g.name), kgo.ConsumeTopics(g.topics...), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond), kgo.RebalanceTimeout(10 * time.Second),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(500 * time.Millisecond),
		kgo.OnPartitionsAssigned(m.assigned), kgo.OnPartitionsRevoked(m.revoked), kgo.OnPartitionsLost(m.revoked),
	}, opts...)...)
	return m, client, err
}

// kafkaMember handles what it is given, and commits it then. A commit that failed is repeated until
// it is known to have happened, or the partition is another's: a client that waited for the next
// records to make up for it would never commit the last ones.
type kafkaMember struct {
	w     *world
	group group
	name  string

	mu   sync.Mutex                       // guards what follows, and is held while a commit is under way: a partition is not given up meanwhile
	held map[judge.Partition]judge.Moment // since when it has a partition; 0: its first record was seen
	owed map[judge.Partition]*kgo.Record  // the last one that was handled, where that is not known to be committed
	got  map[judge.Partition]int32        // the generation in which it got a partition
}

// assigned is called when the group has given the member its partitions, before it asks where to go
// on in those that are new.
func (m *kafkaMember) assigned(_ context.Context, client *kgo.Client, added map[string][]int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for topic, partitions := range added {
		for _, n := range partitions {
			m.held[judge.Partition{Topic: topic, N: n}] = m.w.now()
		}
	}
	_, generation := client.GroupMetadata()
	for p := range m.held {
		if _, has := m.got[p]; !has {
			m.got[p] = generation
		}
		m.w.model.Owns(m.group.name, m.name, generation, p)
	}
}

func (m *kafkaMember) revoked(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for topic, partitions := range gone {
		for _, n := range partitions {
			delete(m.held, judge.Partition{Topic: topic, N: n})
			delete(m.owed, judge.Partition{Topic: topic, N: n})
			delete(m.got, judge.Partition{Topic: topic, N: n})
		}
	}
}

// run handles what the member gets, as long as goesOn says so.
func (m *kafkaMember) run(client *kgo.Client, goesOn func() bool) {
	w, g := m.w, m.group
	random := w.random("member " + m.name)
	for goesOn() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		fetches := client.PollRecords(ctx, 50)
		cancel()
		if fetches.IsClientClosed() {
			return
		}
		fetches.EachError(func(topic string, partition int32, err error) {
			var lost *kgo.ErrDataLoss
			if errors.As(err, &lost) {
				w.toldOfLoss(m.name, topic, fmt.Sprintf("partition %d: %v", partition, err))
			}
		})
		var got []judge.Sight
		fetches.EachRecord(func(r *kgo.Record) {
			got = append(got, judge.Sight{Topic: r.Topic, Place: judge.Place{Partition: r.Partition, Offset: r.Offset}, Value: string(r.Value)})
		})
		if len(got) > 0 {
			m.began(got)
			pause(context.Background(), dawdled(random))
			w.model.Deliver(g.name, m.name, false, got...)
			w.counts.addN("handled by "+g.name, len(got))
		}
		m.commit(client, fetches.Records())
		client.AllowRebalance()
	}
}

// toldOfLoss judges that somebody who reads a topic was told that what it had read is not there any
// more. Nothing is lost in a topic of which nobody drops anything.
func (w *world) toldOfLoss(who, topic, told string) {
	w.history.Add(fmt.Sprintf("%s is told that records of %s are lost: %s", who, topic, told), topic, who)
	w.counts.add("readers told of a loss")
	if topic == steady {
		w.model.Broken("L6", []string{topic, who}, "%s was told that records of %s are lost that it had read, and none is: %s", who, topic, told)
	}
}

// began judges where the member goes on in partitions that are new to it.
func (m *kafkaMember) began(got []judge.Sight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range got {
		p := judge.Partition{Topic: s.Topic, N: s.Partition}
		if since := m.held[p]; since != 0 && m.group.tells {
			m.held[p] = 0
			m.w.model.Resumes(m.group.name, m.name, p, since, s.Offset)
		}
	}
}

// commit commits what was handled, with what an earlier commit failed to.
func (m *kafkaMember) commit(client *kgo.Client, handled []*kgo.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range handled {
		p := judge.Partition{Topic: r.Topic, N: r.Partition}
		if _, has := m.held[p]; has {
			m.owed[p] = r
		}
	}
	if len(m.owed) == 0 {
		return
	}
	_, generation := client.GroupMetadata()
	var records []*kgo.Record
	var commits []*judge.Commit
	for p, r := range m.owed {
		records = append(records, r)
		if m.group.epochs { // a commit of an earlier epoch counts as long as the member has the partition (KIP-1251)
			generation = m.got[p]
		}
		commits = append(commits, m.w.model.Commits(m.group.name, m.name, generation, p, r.Offset+1))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := client.CommitRecords(ctx, records...)
	m.w.model.Committed(commits, err)
	if err == nil {
		clear(m.owed)
		return
	}
	m.w.counts.add("commits repeated by " + m.group.name)
	pause(context.Background(), 100*time.Millisecond)
}
