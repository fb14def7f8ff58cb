package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/judge"
)

// Topics by what is done to them.
const (
	steady  = "steady"  // grows
	trimmed = "trimmed" // loses its beginning, as somebody asks for it
	brief   = "brief"   // has next to no retention
	old     = "old"     // gets events with old timestamps, and is made anew before retention may drop them
	idle    = "idle"    // nothing is ever published to it
	ping    = "ping"    // one partition for each pinger
)

// passing are the topics that are deleted and made anew all the time.
var passing = []string{"passing0", "passing1", "passing2"}

const passingPartitions = 2

// forSQL keeps a topic so that SQL can read it.
var forSQL = map[string]string{"compression.type": "uncompressed"}

// makeTopics makes the topics that stay.
func (w *world) makeTopics(ctx context.Context) error {
	for _, t := range []struct {
		name       string
		partitions int
		config     map[string]string
		keeps      time.Duration
	}{
		{steady, 2, forSQL, 0},
		{trimmed, 2, forSQL, 0},
		{brief, 1, map[string]string{"retention.ms": "1500"}, time.Nanosecond},
		{idle, 2, nil, 0},
		{ping, pingers, nil, 0},
	} {
		l := w.model.Begins(t.name, t.keeps)
		if said := w.embedded[0].ask(ctx, order{Do: "create", Topic: t.name, N: t.partitions, Config: t.config}); said.Outcome != judge.Done {
			return fmt.Errorf("make topic %s: %s", t.name, said.Err)
		}
		now, is := w.topicNow(ctx, t.name)
		if !is {
			return fmt.Errorf("topic %s is not there after it was made", t.name)
		}
		w.model.Born(l, now.ID)
	}
	return nil
}

// passTopic deletes a topic and makes it anew, over and over, through doors chosen at random.
func (w *world) passTopic(ctx context.Context, name string) {
	random := w.random("lifecycle " + name)
	for ctx.Err() == nil {
		l := w.createTopic(ctx, random, name, w.anyAdmin(random))
		if l == nil {
			return
		}
		for again := true; again; {
			pause(ctx, time.Duration(1000+random.IntN(6000))*time.Millisecond)
			if again = random.IntN(3) == 0; again {
				w.growTopic(ctx, random, l, passingPartitions+1)
			}
		}
		if ctx.Err() != nil {
			return
		}
		by := w.anyAdmin(random)
		w.deleteTopic(ctx, random, l, by)
		if random.IntN(2) == 0 {
			pause(ctx, time.Duration(random.IntN(2000))*time.Millisecond)
			continue
		}
		// A namesake at once; and somebody else, who has not heard of it yet, deletes the old one
		// by its id once more.
		namesake := w.createTopic(ctx, random, name, by)
		if namesake != nil {
			w.deleteByOldID(ctx, l, namesake, w.brokers[random.IntN(2)])
		}
		if w.deleteLater(ctx, random, namesake, time.Duration(500+random.IntN(6000))*time.Millisecond) {
			return
		}
	}
}

// keepsOf is how long a topic that is made anew keeps events for sure. A partition is checked for
// retention five minutes after it was first seen.
func keepsOf(name string) time.Duration {
	if name == old {
		return 4 * time.Minute
	}
	return 0
}

// renewOld makes the topic of events with old timestamps anew, over and over.
func (w *world) renewOld(ctx context.Context) {
	random := w.random("lifecycle " + old)
	for ctx.Err() == nil {
		l := w.createTopic(ctx, random, old, w.anyAdmin(random))
		if l == nil {
			return
		}
		// Longer than the five seconds between two looks for what is due.
		if w.deleteLater(ctx, random, l, 8*time.Second+time.Duration(random.IntN(60_000))*time.Millisecond) {
			return
		}
	}
}

// deleteLater lets a topic live for some time and deletes it.
func (w *world) deleteLater(ctx context.Context, random *rand.Rand, l *judge.Life, after time.Duration) (over bool) {
	pause(ctx, after)
	if ctx.Err() != nil || l == nil {
		return true
	}
	w.deleteTopic(ctx, random, l, w.anyAdmin(random))
	return false
}

