package adapter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-log/weir/bench/lines"
)

func createQueue(name string) lines.Request {
	return lines.Request{"op": "create", "kind": lines.Queue, "to": name}
}

func enqueue(to string, values ...string) lines.Request {
	var all [][]byte
	for _, v := range values {
		all = append(all, []byte(v))
	}
	return lines.Request{"op": "enqueue", "to": to, "values": all}
}

func work(from string, workers, batch int) lines.Request {
	return lines.Request{"op": "work", "from": from, "workers": workers, "batch": batch}
}

// ofQueues are about work queues.
var ofQueues = []Check{
	{"queue-delivers", "every message is handed to a worker, by calls of one and of many", lines.Queue, func(ctx context.Context, s *session) error {
		came, _, sent, err := s.worked(ctx)
		return errors.Join(err, lacks(came, sent))
	}},
	{"queue-once", "no message is handed out twice", lines.Queue, func(ctx context.Context, s *session) error {
		came, _, _, err := s.worked(ctx)
		return errors.Join(err, twice(came))
	}},
	{"queue-acks", "each message that was got is told as acked, once, afterwards", lines.Queue, func(ctx context.Context, s *session) error {
		came, l, _, err := s.worked(ctx)
		if err != nil {
			return err
		}
		acked, err := l.wait(ctx, len(came), true)
		if err := errors.Join(err, same(acked, came)); err != nil {
			return fmt.Errorf("acked: %w", err)
		}
		open := map[string]bool{}
		for _, d := range l.all {
			if d.acked && !open[d.value] {
				return fmt.Errorf("%s was acked before it was got", short(d.value))
			}
			open[d.value] = true
		}
		return nil
	}},
	{"queue-workers", "no more than workers × batch messages are got and not acked", lines.Queue, func(ctx context.Context, s *session) error {
		name := s.prefix + "workers"
		if _, err := s.ask(ctx, createQueue(name)); err != nil {
			return err
		}
		if _, err := s.ask(ctx, enqueue(name, numbered("message", 200)...)); err != nil {
			return err
		}
		l := s.listen(ctx, work(name, workers, batch))
		_, err := l.got(ctx, 200)
		err = errors.Join(err, l.stop())
		open := 0
		for _, d := range l.all {
			if open++; d.acked {
				open -= 2
			}
			if most := workers * batch; open > most {
				return fmt.Errorf("there were %d, and %d workers take %d at once", open, workers, batch)
			}
		}
		return err
	}},
	{"queue-left", "left counts what is not acknowledged, and is 0 when all is", lines.Queue, func(ctx context.Context, s *session) error {
		name := s.prefix + "left"
		if _, err := s.ask(ctx, createQueue(name)); err != nil {
			return err
		}
		if _, err := s.ask(ctx, enqueue(name, numbered("message", 7)...)); err != nil {
			return err
		}
		if err := s.left(ctx, name, 7); err != nil {
			return err
		}
		l := s.listen(ctx, work(name, 1, 1))
		if _, err := l.wait(ctx, 7, true); err != nil {
			return err
		}
		return errors.Join(l.stop(), s.left(ctx, name, 0))
	}},
	{"queue-queues", "a queue has its own messages, and no other's", lines.Queue, func(ctx context.Context, s *session) error {
		one, two := s.prefix+"one", s.prefix+"two"
		for _, name := range []string{one, two} {
			if _, err := s.ask(ctx, createQueue(name)); err != nil {
				return err
			}
			if _, err := s.ask(ctx, enqueue(name, numbered(name, 20)...)); err != nil {
				return err
			}
		}
		l := s.listen(ctx, work(two, 2, 1))
		came, err := l.got(ctx, 20)
		return errors.Join(err, same(came, numbered(two, 20)), l.stop(), s.left(ctx, one, 20))
	}},
	{"queue-bytes", "values come back as they were, every byte, up to 32 KiB", lines.Queue, func(ctx context.Context, s *session) error {
		name := s.prefix + "bytes"
		if _, err := s.ask(ctx, createQueue(name)); err != nil {
			return err
		}
		sent := anyBytes()
		for _, v := range sent {
			if _, err := s.ask(ctx, enqueue(name, v)); err != nil {
				return err
			}
		}
		l := s.listen(ctx, work(name, 1, 1))
		came, err := l.got(ctx, len(sent))
		return errors.Join(same(came, sent), err, l.stop())
	}},
	{"queue-stop", "after stop was answered no message is handed out, and the next workers get what is left", lines.Queue, func(ctx context.Context, s *session) error {
		name := s.prefix + "stop"
		if _, err := s.ask(ctx, createQueue(name)); err != nil {
			return err
		}
		l := s.listen(ctx, work(name, 2, 1))
		if _, err := s.ask(ctx, enqueue(name, "before")); err != nil {
			return err
		}
		if _, err := l.wait(ctx, 1, true); err != nil {
			return err
		}
		if err := l.stop(); err != nil {
			return err
		}
		if _, err := s.ask(ctx, enqueue(name, "after")); err != nil {
			return err
		}
		time.Sleep(silence)
		if len(s.pipe.Strays()) > 0 {
			return errors.New("a message was handed out to workers that were stopped")
		}
		next := s.listen(ctx, work(name, 2, 1))
		came, err := next.got(ctx, 1)
		return errors.Join(err, same(came, []string{"after"}), next.stop())
	}},
	{"queue-kept", "in mode durable, after kill -9 of the adapter, every message is there, and no acknowledged one", lines.Queue, func(ctx context.Context, s *session) error {
		name := s.prefix + "kept"
		if _, err := s.ask(ctx, createQueue(name)); err != nil {
			return err
		}
		for _, v := range numbered("first", 20) {
			if _, err := s.ask(ctx, enqueue(name, v)); err != nil {
				return err
			}
		}
		if err := s.again(ctx); err != nil {
			return err
		}
		l := s.listen(ctx, work(name, 2, 1))
		acked, err := l.wait(ctx, 20, true)
		if err := errors.Join(err, same(acked, numbered("first", 20)), l.stop()); err != nil {
			return err
		}
		if _, err := s.ask(ctx, enqueue(name, numbered("second", 5)...)); err != nil {
			return err
		}
		if err := s.again(ctx); err != nil {
			return err
		}
		l = s.listen(ctx, work(name, 2, 1))
		came, err := l.got(ctx, 5)
		return errors.Join(err, same(came, numbered("second", 5)), l.stop())
	}},
}

const workers, batch = 4, 5

// worked enqueues 200 messages, while workers take them, and returns what they got.
func (s *session) worked(ctx context.Context) (came []string, l *listening, sent []string, err error) {
	name := s.prefix + "worked"
	if _, err := s.ask(ctx, createQueue(name)); err != nil {
		return nil, nil, nil, err
	}
	l = s.listen(ctx, work(name, workers, batch))
	sent = numbered("message", 200)
	for at := 0; at < len(sent); {
		n := 1 + at%9
		n = min(n, len(sent)-at)
		if _, err := s.ask(ctx, enqueue(name, sent[at:at+n]...)); err != nil {
			return nil, l, nil, err
		}
		at += n
	}
	came, err = l.got(ctx, len(sent))
	return came, l, sent, errors.Join(err, l.stop())
}

func (s *session) left(ctx context.Context, queue string, want int64) error {
	a, err := s.ask(ctx, lines.Request{"op": "left", "from": queue})
	switch {
	case err != nil:
		return err
	case a.Left == nil:
		return errors.New("the answer to left has no left")
	case *a.Left != want:
		return fmt.Errorf("left says %d, and %d are not acknowledged", *a.Left, want)
	}
	return nil
}
