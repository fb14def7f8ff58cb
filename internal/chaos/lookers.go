package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/internal/judge"
)

// look looks at groups and topics, at random, through one door of each process: whoever looks
// changes nothing. It also asks for what must be refused. Groups that people may reset are reset
// and deleted now and then.
func (w *world) look(ctx context.Context, nth int) {
	random := w.random(fmt.Sprintf("looker %d", nth))
	for ctx.Err() == nil {
		pause(ctx, time.Duration(random.IntN(300))*time.Millisecond)
		g := groups[random.IntN(len(groups))]
		topic := g.topics[random.IntN(len(g.topics))]
		switch b, e := w.brokers[nth%2], w.embedded[nth%2]; random.IntN(12) {
		case 0:
			w.describe(ctx, b, g.name)
		case 1:
			w.commitAsNobody(ctx, b, g.name, topic)
		case 2:
			w.askKafka(ctx, b, func(ctx context.Context, c *kadm.Client) { _, _ = c.ListGroups(ctx) })
		case 3:
			w.listEnds(ctx, b, topic)
		case 4:
			w.fetchCommitted(ctx, b, g)
		case 5:
			_, _, _ = b.call(ctx, "GET", "/v1/groups/"+g.name, nil, nil)
			_, _, _ = b.call(ctx, "GET", "/v1/groups/"+g.name+"/offsets", nil, nil)
		case 6:
			_, _, _ = b.call(ctx, "GET", "/v1/topics/"+topic, nil, nil)
			_, _, _ = b.call(ctx, "GET", "/metrics", nil, nil)
		case 7:
			e.ask(ctx, order{Do: "group", Group: g.name})
		case 8:
			e.ask(ctx, order{Do: "topics"})
			e.ask(ctx, order{Do: "groups"})
		case 9:
			if g.reset {
				w.history.Add(fmt.Sprintf("somebody at %s resets %s in %s", e.name, g.name, topic), g.name)
				w.model.SetsBack(g.name)
				began := w.now()
				said := e.ask(ctx, order{Do: "reset", Group: g.name, Topic: topic})
				w.counts.add("resets " + said.Outcome.String())
				if said.Outcome == judge.Unknown && ctx.Err() == nil && w.calm.between(began, w.now(), w.allNames()...) {
					w.model.Broken("G8", []string{g.name, e.name}, "%s does not know what became of a reset of %s, with nothing done to anybody: %s", e.name, g.name, said.Err)
				}
			}
		case 10:
			if g.reset {
				w.history.Add(fmt.Sprintf("somebody at %s deletes %s", b.name, g.name), g.name)
				w.model.SetsBack(g.name)
				_, _, _ = b.call(ctx, "DELETE", "/v1/groups/"+g.name, nil, nil)
			}
		case 11:
			if w.postgres() {
				ctx, cancel := context.WithTimeout(ctx, clientPatience)
				_, _ = w.sql.Exec(ctx, `SELECT count(*) FROM weir.groups`)
				cancel()
			}
		}
		w.counts.add("looks")
	}
}

// holdTransactions keeps transactions of a stranger open that have written something: nobody may
// wait for them, and what is published meanwhile must be told in time.
func (w *world) holdTransactions(ctx context.Context) {
	random := w.random("stranger")
	for ctx.Err() == nil {
		held := time.Duration(random.IntN(10_000)) * time.Millisecond
		_ = pgx.BeginFunc(ctx, w.sql, func(tx pgx.Tx) error { // PostgreSQL may be away
			if _, err := tx.Exec(ctx, `INSERT INTO strangers DEFAULT VALUES`); err != nil {
				return err
			}
			pause(ctx, held)
			return nil
		})
		w.counts.add("transactions of strangers")
		pause(ctx, 100*time.Millisecond)
	}
}

func (w *world) allNames() (names []string) {
	for _, p := range w.processes() {
		names = append(names, p.name)
	}
	return names
}

func (w *world) askKafka(ctx context.Context, b *broker, do func(context.Context, *kadm.Client)) {
	admin, err := b.admin()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, clientPatience)
	defer cancel()
	do(ctx, admin)
}

// fetchCommitted asks a broker what a group has committed: where its members tell what they commit,
// it is one of these offsets.
func (w *world) fetchCommitted(ctx context.Context, b *broker, g group) {
	asked := w.now()
	w.askKafka(ctx, b, func(ctx context.Context, c *kadm.Client) {
		offsets, err := c.FetchOffsets(ctx, g.name)
		if err != nil || !g.tells {
			return
		}
		offsets.Each(func(o kadm.OffsetResponse) {
			if o.Err == nil && o.At >= 0 {
				w.model.ReadsCommitted(b.name, g.name, judge.Partition{Topic: o.Topic, N: o.Partition}, asked, o.At)
			}
		})
	})
}