// deleteByOldID asks a broker to delete a topic that is no more, by its id: nothing may happen to
// the one that has its name now.
func (w *world) deleteByOldID(ctx context.Context, gone, namesake *judge.Life, b *broker) {
	w.counts.add("delete by an old id")
	w.history.Add(fmt.Sprintf("%s is asked to delete %s by its id", b.name, gone), gone.Name)
	resp, err := request(ctx, b, deletion(gone.ID))
	if err == nil && len(resp.Topics) == 1 {
		w.history.Add(fmt.Sprintf("%s says: %v", b.name, kerr.ErrorForCode(resp.Topics[0].ErrorCode)), gone.Name)
	}
	if now, is := w.topicNow(ctx, gone.Name); ctx.Err() == nil && (!is || now.ID != namesake.ID) {
		w.model.Broken("L10", []string{gone.Name, b.name}, "%s was asked to delete %s by its id, which is gone, and %s is not there any more", b.name, gone, namesake)
	}
}

// deletion is Kafka's request to delete a topic by its id.
func deletion(id [16]byte) *kmsg.DeleteTopicsRequest {
	req := kmsg.NewPtrDeleteTopicsRequest()
	t := kmsg.NewDeleteTopicsRequestTopic()
	t.TopicID, req.TimeoutMillis = id, int32(clientPatience.Milliseconds())
	req.Topics = append(req.Topics, t)
	return req
}

// request sends one request of Kafka's to a broker.
func request[R kmsg.Response](ctx context.Context, b *broker, req interface {
	kmsg.Request
	RequestWith(context.Context, kmsg.Requestor) (R, error)
}) (resp R, err error) {
	client, err := b.kafkaClient()
	if err != nil {
		return resp, err
	}
	ctx, cancel := context.WithTimeout(ctx, clientPatience)
	defer cancel()
	return req.RequestWith(ctx, client)
}

// topicAdmin is a way to make, delete and grow topics.
type topicAdmin struct {
	name                 string
	create, remove, grow func(ctx context.Context, name string, partitions int) error
}

func (w *world) anyAdmin(random *rand.Rand) topicAdmin {
	first := random.IntN(2)
	b, e := w.brokers[first], w.embedded[random.IntN(2)]
	if w.away.Load() == &b.process {
		b = w.brokers[1-first]
	}
	switch random.IntN(3) {
	case 0:
		return b.kafkaAdmin()
	case 1:
		return b.httpAdmin()
	}
	return e.goAdmin()
}

// adminOf is the way through a process.
func (w *world) adminOf(p *process) topicAdmin {
	if b := w.brokerOf(p); b != nil {
		return b.httpAdmin()
	}
	return w.embeddedOf(p).goAdmin()
}

func (b *broker) kafkaAdmin() topicAdmin {
	do := func(f func(context.Context, *kadm.Client) error) error {
		admin, err := b.admin()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), clientPatience)
		defer cancel()
		return f(ctx, admin)
	}
	return topicAdmin{
		name: "Kafka at " + b.name,
		create: func(_ context.Context, name string, n int) error {
			return do(func(ctx context.Context, c *kadm.Client) error {
				_, err := c.CreateTopic(ctx, int32(n), 1, nil, name)
				return err
			})
		},
		// By its id: a client sends a request again when its broker seems to be gone, and the first
		// one, if it names the topic, may meet the next topic of the name.
		remove: func(_ context.Context, name string, _ int) error {
			return do(func(ctx context.Context, c *kadm.Client) error {
				topics, err := c.ListTopics(ctx, name)
				if err = cmp.Or(err, topics[name].Err); err != nil {
					return err
				}
				resp, err := request(ctx, b, deletion(topics[name].ID))
				if err == nil && len(resp.Topics) == 1 {
					err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
				}
				return err
			})
		},
		grow: func(_ context.Context, name string, n int) error {
			return do(func(ctx context.Context, c *kadm.Client) error {
				_, err := c.UpdatePartitions(ctx, n, name)
				return err
			})
		},
	}
}

func (b *broker) httpAdmin() topicAdmin {
	do := func(method, path string, body any) error {
		_, _, err := b.call(context.Background(), method, path, body, nil)
		return err
	}
	return topicAdmin{
		name: "HTTP at " + b.name,
		create: func(_ context.Context, name string, n int) error {
			return do("POST", "/v1/topics", map[string]any{"name": name, "partitions": n})
		},
		remove: func(_ context.Context, name string, _ int) error { return do("DELETE", "/v1/topics/"+name, nil) },
		grow: func(_ context.Context, name string, n int) error {
			return do("PATCH", "/v1/topics/"+name, map[string]any{"partitions": n})
		},
	}
}

