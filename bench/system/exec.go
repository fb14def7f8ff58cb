package system

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir/bench/lines"
)

// ExecPrefix begins the name of a system that is anybody's adapter: the rest is a command for sh.
const ExecPrefix = "exec:"

// execSystem is a system behind an adapter that somebody wrote.
func execSystem(name string) System {
	command := strings.TrimPrefix(name, ExecPrefix)
	settings := Settings{"adapter": command}
	return System{
		Name: name, About: "an adapter: " + command, Modes: map[Mode]Settings{Durable: settings, Shipped: settings},
		Start: func(ctx context.Context, place Place, mode Mode) (Server, error) {
			pipe, err := lines.Start(exec.Command("sh", "-c", command))
			if err != nil {
				return nil, err
			}
			hello, err := Greet(ctx, pipe, place.Dir, mode)
			if err != nil {
				return nil, errors.Join(err, pipe.Close())
			}
			return &execServer{pipe: pipe, hello: hello, settings: settings, prefix: strings.ToLower(rand.Text()[:8]) + "-"}, nil
		},
	}
}

// From returns the name of a system for a process in another directory: the command of an adapter
// begins in this one.
func From(dir, name string) string {
	if command, is := strings.CutPrefix(name, ExecPrefix); is {
		return ExecPrefix + "cd '" + strings.ReplaceAll(dir, "'", `'\''`) + "' && " + command
	}
	return name
}

// greetWait bounds how long an adapter may take until it answers hello: it may start a server.
const greetWait = 2 * time.Minute

// Greet says hello to an adapter, and returns what it says of itself.
func Greet(ctx context.Context, pipe *lines.Pipe, dir string, mode Mode) (h lines.Hello, err error) {
	ctx, cancel := context.WithTimeout(ctx, greetWait)
	defer cancel()
	a, err := pipe.Ask(ctx, lines.Request{"op": "hello", "v": 1, "dir": dir, "mode": string(mode)})
	switch {
	case err != nil:
		return h, fmt.Errorf("hello was not answered: %w", err)
	case a.OK == 0:
		return h, fmt.Errorf("hello was refused: %s", a.Failure())
	case a.Name == "":
		return h, errors.New("hello has no name: say which system this is, and its version")
	case len(a.Can) == 0:
		return h, fmt.Errorf("hello has no can: say what it can do, some of %s", strings.Join(lines.Kinds, ", "))
	}
	for _, kind := range a.Can {
		if !slices.Contains(lines.Kinds, kind) {
			return h, fmt.Errorf("hello says that it can %q; there is %s", kind, strings.Join(lines.Kinds, ", "))
		}
	}
	if slices.Contains(a.Can, lines.Log) && a.Order != lines.OrderKey && a.Order != "none" {
		return h, fmt.Errorf("hello says order %q; of a log it must be key (events of a key stay in order) or none", a.Order)
	}
	if slices.Contains(a.Can, lines.Follow) && !slices.Contains(a.Can, lines.Streams) {
		return h, errors.New("hello says that it can follow, and not streams; what is followed are streams")
	}
	return a.Hello, nil
}

// execServer is an adapter that runs. Names of topics, groups, queues and streams begin with what
// no other run has: what earlier runs left in the system is in nobody's way.
type execServer struct {
	pipe     *lines.Pipe
	hello    lines.Hello
	settings Settings
	prefix   string
}

func (s *execServer) Close() error { return s.pipe.Close() }

func (s *execServer) Described() (settings Settings, ordered bool) {
	settings = Settings{"system": s.hello.Name}
	for _, of := range []map[string]string{s.settings, s.hello.Settings} {
		for k, v := range of {
			settings[k] = v
		}
	}
	if s.Elsewhere() {
		settings["server"] = "elsewhere: what it uses is not measured, and that it flushes is what its adapter says"
	}
	return settings, s.hello.Order == lines.OrderKey
}

func (s *execServer) Elsewhere() bool { return s.hello.Elsewhere == 1 }