func (w *world) describe(ctx context.Context, b *broker, group string) (state string, members int) {
	w.askKafka(ctx, b, func(ctx context.Context, c *kadm.Client) {
		described, err := c.DescribeGroups(ctx, group)
		if g, is := described[group]; err == nil && is && g.Err == nil {
			state, members = g.State, len(g.Members)
		}
	})
	return state, members
}

// commitAsNobody commits offset 0 of a generation that no group ever has, for a member that is
// none: it must be refused. (A group without members takes commits of generation -1, which would
// set it back.)
func (w *world) commitAsNobody(ctx context.Context, b *broker, group, topic string) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation, req.MemberID = group, 1<<30, "nobody"
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = topic
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := request(ctx, b, req)
	if err != nil {
		return
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 {
				w.model.Broken("G4", []string{group, b.name}, "%s took a commit of %s from a member that the group never had", b.name, group)
			}
		}
	}
}

// deleteLiving asks to delete a group that has members: it must be refused.
func (w *world) deleteLiving(ctx context.Context, b, home *broker, group string, joined judge.Moment) {
	_, o, err := b.call(ctx, "DELETE", "/v1/groups/"+group, nil, nil)
	// Where its home stood still, or could not write, the store may have heard nothing of the group
	// for a session: then it may be deleted.
	if o == judge.Done && w.calm.between(joined, w.now(), home.name) {
		w.model.Broken("G8", []string{group, b.name}, "%s deleted group %s, which has members", b.name, group)
	}
	w.history.Add(fmt.Sprintf("%s was asked to delete %s: %v", b.name, group, err), group)
}

// listEnds asks a broker for the ends of a topic's partitions: they never go back. It asks this
// broker, whoever leads them: while the store is away, each broker tells what it knows.
func (w *world) listEnds(ctx context.Context, b *broker, topic string) {
	l := w.model.Living(topic)
	if l == nil {
		return
	}
	client, err := b.kafkaClient()
	if err != nil {
		return
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	asked := kmsg.NewListOffsetsRequestTopic()
	asked.Topic = topic
	for n := range int32(3) { // partitions that do not exist are refused
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp, p.CurrentLeaderEpoch = n, -1, -1
		asked.Partitions = append(asked.Partitions, p)
	}
	req.Topics = append(req.Topics, asked)
	ctx, cancel := context.WithTimeout(ctx, clientPatience)
	defer cancel()
	process, invoked := b.id(), w.now()
	answer, err := client.SeedBrokers()[0].Request(ctx, req)
	if err != nil || l != w.model.Living(topic) {
		return
	}
	for _, t := range answer.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 {
				w.model.ShowEnd(process, l, p.Partition, invoked, p.Offset)
			}
		}
	}
}

// sessionOfIdle is the shortest session that weir lets a Kafka client have.
const sessionOfIdle = 6 * time.Second

// watchIdle keeps a Kafka group at one broker that never commits, looks at it through the other,
// and sees after a session that it lives: whoever looks must not end it.
func (w *world) watchIdle(ctx context.Context, nth int) {
	home, other := w.brokers[nth%2], w.brokers[1-nth%2]
	for round := 0; ctx.Err() == nil; round++ {
		name := fmt.Sprintf("idle-%d-%d", nth, round)
		client, err := kgo.NewClient(kgo.SeedBrokers(home.kafka), kgo.ConsumerGroup(name), kgo.ConsumeTopics(idle), kgo.DisableAutoCommit(),
			kgo.SessionTimeout(sessionOfIdle), kgo.HeartbeatInterval(time.Second))
		if err != nil {
			panic(err)
		}
		w.idleRound(ctx, client, home, other, name, round)
		client.Close()
	}
}

func (w *world) idleRound(ctx context.Context, client *kgo.Client, home, other *broker, name string, round int) {
	joined := w.now()
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	client.PollFetches(short) // it joins
	cancel()
	if state, _ := w.describe(ctx, home, name); state != "Stable" {
		return
	}
	began := w.now()
	switch round % 3 {
	case 0:
		w.describe(ctx, other, name)
	case 1:
		w.commitAsNobody(ctx, other, name, idle)
	case 2:
		w.deleteLiving(ctx, other, home, name, joined)
	}
	w.history.Add(fmt.Sprintf("%s, which lives at %s, was looked at through %s", name, home.name, other.name), name)
	pause(ctx, sessionOfIdle*3/2)
	if ctx.Err() != nil || !w.calm.between(began, w.now(), home.name, other.name) {
		return
	}
	for _, b := range []*broker{other, home} {
		state, members := w.describe(ctx, b, name)
		if w.calm.between(began, w.now(), home.name, other.name) && ctx.Err() == nil && (state != "Stable" || members != 1) {
			w.model.Broken("G8", []string{name, b.name}, "group %s lives at %s; somebody looked at it through %s, and a session later %s shows it as %q with %d members",
				name, home.name, other.name, b.name, state, members)
		}
	}
	w.counts.add("idle groups watched")
}