func (e *embedded) goAdmin() topicAdmin {
	do := func(what string) func(context.Context, string, int) error {
		return func(_ context.Context, name string, n int) error {
			if said := e.ask(context.Background(), order{Do: what, Topic: name, N: n}); said.Outcome != judge.Done {
				return fmt.Errorf("%v: %s", said.Outcome, said.Err)
			}
			return nil
		}
	}
	return topicAdmin{name: "Go at " + e.name, create: do("create"), remove: do("delete"), grow: do("grow")}
}

// createTopic makes a topic, however often that must be tried. nil: the run is over.
func (w *world) createTopic(ctx context.Context, random *rand.Rand, name string, by topicAdmin) *judge.Life {
	l := w.model.Begins(name, keepsOf(name))
	for ctx.Err() == nil {
		w.history.Add(fmt.Sprintf("%s makes topic %s", by.name, name), name)
		err := by.create(ctx, name, passingPartitions)
		w.history.Add(fmt.Sprintf("%s made topic %s: %v", by.name, name, err), name)
		if err != nil {
			pause(ctx, time.Second) // a statement of a process that was killed may still run
		}
		if now, is := w.topicNow(ctx, name); is {
			w.counts.add("topic made")
			w.model.Born(l, now.ID)
			return l
		} else if err == nil && ctx.Err() == nil {
			w.model.Broken("L10", []string{name}, "%s made topic %s, and it is not there", by.name, name)
		}
		by = w.anyAdmin(random)
	}
	return nil
}

// deleteTopic deletes a topic, however often that must be tried.
func (w *world) deleteTopic(ctx context.Context, random *rand.Rand, l *judge.Life, by topicAdmin) {
	was, is := w.topicNow(ctx, l.Name)
	if ctx.Err() == nil && (!is || was.ID != l.ID) {
		w.model.Broken("L10", []string{l.Name}, "%s is not there any more, and nobody deleted it", l)
	}
	w.judgeBillsBefore(ctx, l)
	w.model.Dies(l)
	for {
		w.history.Add(fmt.Sprintf("%s deletes %s", by.name, l), l.Name)
		err := by.remove(ctx, l.Name, 0)
		w.history.Add(fmt.Sprintf("%s deleted %s: %v", by.name, l, err), l.Name)
		if err != nil {
			pause(ctx, time.Second)
		}
		now, is := w.topicNow(context.WithoutCancel(ctx), l.Name)
		if !is || now.ID != l.ID {
			w.counts.add("topic deleted")
			w.model.Dead(l)
			return
		}
		if err == nil {
			w.model.Broken("L10", []string{l.Name}, "%s deleted %s, and it is still there", by.name, l)
		}
		if ctx.Err() != nil {
			return // it counts as being deleted
		}
		by = w.anyAdmin(random)
	}
}

func (w *world) growTopic(ctx context.Context, random *rand.Rand, l *judge.Life, partitions int) {
	by := w.anyAdmin(random)
	err := by.grow(ctx, l.Name, partitions)
	w.history.Add(fmt.Sprintf("%s grows %s to %d: %v", by.name, l, partitions, err), l.Name)
	w.counts.add("topic grown")
}

// changeSteady grows the steady topic and trims the trimmed one.
func (w *world) changeSteady(ctx context.Context) {
	random := w.random("changes")
	for n := 2; ctx.Err() == nil; {
		pause(ctx, time.Duration(1000+random.IntN(4000))*time.Millisecond)
		if random.IntN(4) == 0 && n < 6 {
			n++
			w.growTopic(ctx, random, w.model.Living(steady), n)
			continue
		}
		w.trim(ctx, random, w.model.Living(trimmed))
	}
}

// trim drops the beginning of a partition with Kafka's DeleteRecords.
func (w *world) trim(ctx context.Context, random *rand.Rand, l *judge.Life) {
	t, is := w.topicNow(ctx, l.Name)
	if !is {
		return
	}
	n := random.IntN(len(t.Partitions))
	bounds, err := w.audit.Bounds(ctx, t.Partitions[n])
	if err != nil || bounds[0].Err != nil {
		return
	}
	first, next := bounds[0].Bounds.First, bounds[0].Bounds.Next
	before := int64(first + eventlog.Offset(random.Int64N(int64(next-first)/2+1)))
	w.model.Trims(l, int32(n), before)
	b := w.brokers[random.IntN(2)]
	admin, err := b.admin()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, clientPatience)
	defer cancel()
	offsets := kadm.Offsets{}
	offsets.AddOffset(l.Name, int32(n), before, -1)
	_, err = admin.DeleteRecords(ctx, offsets)
	w.history.Add(fmt.Sprintf("%s trimmed: %v", b.name, err), l.Name)
	w.counts.add("trim")
}