func (s *execServer) Way(ctx context.Context, value []byte) time.Duration {
	return way(ctx, s.pipe, value)
}

func (s *execServer) Target() any {
	var all Several
	for _, kind := range s.hello.Can {
		switch kind {
		case lines.Log:
			all = append(all, &execLog{s})
		case lines.Queue:
			all = append(all, &execQueue{pipeQueue{pipe: s.pipe}, s.prefix})
		case lines.Streams:
			streams := execStreams{pipeStreams{s.pipe}, s.prefix}
			if slices.Contains(s.hello.Can, lines.Follow) {
				all = append(all, &execFollowed{streams})
			} else {
				all = append(all, &streams)
			}
		}
	}
	return all
}

type execLog struct{ *execServer }

func (l *execLog) Create(ctx context.Context, topic string, partitions int) error {
	_, err := ask(ctx, l.pipe, lines.Request{"op": "create", "kind": lines.Log, "to": l.prefix + topic, "partitions": partitions})
	return err
}

// published is an event as adapters get it.
type published struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

func (l *execLog) Publish(ctx context.Context, topic string, events []Event) error {
	all := make([]published, len(events))
	for i, e := range events {
		all[i] = published{string(e.Key), e.Value}
	}
	_, err := ask(ctx, l.pipe, lines.Request{"op": "publish", "to": l.prefix + topic, "events": all})
	return err
}

func (l *execLog) Consume(ctx context.Context, topic, group string, members int, deliver func([]byte)) error {
	return l.pipe.Listen(ctx, lines.Request{"op": "consume", "from": l.prefix + topic, "group": l.prefix + group, "members": members}, func(a lines.Answer) { deliver(a.Got) })
}

type execQueue struct {
	pipeQueue
	prefix string
}

func (q *execQueue) CreateQueue(ctx context.Context, queue string) error {
	return q.pipeQueue.CreateQueue(ctx, q.prefix+queue)
}

func (q *execQueue) Enqueue(ctx context.Context, queue string, values [][]byte) error {
	return q.pipeQueue.Enqueue(ctx, q.prefix+queue, values)
}

func (q *execQueue) Work(ctx context.Context, queue string, workers, batch int, got, acked func([]byte)) error {
	return q.pipeQueue.Work(ctx, q.prefix+queue, workers, batch, got, acked)
}

func (q *execQueue) Left(ctx context.Context, queue string) (int64, error) {
	a, err := ask(ctx, q.pipe, lines.Request{"op": "left", "from": q.prefix + queue})
	if err == nil && a.Left == nil {
		err = errors.New("the answer to left has no left: say how many messages are not acknowledged")
	}
	if err != nil {
		return 0, err
	}
	return *a.Left, nil
}

type execStreams struct {
	pipeStreams
	prefix string
}

func (s *execStreams) Append(ctx context.Context, stream string, expected int64, values [][]byte) (int64, error) {
	return s.pipeStreams.Append(ctx, s.prefix+stream, expected, values)
}

func (s *execStreams) ReadStream(ctx context.Context, stream string, from int64, most int) ([]int64, [][]byte, error) {
	return s.pipeStreams.ReadStream(ctx, s.prefix+stream, from, most)
}

type execFollowed struct{ execStreams }

func (s *execFollowed) Follow(ctx context.Context, deliver func(Followed)) error {
	var wrong error
	err := s.pipe.Listen(ctx, lines.Request{"op": "follow"}, func(a lines.Answer) {
		stream, own := strings.CutPrefix(a.Stream, s.prefix)
		if !own {
			return
		}
		value, err := fromJSON(a.Got)
		if err != nil && wrong == nil {
			wrong = fmt.Errorf("version %d of %s: %w", a.Version, stream, err)
		}
		deliver(Followed{Stream: stream, Version: a.Version, Value: value, Saved: time.Now()})
	})
	return errors.Join(err, wrong)
}
