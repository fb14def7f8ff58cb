package adapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/bench/lines"
)

// ofAll are about the protocol.
var ofAll = []Check{
	{"hello", "hello is answered with a name, what it can, and the order of a log", "", func(context.Context, *session) error { return nil }},
	{"unknown-op", "an op that it does not know gets an error", "", func(ctx context.Context, s *session) error {
		a, err := s.answer(ctx, lines.Request{"op": "no-such-op"})
		if err == nil && (a.OK != 0 || a.Err == "") {
			err = errors.New("the answer has no err")
		}
		return err
	}},
	{"many-at-once", "fifty requests at once are each answered, once", "", func(ctx context.Context, s *session) error {
		all, ctx := errgroup.WithContext(ctx)
		create, one := s.small()
		if _, err := s.ask(ctx, create); err != nil {
			return err
		}
		for i := range 50 {
			all.Go(func() error { _, err := s.ask(ctx, one(i)); return err })
		}
		err := all.Wait()
		time.Sleep(silence) // for a second answer
		return err
	}},
	{"ends", "it ends when its standard input ends", "", func(_ context.Context, s *session) error { return s.pipe.Close() }},
}

// small is a small request that the adapter can answer, and one that has to be made before.
func (s *session) small() (create lines.Request, one func(int) lines.Request) {
	name := s.prefix + "many"
	switch {
	case slices.Contains(s.hello.Can, lines.Log):
		return createLog(name), func(i int) lines.Request { return publish(name, "key", fmt.Sprint(i)) }
	case slices.Contains(s.hello.Can, lines.Queue):
		return createQueue(name), func(i int) lines.Request { return enqueue(name, fmt.Sprint(i)) }
	}
	return createStreams, func(i int) lines.Request { return appends(fmt.Sprint(name, i), 0, 1) }
}

func createLog(name string) lines.Request {
	return lines.Request{"op": "create", "kind": lines.Log, "to": name, "partitions": 4}
}

type event struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

func publish(to, key string, values ...string) lines.Request {
	var events []event
	for _, v := range values {
		events = append(events, event{key, []byte(v)})
	}
	return lines.Request{"op": "publish", "to": to, "events": events}
}

func consume(from, group string, members int) lines.Request {
	return lines.Request{"op": "consume", "from": from, "group": group, "members": members}
}

// ofLogs are about publish and subscribe.
var ofLogs = []Check{
	{"log-delivers", "every acknowledged event is delivered", lines.Log, func(ctx context.Context, s *session) error {
		came, sent, err := s.keyed(ctx, 1)
		return errors.Join(err, lacks(came, sent))
	}},
	{"log-once", "no event is delivered to a group twice", lines.Log, func(ctx context.Context, s *session) error {
		came, _, err := s.keyed(ctx, 1)
		return errors.Join(err, twice(came))
	}},
	{"log-order", "with order key, events of a key come in the order in which they were published", lines.Log, func(ctx context.Context, s *session) error {
		came, _, err := s.keyed(ctx, 1)
		if s.hello.Order != lines.OrderKey {
			return err // it promises none
		}
		return errors.Join(err, inOrder(came))
	}},
	{"log-members", "the members of a group share the events: each comes once, those of a key in order", lines.Log, func(ctx context.Context, s *session) error {
		came, sent, err := s.keyed(ctx, 4)
		if s.hello.Order == lines.OrderKey {
			err = errors.Join(err, inOrder(came))
		}
		return errors.Join(err, same(came, sent))
	}},
	{"log-groups", "every group gets every event, also one that begins later", lines.Log, func(ctx context.Context, s *session) error {
		name := s.prefix + "groups"
		if _, err := s.ask(ctx, createLog(name)); err != nil {
			return err
		}
		first := s.listen(ctx, consume(name, s.prefix+"first", 1))
		sent := numbered("event", 100)
		if _, err := s.ask(ctx, publish(name, "key", sent...)); err != nil {
			return err
		}
		late := s.listen(ctx, consume(name, s.prefix+"late", 1))
		for _, l := range []*listening{first, late} {
			came, err := l.got(ctx, len(sent))
			if err := errors.Join(err, same(came, sent), l.stop()); err != nil {
				return err
			}
		}
		return nil
	}},
	{"log-topics", "a topic has its own events, and no other's", lines.Log, func(ctx context.Context, s *session) error {
		one, two := s.prefix+"one", s.prefix+"two"
		for _, name := range []string{one, two} {
			if _, err := s.ask(ctx, createLog(name)); err != nil {
				return err
			}
			if _, err := s.ask(ctx, publish(name, "key", numbered(name, 20)...)); err != nil {
				return err
			}
		}
		l := s.listen(ctx, consume(two, s.prefix+"group", 1))
		came, err := l.got(ctx, 20)
		return errors.Join(err, same(came, numbered(two, 20)), l.stop())
	}},
	{"log-bytes", "values come back as they were, every byte, up to 32 KiB", lines.Log, func(ctx context.Context, s *session) error {
		name := s.prefix + "bytes"
		if _, err := s.ask(ctx, createLog(name)); err != nil {
			return err
		}
		sent := anyBytes()
		for _, v := range sent {
			if _, err := s.ask(ctx, publish(name, "key", v)); err != nil {
				return err
			}
		}
		l := s.listen(ctx, consume(name, s.prefix+"group", 1))
		came, err := l.got(ctx, len(sent))
		return errors.Join(same(came, sent), err, l.stop())
	}},
	{"log-stop", "after stop was answered nothing more is delivered", lines.Log, func(ctx context.Context, s *session) error {
		name := s.prefix + "stop"
		if _, err := s.ask(ctx, createLog(name)); err != nil {
			return err
		}
		l := s.listen(ctx, consume(name, s.prefix+"group", 1))
		if _, err := s.ask(ctx, publish(name, "key", "before")); err != nil {
			return err
		}
		if _, err := l.got(ctx, 1); err != nil {
			return err
		}
		if err := l.stop(); err != nil {
			return err
		}
		if _, err := s.ask(ctx, publish(name, "key", "after")); err != nil {
			return err
		}
		other := s.listen(ctx, consume(name, s.prefix+"other", 1)) // when it has the event, the first one would have it
		if _, err := other.got(ctx, 2); err != nil {
			return err
		}
		if strays := s.pipe.Strays(); len(strays) > 0 && string(strays[0].Got) == "after" {
			return errors.New("an event came that was published afterwards")
		}
		return other.stop()
	}},
	{"log-kept", "in mode durable an acknowledged event is there after kill -9 of the adapter", lines.Log, func(ctx context.Context, s *session) error {
		name := s.prefix + "kept"
		if _, err := s.ask(ctx, createLog(name)); err != nil {
			return err
		}
		sent := numbered("event", 50)
		for _, v := range sent {
			if _, err := s.ask(ctx, publish(name, "key", v)); err != nil {
				return err
			}
		}
		if err := s.again(ctx); err != nil {
			return err
		}
		l := s.listen(ctx, consume(name, s.prefix+"group", 1))
		came, err := l.got(ctx, len(sent))
		return errors.Join(err, same(came, sent), l.stop())
	}},
}

// keyed publishes events of ten keys to a group that reads, with 20 calls for each key, the keys
// beside each other. It returns what came and what was sent.
func (s *session) keyed(ctx context.Context, members int) (came, sent []string, err error) {
	name := s.prefix + "keyed"
	if _, err := s.ask(ctx, createLog(name)); err != nil {
		return nil, nil, err
	}
	l := s.listen(ctx, consume(name, s.prefix+"group", members))
	all, publishing := errgroup.WithContext(ctx)
	for k := range 10 {
		key := fmt.Sprintf("key%d", k)
		values := numbered(key, 40)
		sent = append(sent, values...)
		all.Go(func() error {
			for i := 0; i < len(values); i += 2 {
				if _, err := s.ask(publishing, publish(name, key, values[i:i+2]...)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return nil, nil, err
	}
	came, err = l.got(ctx, len(sent))
	return came, sent, errors.Join(err, l.stop())
}

// numbered are the values NAME/0, NAME/1 and so on.
func numbered(name string, n int) (values []string) {
	for i := range n {
		values = append(values, fmt.Sprintf("%s/%d", name, i))
	}
	return values
}

// lacks says what was sent and did not come.
func lacks(came, sent []string) error {
	for _, v := range sent {
		if !slices.Contains(came, v) {
			return fmt.Errorf("%s did not come", short(v))
		}
	}
	return nil
}

// twice says what came again.
func twice(came []string) error {
	seen := map[string]bool{}
	for _, v := range came {
		if seen[v] {
			return fmt.Errorf("%s came again", short(v))
		}
		seen[v] = true
	}
	return nil
}

// anyBytes are values of some lengths that have every byte.
func anyBytes() (values []string) {
	for _, n := range []int{1, 255, 4096, 32 << 10} {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(255 - i*7 - i>>8)
		}
		values = append(values, string(b))
	}
	return values
}
